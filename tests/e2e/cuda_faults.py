#!/usr/bin/env python3
"""Failures before and during the use of a card, in the emulated cuda backend (tests/cuda_on_cpu).

  absent    no driver, an old driver, no device, an unknown index or name, a card that is too old: one line with
            the versions, exit status 1 or 2; --backend=auto falls back to the cpu, and gives the reason
  taken     another process takes memory between the plan and the arena: exit status 3 or another plan, and the
            culprit's name
  failing   calls of the run-time library and of cuBLASLt fail, in a run that resumes one: each function at its first, a
            middle and its last call with its own error, some with a sticky error, and some never return; for the
            requirements see reliability/faulty_device.py
  nvml      processes on the card, driver version and context are reported if the library exists; parts that fail are
            left out
With CHECK_LONG=1 up to 30 calls of each function find no memory, are refused, lose the device and hang.  The arguments
"absent", "taken", "failing" and "nvml" select cases.
"""
import json
import os
import sys

from checks import LONG, check, error_lines, read_json
from cuda_common import DATA, GPT_TRAIN_CUDA, MIB, NVML, Run, TINY, checkpoint, end_emulated, good, train

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "reliability"))

import tiny  # noqa: E402
from faulty_device import KINDS, Subject, before_watch, chosen, counted, in_one_go, spread, try_faults, watched_calls  # noqa: E402

CALLS = 1 if not LONG else 30  # of each function
# Their answers are not essential, or were given before.
UNIMPORTANT = ("cudaGetLastError", "cudaDriverGetVersion", "cudaRuntimeGetVersion", "cudaGetDeviceCount",
               "cudaGetDeviceProperties", "cudaMemGetInfo", "cudaDeviceGetPCIBusId")
# If a call fails while a program is recorded, a note says so, and kernels are launched one by one (cuda_graphs.py).
NOT_RECORDED = "cannot be kept as a graph"
STICKY = "cudaErrorIllegalAddress"
# The error that the fake library gets for a kind; "own" is the function's default error.
ERRORS = {"own": "", "memory": ":cudaErrorMemoryAllocation", "launch": ":cudaErrorLaunchOutOfResources", "lost": ":" + STICKY,
          "hang": ":hang"}
NAMELESS = ("cudaGetDeviceCount", "cudaGetDeviceProperties")  # they provide the card's name
# In `make check` only these calls lose the device or hang.
LOSING = ("launch", "cudaStreamSynchronize", "cudaMemcpyAsync")
HANGING = ("launch", "cudaStreamSynchronize", "cublasLtMatmul")


def absent():
    cases = (
        ({"DRIVER": "0"}, [], ("no NVIDIA driver is loaded", "CUDA 13.0")),
        ({"DRIVER": "12020"}, [], ("driver is for CUDA 12.2", "needs one for 13.0", "NVIDIA 580", "+cu12")),
        ({"DRIVER": "10020"}, [], ("driver is for CUDA 10.2", "needs one for 13.0 (NVIDIA 580 or newer)\n")),
        ({"DEVICES": "none"}, [], ("no device", "CUDA 13.0")),
        ({"DEVICES": "61:8g:GTX 1080"}, [], ("GTX 1080 has capability 6.1", "7.5")),
        ({}, ["--device=1"], ("device",)),
        ({}, ["--device=cuda:7"], ("device",)),
        ({}, ["--device=cuda:H100"], ("H100",)),
        ({}, ["--n_head=1", "--n_embd=257"], ("attention_forward", "RTX 3060, capability 8.6", "driver for CUDA 13.0",
                                              "head sizes up to 256")),
    )
    for environment, arguments, words in cases:
        run = train("absent", "--backend=cuda", "--max_iters=1", *arguments, **environment)
        check(run.status in (1, 2) and len(run.errors) == 1, f"{environment} {arguments}: {run.said()}")
        check(all(word in run.err for word in words), f"{environment} {arguments}: {words} not in {run.err[:300]}")
        check(not os.path.exists(os.path.join("absent", "trainer_state.json")), "something was saved")
    run = train("auto", "--max_iters=1", "--verbose=True", DRIVER="0")
    check(run.status == 0 and "no NVIDIA driver is loaded" in run.err + run.out and "launch" not in run.report["functions"]
          and "memory of the device (cpu)" in run.out, run.said())
    run = train("named", "--max_iters=0", GPT_TRAIN_BACKEND="cpu")
    check(run.status == 0 and run.report is None and "device: Emulated" not in run.out, run.said())
    run = train("named", "--max_iters=0", "--init_from=resume", GPT_TRAIN_BACKEND="cuda")
    check(run.status == 0 and "device: Emulated" in run.out, run.said())
    run = train("second", "--backend=cuda", "--device=cuda:h100", "--max_iters=0", DEVICES="61:8g:GTX,90:80g:H100")
    check(run.status == 0 and "H100" in run.out + run.err, run.said())
    run = train("first-usable", "--max_iters=0", DEVICES="61:8g:GTX,86:12g:RTX")
    check(run.status == 0 and "RTX" in run.out + run.err, run.said())
    for capability, compiles in (("86", False), ("87", False), ("110", True)):
        run = train("compiled", "--backend=cuda", "--max_iters=0", DEVICES=f"{capability}:8g:Card")
        check(run.status == 0 and ("compiling for this card, once" in run.err + run.out) == compiles, f"{capability}: {run.said()}")
    run = Run(GPT_TRAIN_CUDA, "--list_devices", DEVICES="75:8g:T4,89:16g:L4")
    check(run.status == 0 and "cuda:0  T4" in run.out and "cuda:1  L4" in run.out and "cpu:0" in run.out, run.said())
    check("no bfloat16" in run.out.split("cuda:1")[0] and "no bfloat16" not in run.out.split("cuda:1")[1], run.out)


