#!/usr/bin/env python3
"""A resumed run computes as the run before it did, or reports the difference; --strict_resume=True refuses in that
case.

  fresh     two new runs choose the same plan and end with the same bytes, whether or not this machine's times are known
  roomier   a run that was cut into small micro-batches for its budget keeps them when it is resumed with more memory
  rates     a run on a calibrated machine is resumed without the calibration, or with other rates: the plan is kept, the
            bytes are those of the uninterrupted run, and no difference is reported
  tighter   a run that no longer fits recomputes more and keeps its bytes; one that does not fit even so is replanned: a
            note names the difference; strict_resume refuses with one line, changes nothing, and lets the run continue
            where it fits
  kernels   the same for another instruction set
  data      data that were replaced or extended since: a warning, or strict_resume's refusal
"""
import json
import os
import re
import struct
import subprocess

import tiny

from checks import check, crc32c, end, error_lines, files, read, read_json, skip, write

RUN = ["--dataset=./data", "--n_layer=2", "--n_head=2", "--n_embd=32", "--block_size=64", "--batch_size=32", "--vocab_size=61",
       "--gradient_accumulation_steps=1", "--eval_interval=2", "--eval_iters=1", "--threads=1", "--dropout=0.1",
       "--backend=cpu", "--dtype=float32"]
BESIDE_BYTES = 64 << 20  # part of a budget for the process itself
TIGHT = 0.7              # share of the arena that the run requests
TOO_TIGHT = 0.3          # for its micro-batch, whatever is recomputed
STRICT = "--strict_resume=True"
RESUME = "--init_from=resume"
UNSETTLED = "calibration does not settle"  # what a run says, and then stores none, where other programs use the machine
HEADER = "=8sQQII"         # of a file of the user's cache


def run(out, *arguments, cache="cache", **environment):
    return subprocess.run([tiny.GPT_TRAIN, *RUN, f"--out_dir={out}", *arguments], capture_output=True, text=True, timeout=tiny.LIMIT_SECONDS,
                          check=False, env={**tiny.ENVIRONMENT, "XDG_CACHE_HOME": os.path.abspath(cache), **environment})


def good(what, done):
    check(done.returncode == 0, f"{what}: status {done.returncode}: {done.stderr[-300:]}")
    return done


def plan(out):
    return read_json(os.path.join(out, "trainer_state.json"))["plan"]


def everything(out):
    return {**files(out), "lock": None}


def notes(done):
    return [line for line in done.stderr.splitlines() if "differ in their last bits" in line]


def fresh():
    """The second run knows the times of the first; the third knows none, and has less memory, but enough."""
    for name, cache, more in (("one", "cache", []), ("two", "cache", []), ("three", "elsewhere", ["--memory_budget=200MiB"])):
        good(f"fresh {name}", run(name, "--max_iters=4", *more, cache=cache))
    check(plan("one") == plan("two") == plan("three"), f"fresh runs: {plan('one')} {plan('two')} {plan('three')}")
    check(tiny.contents("one") == tiny.contents("two") == tiny.contents("three"), "fresh runs have other bytes")
    check(plan("one")["micro_batch"] == 32, f"all of a batch at once: {plan('one')}")


def tight_budget(share):
    answer = good("the plan", run("none", "--max_iters=4", "--plan=json"))
    return f"--memory_budget={BESIDE_BYTES + int(share * json.loads(answer.stdout)['bytes']['arena'])}"


def roomier(budget):
    good("tight, in one go", run("tight", "--max_iters=4", budget))
    check(plan("tight")["micro_batch"] < 32, f"a tight budget cuts the batch: {plan('tight')}")
    good("tight, first part", run("parts", "--max_iters=1", budget))
    done = good("tight, resumed with room", run("parts", "--max_iters=4", RESUME, STRICT))
    check(notes(done) == [], f"nothing differs: {notes(done)}")
    check(plan("parts") == plan("tight"), f"the plan is kept: {plan('parts')}")
    check(tiny.contents("parts") == tiny.contents("tight"), "resumed with more memory: other bytes than in one go")


def calibrations(cache):
    folder = os.path.join(cache, "gpt-train", "calibration")
    return [os.path.join(folder, name) for name in os.listdir(folder)] if os.path.isdir(folder) else []


