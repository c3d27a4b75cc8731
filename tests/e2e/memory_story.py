#!/usr/bin/env python3
"""The examples of doc/memory.md, run as a user would: GPT-2 124M with 64 x 1024 tokens and 77M parameters with 16 x
1024 x 32, in the memory of an empty 12 GB card, with other programs on it, and as its "free" line says; the
micro-batches that a model of the plans predicted before they were written; the keys that patched nanoGPTs have, live on
a tiny model; an evaluation where training does not fit; and what a failure prints.
"""

import array
import json
import math
import os
import re

from checks import GPT_TRAIN, check, end, patience, ran, some, write

GIB = 1 << 30
STORIES = {
    "124M, no accumulation": (["--batch_size=64", "--gradient_accumulation_steps=1", "--dtype=bfloat16"], 64),
    "124M": (["--batch_size=64", "--gradient_accumulation_steps=40", "--dtype=bfloat16"], 64 * 40),
    "77M": (["--n_embd=576", "--batch_size=16", "--gradient_accumulation_steps=32", "--dtype=float16"], 16 * 32),
}
BUDGETS = (11.4, 9.72, 2.68)
LEVELS = ("none", "gelu", "layernorm", "mlp", "full")
CONTEXT = 0.6  # GiB that the model of the plans reserved for a context
# Largest micro-batches of 124M x 1024 at each level that it predicted for 8, 12 and 24 GB, by dtype and rows of a loss
# chunk (0 = all of the micro-batch).  A plan may be up to 3 % smaller.
MODELLED = {
    ("bfloat16", 0): {8: (13, 16, 19, 27, 44), 12: (24, 29, 33, 49, 78), 24: (55, 68, 76, 112, 180)},
    ("bfloat16", 4096): {8: (17, 22, 27, 50, 128), 12: (31, 41, 49, 88, 225), 24: (72, 96, 115, 203, 518)},
    ("float32", 4096): {8: (8, 11, 13, 25, 67), 12: (15, 20, 24, 45, 115), 24: (36, 48, 57, 103, 262)},
}
SHORT = 0.03
TINY = ["--dataset=tiny", "--vocab_size=97", "--n_layer=2", "--n_head=2", "--n_embd=32", "--block_size=32", "--batch_size=4",
        "--gradient_accumulation_steps=2", "--learning_rate=1e-2", "--eval_iters=2", "--eval_interval=20", "--threads=2", "--warmup_iters=2"]


def run(*arguments):
    return ran(GPT_TRAIN, *arguments, timeout=patience(120))


def choices_fit(name, plan):
    check(len(plan["choices"]) >= 1, f"{name}: no choices")
    for choice in plan["choices"]:
        check(choice["arena"] <= plan["search"]["arena_budget"], f"{name}: {choice}")


def story(name, arguments, samples, budget):
    """Planned within the budget with the same samples per update, or refused with choices that fit."""
    name = f"{name} at {budget} GiB"
    dtype = arguments[-1].rpartition("=")[2]
    done = run("--plan=json", "--dataset=./none", "--device_profile=rtx3060-12g", f"--memory_budget={budget}GiB", *arguments)
    check(done.returncode in (0, 3), f"{name}: exit status {done.returncode}, {done.stderr!r}")
    plan = json.loads(done.stdout)
    fits, chosen = plan["bytes"]["fits"], plan["search"]["chosen"]
    check(fits == (done.returncode == 0), f"{name}: {fits}, exit status {done.returncode}")
    whole = chosen["micro_steps"] - (chosen["remainder_batch"] > 0)
    check(whole * chosen["micro_batch"] + chosen["remainder_batch"] == samples, f"{name}: another update: {chosen}")
    check(plan["configuration"].endswith(dtype), f"{name}: {plan['configuration']}")
    check(chosen["block_size"] == 1024 and chosen["n_layer"] == 12, f"{name}: another model: {chosen}")
    if fits:
        check(plan["bytes"]["total"] <= budget * GIB, f"{name}: {plan['bytes']}")
        check(plan["phases"]["evaluate"] < plan["phases"]["train"], f"{name}: evaluation needs most: {plan['phases']}")
    else:
        choices_fit(name, plan)
    print(f"{name}: {'fits' if fits else 'refused'}, {plan['bytes']['total'] / GIB:.2f} GiB, {plan['search']['changes']}")
    return fits, plan["search"]["time_ratio_modelled"]