def taken():
    run = good(train("taken", "--backend=cuda", "--max_iters=2", "--eval_interval=2"))
    before = checkpoint("taken")
    asked = run.calls("cudaMemGetInfo")
    for call in range(1, asked + 1):
        run = train("taken", "--backend=cuda", "--init_from=resume", "--max_iters=4", TAKEN=f"12g@cudaMemGetInfo:{call}")
        if run.status == 0:
            check(call > 1, "taken before everything, and yet there was room")
            before = checkpoint("taken")
            continue
        check(run.status == 3 and len(run.errors) == 1 and "free" in run.errors[0], f"call {call}: {run.said()}")
        check(checkpoint("taken") == before, f"call {call}: the checkpoint changed")
        check(run.report["objects_alive"] == 0, f"call {call}: {run.report['objects_alive']} objects are left")
    run = train("taken", "--backend=cuda", "--init_from=resume", "--max_iters=4", FAIL="cudaMalloc:1")
    check(run.status == 3 and len(run.errors) == 1 and "the arena takes" in run.errors[0], run.said())
    check(checkpoint("taken") == before, "the checkpoint changed")
    for call in ("launch:1:cudaErrorMemoryAllocation", "launch:9:cudaErrorMemoryAllocation"):
        run = train("loading", "--backend=cuda", "--max_iters=2", FAIL=call)
        check(run.status == 3 and len(run.errors) == 1 and "kernels that it loads" in run.errors[0]
              and "--memory_budget=" in run.errors[0], f"{call}: {run.said()}")
    run = train("budget", "--backend=cuda", "--max_iters=2", "--memory_budget=1MiB")
    check(run.status in (0, 3) and (run.status == 0 or len(run.errors) == 1), run.said())
    if run.status == 0:
        check(run.report["allocated_bytes"] <= MIB, f"{run.report['allocated_bytes']} B of a budget of 1 MiB")


class Card(Subject):
    """The emulated card."""

    closing = ("cudaStreamSynchronize",)
    gives_back = ("Destroy", "cudaFree")

    def __init__(self):
        super().__init__("cuda", os.path.abspath(GPT_TRAIN_CUDA), "cuda", "GT_CUDA_ON_CPU_FAIL", report="report.json",
                         GT_CUDA_ON_CPU_REPORT="report.json", GPT_TRAIN_BACKEND="")
        self.options += ["--bias=True", "--batch_size=1", "--micro_batch=1", "--block_size=8"]

    def wanted(self, fault):
        function, number, kind = fault.split(":")
        return f"{function}:{number}{ERRORS[kind]}"

    def reported(self):
        if not os.path.exists(self.report):
            return {}
        report = read_json(self.report)
        return {"left": report["objects_alive"],
                **{function: count["total"] for function, count in report["functions"].items()},
                **{"refused:" + function: count for function, count in report["refused"].items()}}

    def look(self, what, done):
        """Checks the error's name (cuBLASLt's own if it comes first), the versions, and the card once it has been
        queried."""
        if what.endswith(":lost"):
            errors = error_lines(done)
            check(len(errors) == 1 and (STICKY in errors[0] or ("cublasLt" in what and "cuBLASLt 130000" in errors[0])),
                  f"{what}: {errors}")
            check(any(name in what for name in NAMELESS) or (
                "capability 8.6" in errors[0] and ("CUDA 13.0" in errors[0] or "cuBLASLt 13" in errors[0])), f"{what}: {errors}")


