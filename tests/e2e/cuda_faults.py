#!/usr/bin/env python3
"""What goes wrong on the way to and on a card, in the emulated cuda backend (tests/cuda_on_cpu).

  absent    no driver, an old driver, no device, an index or a name that is not there, a card that is too old: one line with
            the versions, exit status 1 or 2; --backend=auto goes on to the cpu, and says why
  taken     another process takes memory between the plan and the arena: exit status 3 or another plan, and who it was
  failing   every call of the run-time library and of cuBLASLt fails once, at its first, a middle and its last time, and with
            an error that the device keeps: no crash, one line, nothing leaks, and the checkpoint of before still loads
  nvml      holders, driver version and context are read where the library is, and left out where a part of it fails
GT_CUDA_LONG=1 makes more calls fail.  Prints "checks: P passed, F failed, S skipped".
"""
import json
import os
import shutil
import sys

from cuda_common import GPT_TRAIN_CUDA, LONG, MIB, NVML, Run, Work, check, checkpoint, finish, leave_without_programs

# What gives back: a run that has done its work does not fail because of them.
GIVES_BACK = ("Destroy", "cudaFree", "cudaFreeHost")
# Nobody depends on their answers, or they have been answered before.
UNIMPORTANT = ("cudaGetLastError", "cudaDriverGetVersion", "cudaRuntimeGetVersion", "cudaGetDeviceCount",
               "cudaGetDeviceProperties", "cudaMemGetInfo", "cudaDeviceGetPCIBusId")
# Whatever fails while a program is recorded, it is launched kernel by kernel then, which is said (cuda_graphs.py).
NOT_RECORDED = "cannot be kept as a graph"
STICKY = "cudaErrorIllegalAddress"
UPLOADS = 4 * MIB  # of the device's memory, for uploads beside the ops: part of the context


def absent(work):
    cases = (
        ({"DRIVER": "0"}, [], ("no NVIDIA driver is loaded", "CUDA 13.0")),
        ({"DRIVER": "12020"}, [], ("driver is for CUDA 12.2", "needs one for 13.0")),
        ({"DEVICES": "none"}, [], ("no device", "CUDA 13.0")),
        ({"DEVICES": "61:8g:GTX 1080"}, [], ("GTX 1080 has capability 6.1", "7.5")),
        ({}, ["--device=1"], ("device",)),
        ({}, ["--device=cuda:7"], ("device",)),
        ({}, ["--device=cuda:H100"], ("H100",)),
        ({}, ["--n_head=1", "--n_embd=129"], ("attention_forward", "RTX 3060, capability 8.6", "driver for CUDA 13.0",
                                              "head sizes up to 128")),
    )
    for environment, arguments, words in cases:
        run = work.train("absent", "--backend=cuda", "--max_iters=1", *arguments, **environment)
        check(run.status in (1, 2) and len(run.errors) == 1, f"{environment} {arguments}: {run.said()}")
        check(all(word in run.err for word in words), f"{environment} {arguments}: {words} not in {run.err[:300]}")
        check(not os.path.exists(os.path.join(work.path("absent"), "trainer_state.json")), "something was saved")
    run = work.train("auto", "--max_iters=1", DRIVER="0")
    check(run.status == 0 and "no NVIDIA driver is loaded" in run.err + run.out and "launch" not in run.report["functions"],
          run.said())
    run = work.train("named", "--max_iters=0", GPT_TRAIN_BACKEND="cpu")
    check(run.status == 0 and run.report is None and "device: Emulated" not in run.out, run.said())
    run = work.train("named", "--max_iters=0", "--init_from=resume", GPT_TRAIN_BACKEND="cuda")
    check(run.status == 0 and "device: Emulated" in run.out, run.said())
    run = work.train("second", "--backend=cuda", "--device=cuda:h100", "--max_iters=0", DEVICES="61:8g:GTX,90:80g:H100")
    check(run.status == 0 and "H100" in run.out + run.err, run.said())
    run = work.train("first-usable", "--max_iters=0", DEVICES="61:8g:GTX,86:12g:RTX")
    check(run.status == 0 and "RTX" in run.out + run.err, run.said())
    run = Run(GPT_TRAIN_CUDA, "--list_devices", work=work.folder, DEVICES="75:8g:T4,89:16g:L4")
    check(run.status == 0 and "cuda:0  T4" in run.out and "cuda:1  L4" in run.out and "cpu:0" in run.out, run.said())
    check("no bfloat16" in run.out.split("cuda:1")[0] and "no bfloat16" not in run.out.split("cuda:1")[1], run.out)


