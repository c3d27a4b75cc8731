#!/usr/bin/env python3
"""Forecasts against measured steps, on a quiet machine and beside another busy program: a check of record.

usage: record_forecasts.py [--build=BUILD] [--steps=16] [NAME...]

Each configuration runs on the cpu with an empty cache of timings, first alone, then beside a program that keeps one
processor busy.  The columns, with errors relative to what was measured:
  forecast  a step, as estimated before the first one; its error against the median step of the quiet run
  after 10  the mean of steps 2 to 10, from which the run forecasts; its error against the median of the later steps
"""
import os
import re
import statistics
import subprocess
import sys
import tempfile

from common import options_of, program, run, training

SMALL, LONG = (12, 12, 768, 50304, 4, 64), (12, 12, 768, 50304, 1, 1024)
MIDDLE, WIDE = (12, 12, 768, 50304, 4, 256), (24, 16, 1024, 50304, 1, 256)
CASES = {
    "124M 4x64 float32": (SMALL, "--dtype=float32"),
    "124M 4x64 bfloat16": (SMALL, "--dtype=bfloat16"),
    "124M 4x256 float32": (MIDDLE, "--dtype=float32"),
    "124M 4x256 float32, 2.6 GB": (MIDDLE, "--dtype=float32", "--memory_budget=2600000000"),
    "124M 4x256 Muon": (MIDDLE, "--dtype=float32", "--optimizer=muon"),
    "124M 1x1024 bfloat16": (LONG, "--dtype=bfloat16"),
    "124M 1x1024 float16": (LONG, "--dtype=float16"),
    "350M 1x256 bfloat16": (WIDE, "--dtype=bfloat16", "--state_format=sr_bf16"),
    "tiny": ((4, 4, 128, 65, 12, 64), "--dtype=float32"),
}
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
PATTERN = r"^estimate: .* steps of ([\d.]+) (us|ms|s)"


def run_one(options, folder, case):
    """Returns the last estimate of a step before the first one, the times of all steps but the first, and the lines
    that speak of other programs."""
    shape, *more = case
    environment = dict(os.environ, XDG_CACHE_HOME=os.path.join(folder, f"cache-{os.urandom(4).hex()}"))
    text, _ = run([program(options.build, "gpt-train"), *training(folder, shape, options.steps), "--backend=cpu",
                   "--bias=True", *more], environment=environment)
    number, unit = re.findall(PATTERN, text, re.M)[-1]
    steps = [float(ms) / 1e3 for ms in re.findall(r"^iter [1-9]\d*: .*time ([\d.]+)ms", text, re.M)]
    return float(number) * UNITS[unit], steps, re.findall(r"^.*(?:disturbed|settle).*$", text, re.M)


def error(forecast, measured):
    return f"{100 * (forecast / measured - 1):+5.1f} %"


def row(name, state, found, quiet):
    estimate, steps, notes = found
    tested, later = statistics.mean(steps[:9]), statistics.median(steps[9:])
    print(f"| {name} | {state} | {estimate:.3g} s | {quiet:.3g} s | {error(estimate, quiet)} | {tested:.3g} s | "
          f"{later:.3g} s | {error(tested, later)} | {'yes' if notes else 'no'} |", flush=True)


def main():
    options = options_of(__doc__, "names...", build="build", steps=16)
    print("| | machine | forecast | quiet step | error | after 10 | later steps | error | says disturbed |\n"
          "|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.names or CASES:
            alone = run_one(options, folder, CASES[name])
            quiet = statistics.median(alone[1])
            row(name, "quiet", alone, quiet)
            with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
                try:
                    row(name, "disturbed", run_one(options, folder, CASES[name]), quiet)
                finally:
                    other.kill()


if __name__ == "__main__":
    main()
