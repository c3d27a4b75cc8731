#!/usr/bin/env python3
"""Every call of a device fails, in a whole run of training: no memory, a launch that is refused, a lost device, a hang.

  backend   each call of the interface of backend.h, on the cpu and on OpenCL where there is one: gpt-train-faulty is
            gpt-train with a planted fault (faulty_registry.c)
  icd       each function of OpenCL that the backend calls, at its first, a middle and its last time: a library between the
            program and the loader (opencl_faults.c)

After each: an exit status that is no signal's and not 0, one error line, no hang (the watchdog ends it, and names the call
and, where it runs an op, the op), every object of OpenCL released, and a folder from which a run without faults goes on to
the bytes of the run in one go.

How many calls a run makes depends a little on the time it has: what products reach is measured by repeating one, 64 times
at most.  A call that a run does not make this time counts as missed.

In `make check` a sample, with CHECK_LONG=1 all.  "cpu", "opencl" or "icd" on the command line choose one, "failing" or
"hanging" one kind, and --part=K/N every N-th case.
Prints "checks: P passed, F failed, S skipped".
"""
import os
import random
import shutil
import sys
import tempfile

import tiny

from checks import check, finish, skip
from faulty_device import (KINDS, Subject, before_watch, chosen, counted, has_opencl, in_one_go, library_made, sample, spread,
                           try_faults, watched_calls)

BUILD = os.environ.get("top_builddir", ".")
FAULTY = os.path.abspath(os.path.join(BUILD, "tests", "reliability", "gpt-train-faulty"))
SAMPLE = 24 if not tiny.LONG else 1 << 30
HANGS = 3 if not tiny.LONG else 1 << 30
# Calls that have no status; devices is asked before the watchdog watches.
ONLY_HANG = ("devices", "close", "holders", "choices", "timings")
# Functions that give back, or whose answer nobody depends on; the bytes must be right all the same.
# Kernels that cannot be taken from the cache are compiled, and those that cannot be put there are used.
FORGIVEN = ("clRelease", "clBuildProgram", "clCreateProgramWithBinary", "clGetProgramInfo", "clGetPlatformInfo",
            "clGetProgramBuildInfo", "clFlush", "clGetKernelWorkGroupInfo", "clGetDeviceInfo")
# In `make check` the last call of each hangs.
HANGING = ("clEnqueueNDRangeKernel", "clFinish", "clEnqueueReadBuffer")


class Backend(Subject):
    """A backend behind gpt-train-faulty's registry."""

    gives_back = ("close",)

    def __init__(self, name):
        super().__init__(name, FAULTY, name, "GPT_FAULT")


class Library(Subject):
    """OpenCL with a library before its loader."""

    closing = ("clFinish",)
    gives_back = ("clRelease",)

    def __init__(self, library):
        super().__init__("icd", FAULTY, "opencl", "OPENCL_FAULT", report="icd-report", GPT_TRAIN_OPENCL_LIBRARY=library,
                         OPENCL_FAULT_REPORT="icd-report")


def failing_calls(counts):
    """Each call in each way; devices, which only finds none, when the device is lost."""
    return [f"{call}:{number}:{kind}" for call, count in counts.items() for number in range(1, count + 1) for kind in KINDS
            if call not in ONLY_HANG or (call, kind) == ("devices", "lost")]


def resumed(subject):
    """A run that goes on, which alone chooses again what was chosen before."""
    tiny.clear("begun")
    done = subject.run("begun", "--max_iters=1")
    check(done is not None and done.returncode == 0, f"{subject.name} begun: {done and done.stderr[-500:]}")
    subject.begin = "begun"


def choosing(subject, expected):
    resumed(subject)
    counts = counted(subject, expected)
    check(counts["choose"] > 0, f"{subject.name}: nothing is chosen again: {counts}")
    failing = [fault for fault in failing_calls(counts) if fault.startswith("choose:")]
    picked = chosen(failing, [])
    try_faults(subject, picked, expected)
    subject.begin = None
    return len(picked)


def backend(generator, name):
    subject = Backend(name)
    expected = in_one_go(subject)
    counts, watched = counted(subject, expected), counted(subject, expected, "--watchdog=60")
    check(counts["run"] > 10 and counts["upload"] > 10 and counts["sync"] > 10, f"{name}: calls {counts}")
    check(min(counts[call] for call in ONLY_HANG) > 0 and counts["close"] == 1, f"{name}: calls {counts}")
    failing = failing_calls(counts)
    hanging = [f"{call}:{number}:hang" for call, numbers in watched_calls(subject, watched, before_watch(subject)).items()
               for number in numbers if call != "close"]
    picked = chosen(sample(generator, failing, SAMPLE), [*sample(generator, hanging, HANGS), "close:1:hang"])
    # What is free at the end is only reported.
    last = f"info:{counts['info']}:"
    try_faults(subject, picked, expected, lambda fault, done: fault.startswith(last))
    chose = choosing(subject, expected)
    print(f"{name}: {len(picked)} of {len(failing)} failing and {len(hanging) + 1} hanging calls tried, and {chose} of choose, "
          f"{subject.missed} missed; a run makes {counts}")


def icd(generator, work):
    library = library_made(work)
    if library is None:
        return
    subject = Library(library)
    expected = in_one_go(subject)
    counts, watched = counted(subject, expected), counted(subject, expected, "--watchdog=60")
    check(counts["clCreateKernel"] > 10 and counts["clEnqueueNDRangeKernel"] > 100, f"OpenCL's calls: {counts}")
    faults = [f"{name}:{number}:{kind}" for name, count in counts.items() for number in spread(range(1, count + 1), 3)
              for kind in KINDS]
    calls = watched_calls(subject, watched, before_watch(subject))
    hanging = [f"{name}:{number}:hang" for name, numbers in calls.items() for number in spread(numbers, 3)]
    if not tiny.LONG:
        # The last clFinish is that of closing.
        hanging = [f"{name}:{calls[name][-2 if name == 'clFinish' else -1]}:hang" for name in HANGING]
    picked = chosen(sample(generator, faults, SAMPLE), hanging)
    last = f"clFinish:{counts['clFinish']}:"  # before it closes
    try_faults(subject, picked, expected, lambda fault, done: fault.startswith((*FORGIVEN, last)))
    print(f"icd: {len(picked)} of {len(faults)} failing and {len(hanging)} hanging calls of {len(counts)} functions tried, "
          f"{subject.missed} missed")


def main():
    generator = random.Random(tiny.SEED)
    with tempfile.TemporaryDirectory(prefix="gpt-train-devices-") as work:
        os.chdir(work)
        os.environ["XDG_CACHE_HOME"] = tiny.ENVIRONMENT["XDG_CACHE_HOME"] = os.path.join(work, "cache")
        tiny.make_data()
        only = [word for word in tiny.arguments() if word not in ("failing", "hanging")]
        if not only or "cpu" in only:
            backend(generator, "cpu")
        if (not only or "opencl" in only or "icd" in only) and not has_opencl(FAULTY):
            skip("opencl_device", "no OpenCL driver")
            only = ["cpu"]
        if not only or "opencl" in only:
            backend(generator, "opencl")
        if not only or "icd" in only:
            icd(generator, work)
        os.chdir("/")
        shutil.rmtree(os.path.join(work, "faulty"), ignore_errors=True)
    return finish()


if __name__ == "__main__":
    sys.exit(main())