def stories():
    for name, (arguments, samples) in STORIES.items():
        answers = [story(name, arguments, samples, budget) for budget in BUDGETS]
        check(answers[0][0], f"{name}: a whole card holds it")
        times = [time for fits, time in answers if fits]
        check(times == sorted(times), f"{name}: less memory is never faster: {times}")


def modelled():
    """Plans pinned to (nearly) the predicted micro-batches stay within the predicted memory."""
    for (dtype, chunk), cards in MODELLED.items():
        for memory, batches in some(sorted(cards.items(), key=lambda card: card[0] != 12)):
            for level, batch in zip(LEVELS, batches):
                least = math.ceil((1 - SHORT) * batch)
                done = run("--plan=json", "--dataset=./none", "--device_profile=h200-141g", f"--dtype={dtype}",
                           f"--batch_size={least}", f"--micro_batch={least}", "--gradient_accumulation_steps=1",
                           f"--recompute={level}", f"--loss_chunk={chunk or least * 1024}")
                arena = json.loads(done.stdout)["bytes"]["arena"] if done.returncode == 0 else 0
                check(0 < arena <= (memory - CONTEXT) * GIB,
                      f"{dtype}, chunks of {chunk}, {memory} GB, {level}: {least} sequences need {arena / GIB:.2f} GiB "
                      f"{done.stderr}")


def evaluation_alone():
    """An evaluation fits where training does not, with fewer sequences at once, and gives the same losses."""
    shape = ["--dataset=tiny", "--vocab_size=5000", "--n_layer=2", "--n_head=2", "--n_embd=256", "--block_size=64", "--batch_size=64",
             "--gradient_accumulation_steps=1", "--eval_iters=1", "--threads=2"]
    done = run(*shape, "--max_iters=0", "--eval_interval=1", "--out_dir=whole")
    check(done.returncode == 0, f"to be evaluated: {done.stderr!r}")
    plans = {}
    for key in ([], ["--eval_only"]):
        plan = json.loads(run(*shape, *key, "--plan=json").stdout)
        plans[bool(key)] = plan["bytes"]["total"]
        check((plan["phases"]["train"] == 0) == bool(key), f"phases {key}: {plan['phases']}")
        check((plan["states"] is None) == bool(key), f"states {key}: {plan['states']}")
    check(plans[True] < plans[False], f"evaluation alone needs less: {plans}")
    weights = ["--init_from=resume", "--out_dir=whole", "--eval_only", "--threads=2"]
    budget = f"--memory_budget={plans[True] - (1 << 20)}"
    refused = run(*shape, budget, "--micro_batch=64", "--recompute=none", "--out_dir=refused")
    check(refused.returncode == 3, f"training does not fit: {refused.returncode}")
    check("alternative 1 that fits: " in refused.stderr and "(estimated)" in refused.stderr, f"choices: {refused.stderr!r}")
    large, small = run(*weights), run(*weights, budget)
    check(large.returncode == 0 and small.returncode == 0, f"evaluation alone: {large.stderr!r} {small.stderr!r}")
    check(len(losses(large)) == 1 and losses(large) == losses(small), f"evaluation alone: {losses(large)} {losses(small)}")
    check("at once does not fit" in small.stderr and "does not fit" not in large.stderr, f"said: {small.stderr!r}")
    none = run(*weights, "--memory_budget=65MiB")
    check(none.returncode == 3 and none.stderr.count("gpt-train: error") == 1, f"no evaluation: {none.stderr!r}")


def refused_heads():
    for width, words in ((448, ("444 (", "456 (", "8 or 14 heads")), (512, ("504 (", "516 (", "8 or 16 heads"))):
        done = run(f"--n_embd={width}", "--plan", "--dataset=./none")
        check(done.returncode == 2, f"n_embd={width}: exit status {done.returncode}")
        for word in (*words, "M parameters", "n_head=12 (the default)"):
            check(word in done.stderr, f"n_embd={width}: {word!r} is not in {done.stderr!r}")
        check("report" not in done.stderr, "no report for a wrong call")


