#!/usr/bin/env python3
"""The opencl backend from the command line, on PoCL or whatever device number 0 is.

  listing   --list_devices names the device; a number out of range is one line
  absent    without loader, or without a driver, there is one line; `auto` falls back to the cpu
  fake      drivers that abort, skip kernels, refuse memory, lose the device, do not compile or are of OpenCL 1.1
            (opencl_fake.c): one line, an exit status, and the last checkpoint unchanged; a device for one process
            trains without a rehearsal
  parity    five steps in float32 have the losses of the cpu backend within 1e-5 relative; 16 bits within 0.1
  resume    a run that was stopped and resumed leaves the bytes of the uninterrupted one
  tiny      a model whose arena is too small to time a product trains and is evaluated
  matrix    products on emulated matrix units train; if units fail to compile, end the process or multiply wrongly,
            vector units take over, with a note
  clblast   fp32 products by CLBlast, if installed, have the losses of our own kernels; one that multiplies wrongly is
            not used, with a note (CHECK_LONG=1: PoCL takes two minutes to compile CLBlast's kernels)
  cache     the second start compiles nothing; files truncated, changed or of another driver are
            not given to the driver; only the user can access the folder
  limit     POCL_MEMORY_LIMIT=1: the arena is planned in segments that the device allows, the requested memory is the
            plan, and a model that cannot fit ends with exit status 3
"""

import ctypes.util
import json
import os
import stat

from checks import (GPT_TRAIN, LONG, check, end, error_lines, files, is_instrumented, make_tokens, metrics, opencl_device,
                    opencl_library, ran, run, skip, some, write)

FAKE = "tests/e2e/opencl_fake.c"
# Kernels that are not optimised (tests/tools/run_test.sh) take a second for each step of twice this size.
TINY = ["--n_layer=2", "--n_head=2", "--n_embd=16", "--block_size=16", "--batch_size=2", "--micro_batch=2", "--vocab_size=96",
        "--gradient_accumulation_steps=2", "--eval_iters=1", "--warmup_iters=2", "--bias=True", "--max_iters=4",
        "--eval_interval=3", "--lr_decay_iters=4"]
PARITY_BOUND = 1e-5  # relative, of the losses of five steps in fp32
HALF_BOUND = 0.1     # as in halves.py


def gpt_train(*arguments, status=0, **environment):
    """Returns the finished process; a `status` of None accepts any."""
    return ran(GPT_TRAIN, *arguments, environment=environment) if status is None else \
        run(GPT_TRAIN, *arguments, status=status, environment=environment)


def train(out, *arguments, status=0, backend="opencl", **environment):
    return gpt_train("--dataset=./data", f"--out_dir={out}", f"--backend={backend}", *TINY, *arguments, status=status,
                     **environment)


def one_error(run, *texts):
    lines = error_lines(run)
    check(len(lines) == 1, f"{len(lines)} error lines, not 1: {run.stderr[-600:]}")
    for text in texts:
        check(any(text in line for line in lines), f"\"{text}\" is not in {lines}")


def losses(out):
    return [line["loss"] for line in metrics(out)]


def files_of(out):
    return files(out, (".safetensors", "trainer_state.json", "config.json"))


def listing():
    run = gpt_train("--list_devices", status=None)
    devices = [line for line in run.stdout.splitlines() if line.startswith("opencl:0 ")]
    check(run.returncode == 0 and len(devices) == 1, f"--list_devices: {run.stdout} {run.stderr[-300:]}")
    check(any("GiB" in line and "bfloat16" in line for line in devices), f"memory and dtypes in {devices}")
    for device in ("opencl:99", "99", "opencl:7900", "opencl:nix"):
        run = gpt_train("--dataset=./data", "--backend=opencl", f"--device={device}", status=2)
        one_error(run, device.split(":")[-1])


