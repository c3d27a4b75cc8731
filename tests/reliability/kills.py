#!/usr/bin/env python3
"""Signals at every system call of a run that saves, SIGKILL at random moments too; then resume, and compare bytes.

  calls     a run of four updates that saves three times is killed at each system call from its first save on (strace's
            injection), resumed, and ends with files that are byte for byte those of the run that nobody killed
  resume    a run that was killed inside a save is resumed and killed again at each of that start's calls
  signals   SIGTERM, SIGINT, SIGHUP and SIGPIPE at each call of the same run, evaluations and saves included: the first three
            end it in order, a second one at once, the last not at all
  random    a run that saves after every update is killed at random moments, every second time at one of the next save, or
            more often where those before missed; with fewer than three tenths of the kills inside a save up to twice as many
            more are tried, and the test fails where that does not help

In `make check` a sample of the calls and 30 random kills; with CHECK_LONG=1 every call and 1,000.  Names of these on the
command line choose some, and --part=K/N every N-th case.
Prints "checks: P passed, F failed, S skipped".
"""
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import tiny

from checks import check, finish, skip

SAMPLE = 40 if not tiny.LONG else 1 << 30
RANDOM_KILLS = 1000 if tiny.LONG else 30
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE)
HITS_MIN = 0.3
TRIES_MAX = 3  # times the number of kills, where fewer hit than must: on a busy machine a save moves away from where it was
REACHED_MIN = 0.9
AIMED_BELOW = 0.4  # share of hits below which every kill is aimed at a save
SAVE_SECONDS = 0.004  # about what the tiny run's save takes on a disk; learnt as kills hit and miss


def killed_at(name, number, start):
    """A run killed when it enters the call; whether it died of that, or None where it ended before: how often a thread waits
    for another differs from run to run."""
    done = start(tracer=("strace", "-qq", "-o", os.devnull, "-e", f"trace={name}", "-e",
                         f"inject={name}:signal=SIGKILL:when={number}"))
    return None if done.returncode == 0 else done.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)


def chosen(calls, generator):
    return tiny.part(calls if len(calls) <= SAMPLE else sorted(generator.sample(calls, SAMPLE), key=calls.index))


def judge(out, expected, what, died):
    """Resumes to the end: the files are those of the run in one go."""
    check(died is not False, f"{what}: another end")
    done = tiny.resume(out)
    check(done.returncode == 0, f"{what}: the resumed run ends with {done.returncode}: {done.stderr[-400:]}")
    check(done.returncode == 0 and tiny.contents(out) == expected, f"{what}: other bytes than in one go")
    check(tiny.leftovers(out) == [], f"{what}: left behind: {tiny.leftovers(out)}")


def at_calls(expected, generator, calls):
    first = next(i for i, call in enumerate(calls) if call[2])
    inside = sum(call[2] for call in calls)
    check(inside >= 30, f"the trace shows the saves: {inside} calls inside")
    hits, reached, picked = 0, 0, chosen(calls[first:], generator)
    for name, number, saving in picked:
        tiny.clear("killed")
        died = killed_at(name, number, lambda **how: tiny.run("killed", **how))
        reached, hits = reached + bool(died), hits + (saving and bool(died))
        judge("killed", expected, f"killed at {name} {number}", died)
    check(reached >= REACHED_MIN * len(picked), f"{reached} of {len(picked)} calls were reached")
    print(f"killed at {reached} of {len(calls) - first} calls from the first save on, {hits} of {inside} inside a save")


def at_resume(expected, generator, where):
    """The folder of a run that died before its first rename inside a save, resumed and killed."""
    tiny.clear("broken")
    check(killed_at(*where, lambda **how: tiny.run("broken", **how)), "a folder that a kill left")
    shutil.copytree("broken", "again")
    calls = tiny.trace("again", start=lambda **how: tiny.resume("again", **how))
    tiny.clear("again")
    first = next(i for i, call in enumerate(calls) if call[0] == "flock")
    reached, picked = 0, chosen(calls[first:], generator)
    for name, number, _ in picked:
        tiny.clear("killed")
        shutil.copytree("broken", "killed")
        died = killed_at(name, number, lambda **how: tiny.resume("killed", **how))
        reached += bool(died)
        judge("killed", expected, f"resumed, killed at {name} {number}", died)
    check(reached >= REACHED_MIN * len(picked), f"{reached} of {len(picked)} calls were reached")
    print(f"killed at {reached} of {len(calls) - first} calls of a start that repairs")


