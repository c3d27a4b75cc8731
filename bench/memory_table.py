#!/usr/bin/env python3
"""The tables of doc/memory.md: which micro-batches fit which card, from plans alone.

    bench/memory_table.py --build=BUILD [--batch=64] [--block=1024] [--dtype=bfloat16]
                          [--cards=rtx3070-8g,rtx3060-12g,rtx3090-24g] [--models=124M,350M,774M,1558M]

For each card (a device profile) and model the largest micro-batch that fits at each recompute level, found by bisection
over gpt-train --plan=json; nothing else of the configuration is pinned.  No GPU is needed, and nothing is trained.
Prints one Markdown table per card, and the command of each row's first cell for checking it by hand.
"""
import argparse
import json
import os
import subprocess
import sys

LEVELS = ("none", "gelu", "layernorm", "mlp", "full")
MODELS = {
    "124M": (12, 12, 768),
    "350M": (24, 16, 1024),
    "774M": (36, 20, 1280),
    "1558M": (48, 25, 1600),
}
GIB = 1 << 30


def command(options, card, model, level, micro_batch):
    layers, heads, width = MODELS[model]
    return [os.path.join(options.build, "gpt-train"), "--plan=json", "--backend=cuda", f"--device_profile={card}",
            f"--dtype={options.dtype}", f"--n_layer={layers}", f"--n_head={heads}", f"--n_embd={width}",
            f"--block_size={options.block}", f"--batch_size={options.batch}", "--gradient_accumulation_steps=1",
            "--vocab_size=50304", "--dataset=./none", f"--micro_batch={micro_batch}", f"--recompute={level}"]


def plan(options, card, model, level, micro_batch):
    """The plan as an object and whether it fits; anything else than 0 and 3 is an error of ours."""
    done = subprocess.run(command(options, card, model, level, micro_batch), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 3):
        sys.exit(f"{' '.join(done.args)}: exit status {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout), done.returncode == 0


def largest(options, card, model, level):
    """The largest micro-batch that fits, with its plan; (0, plan of 1) when not even one sequence does."""
    least, fits = plan(options, card, model, level, 1)
    if not fits:
        return 0, least
    low, high, best = 1, options.batch + 1, least
    while high - low > 1:
        middle = (low + high) // 2
        made, fits = plan(options, card, model, level, middle)
        if fits:
            low, best = middle, made
        else:
            high = middle
    return low, best


def cell(count, made):
    size = made["bytes"]["arena"] / GIB
    return f"{count} ({size:.2f})" if count else f"- (1 needs {size:.2f})"


def table(options, card):
    first = True
    print(f"| {card} | " + " | ".join(f"`{level}`" for level in LEVELS) + " |")
    print("|---" * (len(LEVELS) + 1) + "|")
    for model in options.models.split(","):
        cells = []
        for level in LEVELS:
            count, made = largest(options, card, model, level)
            cells.append(cell(count, made))
            if first:
                example, first = command(options, card, model, level, max(count, 1)), False
        print(f"| {model} | " + " | ".join(cells) + " |", flush=True)
    print("\n" + " ".join(["gpt-train"] + example[1:]) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--block", type=int, default=1024)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--cards", default="rtx3070-8g,rtx3060-12g,rtx3090-24g")
    parser.add_argument("--models", default=",".join(MODELS))
    options = parser.parse_args()
    print(f"largest micro-batch (arena in GiB), batch {options.batch} x {options.block}, {options.dtype}\n")
    for card in options.cards.split(","):
        table(options, card)


if __name__ == "__main__":
    main()
