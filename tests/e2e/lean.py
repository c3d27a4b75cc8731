#!/usr/bin/env python3
"""State formats and Muon: plans, courses, resume to the byte, conversions, refusals.

  bytes     the plan of 124M has the formats' bytes per parameter, and 124M, 350M and 1558M fit where they should
  course    every format learns what float32 states learn: the last validation losses are within 0.02 nats
  resume    stopped and resumed, with another number of threads: the bytes of the uninterrupted run, in every format
  files     weights and moments are saved in their own dtype
  convert   another format is refused with a hint, converted on request, and goes on learning; values are preserved
  refused   formats without bfloat16, Muon with 8 bits, another optimizer, all with one line and exit status 2
  weights   a lean checkpoint opens as weights
"""

import json
import os

from checks import GPT_TRAIN, LONG, check, end, error_lines, files, make_tokens, metrics, run, some, tensors_read

DATA = "--dataset=./data"
TINY = ["--n_layer=2", "--n_head=2", "--n_embd=48", "--block_size=32", "--batch_size=4", "--vocab_size=96",
        "--gradient_accumulation_steps=3", "--eval_iters=4", "--warmup_iters=5", "--bias=True", "--dtype=bfloat16"]
FORMATS = ("master", "sr", "sr_bf16", "sr_8bit", "sr_8bit_full")
LEAN = FORMATS[1:]
STEPS = 150 if LONG else 80
MUON = ("--optimizer=muon", "--muon_learning_rate=0.02")
# Bytes of a weight, its gradient, its master and both moments, 8-bit moments with two exponents per 256: of the blocks'
# matrices and biases, and of embeddings.  Layernorms have 16 in all formats.
BYTES = {"master": (18, 18), "sr": (14, 14), "sr_bf16": (8, 8), "sr_8bit": (6 + 2 / 256, 8),
         "sr_8bit_full": (6 + 2 / 256, 6 + 2 / 256)}
SHAPE_124M = ["--n_layer=12", "--n_head=12", "--n_embd=768", "--block_size=1024", "--vocab_size=50304", "--batch_size=1",
              "--gradient_accumulation_steps=1"]
SHAPE_350M = ["--n_layer=24", "--n_head=16", "--n_embd=1024"] + SHAPE_124M[3:]
SHAPE_1558M = ["--n_layer=48", "--n_head=25", "--n_embd=1600"] + SHAPE_124M[3:]


def refused(text, *arguments):
    result = run(*arguments, status=2)
    lines = error_lines(result)
    check(len(lines) == 1 and text in lines[0], f"one error line with '{text}', not {lines}")


def train(out, *arguments, status=0):
    return run(GPT_TRAIN, DATA, f"--out_dir={out}", *TINY, *arguments, status=status)


def dtypes_of(path):
    return {name: (dtype, shape) for name, (dtype, shape, _) in tensors_read(path).items()}


def last_loss(out):
    return metrics(out, "val_loss")[-1]["val_loss"]


def kept(out):
    return {name: data for name, data in files(out, ".safetensors").items() if name != "model.safetensors"}


def plan(shape, *arguments, status=0):
    result = run(GPT_TRAIN, *shape, "--bias=True", "--plan=json", "--threads=1", *arguments, status=status)
    return json.loads(result.stdout)


def bytes_of_124m():
    """Returns the numbers of elements of the blocks' matrices and biases, of embeddings, of layernorms."""
    width = 768
    blocks = 12 * (12 * width * width + 3 * width + width + 4 * width + width)
    return blocks, 50304 * width + 1024 * width, (2 * 12 + 1) * 2 * width


def plans():
    blocks, embeddings, layernorms = bytes_of_124m()
    common = [DATA, "--device_profile=h200-141g"]
    arenas = {}
    for name in FORMATS:
        report = plan(SHAPE_124M, *common, "--dtype=bfloat16", f"--state_format={name}")
        expected = BYTES[name][0] * blocks + BYTES[name][1] * embeddings + 16 * layernorms
        found = report["states"]["bytes_per_parameter"] * (blocks + embeddings + layernorms)
        check(report["states"]["format"] == name, f"{name}: the plan names the format")
        check(abs(found - expected) <= 1e-5 * expected, f"{name}: {found:.0f} bytes of states, not {expected:.0f}")
        arenas[name] = report["bytes"]["arena"]
    fp32 = plan(SHAPE_124M, *common, "--dtype=float32")["bytes"]["arena"]
    check(arenas["sr_8bit_full"] < fp32 / 2, f"124M: {arenas['sr_8bit_full']} bytes are less than half of float32's {fp32}")
    check(arenas["master"] > arenas["sr"] > arenas["sr_bf16"] > arenas["sr_8bit"] >= arenas["sr_8bit_full"],
          f"leaner formats need less: {arenas}")
    report = plan(SHAPE_350M, DATA, "--memory_budget=3.2GiB", "--dtype=bfloat16", "--allow_lean_states=True")
    check(report["states"]["format"] != "master" and report["bytes"]["fits"] is True, "350M fits 3.2 GiB")
    card = [DATA, "--device_profile=rtx3060-12g", "--dtype=bfloat16", "--recompute=full"]
    report = plan(SHAPE_1558M, *card, "--allow_lean_states=True")
    check(report["states"]["format"].startswith("sr_8bit") and report["bytes"]["fits"] is True, "1558M fits a 12 GB card")


