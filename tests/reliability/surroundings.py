#!/usr/bin/env python3
"""What happens around a run: files that change while they are read, other runs, full disks.

  changed    a data file gets token ids beyond the vocabulary during the run, or shrinks: one line that names it,
             exit status 2 or 1, and the last checkpoint can be resumed once the data are whole
  two        of several runs that start in one folder at once, one works and the others are refused
  full       a disk fills up, at every number of free bytes in steps: at a resume, in a new run, while gpt-prepare
             replaces a data set, while gpt-export writes; the old files are intact, and with enough room everything
             continues

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

from checks import GPT_EXPORT, GPT_PREPARE, check, end, error_lines, read, skip, write

RESUME = "--init_from=resume"
STARTERS, STARTS = 6, 5
FREE_KIB = range(0, 120, 40) if not tiny.LONG else range(0, 120, 4)
ROOM_KIB = (0, 60, 80, 100) if not tiny.LONG else FREE_KIB  # for a checkpoint of 56 KiB, refused without room


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


def traceable(command, tracer=()):
    return subprocess.run([*tracer, *command], env=tiny.TRACED if tracer else tiny.ENVIRONMENT, capture_output=True, text=True,
                          timeout=tiny.LIMIT_SECONDS, check=False)


def prepare(folder, text, tracer=()):
    """Prepares a data set of `text`, with a vocabulary that depends on the text."""
    return traceable([GPT_PREPARE, "--tokenizer=chars", "--threads=1", f"--out-dir={folder}", text], tracer)


def export(folder, run, tracer=()):
    return traceable([GPT_EXPORT, "--format=hf", f"--out_dir={run}", os.path.join(folder, "hf")], tracer)


def everything(folder):
    """Returns each file's bytes, by its path below the folder."""
    return {os.path.relpath(path, folder): read(path) for path in
            (os.path.join(place, name) for place, _, names in os.walk(folder) for name in names)}


def make_references(_):
    """Makes two texts and their data sets, and an export."""
    for name, text in (("old", "the old text, "), ("new", "A NEWER ONE; ")):
        write(f"{name}.txt", text * 2000)
        done = prepare(f"{name}-data", f"{name}.txt")
        check(done.returncode == 0, f"gpt-prepare: {done.stderr[-300:]}")
    os.makedirs("exported")
    done = export("exported", "one")
    check(done.returncode == 0 and everything("exported"), f"gpt-export: {done.stderr[-300:]}")


class Prepared:
    """gpt-prepare replaces the data set of old.txt in a folder by that of new.txt."""
    name, expected = "gpt-prepare", "new-data"

    def __init__(self, folder):
        self.folder = os.path.join(folder, "set")
        tiny.clear(self.folder)
        shutil.copytree("old-data", self.folder)

    def start(self, tracer=()):
        return prepare(self.folder, "new.txt", tracer)

    def whole(self):
        """Returns true when the data set is the old one or the new one, or, during the replacement, has no manifest."""
        now = self.finished()
        return now in (everything("old-data"), everything(self.expected)) or "manifest.json" not in now

    def found(self):
        return everything(self.folder)

    def finished(self):
        return {name: text for name, text in everything(self.folder).items() if "partial" not in name and name[0] != "."}

    def right(self):
        """If a state could not be removed at the end, the next run removes it."""
        return self.finished() == everything(self.expected)


class Exported:
    """gpt-export writes a new folder."""
    name, expected = "gpt-export", "exported"

    def __init__(self, folder):
        self.folder = os.path.join(folder, "exported")
        tiny.clear(self.folder)
        os.makedirs(self.folder)

    def start(self, tracer=()):
        return export(self.folder, "one", tracer)

    def found(self):
        """Temporary files cannot be removed from a disk that became read-only."""
        return {name: text for name, text in everything(self.folder).items() if not name.startswith("hf.gpt-export.tmp")}

    def whole(self):
        """The output stays in place when the last sync fails."""
        return self.found() == {} or self.right()

    def right(self):
        return self.found() == everything(self.expected)


def judge_failure(what, job, done, words):
    """Checks a run that gave up: one line, the old files are intact, and the same command succeeds once the fault is
    gone."""
    lines = error_lines(done)
    check(done.returncode == 1 and len(lines) == 1 and words in lines[0], f"{what}: status {done.returncode}: {done.stderr[-400:]}")
    check(job.whole(), f"{what}: what was there is not whole: {sorted(everything(job.folder))}")


def judge_end(what, job):
    done = job.start()
    is_there = done.returncode == 2 and "already exists" in done.stderr
    check((done.returncode == 0 or is_there) and job.found() == everything(job.expected),
          f"{what}: then: status {done.returncode}: {done.stderr[-300:]} {sorted(everything(job.folder))}")


def full(expected):
    """The disk has room for a checkpoint and `free` KiB when the run continues: its next save fails at any place."""
    with Disk("small", 4096) as disk:
        if not disk.mounted:
            skip("surroundings_disks", "a tmpfs cannot be mounted here (root only)")
            return
        full_run(disk, expected, "resume")
        full_run(disk, expected, "start")
        for kind in (Prepared, Exported):
            full_job(disk, kind)


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


def full_job(disk, kind):
    hits = 0
    for free in FREE_KIB:
        job = kind(disk.name)
        what = f"{job.name}, {free} KiB free"
        fill(disk.name, free)
        done = job.start()
        hits += done.returncode != 0
        if done.returncode != 0:
            judge_failure(what, job, done, "No space left")
            check(not any(".tmp-" in name for name in everything(job.folder)), f"{what}: left aside")
        else:
            check(job.right(), f"{what}: success, and not the right bytes")
        os.remove(os.path.join(disk.name, "ballast"))
        judge_end(what, kind(disk.name) if done.returncode == 0 else job)
        tiny.clear(job.folder)
    print(f"full, {kind.name}: {hits} of {len(FREE_KIB)} disks too small")
    check(hits > 0, f"{kind.name}: no disk was full")


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
    for test in (changed, two, make_references, full):
        if not only or test.__name__ in only or test is make_references:
            test(expected)


end(main)
