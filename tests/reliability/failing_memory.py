#!/usr/bin/env python3
"""Makes every allocation of the programs fail, once or from then on: those of the project's code and of jansson, mapped
memory, streams and threads (faulty_memory.c).

The commands are those of commands.py, on the cpu, on OpenCL if there is a driver, and on the emulated card.  Checked
after each: no death by a signal; no hang; an error line when the program gave up, or else the results of an undisturbed
run; no leaked memory or open file (the programs count, and so does AddressSanitizer), and no leaked device object (its
library counts: opencl_faults.c, fake_runtime.cpp); no lost checkpoint; and the same command without a fault, on what
was left, gives those results.  The allocations of libraries do not fail: a driver and the emulation are not wrapped.

The number of allocations may differ slightly between runs, because a device is measured or a driver compiles: an
allocation that a run does not reach counts as missed.

On a device only allocations that the backend's code requests, directly or indirectly, fail: the others are the same as
on the cpu.  `make check` tries a sample, CHECK_LONG=1 every one, --part=K/N every N-th; names on the command line select
commands.  Needs a linker that wraps functions.  Prints "checks: P passed, F failed, S skipped".
"""
import os
import random

import commands
import tiny

from checks import check, end, opencl_device, opencl_library, skip

SAMPLE = 2 if not tiny.LONG else 1 << 30  # for each command
ON_DEVICE = 1 if not tiny.LONG else 1 << 30  # the same on a device


def judge(command, fault, expected, held):
    """Runs the command with the fault and checks the result.  Returns true when the run reached the fault."""
    what = f"{command.name}: allocation {fault}"
    command.fresh()
    done = command.run(lambda *how: commands.start(*how, fault=fault))
    if done is None:
        check(False, f"{what}: hangs")
        return True
    check(0 <= done.returncode <= 3, f"{what}: died: {done.returncode} {done.stderr[-1500:]}")
    check("internal error" not in done.stderr, f"{what}: {done.stderr[-500:]}")
    now = commands.held()
    check(now is not None and now[1] <= held[1] and now[2] <= held[2], f"{what}: held at the end: {now}, not {held}")
    check(not commands.objects_left(), f"{what}: {commands.objects_left()} objects of the device are not given back")
    if done.returncode == 0:
        check(command.results(done) == expected, f"{what}: success, and other results: {done.stderr[-300:]}")
    else:
        check(f"{command.program}: error" in done.stderr, f"{what}: status {done.returncode} without a line: {done.stderr[-300:]}")
    if done.returncode != 0 and command.saves():
        check(not (why := tiny.lost("work", done, command.least_iter())), f"{what}: {why}")
    check(not command.is_mixed(), f"{what}: left half a data set: {os.listdir('work') if os.path.isdir('work') else []}")
    again = command.again(commands.start)
    check(again is not None and again.returncode == 0, f"{what}: what it left does not go on: {again and again.stderr[-300:]}")
    check(again is not None and command.results(again) == expected, f"{what}: then other results")
    check(tiny.leftovers("work") == [] if os.path.isdir("work") else True, f"{what}: left behind: {command.words}")
    return done.returncode != 0 or now is None or now[0] >= int(fault.rstrip("+"))


def faults_of(command, count, generator):
    """Returns the faults to try, and how many there are."""
    numbers, most = range(1, count + 1), SAMPLE
    if command.device != "cpu":
        numbers, most = commands.allocated_below(f"backends/{command.device}/", command) or numbers, ON_DEVICE
    every = [f"{number}{more}" for number in numbers for more in ("", "+")]
    return tiny.part(tiny.sample(generator, every, most)), len(every)


def attack(command, generator):
    command.fresh()
    done = command.run(commands.start)
    check(done is not None and done.returncode == 0, f"{command.name}: {done and done.stderr[-500:]}")
    expected, held = command.results(done), commands.held()
    check(expected, f"{command.name}: results")
    check(held[1] == 0, f"{command.name}: {held[1]} blocks are not released, without a fault")
    check(commands.objects_left() == (0 if command.device != "cpu" else None), f"{command.name}: {commands.objects_left()} objects")
    picked, every = faults_of(command, held[0], generator)
    missed = sum(not judge(command, fault, expected, held) for fault in picked)
    check(missed <= 1 + len(picked) / 10, f"{command.name}: {missed} of {len(picked)} allocations were not made")
    print(f"{command.name}: {len(picked)} of {every} faults at {held[0]} allocations tried, {missed} missed", flush=True)


def has_device(device):
    """Returns true if the device, real or emulated, is available; otherwise skips."""
    if device == "cuda":
        found = os.path.exists(commands.path_of("gpt-train", device))
        if not found:
            skip("failing_memory_cuda", "no C++17 compiler, so that the cuda backend cannot be emulated")
        return found
    library = opencl_library("tests/reliability/opencl_faults.c") if opencl_device() else None
    if library is not None:  # it counts leaked objects
        tiny.ENVIRONMENT["GPT_TRAIN_OPENCL_LIBRARY"] = library
    return library is not None


def chosen():
    """Returns the commands that the command line names (default: all) whose initial folders could be made."""
    wanted = tiny.arguments()
    picked = [command for command in commands.on_devices() if not wanted or command.name in wanted]
    for device in sorted({command.device for command in picked}):
        if has_device(device):
            commands.prepare_device(commands.start, device)
        else:
            picked = [command for command in picked if command.device != device]
    return [command for command in commands.possible() if not wanted or command.name in wanted] + picked


def main():
    generator = random.Random(tiny.SEED)
    if not commands.is_faulty():
        skip("failing_memory", "a linker without --wrap, or another C library")
        return
    commands.prepare(commands.start)
    for command in chosen():
        attack(command, generator)


end(main)