def losses(done):
    return re.findall(r"^(?:step|iter) \d+: .*?loss [0-9.]+(?:, val loss [0-9.]+)?", done.stdout, re.M)


def patched_keys():
    """eval_block_size gives the same losses as cropping the whole model to that block; grad_checkpoint is recompute."""
    done = run(*TINY, "--max_iters=20", "--out_dir=out")
    check(done.returncode == 0, f"tiny: {done.stderr!r}")
    weights = ["--init_from=out", "--dataset=tiny", "--eval_only", "--eval_iters=0"]
    whole = run(*weights)
    short = run(*weights, "--eval_block_size=8")
    cut = run(*weights, "--block_size=8")
    check(len(losses(short)) == 1 and losses(short) == losses(cut), f"eval_block_size: {losses(short)}, {losses(cut)}")
    check(losses(short) != losses(whole), f"eval_block_size: {losses(short)} as without it")
    check("eval_block_size=8: evaluations give tokens that much context at most" in short.stderr, f"said: {short.stderr!r}")
    same = run(*TINY, "--max_iters=20", "--eval_block_size=32", "--out_dir=same")
    check(losses(same) == losses(done) and "eval_block_size" not in same.stderr, f"eval_block_size=block_size: {losses(same)}")
    check(run(*TINY, "--eval_block_size=33").returncode == 2, "eval_block_size above block_size")
    full = run(*TINY, "--max_iters=20", "--grad_checkpoint=True", "--out_dir=full")
    named = run(*TINY, "--max_iters=20", "--recompute=full", "--out_dir=named")
    check(full.returncode == 0 and losses(full) == losses(named) == losses(done), f"grad_checkpoint: {losses(full)}")
    plans = [re.search(r"^plan: (\S+ \S+);", done.stdout, re.M)[1] for done in (full, named, done)]
    check(plans[0] == plans[1] != plans[2], f"grad_checkpoint: {plans}")
    bad = run(*TINY, "--grad_checkpoint=True", "--recompute=none")
    check(bad.returncode == 2 and "contradicts" in bad.stderr, f"both: {bad.stderr!r}")


def after_failure():
    """A run that diverges ends with status 1 and one line; an account names every category that it planned."""
    done = run(*TINY, "--max_iters=200", "--learning_rate=1000", "--grad_clip=0", "--decay_lr=False", "--out_dir=bad")
    check(done.returncode == 1, f"diverged: exit status {done.returncode}, {done.stderr!r}")
    check("this run has saved no checkpoint" in done.stderr and "holds" not in done.stderr, f"diverged: {done.stderr!r}")
    check("gpt-train report" not in done.stderr, f"diverged: {done.stderr!r}")
    done = run(*TINY, "--max_iters=1", "--out_dir=account")
    check("at the peak" not in done.stdout and "other processes" not in done.stdout, f"unasked: {done.stdout!r}")
    done = run(*TINY, "--max_iters=1", "--out_dir=account", "--verbose")
    line = re.search(r"^memory at the peak \(cpu\): (.*)$", done.stdout, re.M)
    check(line is not None, f"account: {done.stdout!r}")
    plan = json.loads(run(*TINY, "--plan=json").stdout)
    for category, size in plan["categories"].items():
        check((f"{category} " in line[1]) == (size > 0), f"account: {category} {size} in {line[1]!r}")
    check("report" not in done.stderr, "no report for a run that ends well")
    devices = run("--list-devices").stdout
    check(" in total, " in devices, f"list_devices: {devices!r}")
    if len(os.listdir("/proc")) > 0 and os.path.exists(f"/proc/{os.getpid()}/statm"):
        check("most memory in other processes: " in devices, f"list_devices: {devices!r}")


def data():
    for split in ("train", "val"):
        write(f"data/tiny/{split}.bin", array.array("H", (i % 12 * (i // 96 % 7 + 1) for i in range(4000))).tobytes())


end(stories, modelled, evaluation_alone, refused_heads, patched_keys, after_failure, begin=data)
