#!/usr/bin/env python3
"""The tables of doc/memory.md: the micro-batches and state formats that fit each card, from plans alone.

    bench/memory_table.py --build=BUILD [--most=1024] [--block=1024] [--dtype=bfloat16] [--tables=batch,states]
                          [--cards=rtx3070-8g,rtx3060-12g,rtx3090-24g] [--models=124M,350M,774M,1558M]
    bench/memory_table.py --build=BUILD --tables=offload
    bench/memory_table.py --build=BUILD --tables=models
    bench/memory_table.py --build=BUILD --tables=published

For each card (a device profile) and model it finds the largest micro-batch that fits at each recompute level, by
doubling and bisection over gpt-train --plan=json with a batch of that size; and for each state format the smallest
arena of each model, with one sequence at a time and everything recomputed, and the largest micro-batch that fits that
way.  No other key is pinned.  No GPU is needed, and nothing is trained.  Prints Markdown tables, and for each card a
command to check one cell.

`models` is README's table: the largest model that fits each card, of those below, with at most 32 GiB of host memory.
`published` plans all weights and adapters of four published models: the least RAM that does, and seconds of an update of
8 and of 64 sequences, with the share that offload adds to the second.
`offload` plans models with fp32 masters that exceed the cards, for machines with more and more memory.
"""
import json
import os
import subprocess
import sys

from common import options_of

LEVELS = ("none", "gelu", "layernorm", "mlp", "full")
STATES = ("master", "sr", "sr_bf16", "sr_8bit", "sr_8bit_full")
MODELS = {
    "124M": (12, 12, 768),
    "350M": (24, 16, 1024),
    "774M": (36, 20, 1280),
    "1558M": (48, 25, 1600),
    "2.65B": (32, 20, 2560),
}
GIB = 1 << 30
OFFLOAD_CARDS = ("rtx3070-8g", "rtx3060-12g", "rtx4060-ti-16g", "rtx3090-24g")
# From large to small: GPT-2's family from scratch with fp32 masters; published models with all weights, whose states may
# be leaner; and with adapters.
WAYS = {
    "from scratch": (["2.65B", "1558M", "774M", "350M", "124M"], []),
    "full fine-tuning": (["Qwen/Qwen3-8B", "Qwen/Qwen3-4B", "Qwen/Qwen2.5-3B", "Qwen/Qwen3-1.7B", "Qwen/Qwen2.5-1.5B", "meta-llama/Llama-3.2-1B", "Qwen/Qwen3-0.6B"],
                    ["--allow_lean_states=True"]),
    "LoRA on 16-bit weights": (["Qwen/Qwen3-32B", "Qwen/Qwen3-14B", "Qwen/Qwen3-8B", "Qwen/Qwen3-4B"], ["--lora_rank=16"]),
}
PUBLISHED = ("Qwen/Qwen3-1.7B", "Qwen/Qwen3-4B", "Qwen/Qwen3-8B", "Qwen/Qwen3-14B")


def command(options, card, model, micro_batch, *keys):
    layers, heads, width = MODELS[model]
    return [os.path.join(options.build, "gpt-train"), "--plan=json", "--backend=cuda", f"--device_profile={card}",
            f"--dtype={options.dtype}", f"--n_layer={layers}", f"--n_head={heads}", f"--n_embd={width}",
            f"--block_size={options.block}", f"--batch_size={micro_batch}", "--gradient_accumulation_steps=1",
            "--vocab_size=50304", "--dataset=./none", f"--micro_batch={micro_batch}", *keys]


