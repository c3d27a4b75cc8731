#!/usr/bin/env python3
"""For published figures, not in CI: seconds per step and peak memory, by the size of a step and of the model, by
recompute level, and under memory budgets.

    bench/record_speed.py --build=BUILD [--tables=tokens,models,recompute,budgets] [--steps=3] [--rounds=2] [--threads=N]
                          [--budgets=6GiB,4GiB,3GiB] [--extra="--key=value ..."]

Float32 on random tokens, on the cpu backend.  The runs of a table alternate, --rounds times, so that a disturbance
affects all alike; the first step of each process is ignored.  Prints minimum and median seconds per step, the peak
resident set as the kernel reports it, the rate at the minimum, which is constant if time is linear in the work, and what
a run said of its plan and its time.  Fails when a run exceeds its budget.

  tokens      6 layers of 384 channels, block 256, batches of 1 to 64: 256 to 16,384 tokens per step
  models      0.8M to 350M parameters on 1,024 tokens
  recompute   124M parameters, 4 x 256, every level
  budgets     124M parameters, 4 x 1,024, each budget
"""
import re
import statistics
import sys
import tempfile

from common import options_of, program, run, step_flops, step_seconds, training

UNITS = {"MiB": 2.0 ** 20, "GiB": 2.0 ** 30}
MODELS = {"0.8M": (4, 4, 128, 65), "10.6M": (6, 6, 384, 65), "30M": (6, 6, 384, 50304), "124M": (12, 12, 768, 50304),
          "350M": (24, 16, 1024, 50304)}


def tables(options):
    """Returns {table: {case: (shape, arguments)}}."""
    return {
        "tokens": {f"{batch * 256} tokens": ((*MODELS["10.6M"], batch, 256), ()) for batch in (1, 4, 16, 64)},
        "models": {name: ((*model, 4, 256), ()) for name, model in MODELS.items()},
        "recompute": {level: ((*MODELS["124M"], 4, 256), ("--recompute=" + level,))
                      for level in ("none", "gelu", "layernorm", "mlp", "full")},
        "budgets": {budget: ((*MODELS["124M"], 4, 1024), ("--bias=False", "--memory_budget=" + budget))
                    for budget in options.budgets.split(",")},
    }


def said(log):
    modelled = re.search(r"^(estimate|time left): .*\(\d+ steps? of ([^,)]*)", log, re.M)
    plan = re.search(r"^plan: .*: (micro-batch .*?); ", log, re.M)
    return f"{modelled.group(2) if modelled else '-'}; {plan.group(1) if plan else 'as configured'}"


def bytes_of(budget):
    number, unit = re.match(r"([0-9.]+)(\w+)", budget).groups()
    return float(number) * UNITS[unit]


def main():
    options = options_of(__doc__, build=".", steps=3, rounds=2, threads=0, tables="tokens,models,recompute,budgets",
                         budgets="6GiB,4GiB,3GiB", extra="")
    good = True
    with tempfile.TemporaryDirectory(prefix="gpt-train-speed-") as work:
        for name in options.tables.split(","):
            cases = tables(options)[name]
            found = {case: {"times": [], "peak": 0, "said": ""} for case in cases}
            for _ in range(options.rounds):
                for case, (shape, more) in cases.items():
                    log, peak = run([program(options.build, "gpt-train"), *training(work, shape, options.steps), "--bias=True",
                                     f"--threads={options.threads}", *more, *options.extra.split()], work)
                    one = found[case]
                    one.update(times=one["times"] + step_seconds(log), peak=max(one["peak"], peak), said=said(log))
            print(f"\n| {name} | min s | median s | peak MiB | GFLOP/s | forecast; plan |\n|---|---|---|---|---|---|")
            for case, one in found.items():
                holds = name != "budgets" or one["peak"] <= bytes_of(case)
                good = good and holds
                print(f"| {case} | {min(one['times']):.4f} | {statistics.median(one['times']):.4f} | {one['peak'] / 2 ** 20:.0f} | "
                      f"{step_flops(cases[case][0]) / min(one['times']) / 1e9:.0f} | {one['said']} |"
                      f"{'' if holds else '  OVER THE BUDGET'}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
