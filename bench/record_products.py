#!/usr/bin/env python3
"""GFLOP/s of the products of a 124M step by shape and dtype, on one thread, beside OpenBLAS and PyTorch: a check of record.

usage: record_products.py [--build=BUILD] [--python=PYTHON] [--rounds=3]

gpt-train's are opcheck --bench --op=gemm --case=1..10; OpenBLAS (the library of the build) is the same with
GPT_TRAIN_CPU_ISA=avx2, whose float32 products are the library's; PyTorch is torch.mm of that Python, whose bfloat16
products are oneDNN's.  The sides take turns.  Prints the rate of the fastest run and of the median.  The last column is
gpt-train's bfloat16 rate over PyTorch's.
"""
import json
import os
import re
import statistics
import sys

from common import has_torch, options_of, program, run

# As in tests/ops/gemm.c: name, m, n, k, transposes.
PRODUCTS = (("qkv", 256, 2304, 768, 0, 0), ("qkv dx", 256, 768, 2304, 0, 1), ("qkv dw", 768, 2304, 256, 1, 0),
            ("up", 256, 3072, 768, 0, 0), ("up dx", 256, 768, 3072, 0, 1), ("down dw", 3072, 768, 256, 1, 0),
            ("down", 256, 768, 3072, 0, 0), ("logits", 256, 16768, 768, 0, 1), ("logits dx", 256, 768, 16768, 0, 0),
            ("logits dw", 16768, 768, 256, 1, 0))
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1")
TORCH = """
import json, sys, time, torch
m, n, k, ta, tb = json.loads(sys.argv[1])
torch.set_num_threads(1)
found = {}
for name in ("float32", "bfloat16"):
    dtype = getattr(torch, name)
    a = torch.randn((k, m) if ta else (m, k)).to(dtype)
    b = torch.randn((n, k) if tb else (k, n)).to(dtype)
    a, b = a.t() if ta else a, b.t() if tb else b
    found[name] = []
    for _ in range(8):
        start = time.perf_counter()
        torch.mm(a, b)
        found[name].append(time.perf_counter() - start)
    found[name] = found[name][1:]
print(json.dumps(found))
"""


def ours(options, index, dtypes, **environment):
    """Returns {dtype: (minimum, median) seconds} of one product."""
    text, _ = run([program(options.build, "tests/opcheck/opcheck"), "--backend=cpu", "--bench", "--op=gemm", f"--case={index}"],
                  environment={**ENVIRONMENT, **environment})
    rows = re.findall(r"^gemm +(\w+) +([\d.]+) +([\d.]+) ", text, re.M)
    return {dtype: (float(least) / 1e3, float(median) / 1e3) for dtype, least, median in rows if dtype in dtypes}


def pytorch(options, shape):
    text, _ = run([options.python, "-c", TORCH, json.dumps(shape)], environment=ENVIRONMENT)
    return {dtype: (min(times), statistics.median(times)) for dtype, times in json.loads(text.splitlines()[-1]).items()}


def one_round(options, index, shape, torch):
    found = {f"gpt-train {name}": times for name, times in ours(options, index, ("float32", "bfloat16", "float16")).items()}
    found["OpenBLAS float32"] = ours(options, index, ("float32",), GPT_TRAIN_CPU_ISA="avx2")["float32"]
    if torch:
        found.update({f"PyTorch {name}": times for name, times in pytorch(options, shape).items()})
    return found


def main():
    options = options_of(__doc__, build=".", python=sys.executable, rounds=3)
    torch = has_torch(options.python)
    for index, (name, m, n, k, *transposes) in enumerate(PRODUCTS, 1):
        rounds = [one_round(options, index, (m, n, k, *transposes), torch) for _ in range(options.rounds)]
        rate = {side: [2e-9 * m * n * k / pick(found[side][i] for found in rounds)
                       for i, pick in enumerate((min, statistics.median))] for side in rounds[0]}
        if index == 1:
            print("| product | " + " | ".join(rate) + " | ratio |\n|---|" + "---|" * (len(rate) + 1))
        share = f"{rate['gpt-train bfloat16'][0] / rate['PyTorch bfloat16'][0]:.2f}" if torch else ""
        print(f"| {name} {m} x {n} x {k} | " + " | ".join(f"{best:.0f} ({median:.0f})" for best, median in rate.values()) +
              f" | {share} |", flush=True)


if __name__ == "__main__":
    main()
