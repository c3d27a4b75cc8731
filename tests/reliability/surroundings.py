#!/usr/bin/env python3
"""What happens around a run: files that change while they are read, large files, other runs, clocks, disks.

  changed    token ids beyond the vocabulary appear in a data file during the run, or the file shrinks: one line that names
             it, exit status 2 or 1, and the last checkpoint goes on once the data are whole
  sparse     data sets of 100 GB, holes for the most part: read like any other, in little memory
  clocks     the wall clock jumps over centuries at every look: the same bytes as ever
  two        of runs that start in one folder at once, one works and the others are refused
  read_only  a disk is made read-only before the start, between saves, or at a resume: one line each, nothing lost
  full       a disk fills up at each phase: at every number of free bytes in steps, what was saved before still loads

Mounting disks needs root; without it these are skipped.  Prints "checks: P passed, F failed, S skipped".
"""
import array
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import tiny

from checks import check, finish, preloadable, skip

SOURCE = os.path.abspath(os.environ.get("top_srcdir", "."))
RESUME = "--init_from=resume"
SPARSE_BYTES = 100 * 10**9
RESIDENT_KIB_MAX = 64 << 10
STARTERS = 6
FREE_KIB = range(0, 120, 30) if not tiny.LONG else range(0, 120, 4)


def errors(text):
    return [line for line in text.splitlines() if " error: " in line]


def refused(what, done, *words):
    lines = errors(done.stderr)
    check(1 <= done.returncode <= 3 and len(lines) >= 1, f"{what}: status {done.returncode}: {done.stderr[-300:]}")
    check(all(any(word in line for line in lines) for word in words), f"{what}: {words} not in {lines}")


def goes_on(what, out, expected):
    done = tiny.resume(out)
    check(done.returncode == 0 and tiny.contents(out) == expected, f"{what}: does not go on: {done.stderr[-300:]}")
    check(tiny.leftovers(out) == [], f"{what}: left behind: {tiny.leftovers(out)}")


def saved(out):
    return tiny.contents(out).get("iter", 0)


