#!/usr/bin/env python3
"""Every allocation of the programs fails, once or from then on: those of the project's code and of jansson, mapped memory,
streams and threads (faulty_memory.c).

The commands are those of commands.py.  After each: no death by a signal, no hang, an error line where the program gave up, and
where it did not, the results of a run without faults; no memory that was never released (the programs count, and so does
AddressSanitizer); no checkpoint lost; and the same command without a fault, on what was left, has those results.

In `make check` a sample; with CHECK_LONG=1 every one, or with --part=K/N every N-th; names on the command line choose
commands.  Needs a linker that wraps functions.  Prints "checks: P passed, F failed, S skipped".
"""
import os
import random
import subprocess
import sys
import tempfile

import commands
import tiny

from checks import check, finish, skip

FAULTY = os.path.join(os.path.abspath(os.environ.get("top_builddir", ".")), "tests", "reliability")
SAMPLE = 15 if not tiny.LONG else 1 << 30  # of each command


def start(program, words, fault=None, tracer=()):
    """The finished process of a program with planted faults; it counts its allocations."""
    environment = dict(tiny.TRACED if tracer else tiny.ENVIRONMENT, GPT_FAULT_ALLOCATIONS="allocations",
                       XDG_CACHE_HOME=os.path.abspath("cache"))
    if fault:
        environment["GPT_FAULT_ALLOCATION"] = fault
    return subprocess.run([*tracer, os.path.join(FAULTY, program + "-faulty"), *words], env=environment, capture_output=True,
                          text=True, timeout=tiny.LIMIT_SECONDS, check=False)


def judge(command, fault, expected):
    what = f"{command.name}: allocation {fault}"
    command.fresh()
    done = command.run(lambda *how: start(*how, fault=fault))
    if done is None:
        check(False, f"{what}: hangs")
        return
    check(0 <= done.returncode <= 3, f"{what}: died: {done.returncode} {done.stderr[-1500:]}")
    check("internal error" not in done.stderr, f"{what}: {done.stderr[-500:]}")
    if done.returncode == 0:
        check(command.results(done) == expected, f"{what}: success, and other results: {done.stderr[-300:]}")
    else:
        check(f"{command.program}: error: " in done.stderr, f"{what}: status {done.returncode} without a line: {done.stderr[-300:]}")
    if done.returncode != 0 and command.saves():
        check(not (why := tiny.lost("work", done, command.least_iter())), f"{what}: {why}")
    again = command.again(start)
    check(again is not None and again.returncode == 0, f"{what}: what it left does not go on: {again and again.stderr[-300:]}")
    check(again is not None and command.results(again) == expected, f"{what}: then other results")
    check(tiny.leftovers("work") == [] if os.path.isdir("work") else True, f"{what}: left behind: {command.words}")


def main():
    generator = random.Random(tiny.SEED)
    if not os.path.exists(os.path.join(FAULTY, "gpt-prepare-faulty")):
        skip("failing_memory", "a linker without --wrap, or another C library")
        finish()
        return 77
    with tempfile.TemporaryDirectory(prefix="gpt-train-memory-") as work:
        os.chdir(work)
        commands.prepare(start)
        for command in commands.possible():
            if tiny.arguments() and command.name not in tiny.arguments():
                continue
            command.fresh()
            done = command.run(start)
            check(done is not None and done.returncode == 0, f"{command.name}: {done and done.stderr[-500:]}")
            expected = command.results(done)
            check(expected, f"{command.name}: results")
            with open("allocations", encoding="ascii") as file:
                count = int(file.read())
            every = [f"{number}{more}" for number in range(1, count + 1) for more in ("", "+")]
            picked = tiny.part(every if len(every) <= SAMPLE else generator.sample(every, SAMPLE))
            for fault in picked:
                judge(command, fault, expected)
            print(f"{command.name}: {len(picked)} of {len(every)} faults at {count} allocations tried", flush=True)
        os.chdir("/")
    return finish()


if __name__ == "__main__":
    sys.exit(main())