def at_signals(expected, generator, calls):
    """Each third time the signal comes again at every later call of the name."""
    installed = max(i for i, call in enumerate(calls) if call[0] == "rt_sigaction")
    check(installed < next(i for i, call in enumerate(calls) if call[2]), "handlers are there before the first save")
    stopped, picked = 0, chosen(calls[installed + 1:], generator)
    for turn, (name, number, _) in enumerate(picked):
        sent, again = SIGNALS[turn % len(SIGNALS)], turn % 3 == 2
        what = f"{sent.name} at {name} {number}{' and after' if again else ''}"
        tiny.clear("killed")
        done = tiny.run("killed", tracer=("strace", "-qq", "-o", os.devnull, "-e", f"trace={name}", "-e",
                                          f"inject={name}:signal={sent.name}:when={number}{'+' if again else ''}"))
        check(done.returncode in ((0,) if sent == signal.SIGPIPE else (0, 128 + sent)),
              f"{what}: ended with {done.returncode}: {done.stderr[-300:]}")
        check(" error: " not in done.stderr, f"{what}: {done.stderr[-300:]}")
        stopped += done.returncode != 0
        judge("killed", expected, what, None)
    print(f"{len(picked)} of {len(calls) - installed - 1} calls interrupted, {stopped} runs stopped")
    check(stopped >= len(picked) // 3, f"{stopped} of {len(picked)} runs stopped: too few to prove anything")


def inside_save(out):
    """What only a save leaves: a file aside, or files of two generations."""
    names = os.listdir(out) if os.path.isdir(out) else []
    models = [name for name in names if name.startswith("model-") and ".tmp-" not in name]
    optimizers = [name for name in names if name.startswith("optimizer-") and ".tmp-" not in name]
    return any(".tmp-" in name for name in names) or len(models) != len(optimizers) or len(models) > 1


def wait_for_save(out, process):
    """Until a file aside appears, or the run ends."""
    while process.poll() is None and not (os.path.isdir(out) and any(".tmp-" in name for name in os.listdir(out))):
        time.sleep(SAVE_SECONDS / 20)


def kill_at_random(generator, every, length, reach):
    """Kills a run within its length, or within `reach` of a save's begin; whether it was inside a save."""
    tiny.clear("killed")
    with subprocess.Popen(tiny.command("killed", *every), env=tiny.ENVIRONMENT, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as process:
        time.sleep(generator.uniform(0.2, 1.0) * length)
        if reach is not None:
            wait_for_save("killed", process)
            time.sleep(generator.uniform(0.0, reach))
        process.kill()
        process.wait()
    return inside_save("killed")


def at_random(generator):
    every = ["--eval_interval=1", "--max_iters=12"]
    begin = time.monotonic()
    done = tiny.run("all", *every)
    length = time.monotonic() - begin
    check(done.returncode == 0, f"the run in one go: {done.stderr[-300:]}")
    expected, hits, reach = tiny.contents("all"), 0, SAVE_SECONDS
    count = len(tiny.part(range(RANDOM_KILLS)))
    wanted, turn = HITS_MIN * count, 0
    while turn < count or (hits < wanted and turn < TRIES_MAX * count):
        aimed = turn % 2 == 0 or hits < AIMED_BELOW * turn
        hit = kill_at_random(generator, every, length, reach if aimed else None)
        hits += hit
        if aimed:
            reach *= 1.05 if hit else 0.8  # where saves are faster, or this process slower, sooner
        done = tiny.resume("killed", *every)
        check(done.returncode == 0 and tiny.contents("killed") == expected,
              f"random kill {turn + 1}: {done.returncode}, {done.stderr[-300:]}")
        turn += 1
    print(f"{turn} random kills, {hits} inside a save")
    check(hits >= wanted, f"{hits} of {turn} kills hit a save: too few to prove anything")


def main():
    generator = random.Random(tiny.SEED)
    if not tiny.has_strace():
        skip("kills", "no strace that may trace (Debian: strace)")
        finish()
        return 77
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background is started with it ignored
    with tempfile.TemporaryDirectory(prefix="gpt-train-kills-") as work:
        os.chdir(work)
        tiny.make_data()
        done = tiny.run("one")
        check(done.returncode == 0, f"the run in one go: {done.stderr[-500:]}")
        expected = tiny.contents("one")
        check(expected.get("iter", 0) > 0, f"it saved: {expected}")
        only, calls = tiny.arguments() or ["calls", "resume", "signals", "random"], tiny.trace("traced")
        if "calls" in only:
            at_calls(expected, generator, calls)
        if "resume" in only:
            at_resume(expected, generator, next(call[:2] for call in calls if call[2] and call[0] == "rename"))
        if "signals" in only:
            at_signals(expected, generator, calls)
        if "random" in only:
            at_random(generator)
        os.chdir("/")
    return finish()


if __name__ == "__main__":
    sys.exit(main())
