#!/usr/bin/env python3
"""Makes every input or output call of the programs fail, once or from then on, with each of five errors (EINTR once
only: the programs rightly retry an interrupted call for ever).

The commands are those of commands.py: new, replacing and resumed runs; data sets that are prepared, continued or
replaced; samples, plans, exports.  Checked after each: no death by a signal; no hang; an error line when the program
gave up (one, except for training, which tries to save again); no false success, and no success with such a line; no
lost checkpoint; no temporary file; and the same command without a
fault, on what was left, gives the results of an undisturbed run.

Then two calls of one command fail, each once: for example a sync and the call that inspects its result; or any call and
the first removal after it, which cleans up.  Then an export that replaces another model's fails, or is killed, at every
call that changes the folder: no reader may find files of both.

`make check` tries a small sample of the calls from the first that names one of our files, CHECK_LONG=1 a larger one; names
on the command line select commands.  Needs strace.
"""
import os
import random
import re
import shutil

import commands
import tiny

from checks import check, end

ERRORS = ("ENOSPC", "EIO", "EINTR", "EACCES", "EDQUOT")
NAMES = ("openat", "read", "pread64", "write", "pwrite64", "fsync", "fdatasync", "rename", "renameat", "renameat2", "link",
         "linkat", "unlink", "unlinkat", "ftruncate", "close", "mkdir", "rmdir", "lseek", "newfstatat", "fstat", "flock", "fchmod",
         "getdents64", "readlink", "access", "faccessat", "faccessat2", "statx", "fcntl", "pipe2")
OURS = r'"(\./)?(work|one|other|text|hf|cache)\b'  # marks the end of the loader's start, whose failures are not ours
OUTSIDE_MAX = 6  # calls of one name and file outside of saves: repetitions, such as reading a batch
SAMPLE = 1 if not tiny.LONG else 12  # for each command
PAIRS = 1 if not tiny.LONG else 4
CLEANUPS = 0 if not tiny.LONG else 4


def points(calls):
    seen, found = {}, []
    for name, number, saving, what in calls:
        seen[name, what] = seen.get((name, what), 0) + 1
        if name in NAMES and (saving or seen[name, what] <= OUTSIDE_MAX):
            found.append((name, number))
    return found


def traced(command):
    """Returns the system calls of the command, and its outcome without faults."""
    command.fresh()
    log, done = os.path.abspath("strace.log"), None

    def run(tracer):
        nonlocal done
        done = command.run(lambda *how: commands.start(*how, tracer=tracer))
        return done

    return tiny.trace_of(run, log, OURS), done


def pairs(found, generator):
    """Pairs of different functions, since strace takes one rule for each; near each other, because one often depends on
    the other."""
    picked = []
    while len(picked) < PAIRS:
        first = generator.randrange(len(found) - 1)
        second = min(len(found) - 1, first + generator.randrange(1, 25))
        if found[first][0] != found[second][0]:
            picked.append([(*found[at], generator.choice(ERRORS), False) for at in (first, second)])
    return picked


def cleanups(found):
    """Pairs each call with the first removal after it: a failure is often cleaned up, and the cleanup fails too."""
    removals, every = 0, []
    for name, number in found:
        removals = number if name == "unlink" else removals
        if name != "unlink":
            every.append([(name, number, "EIO", False), ("unlink", removals + 1, "EIO", False)])
    return every


def judge(command, what, done, expected, lines):
    """`lines` of metrics.jsonl of an undisturbed run."""
    errors = len(re.findall(f"^{command.program}: error[:[]", done.stderr, re.MULTILINE))
    mute = " write " in what and (" and all" in what or ", then" in what)  # standard error fails too
    check(0 <= done.returncode < 128, f"{what}: died: {done.returncode} {done.stderr[-300:]}")
    check("internal error" not in done.stderr, f"{what}: {done.stderr[-300:]}")
    if done.returncode == 0:
        check(command.results(done) == expected, f"{what}: success, and other results: {done.stderr[-300:]}")
        check(command.trains() or errors == 0, f"{what}: success, and an error line: {done.stderr[-300:]}")
    else:
        check(mute or (errors >= 1 if command.trains() else errors == 1),
              f"{what}: status {done.returncode} with {errors} error lines: {done.stderr[-500:]}")
    if command.saves():
        check(not (why := tiny.lost("work", done, command.least_iter())), f"{what}: {why}")
    check(not command.is_mixed(), f"{what}: left half a data set: {os.listdir('work') if os.path.isdir('work') else []}")
    again = command.again(commands.start)
    check(again is not None and again.returncode == 0, f"{what}: what it left does not go on: {again and again.stderr[-300:]}")
    check(again is not None and command.results(again) == expected, f"{what}: then other results")
    if command.saves() and "metrics.jsonl" not in done.stderr:
        check(tiny.metrics("work") == lines, f"{what}: other metrics, and nothing was said of them")
    check(not command.is_lost(), f"{what}: the run that was there before is lost")
    check(command.widened() == [], f"{what}: no longer private: {command.widened()}")
    left = tiny.leftovers("work") if os.path.isdir("work") else []
    check(left == [], f"{what}: left behind: {left}")


