#!/usr/bin/env python3
"""Runs bench/run on one small case, and checks that its figures are consistent.  Times are not checked."""
import os
import sys

from checks import BUILD, SOURCE, check, end, patience, ran, read_json

BENCH = os.path.join(SOURCE, "bench", "run")


def bench(*arguments):
    return ran(sys.executable, "-B", BENCH, *arguments, timeout=patience(300))


def near(a, b):
    return abs(a - b) <= 1e-9 * abs(b)


def main():
    done = bench("--quick", "--build=" + BUILD, "--json=found.json")
    check(done.returncode == 0, f"bench/run --quick: {done.returncode} {done.stdout[-1000:]} {done.stderr[-1000:]}")
    if done.returncode != 0:
        return
    found = read_json("found.json")
    check(len(found["results"]) == 1, "one case")
    result = found["results"][0]
    layers, heads, width, vocab, batch, block = result["shape"]
    flops = batch * block * (6 * (12 * layers * width * width + vocab * width) + 6 * layers * block * width)
    check(heads > 0 and result["gflops"] > 0 and result["gbytes"] > 0, f"a roof above zero: {result}")
    check("PyTorch" in result["sides"] or "SKIP PyTorch" in done.stdout, "PyTorch's lines, or why there are none")
    for side, got in result["sides"].items():
        check(0 < got["min_s"] <= got["median_s"], f"{side}: minimum and median {got}")
        check(near(got["tokens_per_s"], batch * block / got["median_s"]), f"{side}: tokens per second {got}")
        check(near(got["roof"], flops / got["median_s"] / 1e9 / result["gflops"]), f"{side}: share of the roof {got}")
        check(got["rss_mib"] > 1, f"{side}: resident memory {got}")
    ops = {one["op"]: one for one in result["ops"]}
    check("gemm" in ops and "adamw" in ops and "attention_backward" in ops, f"the ops of a step: {sorted(ops)}")
    check(abs(sum(one["share"] for one in ops.values()) - 100) < 2, "shares add up")
    check("| quick | gpt-train" in done.stdout, f"the table: {done.stdout}")
    listed = bench("--list")
    check(listed.returncode == 0 and "124m-4x256" in listed.stdout, f"--list: {listed.stdout}")
    absent = bench("--quick", "--build=absent")
    check(absent.returncode != 0 and "no such program" in absent.stderr and "Traceback" not in absent.stderr,
          f"a build that is not there: {absent.stderr[-300:]}")


end(main)
