#!/usr/bin/env python3
"""Makes every call of a device fail in a training run: no memory, a refused launch, a lost device, a hang.

Each call of the interface of backend.h, on the cpu; with CHECK_LONG=1 on OpenCL too, if there is a device.  gpt-train-faulty
is gpt-train with a planted fault (faulty_registry.c).

Checked after each: the exit status is neither a signal's nor 0; there is one error line; there is no hang (the watchdog
ends it, and names the call and, during an op, the op); every device is closed; a run without faults continues from the
folder to the bytes of an uninterrupted run.

`make check` tries a sample, CHECK_LONG=1 a larger one.  Arguments: "failing" or "hanging" for one kind of fault.  Prints
"checks: P passed, F failed, S skipped".
"""
import os
import random

import tiny

from checks import BUILD, check, end, opencl_device
from faulty_device import (KINDS, Subject, before_watch, chosen, counted, in_one_go, spread, try_faults,
                           watched_calls)

FAULTY = os.path.join(BUILD, "tests", "reliability", "gpt-train-faulty")
SAMPLE = 3 if not tiny.LONG else 20
HANGS = 1 if not tiny.LONG else 5
CLOSING = "close:1:hang"
# Calls without a status; the watchdog does not watch devices.
ONLY_HANG = ("devices", "close", "holders", "algorithms", "timings")


class Backend(Subject):
    """A backend behind gpt-train-faulty's registry."""

    gives_back = ("close",)

    def __init__(self, backend, name=None, program=FAULTY):
        super().__init__(name or backend, program, backend, "GPT_FAULT")


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


def main():
    tiny.ENVIRONMENT["XDG_CACHE_HOME"] = os.environ["XDG_CACHE_HOME"]
    tiny.make_data()
    backend(random.Random(tiny.SEED), "cpu")
    if tiny.LONG and opencl_device():
        backend(random.Random(tiny.SEED), "opencl")


end(main)