def injected(faults):
    """Returns strace's arguments for [(name, number, error, whether all later calls fail too)]."""
    return tiny.inject(*((name, f"error={error}", f"{number}{'+' if forever else ''}") for name, number, error, forever in faults))


def attack(command, generator):
    calls, done = traced(command)
    expected, found = command.results(done), points(calls)
    lines = tiny.metrics("work") if command.saves() else []
    check(expected, f"{command.name}: results")
    every = [[(name, number, error, forever)] for name, number in found for error in ERRORS
             for forever in (False, True) if not (forever and error == "EINTR")]
    check(len(every) > 100, f"{command.name}: the trace shows what it does: {len(every)} faults")
    dirty = cleanups(found)
    picked = tiny.sample(generator, every, SAMPLE) + pairs(found, generator) + tiny.sample(generator, dirty, CLEANUPS)
    for faults in picked:
        what = f"{command.name}: " + ", then ".join(
            f"{name} {number} {'and all after it ' if forever else ''}{error}" for name, number, error, forever in faults)
        command.fresh()
        done = command.run(lambda *how, words=injected(faults): commands.start(*how, tracer=words))
        check(done is not None, f"{what}: hangs")
        if done is not None:
            judge(command, what, done, expected, lines)
    print(f"{command.name}: {len(picked)} of {len(every)} faults, {PAIRS} pairs and {len(dirty)} with the removal after them tried",
          flush=True)


def model_of(folder):
    """Returns the files of the folder if they form a model, else nothing."""
    found = commands.digests(folder)
    return found if "config.json" in found else {}


def unlike(folder):
    """Makes a copy in which every file differs."""
    tiny.clear("hf_unlike")
    shutil.copytree(folder, "hf_unlike")
    for name in os.listdir("hf_unlike"):
        with open(os.path.join("hf_unlike", name), "ab") as file:
            file.write(b"\n")
    return "hf_unlike"


def attack_publishing(command):
    command = commands.Command(command.name, command.program, command.words, unlike(command.begin), results=command.results)
    calls, done = traced(command)
    new, old, tried = command.results(done), commands.digests(command.begin), 0
    check(model_of("work") == new and old != new, "folder: two models")
    first = next(at for at, call in enumerate(calls) if call[0] == "unlink" and call[3] == '"work/config.json"')
    for name, number, _, what in calls[first:]:
        for fault in ("error=EIO", "signal=SIGKILL") if name in ("unlink", "rename", "fsync") else ():
            command.fresh()
            done = command.run(lambda *how, words=tiny.inject((name, fault, number)): commands.start(*how, tracer=words))
            found, tried = model_of("work"), tried + 1
            check(found in ({}, old, new), f"folder: {fault} at {name} {number} of {what}: files of two models: {found}")
            told = done.returncode != 1 or found in (old, new) or "repeat the export" in done.stderr
            check(told, f"folder: {fault} at {name} {number} of {what}: it is not said: {done.stderr}")
    print(f"folder: {tried} faults while it is replaced")
    check(tried >= 20, f"folder: only {tried} faults while it is replaced")
    tiny.clear("hf_new")
    calls = tiny.trace_of(lambda tracer: commands.start("gpt-export", ["--out_dir=one", "--format=hf", "hf_new"], tracer=tracer),
                          os.path.abspath("strace.log"), OURS)
    names = [call[0] for call in calls if call[0] in ("rename", "fsync")]
    check(names[-2:] == ["rename", "fsync"], f"folder: the name of a new one is synced: {names}")


def main():
    generator = random.Random(tiny.SEED)
    if not tiny.has_strace("failing_calls"):
        return
    commands.prepare(commands.start)
    for command in commands.possible():
        if not tiny.arguments() or command.name in tiny.arguments():
            attack(command, generator)
            if command.name == "folder":
                attack_publishing(command)


end(main)
