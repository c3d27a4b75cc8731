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
import shlex
import shutil
import subprocess
import sys
import tempfile

import tiny

from checks import check, finish, skip

BUILD = os.environ.get("top_builddir", ".")
FAULTY = os.path.abspath(os.path.join(BUILD, "tests", "reliability", "gpt-train-faulty"))
SOURCE = os.path.abspath(os.environ.get("top_srcdir", "."))
KINDS = ("memory", "launch", "lost")
SAMPLE = 24 if not tiny.LONG else 1 << 30
HANGS = 3 if not tiny.LONG else 1 << 30
WATCHDOG_SECONDS = (1, 10, 60)  # a process that gets no time is slow too: where another call was named, once more with the next
COMPILE_SECONDS = 1200  # where OpenCL's kernels have to be compiled first
# Functions that give back, or whose answer nobody depends on; the bytes must be right all the same.
# Kernels that cannot be taken from the cache are compiled, and those that cannot be put there are used.
FORGIVEN = ("clRelease", "clBuildProgram", "clCreateProgramWithBinary", "clGetProgramInfo", "clGetPlatformInfo",
            "clGetProgramBuildInfo", "clFlush", "clGetKernelWorkGroupInfo", "clGetDeviceInfo")
os.environ.setdefault("POCL_CACHE_DIR", os.path.join(os.path.abspath(BUILD), "tests", "pocl-cache"))