def absent():
    run = train("no-driver", status=1, OCL_ICD_VENDORS="/nonexistent")
    one_error(run, "no platform")
    run = train("no-loader", status=1, GPT_TRAIN_OPENCL_LIBRARY="/nonexistent.so")
    one_error(run, "loader", "/nonexistent.so")
    run = train("auto", "--max_iters=0", "--eval_only=True", backend="auto",
                GPT_TRAIN_BACKEND="", GPT_TRAIN_OPENCL_LIBRARY="/nonexistent.so")
    check(not error_lines(run), f"auto without a loader: {run.stderr[-300:]}")


def fake():
    library = opencl_library(FAKE)
    if library is None:
        return
    out = "fake"
    for defect, text in (("abort", "signal 6"), ("skip:0", "does not hold"), ("skip:1", "does not hold"),
                         ("refuse", "clCreateBuffer"), ("source", "planted"), ("old", "OpenCL 1.1")):
        environment = {"XDG_CACHE_HOME": os.path.abspath("cache-fake")} if defect == "source" else {}
        wide = ["--n_embd=128"] if defect == "refuse" else []  # an arena that it refuses
        run = train(out, *wide, status=None, GPT_TRAIN_OPENCL_LIBRARY=library, OPENCL_FAKE=defect, **environment)
        check(run.returncode in (1, 3), f"{defect}: exit status {run.returncode}: {run.stderr[-300:]}")
        one_error(run, text)
        check(not os.path.exists(os.path.join(out, "model.safetensors")), f"{defect}: a checkpoint")
    train(out, GPT_TRAIN_OPENCL_CLBLAST="0")
    before = files_of(out)
    run = train("exclusive", GPT_TRAIN_OPENCL_LIBRARY=library, OPENCL_FAKE="exclusive",
                OPENCL_FAKE_LOCK=os.path.abspath("lock"), GPT_TRAIN_OPENCL_CLBLAST="0")
    check("not tried in a child process" in run.stderr and files_of("exclusive") == before,
          f"a device for one process: {run.stderr[-300:]}")
    run = train(out, "--init_from=resume", "--max_iters=40", "--eval_interval=100", status=1, GPT_TRAIN_OPENCL_LIBRARY=library,
                OPENCL_FAKE="lost:300")
    one_error(run, "CL_OUT_OF_RESOURCES", "lost")
    check(files_of(out) == before, "a lost device: the checkpoint is not what it was")


def parity():
    runs = {}
    for backend, dtype in (("cpu", "float32"), ("opencl", "float32"), ("opencl", "bfloat16"), ("opencl", "float16")):
        out = f"{backend}-{dtype}"
        run = train(out, f"--dtype={dtype}", "--dropout=0.1", backend=backend)
        check("matrix units" not in run.stdout, f"{out}: {run.stdout[:400]}")
        runs[backend, dtype] = losses(out)
    reference = runs["cpu", "float32"]
    for key, values in runs.items():
        if key[0] == "cpu":
            continue
        worst = max(abs(a - b) / (abs(b) if key[1] == "float32" else 1.0) for a, b in zip(values, reference))
        bound = PARITY_BOUND if key[1] == "float32" else HALF_BOUND
        check(len(values) == len(reference) == 5 and worst <= bound, f"{key}: losses {worst:.2e} from the cpu's")
        print(f"opencl {key[1]}: five losses within {worst:.2e} of the cpu's in float32")


