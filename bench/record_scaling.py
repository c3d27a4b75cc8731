#!/usr/bin/env python3
"""The model of scaling: the tables of doc/distributed.md, beside speeds that llmq publishes.

    bench/record_scaling.py --build=BUILD [--only=published,table]

  published  an update of R cards, as --plan --ranks=R --link=RATE models the exchange and llmq's own time on one card gives the
             rest, as a share of the time that llmq publishes for R cards; wanted: 0.94 to 1.05.  Times are medians of steps 1
             to 5 of benchmarks/ in github.com/IST-DASLab/llmq (b77d969): bfloat16 products, and no offloading, sharding or
             recomputing that R cards do without.  llmq's gradients are bfloat16, so that 4 bytes a parameter travel instead of
             our 6.  Rates of links are assumed: PCIe 4 through the host, PCIe 5, NVLink
  table      share of R times one card, by --plan, for 2 to 64 ranks
"""
import json
import os
import subprocess
import sys

from common import options_of, program

QWEN = {"0.5B": (24, 896, 14, 2, 4864, True), "1.5B": (28, 1536, 12, 2, 8960, True), "3B": (36, 2048, 16, 2, 11008, True),
        "7B": (28, 3584, 28, 4, 18944, False)}
LINKS = {"4090": "12GB/s", "PRO 6000": "50GB/s", "H100": "400GB/s"}
# Card, number of cards, model, milliseconds of an update of 512 x 1024 tokens on one card and on all.
PUBLISHED = (("4090", 4, "0.5B", 13158, 3387), ("4090", 4, "1.5B", 37257, 10001), ("4090", 4, "3B", 74848, 20165),
             ("PRO 6000", 8, "0.5B", 6081, 777), ("PRO 6000", 8, "1.5B", 16171, 2044), ("PRO 6000", 8, "3B", 30512, 3859),
             ("PRO 6000", 8, "7B", 64891, 8385), ("H100", 8, "0.5B", 3504, 446), ("H100", 8, "1.5B", 8906, 1146),
             ("H100", 8, "3B", 16959, 2185), ("H100", 8, "7B", 37942, 4673))
GPT2 = {"124M": (12, 12, 768), "1558M": (48, 25, 1600)}
ROWS = (("124M", "RTX 4070", "rtx4070"), ("1558M", "RTX 4090", "rtx4090"), ("124M", "H100", "h100-80g-sxm"))
RANKS = (2, 4, 8, 16, 32, 64)
WIRES = (("1GbE", "1GbE", 64), ("10GbE", "10GbE", 64), ("25GbE", "25GbE", 64), ("100GbE", "100GbE", 64),
         ("PCIe 4 through the host, 12GB/s", "12GB/s", 8), ("NVLink, 400GB/s", "400GB/s", 8))


def planned(gpt_train, ranks, link, *keys):
    """Returns the plan's object "ranks", and the seconds of an update."""
    done = subprocess.run([gpt_train, "--plan=json", f"--ranks={ranks}", f"--parts={ranks}", f"--link={link}", "--dtype=bfloat16",
                           "--block_size=1024", "--batch_size=64", "--gradient_accumulation_steps=8", *keys],
                          capture_output=True, text=True, check=False, env={**os.environ, "GPT_TRAIN_BACKEND": "auto"})
    if not done.stdout.startswith("{"):
        sys.exit(f"gpt-train: {done.stderr}")
    plan = json.loads(done.stdout)
    return plan["ranks"], plan["forecast"]["seconds_per_step"]


def published(gpt_train):
    print("| cards | model | one card, ms | all, ms | modelled, ms | of published speed |\n|-|-|-|-|-|-|")
    for card, ranks, name, alone, together in PUBLISHED:
        layers, width, heads, kv_heads, inner, tied = QWEN[name]
        exchange = planned(gpt_train, ranks, LINKS[card], "--arch=qwen2", f"--n_layer={layers}", f"--n_embd={width}", f"--n_head={heads}",
                           f"--n_kv_head={kv_heads}", f"--n_inner={inner}", f"--tie_embeddings={tied}", "--vocab_size=151936",
                           "--device_profile=h100-80g-sxm")[0]["exchange_seconds"] * 4 / 6
        modelled = alone / ranks + exchange * 1e3
        print(f"| {ranks} x {card}, {LINKS[card]} | Qwen2.5-{name} | {alone} | {together} | {modelled:.0f} | {together / modelled:.2f} |")


def table(gpt_train):
    print("| model, card | link |" + "".join(f" {ranks} |" for ranks in RANKS) + "\n|-|-|" + "-|" * len(RANKS))
    for name, card, profile in ROWS:
        layers, heads, width = GPT2[name]
        for text, link, most in WIRES if card == "H100" else WIRES[:-1]:
            shares = []
            for ranks in RANKS:
                found, seconds = planned(gpt_train, ranks, link, f"--n_layer={layers}", f"--n_head={heads}", f"--n_embd={width}",
                                         "--vocab_size=50304", "--bias=True", f"--device_profile={profile}")
                shares.append(f" {100 * found['alone_seconds_per_step'] / seconds / ranks:.0f} |" if ranks <= most else " |")
            print(f"| {name}, {card} | {text} |" + "".join(shares))


def main():
    options = options_of(__doc__, build=".", only="published,table")
    for name in options.only.split(","):
        {"published": published, "table": table}[name](program(options.build, "gpt-train"))


if __name__ == "__main__":
    main()
