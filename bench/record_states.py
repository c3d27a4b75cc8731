#!/usr/bin/env python3
"""State formats and Muon against fp32 with AdamW: the whole validation split, paired seeds.

usage: record_states.py [--iterations 2000] [--seeds 3] [--threads N] [--only NAME,...] TEXT

Trains nanoGPT's CPU configuration (config/shakespeare_char_cpu.py) on the text, by characters, from the same initial
weights and batches: float32, then every state format in bfloat16, then Muon.  Prints the loss of the whole validation
split after the last update, the mean difference from float32's, bytes per parameter and the milliseconds per step.  For
Muon it also prints the interpolated iteration at which the loss of 20 validation batches reaches AdamW's final one, and
the seconds until then.  Bound of the formats: a mean difference of 0.005.  Takes GPT_TRAIN and GPT_PREPARE from the
environment, else from the current folder.
"""

import argparse
import os
import re
import statistics
import sys
import tempfile

from common import Course, prepare_characters, run

GPT_TRAIN = os.environ.get("GPT_TRAIN", os.path.abspath("gpt-train"))
GPT_PREPARE = os.environ.get("GPT_PREPARE", os.path.abspath("gpt-prepare"))
RUNS = {
    "float32": ["--dtype=float32"],
    "master": ["--dtype=bfloat16", "--state_format=master"],
    "sr": ["--dtype=bfloat16", "--state_format=sr"],
    "sr_bf16": ["--dtype=bfloat16", "--state_format=sr_bf16"],
    "sr_8bit": ["--dtype=bfloat16", "--state_format=sr_8bit"],
    "sr_8bit_full": ["--dtype=bfloat16", "--state_format=sr_8bit_full"],
    "muon": ["--dtype=float32", "--optimizer=muon"],
    "muon_sr_bf16": ["--dtype=bfloat16", "--state_format=sr_bf16", "--optimizer=muon"],
}
MEAN_BOUND = 0.005
CURVE = 100, 20  # iterations between evaluations, and batches of each


def planned_bytes(course):
    """Returns the planned bytes per parameter."""
    plan, _ = run([*course.command, "--plan"], ".")
    return float(re.search(r"([0-9.]+) bytes per parameter", plan).group(1))


def reaches(course, target):
    """Returns the iteration at which the curve falls to the target, and the seconds until then; None when it does
    not."""
    for (before, high), (after, low) in zip(course.curve, course.curve[1:]):
        if low <= target < high:
            at = before + (after - before) * (high - target) / (high - low)
            return at, sum(course.times[:int(at)]) / 1e3
    return None


def report(name, courses, base):
    """Prints one line about the seeds of a run compared with float32's; returns true when the bound, if any, is met."""
    losses = [course.loss for course in courses]
    difference = statistics.fmean(loss - other.loss for loss, other in zip(losses, base))
    holds = name.startswith("muon") or difference <= MEAN_BOUND
    print(f"{name:13} {statistics.fmean(losses):.4f} ({' '.join(f'{loss:.4f}' for loss in losses)}), "
          f"{difference:+.4f} to float32, {planned_bytes(courses[0]):.2f} bytes per parameter, "
          f"{statistics.median(courses[0].times):.2f} ms per step{'' if holds else '  FAILED'}", flush=True)
    if name.startswith("muon"):
        for seed, (course, other) in enumerate(zip(courses, base), start=1):
            reached = reaches(course, other.curve[-1][1])
            print(f"  seed {seed}: AdamW's {other.curve[-1][1]:.4f} after {sum(other.times) / 1e3:.0f} s; " +
                  ("not reached" if reached is None else f"iteration {reached[0]:.0f}, {reached[1]:.0f} s"), flush=True)
    return holds


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("text")
    parser.add_argument("--iterations", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--only", default=",".join(RUNS))
    options = parser.parse_args()
    names = ["float32"] + [name for name in options.only.split(",") if name != "float32"]
    with tempfile.TemporaryDirectory(prefix="gpt-train-states-") as work:
        prepare_characters(GPT_PREPARE, options.text, work)
        courses = {name: [] for name in names}
        for seed in range(1, options.seeds + 1):
            for name in names:
                courses[name].append(Course(GPT_TRAIN, work, f"{name}-{seed}", [f"--seed={seed}", f"--threads={options.threads}",
                                                                               *RUNS[name]], options.iterations, CURVE))
                print(f"seed {seed} {name:13} validation loss {courses[name][-1].loss:.4f}", flush=True)
        good = all([report(name, courses[name], courses["float32"]) for name in names])
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
