#!/usr/bin/env python3
"""A matrix library that is many times slower than others is named once, and works.

Plain loops (slow_blas.c, preloaded) replace the library of the build.
"""

import re

from checks import GPT_TRAIN, check, end, patience, preloadable, ran, skip, write

WARNING = re.compile(r"warning: cpu: the library for matrix products \(.+\) does ([\d.]+) GFLOP/s per thread")


def train(folder, **environment):
    return ran(GPT_TRAIN, "--dataset=./data", f"--out_dir={folder}", "--n_layer=1", "--n_head=2", "--n_embd=16",
               "--vocab_size=97", "--block_size=8", "--batch_size=2", "--max_iters=2", "--eval_iters=1",
               "--gradient_accumulation_steps=1", "--backend=cpu", environment=environment, timeout=patience(60))


def losses(done):
    return re.findall(r"^iter \d+: loss ([\d.]+)", done.stdout, re.M)


def preloaded(wanted):
    library = preloadable("slow_blas", GPT_TRAIN, "tests/e2e/slow_blas.c")
    if library is None:
        return
    done = train("slow", LD_PRELOAD=library)
    found = WARNING.findall(done.stderr)
    if not found and done.returncode == 0 and "generic kernels" in done.stderr + done.stdout:
        skip("slow_blas", "a processor of which nothing is expected")
        return
    check(len(found) == 1 and 0 < float(found[0]) < 8, f"named once, with its rate: {done.stderr[-500:]}")
    check(done.returncode == 0 and losses(done) == wanted, f"the same losses: {losses(done)}, {wanted}")


def main():
    for split in ("train", "val"):
        write(f"data/{split}.bin", b"".join((i * 31 % 97).to_bytes(2, "little") for i in range(2000)))
    done = train("own")
    check(done.returncode == 0 and len(losses(done)) == 3, f"a run: {done.stderr[-300:]}")
    preloaded(losses(done))


end(main)
