#!/usr/bin/env python3
"""--tune in the emulated cuda backend (tests/cuda_on_cpu), whose cuBLASLt offers three algorithms with different bits.

  tuned     products are timed once, the fastest is used and stored; a later run uses it without --tune and times
            nothing
  shapes    launches of our own kernels are timed too: the faster shape is used, stored and named, and does not change
            the bytes
  forecast  is based on the timings, in later runs and in --plan too, and says so
  suggested a long fresh run of 16 bits that was never tuned says what --tune would cost; all others do not
  kept      a file of another driver, truncated, or with a changed byte: ignored with one note, default algorithms;
            --tune replaces it
  resumed   a checkpoint names its algorithms: a resumed run has the bytes of the uninterrupted one, whatever is in the
            cache
  foreign   algorithms that are not offered are not used, with a note, and refused with --strict_resume; nonsense is an
            error
"""
import os
import re
import shutil

from checks import check, read, read_json, some, write, write_json
from cuda_common import NVML, checkpoint, end_emulated, good, shape, train

COMMON = ["--backend=cuda", "--dtype=bfloat16", "--dropout=0.1", "--lr_decay_iters=12", "--eval_interval=3"]


def cache(name):
    os.environ["XDG_CACHE_HOME"] = os.path.abspath(name)
    return os.path.abspath(os.path.join(name, "gpt-train", "cuda"))


def files(folder):
    return sorted(os.path.join(folder, name) for name in os.listdir(folder)) if os.path.isdir(folder) else []


def launches(run):
    """Returns how many launches of our own kernels were timed, and how many have another shape now."""
    said = re.findall(r"(\d+) launches of our kernels timed, (\d+) of them", run.out + run.err)
    return [sum(int(pair[i]) for pair in said) for i in (0, 1)]


def plan(out):
    return read_json(os.path.join(out, "trainer_state.json"))["plan"]


def timed(run):
    return sum(int(count) for count in re.findall(r"(\d+) products timed", run.out + run.err))


def tuned():
    folder = cache("cache-tuned")
    plain = good(train("plain", *COMMON, "--max_iters=1"))
    check(timed(plain) == 0 and not files(folder), "timed, or kept, without --tune")
    run = good(train("tuned", *COMMON, "--max_iters=1", "--tune=True", FASTEST="1"), "kept for later runs", "up to 50 %")
    count = len(plan("tuned")["algorithms"])
    check(timed(run) >= 10 and count >= timed(run), f"{timed(run)} products timed of {count}")
    check(len(files(folder)) == 1, f"{files(folder)}")
    check(checkpoint("tuned") != checkpoint("plain"), "another algorithm, and yet the same bytes")
    later = good(train("later", *COMMON, "--max_iters=1", FASTEST="2"))
    check(timed(later) == 0, "timed without --tune")
    check(checkpoint("later") == checkpoint("tuned"), "the kept algorithms are not used")
    again = good(train("again", *COMMON, "--max_iters=1", "--tune=True", FASTEST="2"))
    check(timed(again) == 0, "what is kept was timed again")
    wider = good(train("wider", *COMMON, "--max_iters=1", "--tune=True", "--batch_size=3", "--micro_batch=3", FASTEST="1"))
    check(timed(wider) > 0 and len(files(folder)) == 1, "another shape was not timed, or kept elsewhere")
    both = good(train("both", *COMMON, "--max_iters=1", "--tune=True", FASTEST="2"))
    check(timed(both) == 0, "the first shapes are forgotten")
    for event in ("cudaEventCreateWithFlags", "cudaEventElapsedTime", "cudaEventRecord"):
        cache("cache-failing")
        run = train("failing", *COMMON, "--max_iters=1", "--tune=True", FAIL=f"{event}:3")
        check(run.status == 1 and len(run.errors) == 1 and run.report["objects_alive"] == 0, f"{event}: {run.said()}")


def shapes():
    """On the emulated clock a launch is faster if it uses less shared memory: one stage instead of two."""
    cache("cache-shapes")
    run = good(train("shapes", *COMMON, "--max_iters=1", "--tune=True", FASTEST="0"), "kept for later runs")
    timed_launches, changed = launches(run)
    check(timed_launches >= 8 and 1 <= changed < timed_launches, f"{timed_launches} launches timed, {changed} changed")
    check(checkpoint("shapes") == checkpoint("plain"), "shapes that change no bits changed some")
    names = plan("shapes")["algorithms"].values()
    check(shape("attention_backward", "1 stage") in names and shape("attention_backward", "2 stages") not in names,
          f"not one stage, or not named: {sorted(names)}")
    check(shape("attention_backward", "2 stages") in plan("plain")["algorithms"].values(), "the default is not named")
    later = good(train("shapes-later", *COMMON, "--max_iters=1"))
    check(launches(later) == [0, 0] and shape("attention_backward", "1 stage") in plan("shapes-later")["algorithms"].values(),
          "the kept shape is not used")
    check(checkpoint("shapes-later") == checkpoint("plain"), "a kept shape changed bits")
    resume = ["--init_from=resume", "--max_iters=4", "--strict_resume=True"]
    shutil.copytree("plain", "shapes-resumed")
    good(train("shapes-resumed", *COMMON, *resume))
    check(shape("attention_backward", "2 stages") in plan("shapes-resumed")["algorithms"].values(),
          "a resumed run has the cache's shape, not the checkpoint's")