def matrix():
    options = ["--dtype=bfloat16", "--dropout=0.1"]
    run = train("matrix-unit", *options, GPT_TRAIN_OPENCL_MATRIX="emulated-mma/32")
    check("emulated matrix units" in run.stdout, run.stdout[:400])
    pairs = list(zip(losses("matrix-unit"), losses("opencl-bfloat16")))  # parity() trained that
    worst = max(abs(a - b) for a, b in pairs)
    check(len(pairs) == 5 and worst <= HALF_BOUND, f"losses on matrix units {worst:.2e} from those without")
    print(f"opencl bfloat16 on emulated matrix units: losses within {worst:.2e} of those without")
    library = opencl_library(FAKE)
    if library is None:
        return
    out = "matrix-fake"
    emulated = {"GPT_TRAIN_OPENCL_MATRIX": "emulated-mma/32"}
    for defect, text, environment in some((("unit-skip", "multiplies wrongly", emulated),
                                           ("unit-abort", "signal 6", emulated),
                                           ("nvidia", "", {}), ("unit-build", "does not build", emulated),
                                           ("unit-skip", "multiplies wrongly", emulated)), 1):  # failures are not cached
        run = train(out, *options, "--max_iters=0", "--eval_iters=1", GPT_TRAIN_OPENCL_LIBRARY=library,
                    OPENCL_FAKE=defect, XDG_CACHE_HOME=os.path.abspath("cache-" + defect), **environment)
        lines = [line for line in run.stderr.splitlines() if "left to vector units" in line]
        others = [line for line in error_lines(run) if line not in lines]  # that line contains the compiler's message
        check(len(lines) == 1 and text in lines[0], f"{defect}: {run.stderr[-500:]}")
        check(not others and "matrix units" not in run.stdout, f"{defect}: {run.stdout[:300]} {others}")


def clblast():
    """CLBlast's fp32 products are tested before they are used, and not used if they are wrong."""
    if ctypes.util.find_library("clblast") is None:
        skip("opencl_clblast", "CLBlast is not installed (Debian: libclblast1)")
        return
    options = ["--dropout=0.1", "--max_iters=4", "--eval_iters=1"]
    train("clblast-0", *options, GPT_TRAIN_OPENCL_CLBLAST="0")
    run = train("clblast-1", *options, GPT_TRAIN_OPENCL_CLBLAST="1")
    check("CLBlast" in run.stdout and "left alone" not in run.stderr, f"CLBlast: {run.stderr[-300:]}")
    one, two = (losses(f"clblast-{used}") for used in (0, 1))
    worst = max(abs(a - b) / abs(b) for a, b in zip(two, one))
    check(len(one) == len(two) == 5 and worst <= PARITY_BOUND, f"losses with CLBlast {worst:.2e} from those without")
    print(f"opencl float32 by CLBlast: losses within {worst:.2e} of those of own kernels")
    half = "clblast-half"
    train(half, *options, "--max_iters=1", GPT_TRAIN_OPENCL_CLBLAST="1")
    run = train(half, *options, "--init_from=resume")  # on a processor, which by default uses our own kernels
    check("CLBlast" in run.stdout and "differ" not in run.stderr, f"CLBlast in a resumed run: {run.stderr[-300:]}")
    whole, resumed = files_of("clblast-1"), files_of(half)
    check(whole == resumed, "a run that CLBlast began and a resume went on with: other bytes")
    library = None if is_instrumented(GPT_TRAIN) else opencl_library(FAKE)
    if library is None:
        skip("opencl_fake", "a build with a sanitizer, which is not preloaded")
        return
    run = train("clblast-2", *options, GPT_TRAIN_OPENCL_CLBLAST="1", LD_PRELOAD=library,
                OPENCL_FAKE="clblast-skip")
    check("left alone" in run.stderr and "is wrong" in run.stderr, f"CLBlast without its kernels: {run.stderr[-300:]}")
    check(losses("clblast-2") == one, "CLBlast left alone: other losses than without it")


def resume():
    for dtype in some(("bfloat16", "float32")):
        out, options = f"parts-{dtype}", [f"--dtype={dtype}", "--dropout=0.1"]
        train(out, *options, "--max_iters=2")
        train(out, *options, "--init_from=resume")
        one, two = files_of(f"opencl-{dtype}"), files_of(out)  # parity() trained the first in one go
        tensors = [name for name in one if name.endswith(".safetensors")]
        check(len(tensors) > 1, f"{dtype}: no checkpoint")
        for name in tensors:
            check(one[name] == two.get(name), f"{dtype}: {name} differs after a resume")


