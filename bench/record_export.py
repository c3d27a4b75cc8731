#!/usr/bin/env python3
"""For published figures, not in CI: transformers, tokenizers and the gguf package open gpt-export's files.

    bench/record_export.py --build=BUILD [--work=FOLDER]      (PYTHON needs torch, transformers and gguf)

1. Random GPT-2s of odd sizes: save_pretrained() -> gpt-train, which saves them with a learning rate of 0 -> gpt-export
   -> from_pretrained(): identical tensors, logits within 1e-5.
2. The GGUF file of each in float32, float16 and bfloat16: every key, every tensor with the values that torch rounds to.
3. Tokenizers of bytes, characters and byte pairs: AutoTokenizer gives the data set's ids and the text back.
"""
import argparse
import array
import os
import subprocess
import sys

import gguf
import torch
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

BOUND = 1e-5
TEXT = "Größe und Maß: für 10 € nähen wir Ärmel, naïve façade.\nIt's what they'll do, isn't it?\n" * 300
SHAPES = [dict(vocab_size=301, n_positions=37, n_embd=42, n_layer=3, n_head=7),
          dict(vocab_size=97, n_positions=16, n_embd=8, n_layer=1, n_head=1),
          dict(vocab_size=1001, n_positions=64, n_embd=96, n_layer=2, n_head=3)]
GGUF_TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
good = True


def check(passed, text):
    global good
    good &= passed
    print("%s: %s" % ("ok" if passed else "FAIL", text))


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def logits(model, config):
    torch.manual_seed(2)
    ids = torch.randint(0, config.vocab_size, (2, config.n_positions))
    with torch.no_grad():
        return model(ids).logits


def round_trip(options, number, shape):
    work = os.path.join(options.work, "shape-%d" % number)
    config = GPT2Config(**shape, bos_token_id=None, eos_token_id=None)
    torch.manual_seed(number)
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(work + "/saved")
    data = os.path.join(work, "data/")
    os.makedirs(data, exist_ok=True)
    for split in ("train", "val"):
        with open(os.path.join(data, split + ".bin"), "wb") as file:
            array.array("H", (i * 7919 % shape["vocab_size"] for i in range(5000))).tofile(file)
    run(os.path.join(options.build, "gpt-train"), "--init_from=" + work + "/saved", "--dataset=" + data, "--batch_size=2",
        "--gradient_accumulation_steps=1", "--max_iters=2", "--learning_rate=0", "--min_lr=0", "--decay_lr=False",
        "--eval_iters=1", "--out_dir=" + work + "/out")
    export = os.path.join(options.build, "gpt-export")
    run(export, "--out_dir=" + work + "/out", "--format=hf", "--force", work + "/hf")
    again = GPT2LMHeadModel.from_pretrained(work + "/hf").eval()
    theirs, ours = model.state_dict(), again.state_dict()
    check(set(theirs) == set(ours) and all(torch.equal(theirs[name], ours[name]) for name in theirs),
          "shape %d: identical tensors after save_pretrained, gpt-train, gpt-export" % number)
    difference = (logits(model, config) - logits(again, config)).abs().max().item()
    check(difference <= BOUND, "shape %d: logits differ by %.2g at most" % (number, difference))
    for dtype in GGUF_TYPES:
        path = "%s/%s.gguf" % (work, dtype)
        run(export, "--out_dir=" + work + "/out", "--format=gguf", "--dtype=" + dtype, "--force", path)
        gguf_compare(path, dtype, theirs, config)


def gguf_source(name, state):
    """Returns the torch tensor that must equal a tensor of the file, [out, in]."""
    fixed = {"token_embd": "wte", "position_embd": "wpe", "output_norm": "ln_f", "output": "wte"}
    parts = {"attn_norm": "ln_1", "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_norm": "ln_2",
             "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}
    words = name.split(".")
    if words[0] != "blk":
        return state["transformer.%s.%s" % (fixed[words[0]], words[1])]
    tensor = state["transformer.h.%s.%s.%s" % (words[1], parts[words[2]], words[3])]
    return tensor.t() if tensor.dim() == 2 else tensor


def gguf_compare(path, dtype, state, config):
    reader = gguf.GGUFReader(path)
    wanted = {"general.architecture": "gpt2", "gpt2.block_count": config.n_layer,
              "gpt2.context_length": config.n_positions, "gpt2.embedding_length": config.n_embd,
              "gpt2.feed_forward_length": 4 * config.n_embd, "gpt2.attention.head_count": config.n_head,
              "gpt2.vocab_size": config.vocab_size,
              "general.file_type": {"float32": 0, "float16": 1, "bfloat16": 32}[dtype]}
    keys = {name: field.contents() for name, field in reader.fields.items()}
    check(all(keys.get(name) == value for name, value in wanted.items()), "%s: keys" % path)
    equal = len(reader.tensors) == 12 * config.n_layer + 5
    for tensor in reader.tensors:
        source = gguf_source(tensor.name, state).contiguous()
        if source.dim() == 2 and tensor.name != "position_embd.weight":
            source = source.to(GGUF_TYPES[dtype])
        shape = [int(size) for size in tensor.shape][::-1]
        equal &= shape == list(source.shape) and tensor.data.tobytes() == source.view(torch.uint8).numpy().tobytes()
    check(equal, "%s: %d tensors" % (path, len(reader.tensors)))


def tokenizer_check(options, kind, flags):
    work = os.path.join(options.work, "tokens-" + kind)
    os.makedirs(work, exist_ok=True)
    with open(work + "/text.txt", "w", encoding="utf-8") as file:
        file.write(TEXT)
    run(os.path.join(options.build, "gpt-prepare"), *flags, "--restart", "--out-dir=" + work + "/data", work + "/text.txt")
    run(os.path.join(options.build, "gpt-train"), "--dataset=" + work + "/data", "--n_layer=1", "--n_head=2", "--n_embd=16",
        "--block_size=32", "--batch_size=2", "--gradient_accumulation_steps=1", "--max_iters=1", "--eval_iters=1",
        "--out_dir=" + work + "/out")
    run(os.path.join(options.build, "gpt-export"), "--out_dir=" + work + "/out", "--format=hf", "--force", work + "/hf")
    tokenizer = AutoTokenizer.from_pretrained(work + "/hf")
    with open(work + "/data/train.bin", "rb") as file:
        ids = array.array("H", file.read()).tolist()
    found = tokenizer(TEXT)["input_ids"]
    check(found[:len(ids)] == ids, "%s: AutoTokenizer gives the data set's %d ids" % (kind, len(ids)))
    check(tokenizer.decode(found) == TEXT, "%s: and the text back" % kind)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--work", default="record-export")
    options = parser.parse_args()
    options.work = os.path.abspath(options.work)
    for number, shape in enumerate(SHAPES):
        round_trip(options, number, shape)
    tokenizer_check(options, "bytes", ["--tokenizer=bytes"])
    tokenizer_check(options, "chars", ["--tokenizer=chars"])
    tokenizer_check(options, "bpe", ["--tokenizer=train", "--vocab-size=320"])
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