def plan(options, card, model, micro_batch, *keys):
    """Returns the plan as an object and whether it fits; any status other than 0 and 3 is our own error."""
    done = subprocess.run(command(options, card, model, micro_batch, *keys), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 3):
        sys.exit(f"{' '.join(done.args)}: exit status {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout), done.returncode == 0


def largest(options, card, model, *keys):
    """Returns the largest micro-batch that fits, with its plan; (0, plan of 1) when not even one sequence does."""
    made, fits = plan(options, card, model, 1, *keys)
    low, high, best = 0, 1, made
    while fits and high < options.most:
        low, best, high = high, made, min(2 * high, options.most)
        made, fits = plan(options, card, model, high, *keys)
    if fits:
        return high, made
    while high - low > 1:
        middle = (low + high) // 2
        made, fits = plan(options, card, model, middle, *keys)
        if fits:
            low, best = middle, made
        else:
            high = middle
    return low, best


def cell(count, made):
    size = made["bytes"]["arena"] / GIB
    return f"{count} ({size:.2f})" if count else f"- (1 needs {size:.2f})"


def head(names):
    print("| " + " | ".join(names) + " |")
    print("|---" * len(names) + "|")


def batch_table(options, card):
    """Prints micro-batches by model and recompute level."""
    head([card] + [f"`{level}`" for level in LEVELS])
    for model in options.models.split(","):
        cells = [cell(*largest(options, card, model, f"--recompute={level}")) for level in LEVELS]
        print(f"| {model} | " + " | ".join(cells) + " |", flush=True)
    first = options.models.split(",")[0]
    count = largest(options, card, first, "--recompute=none")[0]
    print("\n" + " ".join(["gpt-train"] + command(options, card, first, max(count, 1), "--recompute=none")[1:]) + "\n")


def states_table(options, card):
    """Prints micro-batches by state format and model, everything recomputed."""
    models = options.models.split(",")
    head([card] + models)
    for states in STATES:
        cells = [cell(*largest(options, card, model, "--recompute=full", f"--state_format={states}")) for model in models]
        print(f"| `{states}` | " + " | ".join(cells) + " |", flush=True)
    print()


def offload_table(options):
    """Prints the time of an update of 480 x 1,024 tokens and what lives in host memory, by model, memory and card."""
    head(["model", "RAM"] + list(OFFLOAD_CARDS))
    for model in ("774M", "1558M", "2.65B"):
        for ram in (16, 32, 64):
            cells = []
            for card in OFFLOAD_CARDS:
                made, fits = plan(options, card, model, 12, "--micro_batch=0", "--gradient_accumulation_steps=40", "--eval_iters=1",
                                  f"--host_budget={ram * 3 // 4}GiB")
                moved = made["bytes"]["host_arena"] / GIB
                cells.append(f"{made['forecast']['seconds_per_step']:.0f} s, {moved:.1f} GiB" if fits else "-")
            print(f"| {model} | {ram} GB | " + " | ".join(cells) + " |", flush=True)


def published_cell(options, card, model, keys):
    """Returns the cell of the least RAM with which a model fits a card: three quarters of it are the host_budget."""
    for ram in (16, 32, 64, 128):
        made = []
        for batch in (8, 64):
            line = [os.path.join(options.build, "gpt-train"), f"--init_from={model}", *keys, f"--batch_size={batch}", "--block_size=1024",
                    "--gradient_accumulation_steps=1", f"--device_profile={card}", f"--host_budget={ram * 3 // 4}GiB", "--plan=json"]
            done = subprocess.run(line, capture_output=True, text=True, check=False)
            made += [json.loads(done.stdout)] if done.returncode == 0 else []
        if len(made) == 2:
            short, long = (one["forecast"] for one in made)
            used = made[1]["bytes"]["host_arena"] / GIB
            return f"{ram} GB ({used:.0f}): {short['seconds_per_step']:.1f} s, {long['seconds_per_step']:.0f} s, " \
                   f"{100 * long['offload_seconds'] / long['seconds_per_step']:.0f} %"
    return "-"


def published_table(options):
    """Prints RAM (and how many GiB of it are used), seconds of 8,192 and 65,536 tokens, and offload's share of the second."""
    head(["model"] + list(OFFLOAD_CARDS))
    for way in ("all weights", "LoRA in 16 bits"):
        for model in PUBLISHED:
            cells = [published_cell(options, card, model, WAYS[way][1]) for card in OFFLOAD_CARDS]
            print(f"| {model.split('/')[1]}, {way.split()[0]} | " + " | ".join(cells) + " |", flush=True)


def model_command(options, card, model, keys):
    """Returns the command that plans 8,192 tokens an update of a published model, or of one of MODELS from scratch."""
    shape = [f"--{name}={value}" for name, value in zip(("n_layer", "n_head", "n_embd"), MODELS.get(model, ()))]
    return [os.path.join(options.build, "gpt-train"), *(shape or [f"--init_from={model}"]), *keys, "--batch_size=8",
            "--block_size=1024", "--gradient_accumulation_steps=1", f"--device_profile={card}", "--host_budget=32GiB", "--plan=json"]


def model_cell(line, model):
    """Returns the cell of a command, or None if the model does not fit."""
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        sys.exit(f"{' '.join(line)}: exit status {done.returncode}\n{done.stderr}")
    if done.returncode == 3:
        return None
    made = json.loads(done.stdout)
    moved = made["bytes"]["host_arena"] / GIB
    return f"{model.split('/')[-1]}: {made['forecast']['seconds_per_step']:.1f} s" + (f", {moved:.1f} GiB" if moved > 0 else "")


def models_table(options):
    """Prints the largest model of each way of training that fits a card, and the command of each cell."""
    commands = []
    head(["card", *WAYS])
    for card in OFFLOAD_CARDS:
        cells = []
        for models, keys in WAYS.values():
            lines = ((model_command(options, card, model, keys), model) for model in models)
            cell_text, line = next((text, line) for line, model in lines if (text := model_cell(line, model)))
            cells.append(cell_text)
            commands.append(" ".join(["gpt-train", *line[1:-1], "--plan"]))
        print(f"| {card} | " + " | ".join(cells) + " |", flush=True)
    print("\n" + "\n".join(commands))


def main():
    options = options_of(__doc__, build=".", most=1024, block=1024, dtype="bfloat16", cards="rtx3070-8g,rtx3060-12g,rtx3090-24g",
                         models="124M,350M,774M,1558M", tables="batch,states")
    others = {"offload": offload_table, "models": models_table, "published": published_table}
    if options.tables in others:
        others[options.tables](options)
        return
    print(f"largest micro-batch (arena in GiB), at most {options.most}, x {options.block}, {options.dtype}\n")
    for card in options.cards.split(","):
        if "batch" in options.tables:
            batch_table(options, card)
        if "states" in options.tables:
            states_table(options, card)


if __name__ == "__main__":
    main()