class Subject:
    """A program, a backend, and how a fault is asked for."""

    def __init__(self, name, program, backend, variable, report="report", **environment):
        self.name, self.program, self.variable, self.report = name, program, variable, report
        self.missed = 0  # faults at calls that the run did not make this time, as it makes fewer where time is short
        self.options = [f"--backend={backend}"]
        self.environment = {**environment, "GPT_FAULT_BACKEND": backend}

    def run(self, out, *arguments, fault=None, limit=tiny.LIMIT_SECONDS):
        """The finished process; None when it hangs."""
        resume = ["--init_from=resume"] if os.path.exists(os.path.join(out, "trainer_state.json")) else []
        environment = {**tiny.ENVIRONMENT, **self.environment, "GPT_FAULT_REPORT": "report"}
        if fault:
            environment[self.variable] = fault
        try:
            return subprocess.run([self.program, *tiny.RUN, *self.options, f"--out_dir={out}", *resume, *arguments],
                                  env=environment, capture_output=True, text=True, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            return None

    def reported(self):
        with open(self.report, encoding="ascii") as file:
            return {name: int(count) for name, count in (line.split() for line in file)}

    def counts(self):
        """How often each call was made."""
        return {name: count for name, count in self.reported().items() if name != "left"}

    def left(self):
        """How many objects the run did not release; only icd counts them."""
        return self.reported().get("left", 0)

    def waits_for(self, fault):
        """What the watchdog's line says of a hang; a function of OpenCL may be part of any call of the backend."""
        return f"waiting for {fault.split(':')[0]}" if self.variable == "GPT_FAULT" else "waiting for"

    def misses(self, fault):
        name, number, _ = fault.split(":")
        missed = self.counts().get(name, 0) < int(number)
        self.missed += missed
        return missed


def errors(done):
    return [line for line in done.stderr.splitlines() if " error: " in line]


def judge(subject, fault, done, expected, forgiven):
    """Whether the fault was noticed; what it left must go on."""
    what = f"{subject.name}: {fault}"
    if done is None:
        check(False, f"{what}: hangs")
        return
    if done.returncode == 0 and subject.misses(fault):
        check(tiny.contents("faulty") == expected, f"{what}: other bytes")
        return
    if done.returncode == 0:
        # Nothing depends on the call.
        check(forgiven and tiny.contents("faulty") == expected, f"{what}: nobody noticed, and that is not right")
    else:
        check(1 <= done.returncode <= 3, f"{what}: ended with {done.returncode}: {done.stderr[-300:]}")
        check(len(errors(done)) == 1, f"{what}: {len(errors(done))} error lines: {done.stderr[-500:]}")
    if ":hang" in fault and done.returncode != 0:
        check("does not answer" in done.stderr or "says nothing" in done.stderr, f"{what}: {done.stderr[-300:]}")
        check("says nothing" in done.stderr or subject.waits_for(fault) in done.stderr, f"{what}: another call is named: {done.stderr[-300:]}")
        check(" of op " in done.stderr or not fault.startswith("run:"), f"{what}: no op is named: {done.stderr[-300:]}")
    if ":hang" not in fault:
        check(subject.left() == 0, f"{what}: {subject.left()} objects of OpenCL were not released")
    again = subject.run("faulty")
    check(again is not None and again.returncode == 0, f"{what}: does not go on: {again and again.stderr[-300:]}")
    check(tiny.contents("faulty") == expected, f"{what}: then other bytes than in one go")
    check(tiny.leftovers("faulty") == [], f"{what}: left behind: {tiny.leftovers('faulty')}")


def hung(subject, fault):
    """A run with a call that never returns, ended by the watchdog at that call."""
    done = None
    for seconds in WATCHDOG_SECONDS:
        tiny.clear("faulty")
        done = subject.run("faulty", f"--watchdog={seconds}", fault=fault)
        if done is None or "does not answer" not in done.stderr or subject.waits_for(fault) in done.stderr:
            break
    return done


def try_faults(subject, faults, expected, forgiven=lambda fault: False):
    for fault in faults:
        tiny.clear("faulty")
        done = hung(subject, fault) if ":hang" in fault else subject.run("faulty", fault=fault)
        judge(subject, fault, done, expected, forgiven(fault))
    check(subject.missed <= len(faults) / 4, f"{subject.name}: {subject.missed} of {len(faults)} calls were not made")


def chosen(generator, failing, hanging):
    """The faults that this run tries."""
    kinds = tiny.arguments()
    return tiny.part((sample(generator, failing, SAMPLE) if "hanging" not in kinds else []) +
                     (sample(generator, hanging, HANGS) if "failing" not in kinds else []))


def reference(subject):
    """What the run in one go leaves, and the calls that it makes: as it is, and when each op is waited for."""
    tiny.clear("one")
    done = subject.run("one", limit=COMPILE_SECONDS)
    check(done is not None and done.returncode == 0, f"{subject.name} in one go: {done and done.stderr[-500:]}")
    expected, counts = tiny.contents("one"), subject.counts()
    tiny.clear("watched")
    done = subject.run("watched", "--watchdog=60")
    check(done is not None and done.returncode == 0, f"{subject.name} watched: {done and done.stderr[-500:]}")
    check(tiny.contents("watched") == expected, f"{subject.name}: a watched run has other bytes")
    return expected, counts, subject.counts()


def sample(generator, faults, most):
    return faults if len(faults) <= most else generator.sample(faults, most)


def backend(generator, name):
    subject = Subject(name, FAULTY, name, "GPT_FAULT")
    expected, counts, watched = reference(subject)
    check(counts["run"] > 10 and counts["upload"] > 10 and counts["sync"] > 10, f"{name}: calls {counts}")
    failing = [f"{call}:{number}:{kind}" for call, count in counts.items() for number in range(1, count + 1) for kind in KINDS]
    # The watch begins when the device is open.
    hanging = [f"{call}:{number}:hang" for call, count in watched.items() if call != "open"
               for number in range(2 if call == "info" else 1, count + 1)]
    picked = chosen(generator, failing, hanging)
    # What is free at the end is only reported.
    last = f"info:{counts['info']}:"
    try_faults(subject, picked, expected, lambda fault: fault.startswith(last))
    print(f"{name}: {len(picked)} of {len(failing)} failing and {len(hanging)} hanging calls tried, {subject.missed} missed; "
          f"a run makes {counts}")


def icd(generator, work):
    library = os.path.join(work, "faults.so")
    command = shlex.split(os.environ.get("CC", "cc")) + ["-shared", "-fPIC", "-Wl,--no-as-needed", "-I" + SOURCE, "-o", library,
                                                          os.path.join(SOURCE, "tests/reliability/opencl_faults.c"),
                                                          "-l:libOpenCL.so.1"]
    compiled = subprocess.run(command, check=False, capture_output=True, text=True)
    if compiled.returncode != 0:
        said = [line for line in compiled.stderr.splitlines() if "error" in line or "cannot find" in line] or ["?"]
        skip("opencl_fake", f"no compiler that links with libOpenCL.so.1: {said[0]}")
        return
    subject = Subject("icd", FAULTY, "opencl", "OPENCL_FAULT", report="icd-report", GPT_TRAIN_OPENCL_LIBRARY=library,
                      OPENCL_FAULT_REPORT="icd-report")
    expected, _, _ = reference(subject)
    tiny.clear("counted")
    check(subject.run("counted").returncode == 0, "a run that counts")
    counts = subject.counts()
    check(counts["clCreateKernel"] > 10 and subject.left() == 0, f"{subject.left()} objects of OpenCL were not released: {counts}")
    check(counts["clEnqueueNDRangeKernel"] > 100, f"OpenCL's calls: {counts}")
    faults = [f"{name}:{number}:{kind}" for name, count in counts.items() if count > 0
              for number in sorted({1, (count + 1) // 2, count}) for kind in KINDS]
    hanging = [f"{name}:{counts[name]}:hang" for name in ("clEnqueueNDRangeKernel", "clFinish", "clEnqueueReadBuffer")
               if counts.get(name, 0) > 0]
    picked = chosen(generator, faults, hanging)
    last = f"clFinish:{counts['clFinish']}:"  # before it closes
    try_faults(subject, picked, expected, lambda fault: fault.startswith((*FORGIVEN, last)))
    print(f"icd: {len(picked)} of {len(faults)} failing and {len(hanging)} hanging calls of {len(counts)} functions tried, "
          f"{subject.missed} missed")


def has_opencl():
    done = subprocess.run([FAULTY, "--list_devices"], env=tiny.ENVIRONMENT, capture_output=True, text=True, check=False)
    return "opencl:0 " in done.stdout


def main():
    generator = random.Random(tiny.SEED)
    with tempfile.TemporaryDirectory(prefix="gpt-train-devices-") as work:
        os.chdir(work)
        os.environ["XDG_CACHE_HOME"] = tiny.ENVIRONMENT["XDG_CACHE_HOME"] = os.path.join(work, "cache")
        tiny.make_data()
        only = [word for word in tiny.arguments() if word not in ("failing", "hanging")]
        if not only or "cpu" in only:
            backend(generator, "cpu")
        if (not only or "opencl" in only or "icd" in only) and not has_opencl():
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
