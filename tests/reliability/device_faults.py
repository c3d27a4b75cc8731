#!/usr/bin/env python3
"""Every call of a device fails, in a whole run of training and in commands that only answer: no memory, a launch that is
refused, a lost device, a hang.

  cpu, opencl  each call of the interface of backend.h, on the cpu and on OpenCL where there is one: gpt-train-faulty is
               gpt-train with a planted fault (faulty_registry.c)
  icd          each function of OpenCL that the backend calls, at its first, a middle and its last time: a library between the
               program and the loader (opencl_faults.c)
  answers      each call of the interface in a plan, one for a resume, an evaluation, the judging of a model by a text, and
               samples (gpt-sample-faulty, which has no watchdog), all of one checkpoint; with CHECK_LONG on OpenCL too

After each: an exit status that is no signal's and not 0, one error line, no hang (the watchdog ends it, and names the call
and, where it runs an op, the op), no memory held at the end, every device closed and every object of OpenCL released, and a
folder from which a run without faults goes on to the bytes of the run in one go.  What only answers leaves the folder as it
is, byte for byte, and the same command without the fault then gives the same answer.

How many calls a run makes depends a little on the time it has: what products reach is measured by repeating one, 64 times
at most.  A call that a run does not make this time counts as missed.

In `make check` a sample, with CHECK_LONG=1 all.  Names of the list on the command line choose, "failing" or "hanging" one kind,
and --part=K/N every N-th case.
Prints "checks: P passed, F failed, S skipped".
"""
import json
import os
import random
import re
import shutil
import sys
import tempfile

import commands
import tiny

from checks import check, finish, skip
from faulty_device import (KINDS, Subject, before_watch, chosen, counted, has_opencl, in_one_go, library_made, spread,
                           try_faults, watched_calls)

BUILD = os.environ.get("top_builddir", ".")
FAULTY, FAULTY_SAMPLE = (os.path.abspath(os.path.join(BUILD, "tests", "reliability", f"{name}-faulty"))
                         for name in ("gpt-train", "gpt-sample"))
SAMPLE = 3 if not tiny.LONG else 1 << 30
HANGS = 1 if not tiny.LONG else 1 << 30
ANSWER_HANGS = 1 if not tiny.LONG else 1 << 30  # of each command
TOKENS_JUDGED = 16 * 5 + 1  # five windows of the context, of which four are judged at once
CLOSING = "close:1:hang"
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

    def __init__(self, backend, name=None, program=FAULTY):
        super().__init__(name or backend, program, backend, "GPT_FAULT", GPT_FAULT_ALLOCATIONS=commands.HELD)

    def left(self):
        """Devices that are open at the end, and memory and files that are held, where the program counts them."""
        return super().left() + sum((commands.held() or (0,))[1:])


class Answer(Backend):
    """A command of which only the answer matters: the checkpoint that it is about stays as it is."""

    begin = "begun"

    def __init__(self, backend, name, arguments, answer, program=FAULTY, reports_free=False):
        """The answer in its output, and whether that ends with what is free, on which nothing depends."""
        super().__init__(backend, f"{name} on {backend}", program)
        self.arguments, self.answer, self.reports_free = arguments, answer, reports_free
        self.is_watched = program == FAULTY
        self.checkpoint = files(self.begin)

    def words(self, out):
        return [*self.arguments, *self.options, f"--out_dir={out}"]

    def outcome(self, out, done):
        return {"answer": done and self.answer(done.stdout)}

    def run(self, out, *arguments, **how):
        done = super().run(out, *arguments, **how)
        check(files(out) == self.checkpoint, f"{self.name}: {how}: the checkpoint is another one")
        return done


def files(folder):
    """What a folder holds."""
    return {name: tiny.digest(os.path.join(folder, name)) for name in sorted(os.listdir(folder))}


def losses(text):
    return re.findall("(?:loss|perplexity|byte) [0-9.]+", text)


def planned(text):
    """An answer to --plan but for what is measured: times, and what the process, its watchdog and its driver hold themselves."""
    def constant(pairs):
        measured = "second|share|end_time|host|headroom|context|total|arena_budget"
        return {name: value for name, value in pairs if not re.search(measured, name)}
    try:
        return json.loads(text, object_pairs_hook=constant)
    except ValueError:
        return text


def answering(backend):
    resume, threads, plan = "--init_from=resume", "--threads=1", ["--plan=json", "--memory_budget=256MiB"]
    return [
        Answer(backend, "plan", [*tiny.RUN, *plan], planned),
        Answer(backend, "plan of a resume", [*tiny.RUN, *plan, resume], planned),
        Answer(backend, "evaluate", [*tiny.RUN, resume, "--eval_only=True"], losses, reports_free=True),
        Answer(backend, "judge", [resume, threads, "--eval_data=few.bin"], losses),
        Answer(backend, "sample", [threads, "--start=ABC", "--num_samples=2", "--max_new_tokens=15"], str, FAULTY_SAMPLE),
    ]


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


