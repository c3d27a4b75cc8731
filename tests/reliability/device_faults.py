#!/usr/bin/env python3
"""Makes every call of a device fail, in a training run and in commands that only report: no memory, a refused launch, a
lost device, a hang.

  cpu, opencl  each call of the interface of backend.h, on the cpu and on OpenCL if there is a device: gpt-train-faulty
               is gpt-train with a planted fault (faulty_registry.c)
  icd          each OpenCL function that the backend calls, at its first, a middle and its last call: a library between
               the program and the loader (opencl_faults.c)
  answers      each call of the interface in a plan, a plan for a resume, an evaluation, the perplexity of a text, and
               sampling (gpt-sample-faulty, which has no watchdog), all of one checkpoint; with CHECK_LONG on OpenCL too

Checked after each: the exit status is neither a signal's nor 0; there is one error line; there is no hang (the watchdog
ends it, and names the call and, during an op, the op); no memory is leaked; every device is closed and every OpenCL
object released; a run without faults continues from the folder to the bytes of an uninterrupted run.  A command that
only reports leaves the folder unchanged, byte for byte, and gives the same answer when it runs again without the fault.

`make check` tries a sample, CHECK_LONG=1 all.  Arguments: names of the list above, "failing" or "hanging" for one kind
of fault, and --part=K/N for every N-th case.  Prints "checks: P passed, F failed, S skipped".
"""
import json
import os
import random
import re

import commands
import tiny

from checks import BUILD, check, end, opencl_device, opencl_library
from faulty_device import (KINDS, Subject, before_watch, chosen, counted, in_one_go, spread, try_faults,
                           watched_calls)

FAULTY, FAULTY_SAMPLE = (os.path.join(BUILD, "tests", "reliability", f"{name}-faulty")
                         for name in ("gpt-train", "gpt-sample"))
SAMPLE = 3 if not tiny.LONG else 1 << 30
HANGS = 1 if not tiny.LONG else 1 << 30
ANSWER_HANGS = 1 if not tiny.LONG else 1 << 30  # for each command
TOKENS_JUDGED = 16 * 5 + 1  # five windows of the context, four of which are judged at once
CLOSING = "close:1:hang"
# Calls without a status; the watchdog does not watch devices.
ONLY_HANG = ("devices", "close", "holders", "choices", "timings")
# Functions that release something, or whose answer is not essential; the final bytes must be correct all the same.
# Kernels that cannot be loaded from the cache are compiled, and kernels that cannot be stored there are used anyway.
FORGIVEN = ("clRelease", "clBuildProgram", "clCreateProgramWithBinary", "clGetProgramInfo", "clGetPlatformInfo",
            "clGetProgramBuildInfo", "clFlush", "clGetKernelWorkGroupInfo", "clGetDeviceInfo")
# In `make check` the last call of each of these hangs.
HANGING = ("clEnqueueNDRangeKernel", "clFinish", "clEnqueueReadBuffer")


class Backend(Subject):
    """A backend behind gpt-train-faulty's registry."""

    gives_back = ("close",)

    def __init__(self, backend, name=None, program=FAULTY):
        super().__init__(name or backend, program, backend, "GPT_FAULT", GPT_FAULT_ALLOCATIONS=commands.HELD)

    def left(self):
        """Counts open devices, leaked memory and open files at the end, where the program counts them."""
        return super().left() + sum((commands.held() or (0,))[1:])


class Answer(Backend):
    """A command that only reports: the checkpoint that it reads must not change."""

    begin = "begun"

    def __init__(self, backend, name, arguments, answer, program=FAULTY, reports_free=False):
        """`answer` extracts the answer from the output; `reports_free` is true when the output ends with free memory,
        which may fail."""
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
    """Returns the digest of each file of the folder."""
    return {name: tiny.digest(os.path.join(folder, name)) for name in sorted(os.listdir(folder))}


def losses(text):
    return re.findall("(?:loss|perplexity|byte) [0-9.]+", text)


def planned(text):
    """Returns the answer to --plan without measured values: times, and memory of the process, its watchdog and its
    driver."""
    def constant(pairs):
        measured = "second|share|end_time|uncertain|disturbed|host|headroom|context|total|arena_budget"
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
    """OpenCL with a library in front of its loader."""

    closing = ("clFinish",)
    gives_back = ("clRelease",)

    def __init__(self, library):
        super().__init__("icd", FAULTY, "opencl", "OPENCL_FAULT", report="icd-report", GPT_TRAIN_OPENCL_LIBRARY=library,
                         OPENCL_FAULT_REPORT="icd-report")


def failing_calls(counts):
    """Returns each call with each kind of failure; of `devices` only "lost", when it finds none."""
    return [f"{call}:{number}:{kind}" for call, count in counts.items() for number in range(1, count + 1) for kind in KINDS
            if call not in ONLY_HANG or (call, kind) == ("devices", "lost")]


