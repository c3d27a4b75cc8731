#!/usr/bin/env python3
"""--tune in the emulated cuda backend (tests/cuda_on_cpu), whose cuBLASLt offers three algorithms with different bits.

  tuned     products are timed once, the fastest is used and stored; a later run uses it without --tune and times
            nothing
  shapes    launches of our own kernels are timed too: the faster shape is used, stored and named, and does not change
            the bytes
  forecast  is based on the timings, in later runs and in --plan too, and says so
  kept      a file of another driver, truncated, or with a changed byte: ignored with one note, default algorithms;
            --tune replaces it
  resumed   a checkpoint names its algorithms: a resumed run has the bytes of the uninterrupted one, whatever is in the
            cache
  foreign   algorithms that are not offered are not used, with a note, and refused with --strict_resume; nonsense is an
            error
Prints "checks: P passed, F failed, S skipped".
"""
import json
import os
import re
import shutil
import sys

from cuda_common import NVML, Work, check, checkpoint, finish, leave_without_programs, some

COMMON = ["--backend=cuda", "--dtype=bfloat16", "--dropout=0.1", "--lr_decay_iters=12", "--eval_interval=3"]


def cache(work, name):
    os.environ["XDG_CACHE_HOME"] = work.path(name)
    return os.path.join(work.path(name), "gpt-train", "cuda")


def files(folder):
    return sorted(os.path.join(folder, name) for name in os.listdir(folder)) if os.path.isdir(folder) else []


def good(run, *words):
    check(run.status == 0 and run.report["objects_alive"] == 0, run.said())
    check(all(word in run.out + run.err for word in words), f"{words} not said: {run.err[-600:]}")
    return run


def hashed(text):
    """FNV-1a, as in base/hash.h."""
    value = 0xcbf29ce484222325
    for byte in text.encode("ascii"):
        value = (value ^ byte) * 0x100000001b3 % 2 ** 64
    return value


def shape(op, name):
    return f"{hashed(op) ^ hashed(name):016x}"


def launches(run):
    """Returns how many launches of our own kernels were timed, and how many have another shape now."""
    said = re.findall(r"(\d+) launches of our kernels timed, (\d+) of them", run.out + run.err)
    return [sum(int(pair[i]) for pair in said) for i in (0, 1)]


def plan(work, out):
    with open(os.path.join(work.path(out), "trainer_state.json"), encoding="utf-8") as file:
        return json.load(file)["plan"]


def timed(run):
    return sum(int(count) for count in re.findall(r"(\d+) products timed", run.out + run.err))


def tuned(work):
    folder = cache(work, "cache-tuned")
    plain = good(work.train("plain", *COMMON, "--max_iters=2"))
    check(timed(plain) == 0 and not files(folder), "timed, or kept, without --tune")
    run = good(work.train("tuned", *COMMON, "--max_iters=2", "--tune=True", FASTEST="1"), "kept for later runs", "up to 50 %")
    count = len(plan(work, "tuned")["algorithms"])
    check(timed(run) >= 10 and count >= timed(run), f"{timed(run)} products timed of {count}")
    check(len(files(folder)) == 1, f"{files(folder)}")
    check(checkpoint(work.path("tuned")) != checkpoint(work.path("plain")), "another algorithm, and yet the same bytes")
    later = good(work.train("later", *COMMON, "--max_iters=2", FASTEST="2"))
    check(timed(later) == 0, "timed without --tune")
    check(checkpoint(work.path("later")) == checkpoint(work.path("tuned")), "the kept algorithms are not used")
    again = good(work.train("again", *COMMON, "--max_iters=2", "--tune=True", FASTEST="2"))
    check(timed(again) == 0, "what is kept was timed again")
    wider = good(work.train("wider", *COMMON, "--max_iters=2", "--tune=True", "--batch_size=3", FASTEST="1"))
    check(timed(wider) > 0 and len(files(folder)) == 1, "another shape was not timed, or kept elsewhere")
    both = good(work.train("both", *COMMON, "--max_iters=2", "--tune=True", FASTEST="2"))
    check(timed(both) == 0, "the first shapes are forgotten")
    for event in ("cudaEventCreateWithFlags", "cudaEventElapsedTime", "cudaEventRecord"):
        os.environ["XDG_CACHE_HOME"] = work.path("cache-failing")
        run = work.train("failing", *COMMON, "--max_iters=2", "--tune=True", FAIL=f"{event}:3")
        check(run.status == 1 and len(run.errors) == 1 and run.report["objects_alive"] == 0, f"{event}: {run.said()}")


