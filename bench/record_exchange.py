#!/usr/bin/env python3
"""For published figures, not in CI: other programs open our files, we open theirs, and the numbers are the same.

    bench/record_exchange.py --build=BUILD [--only=models,modern,tokenizers,llamacpp,generate,nanogpt] [--work=FOLDER]
                             [--vocab=FOLDER] [--tokens=100] [--dtype=float32] [--rounds=5] [--nanogpt=FOLDER]

PYTHON needs torch, transformers and gguf; BUILD needs tests/model/logits_dump, which `make check` builds.

  models      random GPT-2s of odd sizes: save_pretrained() -> gpt-train, with the logits of its own programs ->
              saved with a learning rate of 0 -> gpt-export -> from_pretrained(): identical tensors; the same for GGUF in
              float32, float16 and bfloat16, by every key and tensor.  Models that gpt-train trained, with and without
              biases, by from_pretrained(out_dir).  Logits are equal within 1e-5 of the largest
  modern      the same of LlamaForCausalLM, MistralForCausalLM, Phi3ForCausalLM, Qwen2ForCausalLM and Qwen3ForCausalLM of
              odd shapes, with each kind of rope_scaling, tied and untied; GGUF is left to tests/e2e/export.py.  Ten training steps beside
              PyTorch's AdamW: losses within 1e-5
  tokenizers  of bytes, characters and byte pairs: AutoTokenizer gives the data set's ids and the text back
  llamacpp    of a trained Llama, Qwen2 and Qwen3 (3 layers, grouped queries, a trained vocabulary) as GGUF in float32:
              llama.cpp's tokenizer gives the data set's ids, and its 64 greedy tokens are those of gpt-sample
              --temperature=0; with other frequencies of rope they are not.  PYTHON needs llama_cpp (published figures:
              0.3.36, compiled from its source package)
  generate    tokens per second of gpt-sample against generate(), and the same greedy text: GPT-2 124M with random
              weights, two threads, one sequence and eight; the programs alternate, medians are printed.  gpt-sample's
              time is its own figure, without loading, as is generate()'s.  --vocab has GPT-2's vocabulary.  With
              --dtype=bfloat16 both compute in that, and texts may differ.  The bound is a factor of 2 for one sequence
  nanogpt     --nanogpt is a checkout of nanoGPT (published figures: commit 3adf61e), which trains 20 iterations on the
              CPU; both continue its ckpt.pt to iteration 30.  The token files have block_size + 1 tokens, so that all
              batches agree by construction.  The losses' four digits differ by at most 1.  This project contains no
              part of nanoGPT
"""
import array
import itertools
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import time

import torch
from transformers import (AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel, LlamaConfig, MistralConfig, Phi3Config,
                          Qwen2Config, Qwen3Config)

from common import options_of

BOUND = 1e-5
TEXT = "Größe und Maß: für 10 € nähen wir Ärmel, naïve façade.\nIt's what they'll do, isn't it?\n" * 300
SHAPES = [dict(vocab_size=301, n_positions=37, n_embd=42, n_layer=3, n_head=7),
          dict(vocab_size=97, n_positions=16, n_embd=8, n_layer=1, n_head=1),
          dict(vocab_size=1001, n_positions=64, n_embd=96, n_layer=2, n_head=3)]
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
          "rope_theta": 5e5}
