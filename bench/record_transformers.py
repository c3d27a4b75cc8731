#!/usr/bin/env python3
"""For published figures, not in CI: gpt-train and transformers open each other's folders and give the same logits.

    bench/record_transformers.py --build=BUILD [--work=FOLDER]      (PYTHON needs torch and transformers)

1. gpt-train trains a small model for some steps; GPT2LMHeadModel.from_pretrained(out_dir) must give the logits that
   gpt-train's own programs give (BUILD/tests/model/logits_dump, built by `make check`), and no key may be missing.
2. A random GPT2LMHeadModel is saved by save_pretrained; gpt-train must start from it, and its logits must be the same.
Differences are the largest absolute one over the largest logit; the bound is 1e-5.
"""
import argparse
import array
import os
import random
import subprocess
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel

BOUND = 1e-5


def ours(build, folder, ids, work):
    ids_path, out_path = os.path.join(work, "ids"), os.path.join(work, "logits")
    with open(ids_path, "wb") as file:
        array.array("i", ids).tofile(file)
    subprocess.run([os.path.join(build, "tests/model/logits_dump"), folder, ids_path, out_path], check=True)
    with open(out_path, "rb") as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.float32).view(len(ids), -1)


def compare(name, model, logits, ids):
    with torch.no_grad():
        theirs = model(torch.tensor([ids])).logits[0]
    difference = ((theirs - logits).abs().max() / theirs.abs().max()).item()
    good = difference <= BOUND
    print("%s: %s, largest relative difference %.2g over %d logits" %
          (name, "equal" if good else "DIFFERENT", difference, logits.numel()))
    return good


def load(folder):
    model, info = GPT2LMHeadModel.from_pretrained(folder, output_loading_info=True)
    missing = set(info["missing_keys"]) - {"lm_head.weight"}
    if missing or info["unexpected_keys"] or info["mismatched_keys"]:
        sys.exit("%s: missing %s, unexpected %s" % (folder, missing, info["unexpected_keys"]))
    return model.eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--work", default="record-transformers")
    options = parser.parse_args()
    data = os.path.join(options.work, "data/")
    os.makedirs(data, exist_ok=True)
    random.seed(1)
    torch.manual_seed(1)
    for split in ("train", "val"):
        with open(os.path.join(data, split + ".bin"), "wb") as file:
            array.array("H", (random.randrange(301) for _ in range(20000))).tofile(file)
    ids = [random.randrange(301) for _ in range(48)]
    train = [os.path.join(options.build, "gpt-train"), "--dataset=" + data, "--batch_size=4", "--block_size=48",
             "--gradient_accumulation_steps=1", "--eval_iters=1", "--max_iters=20", "--learning_rate=1e-2",
             "--warmup_iters=2"]
    shape = ["--n_layer=3", "--n_head=3", "--n_embd=96", "--vocab_size=301"]
    good = True
    for bias in ("True", "False"):
        for gelu in ("erf", "tanh"):
            out = os.path.join(options.work, "out-%s-%s" % (bias, gelu))
            subprocess.run(train + shape + ["--bias=" + bias, "--gelu=" + gelu, "--out_dir=" + out], check=True,
                           stdout=subprocess.DEVNULL)
            good &= compare("from_pretrained(out_dir), bias=%s, gelu=%s" % (bias, gelu), load(out),
                            ours(options.build, out, ids, options.work), ids)
    saved = os.path.join(options.work, "saved")
    model = GPT2LMHeadModel(GPT2Config(vocab_size=301, n_positions=48, n_embd=96, n_layer=3, n_head=3)).eval()
    model.save_pretrained(saved)
    good &= compare("save_pretrained folder", model, ours(options.build, saved, ids, options.work), ids)
    out = os.path.join(options.work, "out-continued")
    subprocess.run(train + ["--init_from=" + saved, "--out_dir=" + out], check=True, stdout=subprocess.DEVNULL)
    good &= compare("trained on from save_pretrained", load(out), ours(options.build, out, ids, options.work), ids)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
