#!/usr/bin/env python3
"""For published figures, not in CI: GPT-2 124M's twin in Llama's blocks, which llmq (IST-DASLab) can train too.

    bench/llmq_twin.py [--build=BUILD] [--tokens=FILE] FOLDER

Writes FOLDER/model (config.json and model.safetensors: gpt-train's initial weights), FOLDER/data (for gpt-train) and
FOLDER/train.bin (llmq's BIN.TOK, version 2), and prints the two commands that train it.  FILE holds 16-bit ids, as
data/openwebtext/train.bin does; without it they are random.

The twin has 12 layers, 768 channels, 12 heads, an MLP of 2,048 and GPT-2's padded vocabulary: 123,587,328 parameters,
of which each layer has 7,077,888, as many as GPT-2's matrices.  bench/record_exchange.py --only=twin trains it for 20
steps beside transformers.
"""
import array
import json
import os
import random
import shutil
import struct
import subprocess

from common import options_of, program

VOCABULARY, END = 50304, 50256
SHAPE = ["--arch=llama", "--n_layer=12", "--n_head=12", "--n_embd=768", "--n_inner=2048", f"--vocab_size={VOCABULARY}",
         "--block_size=1024"]
LLMQ = ("--from-scratch --model-dtype=bf16 --opt-m-dtype=bf16 --opt-v-dtype=bf16 --batch-size=64 --seq-len=1024 "
        "--grad-accumulation=8 --lmhead-chunks=8")


def ids_of(path):
    ids = array.array("H")
    if path:
        with open(path, "rb") as file:
            ids.frombytes(file.read())
    else:
        dice = random.Random(1337)
        ids.extend(dice.randrange(50257) for _ in range(1 << 18))
    return ids


def twin_write(build, folder, tokens=""):
    """Returns the model's folder."""
    model, data = os.path.join(folder, "model"), os.path.join(folder, "data")
    shutil.rmtree(model, ignore_errors=True)
    os.makedirs(data, exist_ok=True)
    ids = ids_of(tokens)
    for name in ("train.bin", "val.bin"):
        with open(os.path.join(data, name), "wb") as file:
            ids.tofile(file)
    with open(os.path.join(folder, "train.bin"), "wb") as file:
        file.write(b"BIN.TOK\n" + struct.pack("<5i", 2, 4, len(ids), VOCABULARY, 0) + bytes(1024 - 28))
        array.array("i", ids).tofile(file)
    subprocess.run([program(build, "gpt-train"), "--dataset=" + data, "--out_dir=" + model, *SHAPE, "--batch_size=1",
                    "--gradient_accumulation_steps=1", "--max_iters=0", "--eval_iters=1", "--learning_rate=0", "--min_lr=0"],
                   check=True, stdout=subprocess.DEVNULL)
    path = os.path.join(model, "config.json")
    with open(path, encoding="utf-8") as file:
        config = {**json.load(file), "bos_token_id": END, "eos_token_id": END}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2)
    return model


def main():
    options = options_of(__doc__, "folder", build=".", tokens="")
    model = twin_write(options.build, os.path.abspath(options.folder), options.tokens)
    folder = os.path.dirname(model)
    print(f"gpt-train --init_from={model} --dataset={folder}/data --dtype=bfloat16 --state_format=sr_bf16 --batch_size=64 "
          "--gradient_accumulation_steps=8 --out_dir=out-twin")
    print(f"train {LLMQ} --model={model} --train-file={folder}/train.bin")


if __name__ == "__main__":
    main()
