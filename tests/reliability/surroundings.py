#!/usr/bin/env python3
"""What happens around a run: files that change while they are read, other runs, full disks.

  changed    a data file gets token ids beyond the vocabulary during the run, or shrinks: one line that names it,
             exit status 2 or 1, and the last checkpoint can be resumed once the data are whole
  two        of several runs that start in one folder at once, one works and the others are refused
  full       a disk fills up, at every number of free bytes in steps: at a resume and in a new run; the old files are
             intact, and with enough room the run continues

Mounting disks needs root; otherwise `full` is skipped.  Prints
"checks: P passed, F failed, S skipped".
"""
import array
import os
import shutil
import signal
import subprocess
import sys
import time

import tiny

from checks import check, end, error_lines, skip, write

RESUME = "--init_from=resume"
STARTERS, STARTS = 6, 5
ROOM_KIB = (0, 60, 80, 100) if not tiny.LONG else range(0, 120, 4)  # for a checkpoint of 56 KiB, refused without room


def refused(what, done, *words):
    lines = error_lines(done)
    check(1 <= done.returncode <= 3 and len(lines) >= 1, f"{what}: status {done.returncode}: {done.stderr[-300:]}")
    check(all(any(word in line for line in lines) for word in words), f"{what}: {words} not in {lines}")


def goes_on(what, out, expected):
    done = tiny.resume(out)
    check(done.returncode == 0 and tiny.contents(out) == expected, f"{what}: does not go on: {done.stderr[-300:]}")
    check(tiny.leftovers(out) == [], f"{what}: left behind: {tiny.leftovers(out)}")


def saved(out):
    return tiny.contents(out).get("iter", 0)


def begun(out, *arguments):
    """Starts a run that has saved and keeps working, for longer than any test takes."""
    process = subprocess.Popen(tiny.command(out, "--max_iters=100000000", "--log_interval=1000", *arguments),
                               env=tiny.ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    for _ in range(600):
        time.sleep(0.05)
        if os.path.exists(os.path.join(out, "trainer_state.json")) or process.poll() is not None:
            break
    check(process.poll() is None, "a run that works")
    return process


def ended(process):
    """Waits for the process to end by itself; returns it like subprocess.run()."""
    try:
        _, text = process.communicate(timeout=tiny.LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        _, text = process.communicate()
        check(False, "a run that goes on as if nothing were")
    return subprocess.CompletedProcess(process.args, process.returncode, "", text)


def damages(file_bytes):
    """Returns (name, words of the error line, function) for changes of a data file while a run reads it."""
    beyond = array.array("H", [61] * (file_bytes // 2)).tobytes()
    return (("ids beyond the vocabulary", ("61",), lambda file: file.write(beyond)),
            ("a file cut short", (), lambda file: file.truncate(20)), ("an empty file", (), lambda file: file.truncate(0)))


def changed(_):
    for path in ("data/train.bin", "data/val.bin"):
        shutil.copytree("data", "whole")
        for what, words, damage in damages(os.path.getsize(path)):
            tiny.clear("out")
            what, words = f"{path}: {what}", (os.path.basename(path), *words)
            process = begun("out")
            with open(path, "r+b") as file:
                damage(file)
            refused(what, ended(process), *words)
            before = saved("out")
            done = tiny.run("out", RESUME, f"--max_iters={before + 3}")
            check(done.returncode != 0 and saved("out") == before, f"{what}: still there at the resume: {done.stderr[-300:]}")
            shutil.copytree("whole", "data", dirs_exist_ok=True)
            done = tiny.run("out", RESUME, f"--max_iters={before + 3}")
            check(done.returncode == 0 and saved("out") == before + 4, f"{what}, data whole again: {done.stderr[-300:]}")
        tiny.clear("whole")


def two(expected):
    """All start at once.  The lock admits one at a time, so a late one may continue where the first has ended."""
    done = []
    for _ in range(STARTS):  # a resume that looks before there is a checkpoint may keep out the new run
        tiny.clear("shared")
        started = [subprocess.Popen(tiny.command("shared", *([RESUME] if number else [])), env=tiny.ENVIRONMENT,
                                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for number in range(STARTERS)]
        done = [ended(process) for process in started]
        if any(run.returncode == 0 for run in done):
            break
    check(any(run.returncode == 0 for run in done), f"none of {STARTERS} works: {[run.stderr[-100:] for run in done]}")
    for run in done:
        check(run.returncode in (0, 2) and len(error_lines(run)) == (run.returncode == 2),
              f"{run.returncode}: {run.stderr[-300:]}")
    if tiny.contents("shared") != expected:
        goes_on("after all of them", "shared", expected)
    process = begun("busy")
    refused("a second run", tiny.run("busy", RESUME), "lock", str(process.pid))
    process.send_signal(signal.SIGTERM)
    check(ended(process).returncode == 128 + signal.SIGTERM, "the first run is not disturbed")


class Disk:
    """A tmpfs of `kib` KiB, unmounted at the end."""

    def __init__(self, name, kib):
        self.name = os.path.abspath(name)
        os.makedirs(self.name, exist_ok=True)
        self.mounted = self.mount(f"size={kib}k")

    def mount(self, options):
        return subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", self.name], capture_output=True,
                              check=False).returncode == 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.mounted:
            subprocess.run(["umount", "-l", self.name], check=False)


def full(expected):
    """The disk has room for a checkpoint and `free` KiB when the run continues: its next save fails at any place."""
    with Disk("small", 4096) as disk:
        if not disk.mounted:
            skip("surroundings_disks", "a tmpfs cannot be mounted here (root only)")
            return
        full_run(disk, expected, "resume")
        full_run(disk, expected, "start")


def full_run(disk, expected, when):
    out, hits = os.path.join(disk.name, "out"), 0
    for free in ROOM_KIB:
        tiny.clear(out)
        if when == "resume":
            check(tiny.run(out, "--max_iters=1").returncode == 0, "a first part")
        before = tiny.contents(out)
        fill(disk.name, free)
        done = tiny.resume(out)
        what = f"{when}, {free} KiB free"
        hits += done.returncode != 0
        check(done.returncode in (0, 1), f"{what}: status {done.returncode}: {done.stderr[-300:]}")
        if done.returncode == 1:
            check(("No space left" if free > 56 else "not enough disk space") in done.stderr, f"{what}: {done.stderr[-300:]}")
        else:
            check(tiny.contents(out) == expected, f"{what}: success, and other bytes than in one go")
        now = tiny.contents(out)
        check(now.get("iter", 0) >= before.get("iter", 0), f"{what}: from {before.get('iter')} to {now.get('iter')}")
        check(not os.path.isdir(out) or tiny.leftovers(out) == [], f"{what}: left aside")
        os.remove(os.path.join(disk.name, "ballast"))
        goes_on(f"after {what}", out, expected)
    tiny.clear(out)
    print(f"full, {when}: {hits} of {len(ROOM_KIB)} disks too small for a save")
    check(hits > 0, f"{when}: no disk was full")


def fill(folder, free_kib):
    """Leaves about free_kib KiB."""
    state = os.statvfs(folder)
    size = max(0, state.f_bavail * state.f_frsize - free_kib * 1024)
    write(os.path.join(folder, "ballast"), bytes(size))


def main():
    only = sys.argv[1:]
    tiny.make_data()
    check(tiny.run("one").returncode == 0, "the run in one go")
    expected = tiny.contents("one")
    for test in (changed, two, full):
        if not only or test.__name__ in only:
            test(expected)


end(main)