def other_rates(data):
    """Returns the same calibration, a file of the user's cache (base/user_cache.c), with rates that reorder the op
    kinds: every second number is a hundredth, the others tenfold."""
    magic, key_bytes, data_bytes, _, reserved = struct.unpack_from(HEADER, data)
    at = struct.calcsize(HEADER) + key_bytes
    numbers = struct.unpack_from(f"={data_bytes // 8}d", data, at)
    changed = struct.pack(f"={len(numbers)}d", *(number * (0.01, 10.0)[i % 2] for i, number in enumerate(numbers)))
    rest = data[at - key_bytes:at] + changed
    return struct.pack(HEADER, magic, key_bytes, data_bytes, crc32c(rest), reserved) + rest


def rates(budget):
    """The uninterrupted run is roomier()'s: without the stored plan and its budget a search would not find that
    plan."""
    expected, cache = tiny.contents("tight"), "timed"
    for what in ("deleted", "changed"):
        out = f"rates-{what[:7]}"
        for _ in range(5):  # a calibration that other programs disturb is not stored
            tiny.clear(cache)
            tiny.clear(out)
            done = good(f"calibration {what}, first part", run(out, "--max_iters=1", budget, cache=cache))
            paths = calibrations(cache)
            if UNSETTLED not in done.stderr:
                break
        check(len(paths) == (UNSETTLED not in done.stderr), f"calibration {what}: {paths}")
        if not paths and what == "changed":
            skip("strict_resume_calibration_changed", "other programs use this machine: no calibration settled")
            continue
        found = other_rates(read(paths[0])) if what == "changed" else None
        if found:
            check(found != read(paths[0]), "the calibration was not changed")
            write(paths[0], found)
        else:
            tiny.clear(cache)
        done = good(f"calibration {what}", run(out, "--max_iters=4", RESUME, STRICT, cache=cache))
        check(notes(done) == [], f"calibration {what}: {done.stderr[-400:]}")
        check(plan(out) == plan("tight"), f"calibration {what}: the plan is not kept: {plan(out)}")
        check(tiny.contents(out) == expected, f"calibration {what}: other bytes than in one go")
        if found:
            check("calibration" not in done.stderr, f"the changed calibration was not used: {done.stderr[-400:]}")
            check(read(paths[0]) == found, "the changed calibration was timed again")
        else:
            check(len(calibrations(cache)) == (UNSETTLED not in done.stderr), "the deleted calibration was not timed again")


def refused(what, out, field, *arguments, **environment):
    before = everything(out)
    done = run(out, "--max_iters=4", RESUME, STRICT, *arguments, **environment)
    errors = error_lines(done)
    check(done.returncode == 2 and len(errors) == 1, f"{what}: status {done.returncode}: {done.stderr[-400:]}")
    check(all("strict_resume" in line and f"{field} was" in line for line in errors), f"{what}: {errors}")
    check(everything(out) == before, f"{what}: the folder changed")


def tighter(tight):
    good("roomy, first part", run("kept", "--max_iters=1"))
    good("tight, recomputed", run("kept", "--max_iters=4", RESUME, STRICT, tight))
    one = tiny.contents("one")
    recomputed = {**one, "plan": {**one["plan"], "recompute": plan("kept")["recompute"]}}
    check(tiny.contents("kept") == recomputed != one, "recomputed: other bytes than in one go")
    budget = tight_budget(TOO_TIGHT)
    for out in ("strict", "lenient"):
        good("roomy, first part", run(out, "--max_iters=1"))
    refused("tighter", "strict", "micro_batch", budget)
    good("where it fits", run("strict", "--max_iters=4", RESUME, STRICT))
    check(tiny.contents("strict") == tiny.contents("one"), "after a refusal: other bytes than in one go")
    done = good("tighter, lenient", run("lenient", "--max_iters=4", RESUME, budget))
    check(len(notes(done)) == 1 and "micro_batch was 32, is" in done.stderr, f"tighter: {done.stderr[-400:]}")
    check(plan("lenient")["micro_batch"] < 32, f"tighter: {plan('lenient')}")
    check(tiny.contents("lenient").get("iter") == tiny.contents("one").get("iter"), "the lenient run went to the end")


