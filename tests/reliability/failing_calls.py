#!/usr/bin/env python3
"""Every input or output call of a run that saves fails, once or from then on, with each of five errors (EINTR once only: a
call that is interrupted for ever is rightly tried for ever).

After each: no death by a signal, no hang, one line or more that says what failed where the run gave up, no success that
is not one, no memory that was never released (the program counts), no file left aside, and a run without faults that goes
on from there ends with the bytes of the run in one go.

In `make check` a sample; with CHECK_LONG=1 every call from the program's own start on, or with --part=K/N every N-th.
Needs strace.
Prints "checks: P passed, F failed, S skipped".
"""
import os
import random
import subprocess
import sys
import tempfile

import tiny

from checks import check, finish, skip

ERRORS = ("ENOSPC", "EIO", "EINTR", "EACCES", "EDQUOT")
NAMES = ("openat", "read", "pread64", "write", "pwrite64", "fsync", "fdatasync", "rename", "renameat", "renameat2", "link",
         "linkat", "unlink", "unlinkat", "ftruncate", "close", "mkdir", "lseek", "newfstatat", "fstat", "flock")
OUTSIDE_MAX = 20  # calls of one name outside of saves: the same one again and again, such as reading a batch
SAMPLE = 60 if not tiny.LONG else 1 << 30


def points(calls):
    """Calls after the folder's lock was taken: before it is the loader's start, whose failures are not ours."""
    first = next(i for i, call in enumerate(calls) if call[0] == "flock")
    seen, found = {}, []
    for name, number, saving in calls[first:]:
        seen[name] = seen.get(name, 0) + 1
        if name in NAMES and (saving or seen[name] <= OUTSIDE_MAX):
            found.append((name, number))
    return found


def inject(name, number, error, forever):
    when = f"{number}+" if forever else str(number)
    return ("strace", "-qq", "-o", os.devnull, "-e", f"trace={name}", "-e", f"inject={name}:error={error}:when={when}")


def judge(what, done, expected):
    check(0 <= done.returncode < 128, f"{what}: died: {done.returncode} {done.stderr[-300:]}")
    check("internal error" not in done.stderr, f"{what}: {done.stderr[-300:]}")
    if done.returncode == 0:
        check(tiny.contents("faulty") == expected, f"{what}: success, and other bytes than in one go")
    else:
        mute = what.startswith("write ") and " and all" in what  # standard error fails too
        check(mute or "gpt-train:" in done.stderr, f"{what}: status {done.returncode} without a line: {done.stderr[-300:]}")
    again = tiny.resume("faulty")
    check(again.returncode == 0, f"{what}: what it left does not go on: {again.returncode} {again.stderr[-300:]}")
    check(tiny.contents("faulty") == expected, f"{what}: then other bytes than in one go")
    check(tiny.leftovers("faulty") == [], f"{what}: left behind: {tiny.leftovers('faulty')}")


def main():
    generator = random.Random(tiny.SEED)
    if not tiny.has_strace():
        skip("failing_calls", "no strace that may trace (Debian: strace)")
        finish()
        return 77
    with tempfile.TemporaryDirectory(prefix="gpt-train-faults-") as work:
        os.chdir(work)
        tiny.make_data()
        done = tiny.run("one")
        check(done.returncode == 0, f"the run in one go: {done.stderr[-500:]}")
        expected = tiny.contents("one")
        every = [(name, number, error, forever) for name, number in points(tiny.trace("traced")) for error in ERRORS
                 for forever in (False, True) if not (forever and error == "EINTR")]
        check(len(every) > 500, f"the trace shows what a run does: {len(every)} faults")
        picked = tiny.part(every if len(every) <= SAMPLE else generator.sample(every, SAMPLE))
        for name, number, error, forever in picked:
            what = f"{name} {number} {'and all after it ' if forever else ''}{error}"
            tiny.clear("faulty")
            try:
                done = tiny.run("faulty", tracer=inject(name, number, error, forever))
            except subprocess.TimeoutExpired:
                check(False, f"{what}: hangs")
                continue
            judge(what, done, expected)
        print(f"{len(picked)} of {len(every)} faults tried")
        os.chdir("/")
    return finish()


if __name__ == "__main__":
    sys.exit(main())
