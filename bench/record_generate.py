#!/usr/bin/env python3
"""For published figures, not in CI: tokens per second of gpt-sample against transformers' generate(), and the same
greedy text.

    bench/record_generate.py --build=BUILD --vocab=FOLDER [--tokens=100] [--dtype=float32] [--work=FOLDER]

PYTHON needs torch and transformers; FOLDER has GPT-2's vocabulary (vocab.bpe and encoder.json, or Hugging Face's
names).  The model is GPT-2 124M with random weights, made here; two threads, fp32, one greedy sequence; the programs
alternate five times, and medians are printed.  With --dtype=bfloat16 both compute in that; texts may then differ.
gpt-sample's time is its own figure, without loading, as is generate()'s.  Then the same for eight samples at once.  The
bound is a factor of 2 for one sequence.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel

THREADS = 2
ROUNDS = 5
PROMPT = "Hello, my name is"
BATCH = 8


def make_model(options):
    folder = os.path.join(options.work, "model")
    if not os.path.exists(os.path.join(folder, "model.safetensors")):
        torch.manual_seed(0)
        model = GPT2LMHeadModel(GPT2Config())
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(3)  # so that the likeliest token is clear
        model.save_pretrained(folder)
    text = os.path.join(options.work, "text.txt")
    with open(text, "w", encoding="utf-8") as file:
        file.write(PROMPT * 10)
    data = os.path.join(options.work, "data")
    subprocess.run([os.path.join(options.build, "gpt-prepare"), "--tokenizer=" + options.vocab, "--out-dir=" + data,
                    "--restart", text], check=True, stdout=subprocess.DEVNULL)
    os.replace(os.path.join(data, "gpt_tokenizer.json"), os.path.join(folder, "gpt_tokenizer.json"))
    return folder


def ours(options, folder, samples):
    """Returns (text of the first sample, tokens per second)."""
    done = subprocess.run([os.path.join(options.build, "gpt-sample"), "--init_from=" + folder, "--start=" + PROMPT,
                           "--top_k=1", "--num_samples=%d" % samples, "--sample_batch=%d" % samples,
                           "--max_new_tokens=%d" % options.tokens, "--threads=%d" % THREADS, "--dtype=" + options.dtype],
                          check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    rate = re.search(r"([0-9.]+) tokens/s", done.stderr.decode())
    return done.stdout.decode("utf-8", "replace").split("\n---------------\n")[0], float(rate.group(1))


def theirs(options, model, prompt, samples):
    ids = torch.tensor([prompt] * samples)
    start = time.monotonic()
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=options.tokens, do_sample=False,
                             pad_token_id=0, eos_token_id=None)
    return out[0].tolist(), samples * options.tokens / (time.monotonic() - start)


def alphabet_bytes():
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table = {chr(byte): byte for byte in plain}
    for byte in range(256):
        if byte not in plain:
            table[chr(256 + len(table) - len(plain))] = byte
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--vocab", required=True)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--work", default="record-generate")
    options = parser.parse_args()
    os.makedirs(options.work, exist_ok=True)
    torch.set_num_threads(THREADS)
    folder = make_model(options)
    with open(os.path.join(folder, "gpt_tokenizer.json"), encoding="utf-8") as file:
        vocabulary = json.load(file)["vocabulary"]
    table = alphabet_bytes()
    prompt = [vocabulary.index(word) for word in ("Hello", ",", "\u0120my", "\u0120name", "\u0120is")]
    model = GPT2LMHeadModel.from_pretrained(folder).to(getattr(torch, options.dtype)).eval()
    good = True
    for samples in (1, BATCH):
        rates = {"gpt-sample": [], "transformers": []}
        for _ in range(options.rounds):
            text, rate = ours(options, folder, samples)
            rates["gpt-sample"].append(rate)
            ids, rate = theirs(options, model, prompt, samples)
            rates["transformers"].append(rate)
            wanted = b"".join(bytes(table[letter] for letter in vocabulary[i]) if i != 50256 else
                              vocabulary[i].encode() for i in ids).decode("utf-8", "replace")
            # Invalid UTF-8 may be replaced in different groups of bytes: compare only the valid text.
            same = text.replace("\ufffd", "") == wanted.replace("\ufffd", "")
            good &= same or options.dtype != "float32"
            print("round: gpt-sample %.1f, transformers %.1f tokens/s, %s text" %
                  (rates["gpt-sample"][-1], rate, "same" if same else "ANOTHER"), flush=True)
        medians = {name: statistics.median(values) for name, values in rates.items()}
        factor = medians["gpt-sample"] / medians["transformers"]
        print("%d at once: gpt-sample %.1f, transformers %.1f tokens/s (medians of %d): %.2f times" %
              (samples, medians["gpt-sample"], medians["transformers"], options.rounds, factor))
        good &= samples > 1 or factor >= 2
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