def calls_that_fail(counts):
    calls = {function: list(range(1, count + 1)) for function, count in counts.items()}
    own = [f"{function}:{number}:own" for function in calls
           for number in spread(calls[function], 3 if LONG else 1)]
    return own + [f"{function}:{number}:{kind}" for function in calls for number in spread(calls[function], CALLS)
                  for kind in KINDS if LONG or (kind == "lost" and function in LOSING)]


def calls_that_hang(calls):
    if LONG:
        return [f"{function}:{number}:hang" for function, numbers in calls.items() for number in spread(numbers, CALLS)]
    return [f"{function}:{calls[function][len(calls[function]) // 2]}:hang" for function in HANGING]


def faults_tried():
    card = Card()
    expected = in_one_go(card)
    check(card.run("begun", "--max_iters=2").returncode == 0, "the first part of a run")
    card.begin = "begun"  # so that runs open, read and save
    counts, watched = counted(card, expected), counted(card, expected, "--watchdog=60")
    failing = calls_that_fail(counts)
    hanging = calls_that_hang(watched_calls(card, watched, before_watch(card)))
    picked = chosen(failing, hanging)

    def forgiven(fault, done):
        function, number, _ = fault.split(":")
        return (function in UNIMPORTANT or card.is_giving_back(function) or NOT_RECORDED in done.stdout + done.stderr or
                (function, int(number)) == ("cudaStreamSynchronize", counts["cudaStreamSynchronize"]))  # before close

    try_faults(card, picked, expected, forgiven)
    check(len(failing) > 40 and len(hanging) >= len(HANGING), f"only {len(failing)} and {len(hanging)} calls")
    print(f"failing: {len(picked)} of {len(failing)} failing and {len(hanging)} hanging calls of {len(counts)} functions tried, "
          f"{card.missed} missed")


def failing():
    for call, error, lost in (("launch:2", STICKY, True), ("launch:2", "cudaErrorLaunchOutOfResources", False),
                              ("launch:2", "cudaErrorLaunchTimeout", True), ("cudaStreamSynchronize:2", "cudaErrorLaunchOutOfResources", False)):
        run = train("resources", "--backend=cuda", "--max_iters=1", FAIL=f"{call}:{error}")
        check(run.status == 1 and len(run.errors) == 1 and error in run.err and ("is lost" in run.err) == lost, f"{call}: {run.said()}")
    before = os.getcwd()
    os.makedirs("faults")
    os.chdir("faults")
    tiny.ENVIRONMENT["XDG_CACHE_HOME"] = os.environ["XDG_CACHE_HOME"]
    tiny.make_data()
    faults_tried()
    os.chdir(before)


def nvml():
    if not os.path.exists(os.path.join(NVML, "libnvidia-ml.so.1")):
        check(False, f"no library in {NVML}")
        return
    run = Run(GPT_TRAIN_CUDA, "--list_devices", LD_LIBRARY_PATH=NVML)
    cuda = run.out.split("cpu:0")[0]
    check(run.status == 0 and "driver 580.82.07" in cuda and "firefox (4711) 250.0 MiB, od?[2Jd (4712) 100.0 MiB" in cuda,
          run.out)
    check("4713" not in cuda and cuda.count("4711") == 1, "a process of unknown memory, or one listed twice")
    taken_by = train("nvml", "--backend=cuda", "--max_iters=1", LD_LIBRARY_PATH=NVML, TAKEN="12g@cudaMemGetInfo:2")
    check(taken_by.status == 3 and "firefox (4711)" in taken_by.err, taken_by.said())
    # Memory of other processes, and the card's reserve, is in both numbers of the library, and so cancels out in ours.
    for used, context, said in (("1", "216", 216 * MIB), ("11000", "310", 310 * MIB), ("350", "0", 0), ("350", "5000", 0)):
        run = Run(GPT_TRAIN_CUDA, *DATA, *TINY, "--backend=cuda", "--plan=json", LD_LIBRARY_PATH=NVML, GT_FAKE_NVML_USED_MIB=used,
                  GT_FAKE_NVML_CONTEXT_MIB=context)
        check(run.status == 0 and json.loads(run.out)["bytes"]["context"] == said,
              f"{used} MiB in use before, {context} more after: {run.out[:600]}")
    for part, missing in (("init", "driver 580"), ("handle", "driver 580"), ("driver", "driver 580"),
                          ("processes", "firefox"), ("memory", "never"), ("name", "firefox")):
        run = Run(GPT_TRAIN_CUDA, "--list_devices", LD_LIBRARY_PATH=NVML, GT_FAKE_NVML_FAIL=part)
        check(run.status == 0 and missing not in run.out.split("cpu:0")[0] and "cuda:0" in run.out, f"{part}: {run.said()}")


end_emulated("cuda_faults", absent, taken, failing, nvml)