def hanging_calls(subject, expected):
    """Each call that is watched, but for closing the device, which comes last."""
    watched = counted(subject, expected, "--watchdog=60")
    return [f"{call}:{number}:hang" for call, numbers in watched_calls(subject, watched, before_watch(subject)).items()
            for number in numbers if call != "close"]


def backend(generator, name):
    subject = Backend(name)
    expected = in_one_go(subject)
    counts = counted(subject, expected)
    check(counts["run"] > 10 and counts["upload"] > 10 and counts["sync"] > 10, f"{name}: calls {counts}")
    check(min(counts[call] for call in ONLY_HANG) > 0 and counts["close"] == 1, f"{name}: calls {counts}")
    failing, hanging = failing_calls(counts), hanging_calls(subject, expected)
    picked = chosen(tiny.sample(generator, failing, SAMPLE), [*tiny.sample(generator, hanging, HANGS), CLOSING])
    # What is free at the end is only reported.
    last = f"info:{counts['info']}:"
    try_faults(subject, picked, expected, lambda fault, done: fault.startswith(last))
    chose = choosing(subject, expected)
    print(f"{name}: {len(picked)} of {len(failing)} failing and {len(hanging) + 1} hanging calls tried, and {chose} of choose, "
          f"{subject.missed} missed; a run makes {counts}")


def one_of_each(generator, failing):
    """In `make check` five calls, once."""
    if tiny.LONG:
        return failing
    calls = {}
    for fault in failing:
        calls.setdefault(fault.split(":")[0], []).append(fault)
    return [generator.choice(faults) for faults in generator.sample(list(calls.values()), min(5, len(calls)))]


def answer(generator, subject):
    """How many faults of a command were tried."""
    expected = in_one_go(subject)
    counts = counted(subject, expected)
    check(expected["answer"] and counts["open"] == counts["close"] == 1, f"{subject.name}: {expected}, calls {counts}")
    failing, hanging = failing_calls(counts), hanging_calls(subject, expected) if subject.is_watched else []
    closing = [CLOSING] if subject.is_watched else []
    picked = chosen(one_of_each(generator, failing), tiny.sample(generator, hanging + closing, ANSWER_HANGS))
    last = f"info:{counts['info']}:"
    try_faults(subject, picked, expected, lambda fault, done: subject.reports_free and fault.startswith(last), missed_part=1)
    print(f"{subject.name}: {len(picked)} of {len(failing)} failing and {len(hanging + closing)} hanging calls tried, "
          f"{subject.missed} missed; it makes {counts}", flush=True)
    return len(picked)


def answers(generator, name):
    """What answers about the checkpoint of a run."""
    resumed(Backend(name))
    with open("data/val.bin", "rb") as whole, open("few.bin", "wb") as few:
        few.write(whole.read(2 * TOKENS_JUDGED))
    subjects = answering(name)
    tried = sum(answer(generator, subject) for subject in subjects)
    missed = sum(subject.missed for subject in subjects)
    # A plan calls little else than products, to time them: most of its calls where it has more time, few where it has less.
    check(missed <= tried / 2, f"answers on {name}: {missed} of {tried} calls were not made")


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
    picked = chosen(tiny.sample(generator, faults, SAMPLE), hanging)
    last = f"clFinish:{counts['clFinish']}:"  # before it closes
    try_faults(subject, picked, expected, lambda fault, done: fault.startswith((*FORGIVEN, last)))
    print(f"icd: {len(picked)} of {len(faults)} failing and {len(hanging)} hanging calls of {len(counts)} functions tried, "
          f"{subject.missed} missed")


def chosen_groups(generator, work):
    """What the command line names, all without names; what needs OpenCL only where there is a device."""
    groups = [("cpu", "", lambda: backend(generator, "cpu")), ("answers", "", lambda: answers(generator, "cpu")),
              ("icd", "opencl", lambda: icd(generator, work))]
    if tiny.LONG:
        groups += [("opencl", "opencl", lambda: backend(generator, "opencl")),
                   ("answers", "opencl", lambda: answers(generator, "opencl"))]
    only = [word for word in tiny.arguments() if word not in ("failing", "hanging")]
    groups = [(device, run) for name, device, run in groups if not only or name in only]
    if any(device for device, _ in groups) and not has_opencl(FAULTY):
        skip("opencl_device", "no OpenCL driver")
        groups = [(device, run) for device, run in groups if not device]
    return [run for _, run in groups]


def main():
    generator = random.Random(tiny.SEED)
    with tempfile.TemporaryDirectory(prefix="gpt-train-devices-") as work:
        os.chdir(work)
        os.environ["XDG_CACHE_HOME"] = tiny.ENVIRONMENT["XDG_CACHE_HOME"] = os.path.join(work, "cache")
        tiny.make_data()
        for group in chosen_groups(generator, work):
            group()
        os.chdir("/")
        shutil.rmtree(os.path.join(work, "faulty"), ignore_errors=True)
    return finish()


if __name__ == "__main__":
    sys.exit(main())