def shapes(work):
    """On the emulated clock a launch is faster if it uses less shared memory: one stage instead of two."""
    cache(work, "cache-shapes")
    run = good(work.train("shapes", *COMMON, "--max_iters=2", "--tune=True", FASTEST="0"), "kept for later runs")
    timed_launches, changed = launches(run)
    check(timed_launches >= 8 and 1 <= changed < timed_launches, f"{timed_launches} launches timed, {changed} changed")
    check(checkpoint(work.path("shapes")) == checkpoint(work.path("plain")), "shapes that change no bits changed some")
    names = plan(work, "shapes")["algorithms"].values()
    check(shape("attention_backward", "1 stage") in names and shape("attention_backward", "2 stages") not in names,
          f"not one stage, or not named: {sorted(names)}")
    check(shape("attention_backward", "2 stages") in plan(work, "plain")["algorithms"].values(), "the default is not named")
    later = good(work.train("shapes-later", *COMMON, "--max_iters=2"))
    check(launches(later) == [0, 0] and shape("attention_backward", "1 stage") in plan(work, "shapes-later")["algorithms"].values(),
          "the kept shape is not used")
    check(checkpoint(work.path("shapes-later")) == checkpoint(work.path("plain")), "a kept shape changed bits")
    resume = ["--init_from=resume", "--max_iters=4", "--strict_resume=True"]
    shutil.copytree(work.path("plain"), work.path("shapes-resumed"))
    good(work.train("shapes-resumed", *COMMON, *resume))
    check(shape("attention_backward", "2 stages") in plan(work, "shapes-resumed")["algorithms"].values(),
          "a resumed run has the cache's shape, not the checkpoint's")


def forecast(work):
    line = "estimates use what --tune measured on this device"
    cache(work, "cache-none")
    run = good(work.train("unforecast", *COMMON, "--max_iters=1"))
    check(line not in run.out + run.err, "a forecast from timings that nobody has made")
    cache(work, "cache-shapes")
    for more in (["--max_iters=1"], ["--plan"]):
        run = work.train("forecast", *COMMON, *more)
        check(run.status == 0 and (run.out + run.err).count(line) == 1, f"{more}: not said once: {run.err[-400:]}")


