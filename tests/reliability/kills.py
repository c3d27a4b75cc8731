#!/usr/bin/env python3
"""Sends SIGKILL and other signals at every system call of a run that saves; then resumes, and compares bytes.

  calls     a run of four updates that saves three times is killed at each system call from its first save on (strace's
            injection): the folder has the last checkpoint that it reported, or the next; a resume ends with the bytes
            of the uninterrupted run
  kinds     the same for runs with larger records and more files: fp16 with a loss scaler and lean states on two threads,
            whose order of calls varies between runs; kept checkpoints, adapters, everything in host memory that can be, a
            mixture of two data sets, and Muon with a cooldown; rank_faults.py has runs with ranks, and
            tests/e2e/prepare_resume.py gpt-prepare
  earlier   a new run, and one that continues from a kept checkpoint, in the folder of another run's checkpoint is
            killed at each call from the start, or from the move of that checkpoint, to the end of the first save: the
            old checkpoint is in out_dir or in earlier-001, complete with its metrics; when the run finishes, only in
            earlier-001
  resume    a run that was killed inside a save is resumed and killed again at each call of that start: for a kill at
            the publishing of the first save, and at the files and the record of the second, next to those of the first
  signals   SIGTERM, SIGINT, SIGHUP and SIGPIPE at each call of the same run, saves included: the first three end it in
            order unless they arrive in the last save, a second one at once, SIGPIPE never; and SIGTERM in long
            evaluations

`make check` tries a sample of the calls, CHECK_LONG=1 a larger one, SEED=N another one.  Names of
the list on the command line select some.
"""
import os
import random
import shutil
import signal
import subprocess
import time

import tiny

from checks import GPT_EXPORT, check, end, ran

SAMPLE = 10 if not tiny.LONG else 80
KINDS = {"float16": ["--dtype=float16", "--threads=2"],
         "lean": ["--dtype=bfloat16", "--state_format=sr_8bit_full", "--threads=2"],
         "kept": ["--keep=2"],
         "adapters": ["--init_from=./base", "--lora_rank=2"],
         "offload": ["--offload=all"],
         "mixture": ["--dataset=./data:0.7,./more:0.3"],
         "muon": ["--optimizer=muon", "--muon_learning_rate=0.02", "--lr_schedule=wsd"]}
KIND_SAMPLE = 1 if not tiny.LONG else 15  # of each kind
EARLIER_SAMPLE = 2 if not tiny.LONG else 15  # of each run
RESUMES = 2 if not tiny.LONG else 10  # calls of each resume
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE)
REACHED_MIN = 0.9


def killed_at(name, number, start):
    """Kills a run when it enters the call.  Returns the process, and whether it died of that: None when it ended
    before, since the number of waits between threads varies."""
    done = start(tracer=tiny.inject((name, "signal=SIGKILL", number)))
    return done, None if done.returncode == 0 else done.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)


def chosen(calls, generator, most=SAMPLE):
    return calls if len(calls) <= most else sorted(generator.sample(calls, most), key=calls.index)


def kept(out):
    """Returns the checkpoints inside the folder, by subfolder."""
    return {name: tiny.contents(os.path.join(out, name)) for name in os.listdir(out) if os.path.isdir(os.path.join(out, name))}


def judge(out, expected, what, done, died, before=0, one="one", arguments=()):
    """Checks that the folder has the old checkpoint or the new one, and that a resume ends with the files of the
    uninterrupted run."""
    check(died is not False, f"{what}: another end")
    check(not (why := tiny.lost(out, done, before)), f"{what}: {why}")
    done = tiny.resume(out, *arguments)
    check(done.returncode == 0, f"{what}: the resumed run ends with {done.returncode}: {done.stderr[-400:]}")
    check(done.returncode == 0 and tiny.contents(out) == expected, f"{what}: other bytes than in one go")
    check(done.returncode == 0 and tiny.metrics(out) == tiny.metrics(one), f"{what}: other metrics than in one go")
    check(kept(out) == kept(one), f"{what}: it keeps {sorted(kept(out))}, not as {sorted(kept(one))}")
    check(tiny.leftovers(out) == [], f"{what}: left behind: {tiny.leftovers(out)}")


