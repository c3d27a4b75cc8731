#!/usr/bin/env python3
"""Compares adapters with PEFT's, outside CI: needs torch, transformers and peft.

    bench/record_lora.py GPT_TRAIN GPT_EXPORT

For small models of each class with random weights: gpt-train's new adapters open in PEFT, both train ten updates on the
same text, and every loss and the trained adapters agree; PEFT's own trained adapter opens in gpt-train with the same
loss; the merged export agrees with PEFT's merge_and_unload().  Prints the largest differences; exit status 1 if one is
above 1e-5.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import (GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config,
                          Qwen3ForCausalLM)

TRAIN, EXPORT = (os.path.abspath(path) for path in sys.argv[1:3])
BLOCK, ROWS, STEPS, RATE, DECAY, BOUND = 32, 2, 10, 1e-2, 0.1, 1e-5
SHAPE = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 112, "num_hidden_layers": 3, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 64, "initializer_range": 0.1, "bos_token_id": 0, "eos_token_id": 0}
MODELS = {
    "llama": (lambda: LlamaForCausalLM(LlamaConfig(tie_word_embeddings=False, **SHAPE)), "all-linear"),
    "llama-qv": (lambda: LlamaForCausalLM(LlamaConfig(tie_word_embeddings=True, **SHAPE)), "q_proj,v_proj"),
    "qwen2": (lambda: Qwen2ForCausalLM(Qwen2Config(tie_word_embeddings=True, **SHAPE)), "k_proj,up_proj,down_proj"),
    "qwen3": (lambda: Qwen3ForCausalLM(Qwen3Config(head_dim=16, **SHAPE)), "all-linear"),
    "gpt2": (lambda: GPT2LMHeadModel(GPT2Config(vocab_size=96, n_embd=64, n_layer=3, n_head=4, n_positions=64, initializer_range=0.1,
                                                resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=0, eos_token_id=0)), "c_attn,c_proj"),
}


def run(*command):
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr}")


def train(out, *arguments, steps=STEPS, rate=RATE):
    run(TRAIN, f"--out_dir={out}", "--dataset=./data", f"--batch_size={ROWS}", "--gradient_accumulation_steps=1", f"--block_size={BLOCK}",
        f"--max_iters={steps - 1}", f"--learning_rate={rate}", f"--weight_decay={DECAY}", "--beta2=0.95", "--grad_clip=0", "--eval_interval=1000",
        "--eval_iters=1", "--decay_lr=False", "--warmup_iters=0", "--log_interval=1", "--dtype=float32", "--backend=cpu", *arguments)
    with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return [line["loss"] for line in lines if "loss" in line and "iter" in line], lines


def export(source, out, form):
    run(EXPORT, f"--out_dir={source}", f"--format={form}", "--force", out)


def difference(ours, theirs):
    return max((ours[name].double() - theirs[name].double()).abs().max().item() for name in theirs)


def compare(name, make, targets, ids):
    torch.manual_seed(1)
    make().save_pretrained(name)
    base = lambda: type(make()).from_pretrained(name, torch_dtype=torch.float32)
    lora = ["--lora_rank=4", "--lora_alpha=6", f"--lora_targets={targets}"]
    train(name + "-0", f"--init_from=./{name}", *lora, steps=1, rate=0)
    export(name + "-0", name + "-new", "peft")
    model = PeftModel.from_pretrained(base(), name + "-new", is_trainable=True)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=RATE, betas=(0.9, 0.95), eps=1e-8, weight_decay=DECAY)
    theirs = []
    for _ in range(STEPS):
        logits = model(input_ids=ids[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))
        theirs.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(name + "-theirs")
    ours, _ = train(name + "-1", f"--init_from=./{name}", *lora)
    export(name + "-1", name + "-ours", "peft")
    found = {"losses": max(abs(a - b) for a, b in zip(ours, theirs)), "moved": abs(theirs[0] - theirs[-1])}
    found["adapters"] = difference(load_file(name + "-ours/adapter_model.safetensors"), load_file(name + "-theirs/adapter_model.safetensors"))
    opened, _ = train(name + "-2", f"--init_from=./{name}-theirs", steps=1, rate=0)
    with torch.no_grad():
        logits = model(input_ids=ids[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1)).item()
    found["their adapter here"] = abs(opened[0] - loss)
    export(name + "-theirs", name + "-merged", "hf")
    with torch.no_grad():
        found["logits of the merged model"] = (base().from_pretrained(name + "-merged")(input_ids=ids[:, :-1]).logits - logits).abs().max().item()
    found["our adapter there"] = 0.0
    again = PeftModel.from_pretrained(base(), name + "-ours")
    with torch.no_grad():
        found["our adapter there"] = (again(input_ids=ids[:, :-1]).logits - logits).abs().max().item()
    print(name, ", ".join(f"{what} {value:.2g}" for what, value in found.items()), flush=True)
    moved = found.pop("moved")
    return moved > 0.1 and all(value <= BOUND * (10 if "logits" in what or "there" in what or what == "adapters" else 1)
                               for what, value in found.items())


with tempfile.TemporaryDirectory() as work:
    os.chdir(work)
    os.makedirs("data")
    row = np.random.default_rng(0).integers(0, 96, BLOCK + 1).astype(np.uint16)
    for split in ("train", "val"):  # one sample, so that all batches are the same
        row.tofile(f"data/{split}.bin")
    tokens = torch.from_numpy(row.astype(np.int64)).repeat(ROWS, 1)
    results = [compare(name, make, targets, tokens) for name, (make, targets) in MODELS.items() if name in sys.argv[3:] or len(sys.argv) == 3]
    sys.exit(0 if all(results) else 1)
