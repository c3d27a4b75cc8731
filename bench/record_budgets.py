#!/usr/bin/env python3
"""A 124M model under memory budgets: peak resident set, seconds per step, and the forecast.

usage: record_budgets.py [--budgets 6GiB,4GiB,3GiB] [--steps 3] [--batch 4] [--threads N] [--extra "--key=value ..."]

Trains config/gpt2_124m.py at block 1024 on random tokens in float32, once per budget and then once more in turn, so
that a disturbance affects all alike.  Peaks are the kernel's (getrusage of the child).  The `device` and `forecast`
lines of each run show the roof, a product of 1024 x 1024 matrices through gpt-train's own probe.  Fails when a run
exceeds its budget.  Takes GPT_TRAIN from the environment, else from the current folder.
"""

import argparse
import os
import random
import re
import statistics
import struct
import sys
import tempfile

from common import run

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GPT_TRAIN = os.environ.get("GPT_TRAIN", os.path.abspath("gpt-train"))
UNITS = {"MiB": 2.0 ** 20, "GiB": 2.0 ** 30}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--budgets", default="6GiB,4GiB,3GiB")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--extra", default="")
    options = parser.parse_args()
    budgets, rows, good = options.budgets.split(","), {}, True
    with tempfile.TemporaryDirectory(prefix="gpt-train-budgets-") as work:
        generator = random.Random(1)
        os.mkdir(os.path.join(work, "data"))
        for name in ("train.bin", "val.bin"):
            with open(os.path.join(work, "data", name), "wb") as file:
                file.write(struct.pack("<65536H", *(generator.randrange(50257) for _ in range(65536))))
        for _ in range(options.rounds):
            for budget in budgets:
                log, peak = run([GPT_TRAIN, os.path.join(TOP, "config", "gpt2_124m.py"), f"--dataset={work}/data",
                                 f"--out_dir={work}/out", f"--memory_budget={budget}", f"--batch_size={options.batch}",
                                 "--gradient_accumulation_steps=1", f"--max_iters={options.steps}", "--eval_iters=1",
                                 "--eval_interval=1000000", "--log_interval=1", f"--threads={options.threads}",
                                 "--always_save_checkpoint=False", "--vocab_size=50304"] + options.extra.split(), work)
                times = [float(text) / 1e3 for text in re.findall(r"^iter [1-9]\d*: .* time ([0-9.]+)ms", log, re.M)]
                modelled = re.search(r"^(estimate|time left): .*\(\d+ steps? of ([^,)]*)", log, re.M)
                plan = re.search(r"^plan: .*: (micro-batch .*?); ", log, re.M)
                row = rows.setdefault(budget, {"times": [], "peak": 0})
                row["times"] += times
                row["peak"] = max(row["peak"], peak)
                row["forecast"] = f"{modelled.group(2)}{' (estimate)' if modelled.group(1) == 'estimate' else ''}" if modelled else "-"
                row["plan"] = plan.group(1) if plan else "as configured"
    print(f"{'budget':>8} {'peak RSS GiB':>13} {'s/step min':>11} {'median':>8}  forecast; plan")
    for budget, row in rows.items():
        number, unit = re.match(r"([0-9.]+)(\w+)", budget).groups()
        holds = row["peak"] <= float(number) * UNITS[unit]
        good = good and holds
        print(f"{budget:>8} {row['peak'] / 2 ** 30:13.3f} {min(row['times']):11.2f} "
              f"{statistics.median(row['times']):8.2f}  {row['forecast']}; {row['plan']}"
              f"{'' if holds else '  OVER THE BUDGET'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
