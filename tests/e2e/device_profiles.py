#!/usr/bin/env python3
"""Device profiles: planning for cards that are not in the machine.

  table      every card that --device-profile=list prints plans a small model, and the plan adds up; doc/devices.md
             lists it
  choices    a plan for a card stays within its usable memory and its largest allocation, in a dtype that it has
  half sums  with half_sums an RTX 4090 is forecast to be faster in float16, and no other
  published  the forecasts are within a fifth of speeds that others published
  own        a profile file written by the user plans like the card it describes; bad ones end with one line and status
             2
  refusals   training, a wrong backend, an unknown name: one line, status 2, no files left
No data and no device is needed.
"""

import json
import os

from checks import GPT_TRAIN, SOURCE, check, end, error_lines, has_backend, patience, ran, read, write, write_json

GIB = 1 << 30
MIB = 1 << 20
SMALL = ["--n_layer=2", "--n_head=2", "--n_embd=64", "--block_size=64", "--batch_size=4", "--vocab_size=512",
         "--gradient_accumulation_steps=2"]
PUBLISHED_TOLERANCE = 0.2
GPT2 = ["--n_layer=12", "--n_head=12", "--n_embd=768", "--vocab_size=50304"]
# Card, tokens per second, samples and tokens of an update, further flags.  doc/devices.md has the sources.
PUBLISHED = [
    ("a100-80g-sxm", 231e3, 64, 1, 1024, [*GPT2, "--bias=True"]),
    ("h100-80g-sxm", 463e3, 64, 1, 1024, [*GPT2, "--bias=True"]),
    ("rtx4090-24g", 110e3, 16, 16, 1024, [*GPT2, "--bias=True"]),
    ("rtx4060-ti-16g", 15e3, 20, 13, 1024, ["--n_layer=24", "--n_head=16", "--n_embd=1024", "--vocab_size=50304", "--bias=True"]),
    ("rtx4070-12g", 55.7e3, 8, 4, 2048, ["--n_layer=12", "--n_head=6", "--n_embd=768", "--vocab_size=32768", "--bias=False",
                                         "--tie_embeddings=False"]),
    ("rtx4090-24g", 40e3, 16, 32, 1024, ["--init_from=Qwen/Qwen2.5-0.5B"]),
    ("rtx5060-ti-16g", 13e3, 16, 32, 1024, ["--init_from=Qwen/Qwen2.5-0.5B"]),
    ("rtx5090-32g", 55e3, 16, 32, 1024, ["--init_from=Qwen/Qwen2.5-0.5B"]),
    ("h100-80g-sxm", 149e3, 16, 32, 1024, ["--init_from=Qwen/Qwen2.5-0.5B"]),
    ("rtx4090-24g", 14e3, 16, 32, 1024, ["--init_from=Qwen/Qwen2.5-1.5B"]),
    ("rtx5060-ti-16g", 3.9e3, 16, 32, 1024, ["--init_from=Qwen/Qwen2.5-1.5B", "--host_budget=64GiB"]),
    ("rtx5090-32g", 17e3, 16, 32, 1024, ["--init_from=Qwen/Qwen2.5-1.5B"]),
    ("h100-80g-sxm", 31e3, 16, 32, 1024, ["--init_from=Qwen/Qwen2.5-3B"]),
    ("rtx4090-24g", 3083, 2, 8, 2048, ["--init_from=meta-llama/Llama-3.1-8B", "--lora_rank=8"]),
    ("rtx5090-32g", 6.8e3, 2, 4, 2048, ["--init_from=Qwen/Qwen3-4B", "--lora_rank=16"]),
]


def run(*arguments):
    return ran(GPT_TRAIN, *arguments, timeout=patience(120))


def plan_of(result):
    try:
        return json.loads(result.stdout)
    except ValueError:
        return None


def plan_adds_up(plan):
    sizes = plan["bytes"]
    return (plan["schema"] == 1
            and sum(plan["segments"]) == sizes["arena"]
            and sum(plan["categories"].values()) + plan["unused"] == sizes["arena"]
            and sizes["arena_bound"] <= sizes["arena"]
            and sizes["arena"] + sizes["context"] + sizes["headroom"] == sizes["total"]
            and sizes["fits"] == (sizes["total"] <= sizes["free"]))


def listed():
    result = run("--device-profile=list")
    check(result.returncode == 0, "the list ends with status 0")
    cards = {}
    lines = result.stdout.splitlines()
    check(max(map(len, lines)) <= 80, "the list fits 80 columns")
    for line in lines[2:]:
        words = line.split()
        at = next(i for i, word in enumerate(words) if word in ("cuda", "opencl"))
        cards[words[0]] = {"backend": words[at], "memory": float(words[at + 1]), "usable": float(words[at + 2]),
                           "bf16": words[at + 6] != "-"}
    return cards


