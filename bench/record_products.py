#!/usr/bin/env python3
"""GFLOP/s of the products of a 124M step by shape and dtype, beside OpenBLAS and PyTorch: a check of record.

usage: record_products.py [--build=BUILD] [--python=PYTHON] [--blas=libopenblas.so.0] [--threads=1] [--rounds=4]

gpt-train's are opcheck --bench --op=gemm --cases=30; OpenBLAS is cblas_sgemm of the library --blas; PyTorch is torch.mm of
that Python, whose bfloat16 products are oneDNN's.  In each round the sides take turns; each product runs once, then for 0.1
s and at least three times.  Prints the rate of the fastest run and, in brackets, of the median of the rounds' medians.  The
last two columns are gpt-train's float32 and bfloat16 over the faster of the others.  A side that is absent is skipped.
"""
import ctypes
import itertools
import json
import os
import re
import statistics
import sys

from common import has_torch, options_of, program, run

# As in tests/ops/gemm.c: x times a weight [p,q], y times its transpose, and the weight's gradient.  The weight of the
# output layer, a third of it, is transposed in the forward pass instead.
WEIGHTS = (("qkv", 768, 2304), ("proj", 768, 768), ("fc", 768, 3072), ("fcproj", 3072, 768), ("logits", 16768, 768))
ROWS = (256, 1024)
# A child prints the seconds of each run of each product, {dtype: [[...], ...]}.
TIMED = """
import json, sys, time
threads, shapes = json.loads(sys.argv[1])
def timed(once):
    once()
    runs, start = [], time.perf_counter()
    while len(runs) < 3 or time.perf_counter() - start < 0.1:
        before = time.perf_counter()
        once()
        runs.append(time.perf_counter() - before)
    return runs
"""
TORCH = TIMED + """
import torch
torch.set_num_threads(threads)
def product(dtype, m, n, k, ta, tb):
    a = torch.randn((k, m) if ta else (m, k)).to(dtype)
    b = torch.randn((n, k) if tb else (k, n)).to(dtype)
    a, b = a.t() if ta else a, b.t() if tb else b
    return timed(lambda: torch.mm(a, b))
print(json.dumps({name: [product(getattr(torch, name), *shape) for shape in shapes] for name in ("float32", "bfloat16")}))
"""
BLAS = TIMED + """
import array, ctypes, random
library = ctypes.CDLL(sys.argv[2])
library.openblas_set_num_threads(threads)
some = array.array("f", (random.random() - 0.5 for _ in range(1 << 16))).tobytes()
def matrix(elements):
    return ctypes.create_string_buffer(some * (elements * 4 // len(some) + 1), elements * 4 + len(some))
def product(m, n, k, ta, tb):
    a, b, d = matrix(m * k), matrix(k * n), matrix(m * n)
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    return timed(lambda: library.cblas_sgemm(101, 112 if ta else 111, 112 if tb else 111, m, n, k, one, a, m if ta else k, b,
                                             k if tb else n, zero, d, n))
print(json.dumps({"float32": [product(*shape) for shape in shapes]}))
"""


def products():
    """Yields name, (m, n, k, transpose a, transpose b) in opcheck's order."""
    for rows, (name, p, q) in itertools.product(ROWS, WEIGHTS):
        forward, dinput = ("dinput", "forward") if name == "logits" else ("forward", "dinput")
        yield f"{name} {forward}", (rows, q, p, 0, 0)
        yield f"{name} {dinput}", (rows, p, q, 0, 1)
        yield f"{name} dweight", (p, q, rows, 1, 0)


def ours(options, environment):
    """Returns {dtype: [(minimum, median) seconds, ...]}, as child() does."""
    text, _ = run([program(options.build, "tests/opcheck/opcheck"), "--backend=cpu", "--bench", "--op=gemm",
                   f"--cases={len(list(products()))}"], environment=environment)
    found = {}
    for dtype, least, median in re.findall(r"^gemm +(\w+) +([\d.]+) +([\d.]+) ", text, re.M):
        found.setdefault(dtype, []).append((float(least) / 1e3, float(median) / 1e3))
    return found


def child(python, script, options, environment, *arguments):
    shapes = json.dumps([options.threads, [shape for _, shape in products()]])
    text, _ = run([python, "-c", script, shapes, *arguments], environment=environment)
    return {dtype: [(min(runs), statistics.median(runs)) for runs in found]
            for dtype, found in json.loads(text.splitlines()[-1]).items()}


def has_library(name):
    try:
        return ctypes.CDLL(name).openblas_set_num_threads is not None
    except (OSError, AttributeError):
        return False


def sides_of(options, environment):
    """Returns {name: a function that measures all products once} of the sides that are here."""
    sides = {"gpt-train": lambda: ours(options, environment)}
    if has_library(options.blas):
        sides["OpenBLAS"] = lambda: child(sys.executable, BLAS, options, environment, options.blas)
    else:
        print(f"SKIP OpenBLAS: no library {options.blas}")
    if has_torch(options.python):
        sides["PyTorch"] = lambda: child(options.python, TORCH, options, environment)
    else:
        print(f"SKIP PyTorch: {options.python} has none")
    return sides


def share(rates, dtype):
    """Returns gpt-train's best rate over the others' best, as text."""
    others = [best for side, (best, _) in rates.items() if side.endswith(dtype) and not side.startswith("gpt-train")]
    return f"{rates[f'gpt-train {dtype}'][0] / max(others):.2f}" if others else ""


def main():
    options = options_of(__doc__, build=".", python=sys.executable, blas="libopenblas.so.0", threads=1, rounds=4)
    sides = sides_of(options, dict(os.environ, OMP_NUM_THREADS=str(options.threads)))
    rounds = [{f"{side} {dtype}": times for side, measure in sides.items() for dtype, times in measure().items()}
              for _ in range(options.rounds)]
    print("| product | " + " | ".join(rounds[0]) + " | float32 | bfloat16 |\n|---|" + "---|" * (len(rounds[0]) + 2))
    for i, (name, (m, n, k, *_)) in enumerate(products()):
        rates = {side: (2e-9 * m * n * k / min(found[side][i][0] for found in rounds),
                        2e-9 * m * n * k / statistics.median(found[side][i][1] for found in rounds)) for side in rounds[0]}
        print(f"| {name} {m} x {n} x {k} | " + " | ".join(f"{best:.0f} ({median:.0f})" for best, median in rates.values()) +
              f" | {share(rates, 'float32')} | {share(rates, 'bfloat16')} |")


if __name__ == "__main__":
    main()