def begun(out, *arguments):
    """A run that has saved and still works, for longer than any test takes."""
    process = subprocess.Popen(tiny.command(out, "--max_iters=100000000", "--log_interval=1000", *arguments),
                               env=tiny.ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    for _ in range(600):
        time.sleep(0.05)
        if os.path.exists(os.path.join(out, "trainer_state.json")) or process.poll() is not None:
            break
    check(process.poll() is None, "a run that works")
    return process


def ended(process):
    """The process, ended by itself within a while, as subprocess.run() would give it."""
    try:
        _, text = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        _, text = process.communicate()
        check(False, "a run that goes on as if nothing were")
    return subprocess.CompletedProcess(process.args, process.returncode, "", text)


def changed(_):
    shutil.copytree("data", "whole")
    beyond = array.array("H", [61] * 2000).tobytes()
    for what, words, damage in (("ids beyond the vocabulary", ("train.bin", "61"), lambda file: file.write(beyond)),
                                ("a file cut short", ("train.bin",), lambda file: file.truncate(20)),
                                ("an empty file", ("train.bin",), lambda file: file.truncate(0))):
        tiny.clear("out")
        process = begun("out")
        with open("data/train.bin", "r+b") as file:
            damage(file)
        refused(what, ended(process), *words)
        before = saved("out")
        done = tiny.run("out", RESUME, f"--max_iters={before + 3}")
        check(done.returncode != 0 and saved("out") == before, f"{what}: still there at the resume: {done.stderr[-300:]}")
        shutil.copytree("whole", "data", dirs_exist_ok=True)
        done = tiny.run("out", RESUME, f"--max_iters={before + 3}")
        check(done.returncode == 0 and saved("out") == before + 4, f"{what}, data whole again: {done.stderr[-300:]}")


def sparse(_):
    os.makedirs("sparse/data")
    for name in ("train.bin", "val.bin"):
        with open(f"sparse/data/{name}", "wb") as file:
            array.array("H", range(61)).tofile(file)
            try:
                file.truncate(SPARSE_BYTES)
            except OSError as error:
                skip("surroundings_sparse", f"no files of 100 GB here: {error}")
                return
    done = tiny.run("sparse/out", "--dataset=./sparse/data", timeout=120)
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    check(done.returncode == 0, f"100 GB: {done.stderr[-300:]}")
    check(most <= RESIDENT_KIB_MAX or "asan" in done.stderr, f"100 GB: {most} KiB of memory")
    with open("sparse/data/train.bin", "r+b") as file:
        file.truncate(SPARSE_BYTES + 1)
    refused("100 GB and a byte", tiny.run("sparse/out2", "--dataset=./sparse/data"), "train.bin")
    shutil.rmtree("sparse")


def clocks(expected):
    library = preloadable("surroundings_clocks", tiny.GPT_TRAIN, os.path.join(SOURCE, "tests/reliability/clock_jumps.c"))
    if library is None:
        return
    preload = {"LD_PRELOAD": library, "CLOCK_JUMPS_REPORT": "jumps"}
    done = subprocess.run(tiny.command("clocks"), capture_output=True, text=True, timeout=60, check=False,
                          env={**tiny.ENVIRONMENT, **preload})
    check(done.returncode == 0 and tiny.contents("clocks") == expected, f"clocks that jump: {done.stderr[-300:]}")
    check(os.path.exists("jumps"), "the clock was in place")
    check("-" not in "".join(line for line in done.stdout.splitlines() if "time " in line and "ms" in line),
          "a step that took less than no time")


def two(expected):
    """All at once; the lock lets one through at a time, so that one that is late may go on where the first has ended."""
    tiny.clear("shared")
    started = [subprocess.Popen(tiny.command("shared", *([RESUME] if number else [])), env=tiny.ENVIRONMENT,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for number in range(STARTERS)]
    done = [ended(process) for process in started]
    check(any(run.returncode == 0 for run in done), f"none of {STARTERS} works: {[run.stderr[-100:] for run in done]}")
    for run in done:
        check(run.returncode in (0, 2) and len(errors(run.stderr)) == (run.returncode == 2),
              f"{run.returncode}: {run.stderr[-300:]}")
    if tiny.contents("shared") != expected:
        goes_on("after all of them", "shared", expected)
    process = begun("busy")
    refused("a second run", tiny.run("busy", RESUME), "lock", str(process.pid))
    process.send_signal(signal.SIGTERM)
    check(ended(process).returncode == 128 + signal.SIGTERM, "the first run is not disturbed")


class Disk:
    """A tmpfs of so many KiB, unmounted at the end."""

    def __init__(self, name, kib):
        self.name = os.path.abspath(name)
        os.makedirs(self.name, exist_ok=True)
        self.mounted = self.mount(f"size={kib}k")

    def mount(self, options):
        return subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", self.name], capture_output=True,
                              check=False).returncode == 0

    def remount(self, options):
        """A file that is open for writing keeps a disk from becoming read-only."""
        return subprocess.run(["mount", "-o", f"remount,{options}", self.name], capture_output=True, check=False).returncode == 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.mounted:
            subprocess.run(["umount", "-l", self.name], check=False)


def read_only(expected):
    with Disk("disk", 4096) as disk:
        if not disk.mounted:
            skip("surroundings_disks", "a tmpfs cannot be mounted here (root only)")
            return
        out = os.path.join(disk.name, "out")
        check(disk.remount("ro"), "read-only")
        refused("read-only at the start", tiny.run(out), "Read-only")
        disk.remount("rw")
        check(tiny.run(out, "--max_iters=1").returncode == 0, "a first part")
        before = tiny.contents(out)
        check(disk.remount("ro"), "read-only again")
        refused("read-only at the resume", tiny.resume(out), "Read-only")
        disk.remount("rw")
        check(tiny.contents(out) == before, "read-only: the checkpoint changed")
        goes_on("after read-only", out, expected)


def full(expected):
    """The disk has room for a checkpoint and so much more when the run goes on: its next save ends at any place."""
    with Disk("small", 4096) as disk:
        if not disk.mounted:
            skip("surroundings_disks", "a tmpfs cannot be mounted here (root only)")
            return
        out, hits = os.path.join(disk.name, "out"), 0
        for free in FREE_KIB:
            tiny.clear(out)
            check(tiny.run(out, "--max_iters=1").returncode == 0, "a first part")
            before = tiny.contents(out)
            fill(disk.name, free)
            done = tiny.resume(out)
            hits += done.returncode != 0
            check(done.returncode in (0, 1), f"{free} KiB free: status {done.returncode}: {done.stderr[-300:]}")
            if done.returncode == 1:
                check("No space left" in done.stderr, f"{free} KiB free: {done.stderr[-300:]}")
            now = tiny.contents(out)
            check(now.get("iter", 0) >= before["iter"], f"{free} KiB free: from {before['iter']} to {now.get('iter')}")
            check(tiny.leftovers(out) == [], f"{free} KiB free: left aside: {tiny.leftovers(out)}")
            os.remove(os.path.join(disk.name, "ballast"))
            goes_on(f"after {free} KiB free", out, expected)
        print(f"full: {hits} of {len(FREE_KIB)} disks too small for a save")
        check(hits > 0, "no disk was full")


def fill(folder, free_kib):
    """Leaves about so many KiB."""
    state = os.statvfs(folder)
    size = max(0, state.f_bavail * state.f_frsize - free_kib * 1024)
    with open(os.path.join(folder, "ballast"), "wb") as file:
        file.write(b"\0" * size)


def main():
    only = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="gpt-train-around-") as work:
        os.chdir(work)
        tiny.make_data()
        check(tiny.run("one").returncode == 0, "the run in one go")
        expected = tiny.contents("one")
        for test in (changed, sparse, clocks, two, read_only, full):
            if not only or test.__name__ in only:
                test(expected)
        os.chdir("/")
    return finish()


if __name__ == "__main__":
    sys.exit(main())