def table():
    cards = listed()
    check(len(cards) >= 60, f"{len(cards)} cards are listed")
    text = read(os.path.join(SOURCE, "doc", "devices.md")).decode()
    for name, card in cards.items():
        check(f"`{name}`" in text, f"doc/devices.md has {name}")
        result = run(f"--device-profile={name}", f"--backend={card['backend']}", "--plan=json", *SMALL)
        plan = plan_of(result)
        good = result.returncode == 0 and plan is not None and plan_adds_up(plan)
        good = good and plan["bytes"]["fits"] is True and "(profile)" in plan["device"]
        good = good and card["usable"] * GIB < plan["bytes"]["free"] < card["memory"] * GIB + 0.01 * GIB
        good = good and abs(plan["bytes"]["free"] - plan["bytes"]["context"] - card["usable"] * GIB) < 0.01 * GIB
        good = good and plan["forecast"]["seconds_per_step"] > 0 and plan["forecast"]["measured"] is False
        check(good, f"{name}: {result.stderr.strip()} {result.stdout[:200]}")


def choices():
    large = ["--batch_size=64", "--gradient_accumulation_steps=8", "--plan=json"]
    result = run("--device-profile=rtx3060-12g", *large)
    plan = plan_of(result)
    check(result.returncode == 0 and plan["bytes"]["fits"] and plan["bytes"]["arena"] < 11.4 * GIB,
          "GPT-2 124M, 64 x 1024, is made to fit an RTX 3060")
    check("bfloat16" in plan["configuration"], "auto is bfloat16 on a card that has it")
    visible, context = 12 * GIB - 380 * MIB, (128 + 4 * 28) * MIB
    check(plan["bytes"]["free"] == visible and plan["bytes"]["context"] == context,
          f"what the driver shows, and of it the context of 28 multiprocessors: {plan['bytes']}")
    budget = plan_of(run("--device-profile=rtx3060-12g", "--memory_budget=9.72GiB", *large))
    check(budget["search"]["arena_budget"] == int(9.72 * GIB) - context,
          f"a budget in the driver's bytes loses the context alone: {budget['search']}")
    turing = run("--device-profile=rtx2080-ti", *large)
    plan = plan_of(turing)
    check(turing.returncode == 0 and "float16" in plan["configuration"].replace("bfloat16", ""),
          "and float16 on one that has not")
    quarter = plan_of(run("--device-profile=rx6800-xt", *large))
    check(len(quarter["segments"]) > 1 and max(quarter["segments"]) <= 4 * GIB,
          "pieces are no larger than one allocation may be")
    hopeless = run("--device-profile=gtx1650", "--n_layer=48", "--n_head=25", "--n_embd=1600", "--plan=json")
    plan = plan_of(hopeless)
    check(hopeless.returncode == 3 and plan is not None and plan["bytes"]["fits"] is False,
          "what cannot fit ends with status 3")
    again = run("--device-profile=rtx3060-12g", *large)
    check(plan_of(again)["bytes"] == plan_of(result)["bytes"], "a plan for a card is the same each time")


def half_sums():
    """Forecasts with fp16 sums: faster by at most twice on a GeForce, in float16 alone, and as before on an A100."""
    def seconds(name, word, dtype="float16"):
        plan = plan_of(run(f"--device-profile={name}", f"--half_sums={word}", f"--dtype={dtype}", "--plan=json"))
        return plan["forecast"]["seconds_per_step"]
    ratio = seconds("rtx4090", "off") / seconds("rtx4090", "on")
    check(1.2 < ratio < 2, f"fp16 sums make an RTX 4090 {ratio} times as fast")
    for name, dtype in (("a100-40g", "float16"), ("rtx4090", "bfloat16")):
        check(seconds(name, "on", dtype) == seconds(name, "off", dtype), f"fp16 sums change {name} in {dtype}")


def published():
    for name, tokens, batch, accumulation, block, flags in PUBLISHED:
        result = run(f"--device-profile={name}", "--dtype=bfloat16", f"--batch_size={batch}", f"--block_size={block}",
                     f"--gradient_accumulation_steps={accumulation}", *flags, "--plan=json")
        plan = plan_of(result)
        rate = batch * accumulation * block / plan["forecast"]["seconds_per_step"] if plan else 0.0
        check(abs(rate / tokens - 1.0) <= PUBLISHED_TOLERANCE,
              f"{name} {flags}: {rate:.0f} tokens/s by the model, {tokens:.0f} published {result.stderr[-200:]}")


def own_profile():
    return {
        "schema": 1, "name": "RTX 3060 by hand", "backend": "cuda", "memory_bytes": 12 * GIB,
        "usable_bytes": 12 * GIB - 620 * (1 << 20), "largest_allocation_bytes": 12 * GIB, "alignment_bytes": 256,
        "units": 28, "dtypes": ["float32", "bfloat16", "float16"], "bandwidth_bytes_per_s": 360e9,
        "flops_per_s": {"float32": 12737536000000.0, "float16": 25475072000000.0, "bfloat16": 25475072000000.0,
                        "tf32": 12737536000000.0},
        "share": 0, "share_source": "", "source": "the table",
    }


