#!/usr/bin/env python3
"""How time per step grows with tokens per step and with the model, and what each recompute level costs and saves.

usage: record_scaling.py [--build=BUILD] [--steps=3] [--rounds=2] [--threads=N] [--tables=tokens,models,recompute]

Float32 on random tokens, on the cpu backend.  The runs of a table alternate, --rounds times, so that a disturbance
affects all alike; the first step of each process is ignored.  Prints minimum and median seconds per step, the peak
resident set as the kernel reports it, and the rate at the minimum, which is constant if time is linear in the work.

  tokens      6 layers of 384 channels, block 256, batches of 1 to 64: 256 to 16,384 tokens per step
  models      0.8M to 350M parameters on 1,024 tokens
  recompute   124M parameters, 4 x 256, every level
"""
import argparse
import os
import re
import statistics
import tempfile

from common import program, random_tokens, run

# name: layers, heads, channels, vocabulary, batch, block, more arguments
TABLES = {
    "tokens": {f"{batch * 256} tokens": (6, 6, 384, 65, batch, 256, ()) for batch in (1, 4, 16, 64)},
    "models": {
        "0.8M": (4, 4, 128, 65, 4, 256, ()),
        "10.6M": (6, 6, 384, 65, 4, 256, ()),
        "30M": (6, 6, 384, 50304, 4, 256, ()),
        "124M": (12, 12, 768, 50304, 4, 256, ()),
        "350M": (24, 16, 1024, 50304, 4, 256, ()),
    },
    "recompute": {level: (12, 12, 768, 50304, 4, 256, ("--recompute=" + level,))
                  for level in ("none", "gelu", "layernorm", "mlp", "full")},
}


def step_flops(shape):
    """Multiply-adds count as two; embeddings are not multiplied, recomputation is not counted."""
    layers, _, width, vocabulary, batch, block = shape[:6]
    return batch * block * (6 * (12 * layers * width * width + vocabulary * width) + 6 * layers * block * width)


def measure(options, work, shape):
    layers, heads, width, vocabulary, batch, block, more = shape
    data = os.path.join(work, f"data-{vocabulary}")
    if not os.path.isdir(data):
        random_tokens(data, min(vocabulary, 50257))
    log, rss = run([program(options.build, "gpt-train"), f"--dataset={data}", f"--n_layer={layers}", f"--n_head={heads}",
                    f"--n_embd={width}", f"--vocab_size={vocabulary}", "--bias=True", f"--batch_size={batch}",
                    f"--block_size={block}", "--gradient_accumulation_steps=1", f"--max_iters={options.steps}",
                    "--eval_iters=1", "--eval_interval=1000000", "--always_save_checkpoint=False", "--log_interval=1",
                    f"--threads={options.threads}", "--dropout=0", f"--out_dir={work}/out", *more], work)
    return [float(ms) / 1e3 for ms in re.findall(r"^iter [1-9]\d*: .* time ([0-9.]+)ms", log, re.M)], rss


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default=".")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--tables", default=",".join(TABLES))
    options = parser.parse_args()
    options.build = os.path.abspath(options.build)
    with tempfile.TemporaryDirectory(prefix="gpt-train-scaling-") as work:
        for name in options.tables.split(","):
            times, largest = {case: [] for case in TABLES[name]}, {case: 0 for case in TABLES[name]}
            for _ in range(options.rounds):
                for case, shape in TABLES[name].items():
                    seconds, rss = measure(options, work, shape)
                    times[case] += seconds
                    largest[case] = max(largest[case], rss)
            print(f"\n| {name} | min s | median s | peak MiB | GFLOP/s |\n|---|---|---|---|---|")
            for case, shape in TABLES[name].items():
                print(f"| {case} | {min(times[case]):.4f} | {statistics.median(times[case]):.4f} | "
                      f"{largest[case] / 2 ** 20:.0f} | {step_flops(shape) / min(times[case]) / 1e9:.0f} |", flush=True)


if __name__ == "__main__":
    main()