def forecast():
    line = "estimates use what --tune measured on this device"
    cache("cache-none")
    run = good(train("unforecast", *COMMON, "--max_iters=1"))
    check(line not in run.out + run.err, "a forecast from timings that nobody has made")
    cache("cache-shapes")
    for more in (["--max_iters=1"], ["--plan"]):
        run = train("forecast", *COMMON, *more)
        check(run.status == 0 and (run.out + run.err).count(line) == 1, f"{more}: not said once: {run.err[-400:]}")


def suggested():
    """A run of a million steps, which the third start of a program ends."""
    line = "--tune=True would time the"
    fresh = [*COMMON, "--max_iters=1000000"]
    cases = (("cache-none", fresh, 1), ("cache-none", [*fresh, "--dtype=float32"], 0), ("cache-none", [*fresh, "--tune=True"], 0),
             ("cache-none", [*COMMON, "--max_iters=1"], 0), ("cache-shapes", fresh, 0),
             ("cache-none", [*fresh, "--init_from=resume"], 0))
    for folder, arguments, count in cases:
        cache(folder)
        shutil.rmtree("suggested", ignore_errors=True)
        shutil.copytree("plain", "suggested")
        run = train("suggested", *arguments, FAIL="cudaGraphLaunch:3" if "--max_iters=1" not in arguments else "")
        check((run.out + run.err).count(line) == count, f"{folder} {arguments}: not said {count} times: {run.err[-600:]}")


def kept():
    folder = cache("cache-kept")
    good(train("kept", *COMMON, "--max_iters=1", "--tune=True", FASTEST="1"))
    path = files(folder)[0]
    whole = read(path)
    run = good(train("driver", *COMMON, "--max_iters=1", "--cuda_graphs=off", DRIVER="13010"), "driver for CUDA 13010",
               "first algorithms until --tune=True")
    check(checkpoint("driver") == checkpoint("plain"), "another driver's timings were used")
    good(train("release", *COMMON, "--max_iters=1", LD_LIBRARY_PATH=NVML), "driver 580.82.07 for CUDA",
         "first algorithms until --tune=True")
    check(checkpoint("release") == checkpoint("plain"), "another release's timings were used")
    for what, damaged in some((("changed", whole[:-9] + b"0" + whole[-8:]), ("truncated", whole[:-7]), ("empty", b""),
                               ("longer", whole + b"x")), 2):
        if damaged == whole:
            damaged = whole[:-9] + b"1" + whole[-8:]
        write(path, damaged)
        run = good(train("damaged-" + what, *COMMON, "--max_iters=1"), "first algorithms until --tune=True")
        check((run.out + run.err).count(path) == 1, f"{what}: not said once")
        check(checkpoint("damaged-" + what) == checkpoint("plain"), f"{what}: used")
    run = good(train("anew", *COMMON, "--max_iters=1", "--tune=True", FASTEST="1"), "kept for later runs")
    check(timed(run) > 0 and checkpoint("anew") == checkpoint("kept"), "not made anew")
    check(read(path) == whole, "made anew, and yet another file")
    os.chmod(folder, 0o777)
    run = good(train("open", *COMMON, "--max_iters=1"))
    check(checkpoint("open") == checkpoint("plain"), "a folder that others may write to was trusted")
    os.chmod(folder, 0o700)


def resumed():
    cache("cache-resumed")
    for out, fastest in (("whole", "1"), ("part", "1")):
        good(train(out, *COMMON, f"--max_iters={8 if out == 'whole' else 5}", "--tune=True", FASTEST=fastest))
    for name in ("cache-empty", "cache-other"):
        shutil.rmtree("part-" + name, ignore_errors=True)
        shutil.copytree("part", "part-" + name)
        cache(name)
        tune = ["--tune=True"] if name == "cache-other" else []
        run = good(train("part-" + name, *COMMON, "--init_from=resume", "--max_iters=8", "--strict_resume=True", *tune,
                              FASTEST="2"))
        check(timed(run) == 0 and launches(run) == [0, 0], f"{name}: what the checkpoint names was timed")
        check(checkpoint("part-" + name) == checkpoint("whole"), f"{name}: other bytes after a resume")


def foreign():
    cache("cache-foreign")
    state = os.path.join("foreign", "trainer_state.json")
    cases = ((lambda names: {name: "00000000000000ff" for name in names}, 0, "results will differ in their last bits"),
             (lambda names: {name: "xyz" for name in names}, 2, "not two numbers of 16 digits"),
             (lambda names: {name[:8]: value for name, value in names.items()}, 2, "not two numbers of 16 digits"),
             (lambda names: {name: 7 for name in names}, 2, "not two numbers of 16 digits"),
             (lambda names: list(names), 2, "not an object of at most"),
             (lambda names: {f"{number:016x}": "00000000000000ff" for number in range(1, 6000)}, 2, "not an object of at most"))
    for change, status, words in cases:
        shutil.rmtree("foreign", ignore_errors=True)
        shutil.copytree("part", "foreign")
        whole = read_json(state)
        whole["plan"]["algorithms"] = change(whole["plan"]["algorithms"])
        whole.pop("record_crc32c", None)  # as in a record that always contained this
        write_json(state, whole)
        if status == 0:
            run = train("foreign", *COMMON, "--init_from=resume", "--max_iters=8", "--strict_resume=True")
            check(run.status == 2 and len(run.errors) == 1 and "algorithms" in run.errors[0], run.said())
        run = train("foreign", *COMMON, "--init_from=resume", "--max_iters=8")
        check(run.status == status and words in run.out + run.err and len(run.errors) == (status > 0), run.said())


end_emulated("cuda_tune", tuned, shapes, forecast, suggested, kept, resumed, foreign)