SCALINGS = [{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
            {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16, "beta_fast": 20, "beta_slow": 0.5, "mscale": 0.7,
             "mscale_all_dim": 0.4, "truncate": False},
            {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32, "attention_factor": 0.9},
            {"rope_type": "longrope", "original_max_position_embeddings": 48, "short_factor": [1 + i / 9 for i in range(8)],
             "long_factor": [1 + i / 2 for i in range(8)], "factor": 3.0},
            {"rope_type": "dynamic", "factor": 4.0}]
MODERN = [LlamaConfig(vocab_size=301, hidden_size=60, intermediate_size=100, num_hidden_layers=3, num_attention_heads=6,
                      num_key_value_heads=2, max_position_embeddings=96, rope_parameters=LLAMA3, tie_word_embeddings=False),
          LlamaConfig(vocab_size=77, hidden_size=48, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4, head_dim=20,
                      max_position_embeddings=64, rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4},
                      tie_word_embeddings=True, attention_bias=True, mlp_bias=True, rms_norm_eps=1e-3),
          MistralConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                        num_key_value_heads=1, max_position_embeddings=64, sliding_window=None, head_dim=8),
          Qwen2Config(vocab_size=99, hidden_size=64, intermediate_size=90, num_hidden_layers=2, num_attention_heads=8,
                      num_key_value_heads=1, max_position_embeddings=64, tie_word_embeddings=False),
          Qwen3Config(vocab_size=120, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                      num_key_value_heads=2, head_dim=32, max_position_embeddings=64, tie_word_embeddings=True),
          *(LlamaConfig(vocab_size=99, hidden_size=64, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
                        max_position_embeddings=64, rope_parameters={"rope_theta": 1e4, **rope}) for rope in SCALINGS),
          Phi3Config(vocab_size=150, hidden_size=96, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6,
                     num_key_value_heads=2, max_position_embeddings=64, original_max_position_embeddings=32, tie_word_embeddings=True,
                     bos_token_id=None, eos_token_id=None, pad_token_id=None,
                     rope_parameters={"rope_type": "longrope", "partial_rotary_factor": 0.75, "rope_theta": 1e4,
                                      "short_factor": [1 + i / 7 for i in range(6)], "long_factor": [1 + i for i in range(6)]}),
          Phi3Config(vocab_size=64, hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                     max_position_embeddings=64, bos_token_id=None, eos_token_id=None, pad_token_id=None, sliding_window=20)]
GGUF_TYPES = {"float32": (torch.float32, 0), "float16": (torch.float16, 1), "bfloat16": (torch.bfloat16, 32)}
TRAIN = ["--batch_size=2", "--gradient_accumulation_steps=1", "--eval_iters=1"]
PROMPT, THREADS, AT_ONCE = "Hello, my name is", 2, 8
NANO_BLOCK, NANO_FIRST, NANO_LAST = 64, 20, 30
NANO_CONFIG = {"dataset": "one", "n_layer": 3, "n_head": 4, "n_embd": 64, "block_size": NANO_BLOCK, "batch_size": 4,
               "gradient_accumulation_steps": 2, "dropout": 0.0, "learning_rate": 1e-3, "min_lr": 1e-4, "warmup_iters": 5,
               "lr_decay_iters": 100, "max_iters": NANO_FIRST, "eval_interval": NANO_FIRST, "eval_iters": 1, "log_interval": 1,
               "device": "cpu", "compile": False, "out_dir": "out"}
good = True


def check(passed, text):
    global good
    good &= bool(passed)
    print("%s: %s" % ("ok" if passed else "FAIL", text), flush=True)


def run(*command, folder=None):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done


def tokens_write(folder, ids):
    ids = array.array("H", ids)
    os.makedirs(folder, exist_ok=True)
    for split in ("train", "val"):
        with open(os.path.join(folder, split + ".bin"), "wb") as file:
            ids.tofile(file)


# ---- models ----
def our_logits(options, folder, ids):
    path, out = os.path.join(options.work, "ids"), os.path.join(options.work, "logits")
    with open(path, "wb") as file:
        array.array("i", ids).tofile(file)
    run(os.path.join(options.build, "tests/model/logits_dump"), folder, path, out)
    with open(out, "rb") as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.float32).view(len(ids), -1)