def resumed(subject):
    """Prepares a run to be resumed: only a resume repeats the earlier choices of algorithms."""
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
    """Returns each watched call except close, which comes last; on a device three of each kind, since the watchdog is the
    same."""
    watched = counted(subject, expected, "--watchdog=60")
    calls = watched_calls(subject, watched, before_watch(subject))
    most = 1 << 30 if "--backend=cpu" in subject.options else 3
    return [f"{call}:{number}:hang" for call in calls if call != "close" for number in spread(calls[call], most)]


def backend(generator, name):
    subject = Backend(name)
    expected = in_one_go(subject)
    counts = counted(subject, expected)
    check(counts["run"] > 10 and counts["upload"] > 10 and counts["sync"] > 10, f"{name}: calls {counts}")
    check(min(counts[call] for call in ONLY_HANG) > 0 and counts["close"] == 1, f"{name}: calls {counts}")
    failing, hanging = failing_calls(counts), hanging_calls(subject, expected)
    picked = chosen(tiny.sample(generator, failing, SAMPLE), [*tiny.sample(generator, hanging, HANGS), CLOSING])
    # The free memory at the end is only reported.
    last = f"info:{counts['info']}:"
    try_faults(subject, picked, expected, lambda fault, done: fault.startswith(last))
    chose = choosing(subject, expected)
    print(f"{name}: {len(picked)} of {len(failing)} failing and {len(hanging) + 1} hanging calls tried, and {chose} of choose, "
          f"{subject.missed} missed; a run makes {counts}")


def one_of_each(generator, failing):
    """In `make check` returns one fault for each of five calls."""
    if tiny.LONG:
        return failing
    calls = {}
    for fault in failing:
        calls.setdefault(fault.split(":")[0], []).append(fault)
    return [generator.choice(faults) for faults in generator.sample(list(calls.values()), min(5, len(calls)))]


def answer(generator, subject):
    """Tries the faults of a command."""
    expected = in_one_go(subject)
    counts = counted(subject, expected)
    check(expected["answer"] and counts["open"] == counts["close"] == 1, f"{subject.name}: {expected}, calls {counts}")
    failing, hanging = failing_calls(counts), hanging_calls(subject, expected) if subject.is_watched else []
    closing = [CLOSING] if subject.is_watched else []
    picked = chosen(one_of_each(generator, failing), tiny.sample(generator, hanging + closing, ANSWER_HANGS))
    last = f"info:{counts['info']}:"
    try_faults(subject, picked, expected, lambda fault, done: subject.reports_free and fault.startswith(last))
    print(f"{subject.name}: {len(picked)} of {len(failing)} failing and {len(hanging + closing)} hanging calls tried, "
          f"{subject.missed} missed; it makes {counts}", flush=True)


def answers(generator, name):
    """Tests the commands that report about a run's checkpoint."""
    resumed(Backend(name))
    with open("data/val.bin", "rb") as whole, open("few.bin", "wb") as few:
        few.write(whole.read(2 * TOKENS_JUDGED))
    for subject in answering(name):
        answer(generator, subject)


def icd(generator):
    library = opencl_library("tests/reliability/opencl_faults.c")
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
        # The last clFinish belongs to close.
        hanging = [f"{name}:{calls[name][-2 if name == 'clFinish' else -1]}:hang" for name in HANGING]
    picked = chosen(tiny.sample(generator, faults, SAMPLE), hanging)
    last = f"clFinish:{counts['clFinish']}:"  # before close
    try_faults(subject, picked, expected, lambda fault, done: fault.startswith((*FORGIVEN, last)))
    print(f"icd: {len(picked)} of {len(faults)} failing and {len(hanging)} hanging calls of {len(counts)} functions tried, "
          f"{subject.missed} missed")


def chosen_groups(generator):
    """Returns the groups of the command line, by default all; those that need OpenCL only if there is a device."""
    groups = [("cpu", "", lambda: backend(generator, "cpu")), ("answers", "", lambda: answers(generator, "cpu")),
              ("icd", "opencl", lambda: icd(generator))]
    if tiny.LONG:
        groups += [("opencl", "opencl", lambda: backend(generator, "opencl")),
                   ("answers", "opencl", lambda: answers(generator, "opencl"))]
    only = [word for word in tiny.arguments() if word not in ("failing", "hanging")]
    groups = [(device, run) for name, device, run in groups if not only or name in only]
    if any(device for device, _ in groups) and opencl_device() is None:
        groups = [(device, run) for device, run in groups if not device]
    return [run for _, run in groups]


def main():
    tiny.ENVIRONMENT["XDG_CACHE_HOME"] = os.environ["XDG_CACHE_HOME"]
    tiny.make_data()
    for group in chosen_groups(random.Random(tiny.SEED)):
        group()


end(main)