def taken(work):
    run = work.train("taken", "--backend=cuda", "--max_iters=2", "--eval_interval=2")
    check(run.status == 0, run.said())
    before = checkpoint(work.path("taken"))
    asked = run.calls("cudaMemGetInfo")
    for call in range(1, asked + 1):
        run = work.train("taken", "--backend=cuda", "--init_from=resume", "--max_iters=4", TAKEN=f"12g@cudaMemGetInfo:{call}")
        if run.status == 0:
            check(call > 1, "taken before everything, and yet there was room")
            before = checkpoint(work.path("taken"))
            continue
        check(run.status == 3 and len(run.errors) == 1 and "free" in run.errors[0], f"call {call}: {run.said()}")
        check(checkpoint(work.path("taken")) == before, f"call {call}: the checkpoint changed")
        check(run.report["objects_alive"] == 0, f"call {call}: {run.report['objects_alive']} objects are left")
    run = work.train("taken", "--backend=cuda", "--init_from=resume", "--max_iters=4", FAIL="cudaMalloc:1")
    check(run.status == 3 and len(run.errors) == 1 and "the arena takes" in run.errors[0], run.said())
    check(checkpoint(work.path("taken")) == before, "the checkpoint changed")
    run = work.train("budget", "--backend=cuda", "--max_iters=2", "--memory_budget=1MiB")
    check(run.status in (0, 3) and (run.status == 0 or len(run.errors) == 1), run.said())
    if run.status == 0:
        check(run.report["allocated_bytes"] <= MIB, f"{run.report['allocated_bytes']} B of a budget of 1 MiB")