def compare_logits(options, name, model, folder):
    """Compares the model's logits with ours of the folder."""
    longer = (getattr(model.config, "rope_parameters", None) or {}).get("rope_type") == "dynamic"  # which begins to act there
    ids = [i * 7919 % model.config.vocab_size for i in range(model.config.max_position_embeddings * (3 if longer else 2) // 2)]
    ours = our_logits(options, folder, ids)
    with torch.no_grad():
        theirs = model(torch.tensor([ids])).logits[0]
    difference = ((theirs - ours).abs().max() / theirs.abs().max()).item()
    check(difference <= BOUND, "%s: largest relative difference %.2g over %d logits" % (name, difference, ours.numel()))


def load(folder):
    model, info = GPT2LMHeadModel.from_pretrained(folder, output_loading_info=True)
    missing = set(info["missing_keys"]) - {"lm_head.weight"}
    check(not (missing or info["unexpected_keys"] or info["mismatched_keys"]), f"{folder}: all keys, and no others: {info}")
    return model.eval()


def round_trip(options, number, shape):
    work = os.path.join(options.work, "shape-%d" % number)
    torch.manual_seed(number)
    model = GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=None, eos_token_id=None)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(work + "/saved", safe_serialization=True)
    compare_logits(options, "shape %d, save_pretrained()" % number, model, work + "/saved")
    tokens_write(work + "/data", (i * 7919 % shape["vocab_size"] for i in range(5000)))
    run(options.train, "--init_from=" + work + "/saved", "--dataset=" + work + "/data", *TRAIN, "--max_iters=2",
        "--learning_rate=0", "--min_lr=0", "--decay_lr=False", "--out_dir=" + work + "/out")
    run(options.export, "--out_dir=" + work + "/out", "--format=hf", "--force", work + "/hf")
    again, theirs = load(work + "/hf"), model.state_dict()
    ours = again.state_dict()
    check(set(theirs) == set(ours) and all(torch.equal(theirs[name], ours[name]) for name in theirs),
          "shape %d: identical tensors after save_pretrained, gpt-train, gpt-export" % number)
    compare_logits(options, "shape %d, gpt-export" % number, again, work + "/out")
    for dtype in GGUF_TYPES:
        path = "%s/%s.gguf" % (work, dtype)
        run(options.export, "--out_dir=" + work + "/out", "--format=gguf", "--dtype=" + dtype, "--force", path)
        gguf_compare(path, dtype, theirs, model.config)


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
    import gguf  # pylint: disable=import-outside-toplevel
    reader = gguf.GGUFReader(path)
    wanted = {"general.architecture": "gpt2", "gpt2.block_count": config.n_layer,
              "gpt2.context_length": config.n_positions, "gpt2.embedding_length": config.n_embd,
              "gpt2.feed_forward_length": 4 * config.n_embd, "gpt2.attention.head_count": config.n_head,
              "gpt2.vocab_size": config.vocab_size, "general.file_type": GGUF_TYPES[dtype][1]}
    keys = {name: field.contents() for name, field in reader.fields.items()}
    check(all(keys.get(name) == value for name, value in wanted.items()), "%s: keys" % path)
    equal = len(reader.tensors) == 12 * config.n_layer + 5
    for tensor in reader.tensors:
        source = gguf_source(tensor.name, state).contiguous()
        if source.dim() == 2 and tensor.name != "position_embd.weight":
            source = source.to(GGUF_TYPES[dtype][0])
        shape = [int(size) for size in tensor.shape][::-1]
        equal &= shape == list(source.shape) and tensor.data.tobytes() == source.view(torch.uint8).numpy().tobytes()
    check(equal, "%s: %d tensors" % (path, len(reader.tensors)))


def models(options):
    for number, shape in enumerate(SHAPES):
        round_trip(options, number, shape)
    random.seed(1)
    data = os.path.join(options.work, "data/")
    tokens_write(data, [random.randrange(301) for _ in range(20000)])
    for bias in ("True", "False"):
        for gelu in ("erf", "tanh"):
            out = os.path.join(options.work, "out-%s-%s" % (bias, gelu))
            run(options.train, "--dataset=" + data, *TRAIN, "--max_iters=20", "--learning_rate=1e-2", "--warmup_iters=2",
                "--block_size=48", "--n_layer=3", "--n_head=3", "--n_embd=96", "--vocab_size=301", "--bias=" + bias, "--gelu=" + gelu,
                "--out_dir=" + out)
            compare_logits(options, "from_pretrained(out_dir), bias=%s, gelu=%s" % (bias, gelu), load(out), out)


def modern(options):
    for number, config in enumerate(MODERN):
        name, work = "%s %d" % (type(config).__name__.replace("Config", ""), number), os.path.join(options.work, "modern-%d" % number)
        torch.manual_seed(number)
        model = AutoModelForCausalLM.from_config(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        model.save_pretrained(work + "/saved")
        compare_logits(options, name + ", save_pretrained()", model, work + "/saved")
        tokens_write(work + "/data", (i * 7919 % config.vocab_size for i in range(33)))  # all batches of 32 tokens agree
        run(options.train, "--init_from=" + work + "/saved", "--dataset=" + work + "/data", *TRAIN, "--max_iters=0",
            "--learning_rate=0", "--min_lr=0", "--decay_lr=False", "--block_size=32", "--out_dir=" + work + "/out")
        run(options.export, "--out_dir=" + work + "/out", "--format=hf", "--force", work + "/hf")
        again = AutoModelForCausalLM.from_pretrained(work + "/hf").eval()
        theirs, ours = model.state_dict(), again.state_dict()
        check(set(theirs) == set(ours) and all(torch.equal(theirs[key], ours[key]) for key in theirs),
              name + ": identical tensors after save_pretrained, gpt-train, gpt-export")
        compare_logits(options, name + ", gpt-export", again, work + "/out")
        steps(options, name, model, work, work + "/saved", 10)


def steps(options, name, model, work, start, count, rate=1e-3):
    """Trains both sides on the same batch; decay only on matrices, as gpt-train does."""
    ids = torch.tensor([[i * 7919 % model.config.vocab_size for i in range(33)]])
    groups = [{"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    optimizer, losses = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), eps=1e-8), []
    for _ in range(count):
        logits = model(ids[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits[0], ids[0, 1:])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    run(options.train, "--init_from=" + start, "--dataset=" + work + "/data", *TRAIN, f"--max_iters={count - 1}", f"--learning_rate={rate}",
        "--decay_lr=False", "--block_size=32", "--log_interval=1", "--dtype=float32", "--out_dir=" + work + "/steps")
    with open(work + "/steps/metrics.jsonl", encoding="utf-8") as file:
        ours = [line["loss"] for line in map(json.loads, file) if "loss" in line]
    worst = max(abs(a - b) for a, b in zip(losses, ours))
    check(len(ours) == count and worst <= BOUND and losses[-1] < losses[0], "%s: %d losses, %.3f to %.3f, differ by at most %.1g" %
          (name, count, losses[0], losses[-1], worst))


# ---- tokenizers ----
def tokenizers(options):
    for kind, flags in (("bytes", ["--tokenizer=bytes"]), ("chars", ["--tokenizer=chars"]),
                        ("bpe", ["--tokenizer=train", "--vocab-size=320"])):
        work = os.path.join(options.work, "tokens-" + kind)
        os.makedirs(work, exist_ok=True)
        with open(work + "/text.txt", "w", encoding="utf-8") as file:
            file.write(TEXT)
        run(options.prepare, *flags, "--restart", "--out-dir=" + work + "/data", work + "/text.txt")
        run(options.train, "--dataset=" + work + "/data", "--n_layer=1", "--n_head=2", "--n_embd=16", "--block_size=32", *TRAIN,
            "--max_iters=1", "--out_dir=" + work + "/out")
        run(options.export, "--out_dir=" + work + "/out", "--format=hf", "--force", work + "/hf")
        tokenizer = AutoTokenizer.from_pretrained(work + "/hf")
        with open(work + "/data/train.bin", "rb") as file:
            ids = array.array("H", file.read()).tolist()
        found = tokenizer(TEXT)["input_ids"]
        check(found[:len(ids)] == ids, "%s: AutoTokenizer gives the data set's %d ids" % (kind, len(ids)))
        check(tokenizer.decode(found) == TEXT, "%s: and the text back" % kind)


# ---- llama.cpp ----
def llamacpp(options):
    from llama_cpp import Llama  # pylint: disable=import-outside-toplevel
    work = os.path.join(options.work, "llamacpp")
    os.makedirs(work, exist_ok=True)
    dice, words = random.Random(3), TEXT[:90].split()
    text = "".join(" ".join(dice.choices(words, k=8)) + ".\n" for _ in range(1500))  # in an order that no model remembers
    with open(work + "/text.txt", "w", encoding="utf-8") as file:
        file.write(text)
    run(options.prepare, "--tokenizer=train", "--vocab-size=320", "--restart", "--out-dir=" + work + "/data", work + "/text.txt")
    with open(work + "/data/train.bin", "rb") as file:
        ids = array.array("H", file.read()).tolist()
    for arch in ("llama", "qwen2", "qwen3"):
        out, gguf = f"{work}/{arch}", f"{work}/{arch}.gguf"
        run(options.train, "--dataset=" + work + "/data", "--arch=" + arch, "--n_layer=3", "--n_head=6", "--n_kv_head=2",
            "--n_embd=96", "--head_dim=" + ("32" if arch == "qwen3" else "16"), "--block_size=128", "--batch_size=8",
            "--gradient_accumulation_steps=1", "--eval_iters=1", "--dtype=float32", "--max_iters=200", "--lr_decay_iters=200",
            "--warmup_iters=20", "--learning_rate=3e-3", "--out_dir=" + out)
        run(options.export, "--out_dir=" + out, "--format=gguf", "--dtype=float32", "--force", gguf)

        def greedy(prompt, **words):
            """Returns llama.cpp's text and its number of new tokens; the last character may be cut."""
            model = Llama(gguf, n_ctx=128, n_threads=1, type_k=0, type_v=0, verbose=False, **words)  # 0: float32
            tokens = list(itertools.islice(model.generate(model.tokenize(prompt.encode(), add_bos=False), temp=0, repeat_penalty=1.0), 64))
            return prompt + model.detokenize(tokens).decode("utf-8", "ignore"), len(tokens)

        found = Llama(gguf, vocab_only=True, verbose=False).tokenize(text.encode(), add_bos=False)
        check(found[:len(ids)] == ids, f"{arch}: llama.cpp's tokenizer gives the data set's {len(ids)} ids")
        changed = 0
        for prompt in ("It's what", "Größe", text[:60]):
            ours = run(os.path.join(options.build, "gpt-sample"), "--out_dir=" + out, "--start=" + prompt, "--temperature=0",
                       "--num_samples=1", "--max_new_tokens=64", "--dtype=float32").stdout.split("\n---------------\n")[0]
            theirs, count = greedy(prompt)
            check(ours.rstrip("\ufffd") == theirs and count == 64, f"{arch}: {count} greedy tokens after {prompt!r}: {theirs!r}")
            changed += greedy(prompt, rope_freq_scale=0.5)[0] != theirs
        check(changed > 0, f"{arch}: at half the frequencies of rope, {changed} of 3 texts are others")


# ---- generate ----
def make_model(options):
    folder, text, data = (os.path.join(options.work, name) for name in ("model", "text.txt", "data-gpt2"))
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)  # so that the likeliest token is clear
    model.save_pretrained(folder, safe_serialization=True)
    with open(text, "w", encoding="utf-8") as file:
        file.write(PROMPT * 10)
    run(options.prepare, "--tokenizer=" + options.vocab, "--out-dir=" + data, "--restart", text)
    shutil.copy(os.path.join(data, "gpt_tokenizer.json"), folder)
    return folder, model.to(getattr(torch, options.dtype)).eval()


def sample_ours(options, folder, samples):
    """Returns (text of the first sample, tokens per second)."""
    done = run(os.path.join(options.build, "gpt-sample"), "--init_from=" + folder, "--start=" + PROMPT, "--top_k=1",
               "--num_samples=%d" % samples, "--sample_batch=%d" % samples, "--max_new_tokens=%d" % options.tokens,
               "--threads=%d" % THREADS, "--dtype=" + options.dtype)
    return done.stdout.split("\n---------------\n")[0], float(re.search(r"([0-9.]+) tokens/s", done.stderr).group(1))


def sample_theirs(options, model, prompt, samples):
    ids, start = torch.tensor([prompt] * samples), time.monotonic()
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=options.tokens, do_sample=False,
                             pad_token_id=0, eos_token_id=None)
    return out[0].tolist(), samples * options.tokens / (time.monotonic() - start)


def alphabet_bytes():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{chr(byte): byte for byte in plain}, **{chr(256 + i): byte for i, byte in enumerate(others)}}


def generate(options):
    torch.set_num_threads(THREADS)
    (folder, model), table = make_model(options), alphabet_bytes()
    with open(os.path.join(folder, "gpt_tokenizer.json"), encoding="utf-8") as file:
        vocabulary = json.load(file)["vocabulary"]
    prompt = [vocabulary.index(word) for word in ("Hello", ",", "\u0120my", "\u0120name", "\u0120is")]
    for samples in (1, AT_ONCE):
        rates, all_same = {"gpt-sample": [], "transformers": []}, True
        for _ in range(options.rounds):
            text, ours = sample_ours(options, folder, samples)
            ids, theirs = sample_theirs(options, model, prompt, samples)
            rates["gpt-sample"].append(ours)
            rates["transformers"].append(theirs)
            wanted = b"".join(bytes(table[letter] for letter in vocabulary[i]) if i != 50256 else vocabulary[i].encode()
                              for i in ids).decode("utf-8", "replace")
            # Invalid UTF-8 may be replaced in different groups of bytes: compare only the valid text.
            same = text.replace("\ufffd", "") == wanted.replace("\ufffd", "")
            all_same &= same or options.dtype != "float32"
            print("round: gpt-sample %.1f, transformers %.1f tokens/s, %s text" % (ours, theirs, "same" if same else "ANOTHER"), flush=True)
        ours, theirs = (statistics.median(values) for values in rates.values())
        check(all_same and (samples > 1 or ours >= 2 * theirs),
              "%d at once: gpt-sample %.1f, transformers %.1f tokens/s (medians of %d): %.2f times" %
              (samples, ours, theirs, options.rounds, ours / theirs))


# ---- nanoGPT ----
def nano_losses(*command, folder):
    return {int(i): float(loss) for i, loss in re.findall(r"^iter (\d+): loss ([\d.]+)", run(*command, folder=folder).stdout, re.M)}


def nanogpt(options):
    dice = random.Random(1337)
    ids = [dice.randrange(50000) for _ in range(NANO_BLOCK + 1)]
    for bias in (False, True):
        folder = os.path.join(options.work, f"nanogpt-{bias}")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(options.nanogpt, folder, ignore=shutil.ignore_patterns(".git"))
        tokens_write(os.path.join(folder, "data", "one"), ids)
        with open(os.path.join(folder, "record.py"), "w", encoding="utf-8") as file:
            file.writelines(f"{key} = {value!r}\n" for key, value in {**NANO_CONFIG, "bias": bias}.items())
        run(sys.executable, "train.py", "record.py", folder=folder)
        more = f"--max_iters={NANO_LAST}", "--eval_interval=1000"
        theirs = nano_losses(sys.executable, "train.py", "record.py", "--init_from=resume", *more, folder=folder)
        ours = nano_losses(options.train, "--init_from=out/ckpt.pt", "--out_dir=ours", *more, folder=folder)
        for i in range(NANO_FIRST, NANO_LAST + 1):
            check(abs(theirs[i] - ours[i]) <= 1e-4 + 1e-9, f"bias {bias!s:5} iter {i}: nanoGPT {theirs[i]:.4f}  gpt-train {ours[i]:.4f}")


def main():
    options = options_of(__doc__, build=".", only="models,modern,tokenizers", work="record-exchange", vocab="", tokens=100, dtype="float32",
                         rounds=5, nanogpt="")
    options.work = os.path.abspath(options.work)
    options.train, options.prepare, options.export = (os.path.join(options.build, "gpt-" + name) for name in ("train", "prepare", "export"))
    os.makedirs(options.work, exist_ok=True)
    for name in options.only.split(","):
        {"models": models, "modern": modern, "tokenizers": tokenizers, "llamacpp": llamacpp, "generate": generate,
         "nanogpt": nanogpt}[name](options)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