def at_calls(expected, generator, calls, most=SAMPLE, one="one", arguments=()):
    """Kills a run with `arguments` at its calls; `one` is the folder of its uninterrupted run."""
    first = next(i for i, call in enumerate(calls) if call[2])
    inside = sum(call[2] for call in calls)
    check(inside >= 30, f"the trace shows the saves: {inside} calls inside")
    hits, reached, picked = 0, 0, chosen(calls[first:], generator, most)
    for name, number, saving, _ in picked:
        tiny.clear("killed")
        done, died = killed_at(name, number, lambda **how: tiny.run("killed", *arguments, **how))
        reached, hits = reached + bool(died), hits + (saving and bool(died))
        judge("killed", expected, f"{one}, killed at {name} {number}", done, died, one=one, arguments=arguments)
    check(reached >= REACHED_MIN * len(picked), f"{reached} of {len(picked)} calls were reached")
    print(f"{one}: killed at {reached} of {len(calls) - first} calls from the first save on, {hits} of {inside} inside a save")


def at_kinds(generator):
    shutil.copytree("data", "more")
    done = ran(GPT_EXPORT, "--out_dir=one", "--format=hf", "base")
    check(done.returncode == 0, f"a base for adapters: {done.stderr[-300:]}")
    for kind, arguments in KINDS.items():
        done = tiny.run(kind, *arguments)
        check(done.returncode == 0, f"{kind} in one go: {done.stderr[-500:]}")
        at_calls(tiny.contents(kind), generator, tiny.trace("traced-" + kind, *arguments), KIND_SAMPLE, kind, arguments)


def whole(out, other):
    """Returns true when the folder has the other run's checkpoint with its metrics, possibly under a temporary name."""
    waiting = [name for name in os.listdir(out) if name.startswith("metrics-")] if os.path.isdir(out) else []
    return os.path.isdir(out) and tiny.contents(out) == other[0] and any(
        os.path.exists(os.path.join(out, name)) and tiny.metrics(out, name) == other[1] for name in ["metrics.jsonl", *waiting])


def at_earlier(generator, words):
    """Kills a run with these words in the folder of another run."""
    other = tiny.contents("other"), tiny.metrics("other")

    def begin(out, **how):
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree("other", out)
        return tiny.run(out, *words, **how)

    calls = tiny.trace_of(lambda tracer: begin("over", tracer=tracer), os.path.abspath("strace.log"),
                          "checkpoint.tmp" if tiny.LONG else r"mkdir.*checkpoint\.tmp")
    check(whole("over/earlier-001", other), "the other run is kept where nobody kills")
    expected, reached, late = (tiny.contents("over"), tiny.metrics("over"), kept("over")), 0, 0
    last = next(i for i, call in enumerate(calls) if call[2] and not calls[i + 1][2])
    picked = chosen(calls[:last + 1], generator, EARLIER_SAMPLE)
    for name, number, _, _ in picked:
        what = f"{words} over another run, killed at {name} {number}"
        _, died = killed_at(name, number, lambda **how: begin("killed", **how))
        reached += bool(died)
        check(died is not False, f"{what}: another end")
        check(whole("killed", other) or whole("killed/earlier-001", other), f"{what}: the other run is lost")
        begun = tiny.contents("killed") != other[0]
        late += begun
        done = tiny.run("killed", "--init_from=resume", words[-1]) if begun else tiny.run("killed", *words)
        check(done.returncode == 0, f"{what}: then {done.returncode}: {done.stderr[-400:]}")
        found = tiny.contents("killed"), tiny.metrics("killed"), kept("killed")
        check(found == expected, f"{what}: other bytes, or folders: {sorted(found[2])}")
        check(whole("killed/earlier-001", other), f"{what}: the other run is lost then")
        check(tiny.leftovers("killed") == [], f"{what}: left behind: {tiny.leftovers('killed')}")
    check(reached >= REACHED_MIN * len(picked), f"{reached} of {len(picked)} calls were reached")
    print(f"{words} over another run: killed at {reached} of {last + 1} calls, {late} after the new checkpoint was there")