def refused(result, words, text):
    lines = error_lines(result)
    check(result.returncode == 2 and len(lines) == 1 and words in lines[0] and not result.stdout,
          f"{text}: status {result.returncode}: {result.stderr.strip()}")


def own():
    configuration = ["--batch_size=64", "--gradient_accumulation_steps=8", "--plan=json"]
    write_json("own.json", own_profile())
    for dtype in ("float32", "float16", "bfloat16"):
        mine, theirs = (plan_of(run(f"--device-profile={name}", f"--dtype={dtype}", *configuration)) for name in ("own.json", "rtx3060-12g"))
        check(mine["bytes"] == theirs["bytes"] and mine["segments"] == theirs["segments"]
              and abs(mine["forecast"]["seconds_per_step"] / theirs["forecast"]["seconds_per_step"] - 1) < 1e-3,
              f"a profile by hand plans like the card of the table in {dtype}")
    for fields, context in (({"context_bytes": 12345}, 12345), ({"usable_bytes": 12 * GIB - 777}, 777)):
        write_json("own.json", {**own_profile(), **fields})
        plan = plan_of(run("--device-profile=own.json", *configuration))
        check(plan["bytes"]["context"] == context, f"a context beside {fields}: {plan['bytes']}")
    write_json("own.json", {**own_profile(), "share": 0.5, "share_source": "a measurement"})
    ratio = plan_of(run("--device-profile=own.json", *configuration))["forecast"]["seconds_per_step"] / mine["forecast"]["seconds_per_step"]
    check(1.3 < ratio < 2, f"half of the peaks instead of 85 %: {ratio} times as long")
    for field in own_profile():
        write_json("own.json", {name: value for name, value in own_profile().items() if name != field})
        refused(run("--device-profile=./own.json", *configuration), f'./own.json: field "{field}"', f"without {field}")
    for field, value in (("usable_bytes", 13 * GIB), ("context_bytes", 13 * GIB), ("alignment_bytes", 100), ("backend", "metal"),
                         ("bandwidth_bytes_per_s", 0), ("share", 0.9), ("dtypes", ["bfloat16"]), ("speed", 1)):
        write_json("own.json", {**own_profile(), field: value})
        named = "share_source" if field == "share" else field
        refused(run("--device-profile=own.json", *configuration), f'own.json: field "{named}"', f"{field}={value}")
    write("own.json", "{")
    refused(run("--device-profile=own.json", *configuration), "own.json", "no JSON")
    refused(run("--device-profile=absent.json", *configuration), "absent.json", "no file")


def refusals():
    before = sorted(os.listdir("."))
    refused(run("--device-profile=rtx3060-12g", *SMALL), "--plan", "training with a profile")
    refused(run("--device-profile=rtx3060-12g", "--eval_only=True", *SMALL), "--plan", "evaluating with one")
    for name, said in (("rtx9999", "--device_profile=list"), ("arc", "--device_profile=list"), ("rtx306", "did you mean rtx3060-12g"),
                       ("a100-40g x", "a100-40g")):
        refused(run(f"--device-profile={name}", "--plan", *SMALL), said, f"no such card as {name}")
    for name in ("rtx3060-laptop", "RTX 3060 Max-Q"):
        refused(run(f"--device-profile={name}", "--plan", *SMALL), "did you mean rtx3060-12g, rtx3060-8g, rtx3060-ti-8g?", name)
    for name in ("v100", "Tesla V100", "gtx1080", "GTX 1080 Ti", "p100", "980", "titan xp"):
        refused(run(f"--device-profile={name}", "--plan", *SMALL), "compute capability 7.5", name)
    for name, card in (("3060", "RTX 3060 12 GB"), ("RTX 3060", "RTX 3060 12 GB"), ("NVIDIA GeForce RTX 4060 Ti", "4060 Ti 16 GB"),
                       ("a100", "A100 40 GB"), ("4060ti-8g", "4060 Ti 8 GB"), ("7900 XTX", "RX 7900 XTX"), ("T4", "T4 16 GB")):
        result = run(f"--device-profile={name}", "--plan=json", *SMALL)
        check(result.returncode == 0 and card in result.stdout, f"{name} is {card}: {result.stderr}")
    refused(run("--device-profile=rtx3060", "--backend=opencl", "--plan", *SMALL), "cuda", "another backend")
    refused(run("--device-profile=rx7600", "--backend=cpu", "--plan", *SMALL), "opencl", "the cpu")
    if not has_backend("cuda"):  # it would plan for the real card
        refused(run("--backend=cuda", "--plan", *SMALL), "built without CUDA", "a backend without a profile")
    check(sorted(os.listdir(".")) == before, "nothing is left behind")
    result = run("--device-profile=rtx3060", "--print_program", *SMALL)
    check(result.returncode == 0 and "program train_first" in result.stdout, "a program is printed for a card")
    result = run("--device-profile=rtx3060", "--plan", *SMALL)
    check("(estimated, +-30 %)" in result.stdout and "85 % of this card's peak rate for products" in result.stderr, "what the times rest on is said")


end(table, choices, half_sums, published, own, refusals)