def kept(work):
    folder = cache(work, "cache-kept")
    good(work.train("kept", *COMMON, "--max_iters=2", "--tune=True", FASTEST="1"))
    path = files(folder)[0]
    with open(path, "rb") as file:
        whole = file.read()
    run = good(work.train("driver", *COMMON, "--max_iters=2", "--cuda_graphs=off", DRIVER="13010"), "driver for CUDA 13010",
               "first algorithms until --tune=True")
    check(checkpoint(work.path("driver")) == checkpoint(work.path("plain")), "another driver's timings were used")
    good(work.train("release", *COMMON, "--max_iters=2", LD_LIBRARY_PATH=NVML), "driver 580.82.07 for CUDA",
         "first algorithms until --tune=True")
    check(checkpoint(work.path("release")) == checkpoint(work.path("plain")), "another release's timings were used")
    for what, damaged in some((("changed", whole[:-9] + b"0" + whole[-8:]), ("truncated", whole[:-7]), ("empty", b""),
                               ("longer", whole + b"x")), 2):
        if damaged == whole:
            damaged = whole[:-9] + b"1" + whole[-8:]
        with open(path, "wb") as file:
            file.write(damaged)
        run = good(work.train("damaged-" + what, *COMMON, "--max_iters=2"), "first algorithms until --tune=True")
        check((run.out + run.err).count(path) == 1, f"{what}: not said once")
        check(checkpoint(work.path("damaged-" + what)) == checkpoint(work.path("plain")), f"{what}: used")
    run = good(work.train("anew", *COMMON, "--max_iters=2", "--tune=True", FASTEST="1"), "kept for later runs")
    check(timed(run) > 0 and checkpoint(work.path("anew")) == checkpoint(work.path("kept")), "not made anew")
    with open(path, "rb") as file:
        check(file.read() == whole, "made anew, and yet another file")
    os.chmod(folder, 0o777)
    run = good(work.train("open", *COMMON, "--max_iters=2"))
    check(checkpoint(work.path("open")) == checkpoint(work.path("plain")), "a folder that others may write to was trusted")
    os.chmod(folder, 0o700)


def resumed(work):
    cache(work, "cache-resumed")
    for out, fastest in (("whole", "1"), ("part", "1")):
        good(work.train(out, *COMMON, f"--max_iters={8 if out == 'whole' else 5}", "--tune=True", FASTEST=fastest))
    for name in ("cache-empty", "cache-other"):
        shutil.rmtree(work.path("part-" + name), ignore_errors=True)
        shutil.copytree(work.path("part"), work.path("part-" + name))
        cache(work, name)
        tune = ["--tune=True"] if name == "cache-other" else []
        run = good(work.train("part-" + name, *COMMON, "--init_from=resume", "--max_iters=8", "--strict_resume=True", *tune,
                              FASTEST="2"))
        check(timed(run) == 0 and launches(run) == [0, 0], f"{name}: what the checkpoint names was timed")
        check(checkpoint(work.path("part-" + name)) == checkpoint(work.path("whole")), f"{name}: other bytes after a resume")


def foreign(work):
    cache(work, "cache-foreign")
    state = os.path.join(work.path("foreign"), "trainer_state.json")
    cases = ((lambda names: {name: "00000000000000ff" for name in names}, 0, "results will differ in their last bits"),
             (lambda names: {name: "xyz" for name in names}, 2, "not two numbers of 16 digits"),
             (lambda names: {name[:8]: value for name, value in names.items()}, 2, "not two numbers of 16 digits"),
             (lambda names: {name: 7 for name in names}, 2, "not two numbers of 16 digits"),
             (lambda names: list(names), 2, "not an object of at most"),
             (lambda names: {f"{number:016x}": "00000000000000ff" for number in range(1, 6000)}, 2, "not an object of at most"))
    for change, status, words in cases:
        shutil.rmtree(work.path("foreign"), ignore_errors=True)
        shutil.copytree(work.path("part"), work.path("foreign"))
        with open(state, encoding="utf-8") as file:
            whole = json.load(file)
        whole["plan"]["algorithms"] = change(whole["plan"]["algorithms"])
        whole.pop("record_crc32c", None)  # as in a record that always contained this
        with open(state, "w", encoding="utf-8") as file:
            json.dump(whole, file)
        if status == 0:
            run = work.train("foreign", *COMMON, "--init_from=resume", "--max_iters=8", "--strict_resume=True")
            check(run.status == 2 and len(run.errors) == 1 and "algorithms" in run.errors[0], run.said())
        run = work.train("foreign", *COMMON, "--init_from=resume", "--max_iters=8")
        check(run.status == status and words in run.out + run.err and len(run.errors) == (status > 0), run.said())


def main():
    leave_without_programs("cuda_tune")
    with Work() as work:
        for part in (tuned, shapes, forecast, kept, resumed, foreign):
            part(work)
    return finish()


if __name__ == "__main__":
    sys.exit(main())