def tiny():
    out = "tiny"
    small = ["--n_layer=1", "--n_head=1", "--n_embd=2", "--block_size=2", "--batch_size=1", "--micro_batch=1", "--gradient_accumulation_steps=1",
             "--max_iters=1", "--eval_iters=1"]
    train(out, *small)
    run = train(out, *small, "--init_from=resume", "--eval_only=True")
    check("val loss" in run.stdout, f"no evaluation: {run.stdout[-600:]}")


def compiles(run):
    return "compiling kernels" in run.stderr


def cache():
    home = os.path.abspath("cache-home")
    folder = os.path.join(home, "gpt-train", "opencl")
    out = "cached"
    arguments = ["--max_iters=0", "--eval_iters=1"]
    first = train(out, *arguments, XDG_CACHE_HOME=home)
    check(compiles(first), "the first start says that it compiles")
    check(stat.S_IMODE(os.stat(folder).st_mode) == 0o700, "the folder's mode is not 0700")
    names = sorted(name for name in os.listdir(folder) if name.endswith(".clbin"))
    check(len(names) > 5 and len(names) == len(os.listdir(folder)), f"the folder holds {os.listdir(folder)}")
    whole = files(folder, ".clbin")
    second = train(out, *arguments, XDG_CACHE_HOME=home)
    check(not compiles(second), f"the second start compiles: {second.stderr[-300:]}")
    check(files(folder, ".clbin") == whole, "the second start changes the cached programs")
    for what, damage in some((("changed", lambda bytes_: bytes_[:-9] + b"123456789"),
                              ("of another driver", lambda bytes_: bytes_.replace(b"units", b"Units")),
                              ("cut short", lambda bytes_: bytes_[: len(bytes_) // 2]), ("empty", lambda bytes_: b""))):
        for name, bytes_ in whole.items():
            write(os.path.join(folder, name), damage(bytes_))
        run = train(out, *arguments, XDG_CACHE_HOME=home)
        check(compiles(run) and "compiled again" in run.stderr, f"{what}: {run.stderr[-300:]}")
    os.chmod(folder, 0o777)
    check(compiles(train(out, *arguments, XDG_CACHE_HOME=home)), "a folder that others may write to is used")


def limit():
    if "PoCL" not in gpt_train("--list_devices").stdout and "Portable" not in gpt_train("--list_devices").stdout:
        skip("opencl_limit", "device 0 is not PoCL, whose POCL_MEMORY_LIMIT makes a small card")
        return
    # As few tokens as possible, and no checkpoint: only the size of the arena matters.
    small = ["--vocab_size=50304", "--n_embd=320", "--n_head=5", "--n_layer=1", "--block_size=2", "--batch_size=1", "--micro_batch=1",
             "--gradient_accumulation_steps=1", "--max_iters=0", "--eval_iters=1", "--always_save_checkpoint=False"]
    plan = json.loads(train("plan", *small, "--plan=json", POCL_MEMORY_LIMIT="1").stdout)
    check(plan["bytes"]["arena"] > 256 << 20, f"the arena is smaller than one allocation: {plan['bytes']}")
    check(len(plan["segments"]) > 1 and max(plan["segments"]) <= 256 << 20, f"segments: {plan['segments']}")
    out = "limit"
    train(out, *small, POCL_MEMORY_LIMIT="1")
    steps = metrics(out, "allocated_bytes")
    for step in steps:
        check(step["planned_bytes"] == step["allocated_bytes"] == plan["bytes"]["arena"], f"asked for: {step}")
    check(len(steps) == 1, f"{len(steps)} steps inside 1 GiB")
    for size, *texts in ((["--n_layer=2", "--n_embd=1024", "--n_head=8"], "not enough memory"),
                         (["--n_embd=1536", "--n_head=12"], "wte.weight", "largest allocation", "vocab_size")):
        run = train("large", *small, *size, status=3, POCL_MEMORY_LIMIT="1")
        one_error(run, *texts)


end(*((listing, absent, parity, matrix, *([clblast] if LONG else []), resume, tiny, fake, cache, limit) if opencl_device() else ()),
    begin=lambda: make_tokens("data"))
