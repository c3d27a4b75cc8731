#!/usr/bin/env python3
"""Training in bfloat16 and float16 against float32: the whole validation split, paired seeds.

usage: record_dtypes.py [--iterations 2000] [--seeds 3] [--threads N] TEXT

Trains nanoGPT's CPU configuration (config/shakespeare_char_cpu.py) on the text, by characters, from the same initial
weights and batches in each dtype, for several seeds, and prints the loss of the whole validation split after the last
update, its difference from float32's, and the milliseconds per step.  Bounds: a mean difference of 0.005, 0.01 for any
seed.  Takes GPT_TRAIN and GPT_PREPARE from the environment, else from the current folder.
"""

import argparse
import os
import statistics
import sys
import tempfile

from common import Course, prepare_characters

GPT_TRAIN = os.environ.get("GPT_TRAIN", os.path.abspath("gpt-train"))
GPT_PREPARE = os.environ.get("GPT_PREPARE", os.path.abspath("gpt-prepare"))
DTYPES = ("float32", "bfloat16", "float16")
MEAN_BOUND, SEED_BOUND = 0.005, 0.01


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("text")
    parser.add_argument("--iterations", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    losses, times = {dtype: [] for dtype in DTYPES}, {dtype: [] for dtype in DTYPES}
    with tempfile.TemporaryDirectory(prefix="gpt-train-dtypes-") as work:
        prepare_characters(GPT_PREPARE, options.text, work)
        for seed in range(1, options.seeds + 1):
            for dtype in DTYPES:
                course = Course(GPT_TRAIN, work, f"{dtype}-{seed}", [f"--dtype={dtype}", f"--seed={seed}",
                                                                   f"--threads={options.threads}"], options.iterations)
                losses[dtype].append(course.loss)
                times[dtype].append(statistics.median(course.times))
                print(f"seed {seed} {dtype:9} validation loss {course.loss:.4f}, {times[dtype][-1]:.2f} ms per step", flush=True)
    good = True
    for dtype in DTYPES[1:]:
        differences = [other - base for other, base in zip(losses[dtype], losses["float32"])]
        mean, worst = statistics.fmean(differences), max(abs(value) for value in differences)
        holds = mean <= MEAN_BOUND and worst <= SEED_BOUND
        good = good and holds
        print(f"{dtype}: mean difference to float32 {mean:+.4f} (bound {MEAN_BOUND}), largest {worst:.4f} (bound "
              f"{SEED_BOUND}), {statistics.median(times[dtype]):.2f} ms per step against "
              f"{statistics.median(times['float32']):.2f}{'' if holds else '  FAILED'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