def renames(calls):
    """Returns where to kill a run that is then resumed: the renames of its second save, and the last rename of its
    first, which publishes it."""
    found, saves = [], 0
    for before, call in zip([(None, 0, False, ""), *calls], calls):
        saves += call[2] and not before[2]
        if call[2] and call[0].startswith("rename"):
            found.append((saves, call[:2]))
    first, second = ([where for save, where in found if save == number] for number in (1, 2))
    check(len(first) >= 4 and len(second) >= 4, f"each save has its renames: {found}")
    return [next(where for where in first if where[0] == "rename"), *second[:3]]


def at_resume(expected, generator, where):
    """Resumes and kills in the folder of a run that died at a rename inside a save."""
    tiny.clear("broken")
    done, died = killed_at(*where, lambda **how: tiny.run("broken", **how))
    check(died and inside_save("broken"), f"a folder that a kill at {where} left")
    check(not (why := tiny.lost("broken", done)), f"killed at {where}: {why}")
    before = (tiny.record_of("broken") or {"iter": 0})["iter"]
    shutil.copytree("broken", "again")
    calls = tiny.trace_of(lambda tracer: tiny.resume("again", tracer=tracer), os.path.abspath("strace.log"), "")
    tiny.clear("again")
    first = next(i for i, call in enumerate(calls) if call[0] == "flock")
    reached, picked = 0, chosen(calls[first:], generator, RESUMES)
    for name, number, _, _ in picked:
        tiny.clear("killed")
        shutil.copytree("broken", "killed")
        done, died = killed_at(name, number, lambda **how: tiny.resume("killed", **how))
        reached += bool(died)
        judge("killed", expected, f"{where}, resumed, killed at {name} {number}", done, died, before)
    check(reached >= REACHED_MIN * len(picked), f"{reached} of {len(picked)} calls were reached")
    print(f"killed at {reached} of {len(calls) - first} calls of a start that repairs what a kill at {where} left")