def numbers(count):
    """Which of `count` calls fail."""
    if LONG:
        return sorted({1, 2, 3, count // 4, count // 2, count - 1, count} - set(range(-1, 1)))
    return sorted({1, count // 2, count} - {0})


def failure_check(work, clean, function, number, error=""):
    out = "fault"
    shutil.rmtree(work.path(out), ignore_errors=True)
    shutil.copytree(work.path("clean"), work.path(out))
    before = checkpoint(work.path(out))
    named = f"{function}:{number}{':' + error if error else ''}"
    run = work.train(out, "--backend=cuda", "--init_from=resume", "--max_iters=3", "--eval_interval=2", FAIL=named)
    check(run.status in (0, 1, 3), f"{named}: {run.said()}")
    check(run.report is not None, f"{named}: it did not end by itself")
    if run.status == 0 and run.report and run.calls(function) < number:
        return  # it was not called as often this time: how long products are timed depends on the machine
    if run.status == 0:
        forgiven = function in UNIMPORTANT or NOT_RECORDED in run.out + run.err or any(word in function for word in GIVES_BACK)
        forgiven = forgiven or (function, number) == ("cudaStreamSynchronize", clean.calls(function))  # before it closes
        check(forgiven or number > clean.calls(function), f"{named}: nobody noticed")
        return
    check(len(run.errors) == 1, f"{named}: {len(run.errors)} error lines: {run.errors}")
    if error:
        check(all(word in run.err for word in (error, "capability 8.6", "CUDA 13.0")), f"{named}: {run.errors}")
    elif run.report is not None:
        check(run.report["objects_alive"] == 0, f"{named}: {run.report['objects_alive']} objects are left")
    after = checkpoint(work.path(out))
    if after != before:
        again = work.train(out, "--backend=cpu", "--init_from=resume", "--eval_only=True")
        check(again.status == 0, f"{named}: the checkpoint does not load: {again.said()}")
    else:
        check(len(after) >= 2, f"{named}: no checkpoint")


def failing(work):
    run = work.train("clean", "--backend=cuda", "--max_iters=1", "--eval_interval=2")
    check(run.status == 0, run.said())
    shutil.copytree(work.path("clean"), work.path("twin"))
    clean = work.train("twin", "--backend=cuda", "--init_from=resume", "--max_iters=3", "--eval_interval=2")
    check(clean.status == 0 and clean.report["objects_alive"] == 0, clean.said())
    tried = 0
    for function, counts in sorted(clean.report["functions"].items()):
        for number in numbers(counts["total"]):
            failure_check(work, clean, function, number)
            tried += 1
    for error, lost in ((STICKY, True), ("cudaErrorLaunchOutOfResources", False), ("cudaErrorLaunchTimeout", True)):
        run = work.train("resources", "--backend=cuda", "--max_iters=1", FAIL=f"launch:2:{error}")
        check(run.status == 1 and len(run.errors) == 1 and error in run.err and ("is lost" in run.err) == lost, run.said())
    for function in ("launch", "cudaStreamSynchronize", "cudaMemcpyAsync"):
        for number in numbers(clean.calls(function)):
            failure_check(work, clean, function, number, STICKY)
            tried += 1
    check(tried > 40, f"only {tried} calls failed")
    print(f"failing: {tried} calls, of {len(clean.report['functions'])} functions")


def nvml(work):
    if not os.path.exists(os.path.join(NVML, "libnvidia-ml.so.1")):
        check(False, f"no library in {NVML}")
        return
    run = Run(GPT_TRAIN_CUDA, "--list_devices", work=work.folder, LD_LIBRARY_PATH=NVML)
    cuda = run.out.split("cpu:0")[0]
    check(run.status == 0 and "driver 580.82.07" in cuda and "firefox (4711) 250.0 MiB, od?[2Jd (4712) 100.0 MiB" in cuda,
          run.out)
    check("4713" not in cuda and cuda.count("4711") == 1, "a process of unknown memory, or one listed twice")
    taken_by = Run(GPT_TRAIN_CUDA, f"--dataset={work.data}", "--backend=cuda", "--n_layer=1", "--n_head=1", "--n_embd=16",
                   "--block_size=16", "--batch_size=2", "--vocab_size=96", f"--out_dir={work.path('nvml')}",
                   "--max_iters=1", work=work.folder, LD_LIBRARY_PATH=NVML, TAKEN="12g@cudaMemGetInfo:2")
    check(taken_by.status == 3 and "firefox (4711)" in taken_by.err, taken_by.said())
    # What others use, and what the card keeps for itself, is in both numbers of the library, and so in neither of ours.
    for used, context, said in (("1", "216", 216 * MIB), ("11000", "310", 310 * MIB), ("350", "0", 0), ("350", "5000", 0)):
        run = Run(GPT_TRAIN_CUDA, f"--dataset={work.data}", "--backend=cuda", "--n_layer=1", "--n_head=1", "--n_embd=16",
                  "--block_size=16", "--batch_size=2", "--vocab_size=96", "--plan=json", work=work.folder,
                  LD_LIBRARY_PATH=NVML, GT_FAKE_NVML_USED_MIB=used, GT_FAKE_NVML_CONTEXT_MIB=context)
        check(run.status == 0 and json.loads(run.out)["bytes"]["context"] == said + UPLOADS,
              f"{used} MiB in use before, {context} more after: {run.out[:600]}")
    for part, missing in (("init", "driver 580"), ("handle", "driver 580"), ("driver", "driver 580"),
                          ("processes", "firefox"), ("memory", "never"), ("name", "firefox")):
        run = Run(GPT_TRAIN_CUDA, "--list_devices", work=work.folder, LD_LIBRARY_PATH=NVML, GT_FAKE_NVML_FAIL=part)
        check(run.status == 0 and missing not in run.out.split("cpu:0")[0] and "cuda:0" in run.out, f"{part}: {run.said()}")


def main():
    leave_without_programs("cuda_faults")
    with Work() as work:
        for part in (absent, taken, failing, nvml):
            part(work)
    return finish()


if __name__ == "__main__":
    sys.exit(main())
