#!/usr/bin/env python3
"""Every allocation of the programs fails, once or from then on: those of the project's code and of jansson, mapped memory,
streams and threads (faulty_memory.c).

The commands are those of commands.py.  After each: no death by a signal, no hang, an error line where the program gave up, and
where it did not, the results of a run without faults; nothing that was allocated or opened and is held at the end (the programs
count, and AddressSanitizer does); no checkpoint lost; and the same command without a fault, on what was left, has those results.

In `make check` a sample; with CHECK_LONG=1 every one, or with --part=K/N every N-th; names on the command line choose
commands.  Needs a linker that wraps functions.  Prints "checks: P passed, F failed, S skipped".
"""
import os
import random
import sys
import tempfile

import commands
import tiny

from checks import check, finish, skip

SAMPLE = 15 if not tiny.LONG else 1 << 30  # of each command


def judge(command, fault, expected, held):
    what = f"{command.name}: allocation {fault}"
    command.fresh()
    done = command.run(lambda *how: commands.start(*how, fault=fault))
    if done is None:
        check(False, f"{what}: hangs")
        return
    check(0 <= done.returncode <= 3, f"{what}: died: {done.returncode} {done.stderr[-1500:]}")
    check("internal error" not in done.stderr, f"{what}: {done.stderr[-500:]}")
    now = commands.held()
    check(now is not None and now[1] <= held[1] and now[2] <= held[2], f"{what}: held at the end: {now}, not {held}")
    if done.returncode == 0:
        check(command.results(done) == expected, f"{what}: success, and other results: {done.stderr[-300:]}")
    else:
        check(f"{command.program}: error: " in done.stderr, f"{what}: status {done.returncode} without a line: {done.stderr[-300:]}")
    if done.returncode != 0 and command.saves():
        check(not (why := tiny.lost("work", done, command.least_iter())), f"{what}: {why}")
    check(not command.is_mixed(), f"{what}: left half a data set: {os.listdir('work') if os.path.isdir('work') else []}")
    again = command.again(commands.start)
    check(again is not None and again.returncode == 0, f"{what}: what it left does not go on: {again and again.stderr[-300:]}")
    check(again is not None and command.results(again) == expected, f"{what}: then other results")
    check(tiny.leftovers("work") == [] if os.path.isdir("work") else True, f"{what}: left behind: {command.words}")


def main():
    generator = random.Random(tiny.SEED)
    if not commands.is_faulty():
        skip("failing_memory", "a linker without --wrap, or another C library")
        finish()
        return 77
    with tempfile.TemporaryDirectory(prefix="gpt-train-memory-") as work:
        os.chdir(work)
        commands.prepare(commands.start)
        for command in commands.possible():
            if tiny.arguments() and command.name not in tiny.arguments():
                continue
            command.fresh()
            done = command.run(commands.start)
            check(done is not None and done.returncode == 0, f"{command.name}: {done and done.stderr[-500:]}")
            expected = command.results(done)
            check(expected, f"{command.name}: results")
            held = commands.held()
            count = held[0]
            every = [f"{number}{more}" for number in range(1, count + 1) for more in ("", "+")]
            picked = tiny.part(every if len(every) <= SAMPLE else generator.sample(every, SAMPLE))
            for fault in picked:
                judge(command, fault, expected, held)
            print(f"{command.name}: {len(picked)} of {len(every)} faults at {count} allocations tried", flush=True)
        os.chdir("/")
    return finish()


if __name__ == "__main__":
    sys.exit(main())
