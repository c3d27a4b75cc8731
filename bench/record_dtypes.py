#!/usr/bin/env python3
"""Training in bfloat16 and float16 against float32: the whole validation split, paired seeds.

usage: record_dtypes.py [--iterations 2000] [--seeds 3] [--threads N] TEXT

Trains nanoGPT's CPU configuration (config/shakespeare_char_cpu.py) on the text, by characters, from the same initial weights
and batches in each dtype, for several seeds, and prints the loss of the whole validation split after the last update, its
difference to float32's, and the milliseconds per step.  Bounds: a mean difference of 0.005, 0.01 for any seed.  Takes
GPT_TRAIN and GPT_PREPARE from the environment, else from the current folder.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GPT_TRAIN = os.environ.get("GPT_TRAIN", os.path.abspath("gpt-train"))
GPT_PREPARE = os.environ.get("GPT_PREPARE", os.path.abspath("gpt-prepare"))
DTYPES = ("float32", "bfloat16", "float16")
MEAN_BOUND, SEED_BOUND = 0.005, 0.01


def command(*arguments, cwd):
    result = subprocess.run(arguments, check=False, capture_output=True, text=True, cwd=cwd)
    if result.returncode != 0:
        sys.exit(f"{arguments[0]} failed: {result.stderr}")
    return result.stdout


def course(work, dtype, seed, options):
    """The final validation loss over the whole split, and the median milliseconds per step."""
    common = [os.path.join(TOP, "config", "shakespeare_char_cpu.py"), f"--dataset={work}/data", f"--dtype={dtype}",
              f"--seed={seed}", f"--threads={options.threads}", f"--out_dir={work}/out-{dtype}-{seed}"]
    log = command(GPT_TRAIN, *common, f"--max_iters={options.iterations - 1}", "--eval_interval=1000000",
                  "--always_save_checkpoint=True", cwd=work)
    times = [float(number) for number in re.findall(r"^iter \d+: .*time ([0-9.]+)ms", log, re.MULTILINE)]
    log = command(GPT_TRAIN, *common, "--init_from=resume", "--eval_only=True", "--eval_iters=0", cwd=work)
    loss = float(re.search(r"val loss ([0-9.]+)", log).group(1))
    return loss, statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("text")
    parser.add_argument("--iterations", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    losses, times = {dtype: [] for dtype in DTYPES}, {dtype: [] for dtype in DTYPES}
    with tempfile.TemporaryDirectory(prefix="gpt-train-dtypes-") as work:
        command(GPT_PREPARE, "--tokenizer=chars", f"--out_dir={work}/data", os.path.abspath(options.text), cwd=work)
        for seed in range(1, options.seeds + 1):
            for dtype in DTYPES:
                loss, time_ms = course(work, dtype, seed, options)
                losses[dtype].append(loss)
                times[dtype].append(time_ms)
                print(f"seed {seed} {dtype:9} validation loss {loss:.4f}, {time_ms:.2f} ms per step", flush=True)
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