def at_signals(expected, generator, calls):
    """Every third time the signal comes again at every later call of the same name."""
    installed = max(i for i, call in enumerate(calls) if call[0] == "rt_sigaction")
    check(installed < next(i for i, call in enumerate(calls) if call[2]), "handlers are there before the first save")
    last_save = max(i for i, call in enumerate(calls) if call[2] and not calls[i - 1][2])
    # The last look is in the last update, whose threads wait for each other, or before it, if OpenMP's library (LLVM's)
    # waits without system calls; after it the run has already ended by itself.
    last_look = max(i for i in range(last_save) if calls[i][0] == "futex" or calls[i][2])
    early = {call[:2] for call in calls[:last_look]}
    stopped, at_once, twice, picked = 0, 0, 0, chosen(calls[installed + 1:], generator)
    for turn, (name, number, _, _) in enumerate(picked):
        sent, again = SIGNALS[turn % len(SIGNALS)], turn % 3 == 2
        ignored = sent == signal.SIGPIPE
        ends = {0} if ignored else {128 + sent} if (name, number) in early and name != "futex" else {0, 128 + sent}
        what = f"{sent.name} at {name} {number}{' and after' if again else ''}"
        tiny.clear("killed")
        done = tiny.run("killed", tracer=tiny.inject((name, f"signal={sent.name}", f"{number}{'+' if again else ''}")))
        check(done.returncode in ends, f"{what}: ended with {done.returncode}: {done.stderr[-300:]}")
        check(" error: " not in done.stderr, f"{what}: {done.stderr[-300:]}")
        stopped += done.returncode != 0
        twice += again and not ignored and done.returncode != 0
        at_once += again and not ignored and done.returncode != 0 and not done.stdout.rstrip().endswith("s)")
        judge("killed", expected, what, done, None)
    print(f"{len(picked)} of {len(calls) - installed - 1} calls interrupted, {stopped} runs stopped, "
          f"{at_once} of {twice} at a second signal")
    check(stopped >= len(picked) // 3, f"{stopped} of {len(picked)} runs stopped: too few to prove anything")
    check(at_once > 0, "no run ended at a second signal")


def stopped_in_evaluation(out, *arguments):
    """Sends SIGTERM to a run during an endless evaluation, its first or a later one."""
    resume = ["--init_from=resume"] if tiny.record_of(out) else []
    with subprocess.Popen(tiny.command(out, "--eval_iters=100000000", *arguments, *resume), env=tiny.ENVIRONMENT,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(1.0)
        check(process.poll() is None, f"{out}: still evaluates")
        process.terminate()
        stdout, stderr = process.communicate(timeout=tiny.LIMIT_SECONDS)
    check(process.returncode == 128 + signal.SIGTERM, f"{out}: stopped in an evaluation: {process.returncode} {stderr[-300:]}")
    return subprocess.CompletedProcess([], process.returncode, stdout, stderr)


def in_evaluation(expected):
    """At the first evaluation there is nothing to save; at a later one the iterations since the last save are saved."""
    done = stopped_in_evaluation("evaluating")
    judge("evaluating", expected, "stopped in the first evaluation", done, None)
    tiny.clear("evaluating")
    check(tiny.run("evaluating", "--max_iters=2").returncode == 0, "a first part, of iterations 0 to 2")
    done = stopped_in_evaluation("evaluating")
    check(tiny.record_of("evaluating")["iter"] == 4, f"stopped in a later evaluation: not saved: {done.stdout[-300:]}")
    judge("evaluating", expected, "stopped in a later evaluation", done, None, 3)


def inside_save(out):
    """Returns true when the folder looks like the inside of a save: a temporary file, or files of two generations."""
    names = os.listdir(out) if os.path.isdir(out) else []
    models = [name for name in names if name.startswith("model-") and ".tmp-" not in name]
    optimizers = [name for name in names if name.startswith("optimizer-") and ".tmp-" not in name]
    return any(".tmp-" in name for name in names) or len(models) != len(optimizers) or len(models) > 1


def main():
    generator = random.Random(tiny.SEED)
    if not tiny.has_strace("kills"):
        return
    # A background job starts with SIGINT ignored, and one under nohup with SIGHUP ignored; with handlers here the
    # programs start with the default actions.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, lambda *_: None)
    tiny.make_data()
    done = tiny.run("one")
    check(done.returncode == 0, f"the run in one go: {done.stderr[-500:]}")
    expected = tiny.contents("one")
    check(expected.get("iter", 0) > 0, f"it saved: {expected}")
    only, calls = tiny.arguments() or ["calls", "kinds", "earlier", "resume", "signals"], tiny.trace("traced")
    if "calls" in only:
        at_calls(expected, generator, calls)
    if "kinds" in only:
        at_kinds(generator)
    if "earlier" in only:
        check(tiny.run("other", "--seed=7", "--keep=2").returncode == 0, "another run")
        at_earlier(generator, ["--seed=1337"])
        at_earlier(generator, ["--init_from=resume", "--checkpoint=4", "--max_iters=6"])
    if "resume" in only:
        for where in renames(calls):
            at_resume(expected, generator, where)
    if "signals" in only:
        at_signals(expected, generator, calls)
        in_evaluation(expected)


if __name__ == "__main__":
    end(main)