def course():
    losses = {}
    lean = LEAN if LONG else ("sr_8bit_full",)
    for name in ("master", *lean):
        out = "course-" + name
        train(out, f"--state_format={name}", f"--max_iters={STEPS}", f"--eval_interval={STEPS // 2}", f"--lr_decay_iters={STEPS}",
              "--learning_rate=1e-3", "--threads=1")
        losses[name] = last_loss(out)
    for name in lean:
        check(abs(losses[name] - losses["master"]) <= 0.02, f"{name}: validation loss {losses[name]} beside {losses['master']}")
    out = "course-muon"
    train(out, "--state_format=sr_bf16", *MUON, f"--max_iters={STEPS}", f"--eval_interval={STEPS // 2}", f"--lr_decay_iters={STEPS}",
          "--learning_rate=1e-3", "--threads=1")
    check(last_loss(out) < losses["master"], f"muon: validation loss {last_loss(out)} below AdamW's {losses['master']}")


def resume():
    runs = [("sr", ()), ("sr_8bit", ()), ("master", MUON), ("sr_bf16", ()), ("sr_8bit_full", ()), ("sr", MUON), ("sr_bf16", MUON)]
    for name, more in some(runs, 3):
        arguments = [f"--state_format={name}", *more, "--eval_interval=8", "--micro_batch=3"]
        whole, parts = (f"{kind}-{name}-{len(more)}" for kind in ("whole", "parts"))
        train(whole, *arguments, "--max_iters=16", "--threads=1")
        train(parts, *arguments, "--max_iters=7", "--threads=2")
        result = run(GPT_TRAIN, f"--out_dir={parts}", "--init_from=resume", DATA, "--max_iters=16", "--threads=2")
        check("differs" not in result.stderr, f"{name} {more}: nothing differs at the resume: {result.stderr}")
        check(kept(whole) == kept(parts), f"{name} {more}: the resumed run has the uninterrupted one's bytes")


def dtypes():
    model = dtypes_of("whole-sr_8bit-0/model.safetensors")
    states = dtypes_of("whole-sr_8bit-0/optimizer-000017.safetensors")
    matrix, gain = "transformer.h.0.mlp.c_fc.weight", "transformer.ln_f.weight"
    check(model[matrix][0] == "BF16" and model[gain][0] == "F32", "weights are saved as they are")
    check([states[part + matrix][0] for part in ("m.", "v.", "s.")] == ["U8"] * 3, "8-bit moments have scales")
    check(states["s." + matrix][1] == [2, 48 * 192 // 256], "an exponent for each 256 elements")
    check(states["m.transformer.wte.weight"][0] == "BF16", "the embedding's moments are wider")
    check("s.transformer.wte.weight" not in states and states["m." + gain][0] == "F32", "layernorms' are fp32")
    states = dtypes_of("whole-master-2/optimizer-000017.safetensors")
    check("v." + matrix not in states and "v.transformer.wte.weight" in states, "Muon's matrices have one moment")


def convert():
    for before, after in (("sr", "sr_8bit"),) if not LONG else (("sr_8bit", "master"), ("master", "sr_8bit_full"), ("sr", "sr_8bit")):
        out = f"convert-{before}"
        train(out, f"--state_format={before}", "--max_iters=60", "--eval_interval=30", "--learning_rate=3e-3", "--threads=1")
        before_it, loss = kept(out), last_loss(out)
        arguments = [GPT_TRAIN, f"--out_dir={out}", "--init_from=resume", DATA, f"--state_format={after}",
                     "--max_iters=90", "--threads=1"]
        refused("--convert_states=True", *arguments)
        check(kept(out) == before_it, f"{before}: a refusal changes nothing")
        result = run(*arguments, "--convert_states=True")
        check(f"converting the optimizer states from '{before}' to '{after}'" in result.stderr, f"the conversion is said: {result.stderr}")
        check(last_loss(out) < loss + 0.02, f"{before} to {after}: {last_loss(out)} after {loss}")
    result = run(GPT_TRAIN, f"--out_dir={out}", "--init_from=resume", DATA, "--max_iters=95", "--threads=1")
    check("optimizer states: sr_8bit," in result.stdout, f"the new format stays: {result.stdout[:600]}")


def refusals():
    common = [GPT_TRAIN, DATA, "--out_dir=refused", *TINY]
    for name in LEAN:
        refused("needs bfloat16", *common, f"--state_format={name}", "--dtype=float32")
        refused("needs bfloat16", *common, f"--state_format={name}", "--dtype=float16")
    refused("works without bfloat16", *common, "--state_format=sr_bf16", "--device_profile=t4-16g", "--plan")
    refused("has no 8-bit momentum", *common, "--state_format=sr_8bit", *MUON)
    refused("sr_4bit", *common, "--state_format=sr_4bit")
    check(not os.path.exists("refused"), "nothing is left behind")
    out = "whole-sr-0"
    refused("optimizer='adamw'", GPT_TRAIN, f"--out_dir={out}", "--init_from=resume", DATA, *MUON, "--max_iters=20")


def weights():
    lean = "whole-sr_8bit-0"
    result = train("from", f"--init_from={lean}", "--dtype=float32", "--eval_only=True", "--threads=1")
    check("val loss" in result.stdout, "weights of a lean checkpoint are read in float32")


end(plans, course, resume, dtypes, convert, refusals, weights, begin=lambda: make_tokens("data"))
