#!/usr/bin/env python3
"""What happens around a run: files that change while they are read, and other runs in its folder.

  changed    a data file gets token ids beyond the vocabulary during the run, or shrinks: one line that names it,
             exit status 2 or 1, and the last checkpoint can be resumed once the data are whole
  two        of several runs that start in one folder at once, one works and the others are refused

Full disks are in tests/e2e/bad_input.sh, and in failing_calls.py.
"""
import array
import os
import shutil
import signal
import subprocess
import sys

import tiny

from checks import check, end, error_lines, wait_for

RESUME = "--init_from=resume"
STARTERS, STARTS = 6, 20


def refused(what, done, *words):
    lines = error_lines(done)
    check(1 <= done.returncode <= 3 and len(lines) == 1, f"{what}: status {done.returncode}: {done.stderr[-300:]}")
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
    wait_for(lambda: os.path.exists(os.path.join(out, "trainer_state.json")) or process.poll() is not None)
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
            ("a file cut short", ("truncated",), lambda file: file.truncate(20)),
            ("an empty file", ("truncated",), lambda file: file.truncate(0)))


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


def main():
    only = sys.argv[1:]
    tiny.make_data()
    check(tiny.run("one").returncode == 0, "the run in one go")
    expected = tiny.contents("one")
    for test in (changed, two):
        if not only or test.__name__ in only:
            test(expected)


end(main)