def kernels():
    good("first part", run("isa", "--max_iters=1"))
    if "generic" in plan("isa")["kernels"]:
        skip("strict_resume_isa", "a processor or a build with one instruction set")
        return
    refused("other kernels", "isa", "kernels", GPT_TRAIN_CPU_ISA="generic")
    done = good("other kernels, lenient", run("isa", "--max_iters=4", RESUME, GPT_TRAIN_CPU_ISA="generic"))
    check(len(notes(done)) == 1 and "kernels was" in done.stderr, f"other kernels: {done.stderr[-400:]}")


def data():
    """Other tokens of the same size, and additional tokens: both are reported, and refused."""
    def changed(what):
        good(what, run(what, "--max_iters=1"))
        os.rename("data/manifest.json", "manifest.json")  # the manifest would report it first
        before = read("data/train.bin")
        write("data/train.bin", before + before[:2000] if what == "longer" else bytes(len(before)))
        refused(what, what, "train")
        done = good(f"{what}, lenient", run(what, "--max_iters=4", RESUME))
        check(len([line for line in done.stderr.splitlines() if "the data have changed" in line]) == 1 and "val was" not in
              done.stderr, f"{what}: {done.stderr[-400:]}")
        write("data/train.bin", before)
        os.rename("manifest.json", "data/manifest.json")
    changed("longer")
    changed("replaced")
    # A best loss of other validation data does not keep the best of these from being saved.
    good("the best", run("best", "--max_iters=3", "--always_save_checkpoint=False"))
    record, before = read_json("best/trainer_state.json"), read("data/val.bin")
    write("best/trainer_state.json", json.dumps({key: 0.5 if key == "best_val_loss" else value for key, value in record.items() if key != "record_crc32c"}))
    os.rename("data/manifest.json", "manifest.json")
    write("data/val.bin", before[2000:] + before[:2000])
    done = good("the best of other data", run("best", "--max_iters=7", RESUME, "--always_save_checkpoint=False"))
    check("the best validation loss, 0.5000, is one of other validation data" in done.stderr
          and read_json("best/trainer_state.json")["iter"] > record["iter"], f"the best of other data: {done.stdout[-300:]} {done.stderr[-300:]}")
    write("data/val.bin", before)
    os.rename("manifest.json", "data/manifest.json")
    good("as before, first part", run("same", "--max_iters=1"))
    done = good("as before", run("same", "--max_iters=4", RESUME, STRICT))
    check("the data have changed" not in done.stderr, f"as before: {done.stderr[-300:]}")


CHANGED = {"seed": "7", "dropout": "0.3", "sampler": "'epoch'", "batch_size": "16", "gradient_accumulation_steps": "3",
           "learning_rate": "1.0", "beta1": "0.5", "beta2": "0.5", "grad_clip": "0.0", "weight_decay": "0.0", "decay_lr": "False",
           "warmup_iters": "1", "lr_decay_iters": "9", "min_lr": "0.0"}


def keys():
    """Keys that affect results are named, all on one line; other keys, and unchanged values, are allowed."""
    good("keys, first part", run("keys", "--max_iters=1"))
    arguments = [f"--{key}={value.strip(chr(39))}" for key, value in CHANGED.items()]
    for key, argument in zip(CHANGED, arguments):
        if key in ("seed", "sampler", "decay_lr"):
            refused(key, "keys", key, argument)
    refused("all keys", "keys", "seed", *arguments)
    good("keys, lenient", run("keys-lenient", "--max_iters=1"))
    done = good("keys, lenient", run("keys-lenient", "--max_iters=4", RESUME, *arguments))
    lines = [line for line in done.stderr.splitlines() if "these keys were changed" in line]
    check(len(lines) == 1 and all(re.search(rf"\b{key} was \S+, is {value}(;|$)", lines[0]) for key, value in CHANGED.items()),
          f"keys, lenient: {lines}")
    done = good("keys that change nothing", run("keys", "--max_iters=4", RESUME, STRICT, "--seed=1337", "--log_interval=2",
                                                "--lr_decay_iters=600000"))
    check("keys were changed" not in done.stderr, f"keys that change nothing: {done.stderr[-300:]}")
    check(tiny.contents("keys").get("model") == tiny.contents("one").get("model"), "keys that change nothing: other bytes")


def main():
    tiny.make_data()
    fresh()
    budget = tight_budget(TIGHT)
    roomier(budget)
    rates(budget)
    tighter(budget)
    kernels()
    data()
    keys()


end(main)
