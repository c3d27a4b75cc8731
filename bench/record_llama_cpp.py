#!/usr/bin/env python3
"""Compares GGUF files with llama.cpp, outside CI: needs xllamacpp, which has llama.cpp compiled (PyPI).

    GPT_TRAIN=... GPT_PREPARE=... GPT_SAMPLE=... GPT_EXPORT=... bench/record_llama_cpp.py [ARCH...]

For each class a small model learns a text, and is exported.  llama.cpp continues the text from the bfloat16
file as gpt-sample does; its logarithms of the five largest probabilities along that text, from the q8_0 and the q4_k_m
file, stay near those from the float32 file, as do those from the file that gpt-export makes of each in float32, which are free of
llama.cpp's rounding of activations; and with adapters for another text, base and adapter file give what the merged file gives.  Prints
a line for each class; exit status 1 when a text or a bound is missed.
"""
import os
import random
import subprocess
import sys
import tempfile

import xllamacpp

TRAIN, PREPARE, SAMPLE, EXPORT = (os.path.abspath(os.environ["GPT_" + name]) for name in ("TRAIN", "PREPARE", "SAMPLE", "EXPORT"))
# Learned positions take more updates until the line is known wherever it begins, and so do Granite's multipliers.
LONGER = ["--max_iters=500", "--decay_lr=True", "--lr_decay_iters=500", "--min_lr=1e-5"]
DIVISORS = ",".join("%g" % (1 + i / step) for step in (32, 8) for i in range(24))
# What is before the first "-" of a name is the key arch.  Texts are longer than Gemma's windows and the original contexts.
ARCHS = {"gpt2": LONGER, "llama": ["--n_kv_head=2"], "qwen2": ["--n_kv_head=2"], "qwen3": ["--n_kv_head=2", "--head_dim=64"],
         "olmo2": ["--n_kv_head=2"], "smollm3": ["--n_layer=4", "--n_kv_head=2"], "granite": ["--n_kv_head=2", *LONGER],
         "gemma3": ["--n_layer=7", "--n_kv_head=2", "--sliding_window=32"], "phi3": ["--n_kv_head=2"],
         "phi3-longrope": ["--n_kv_head=2", "--rope_scaling=longrope:64,1.2," + DIVISORS],
         "llama-llama3": ["--n_kv_head=2", "--rope_scaling=llama3:8,1,4,64"], "qwen3-yarn": ["--n_kv_head=2", "--rope_scaling=yarn:4,64"]}
WORDS = "river stone cloud tiger piano garden window rocket castle mirror forest candle bridge anchor basket feather hammer island".split()
TOKENS, PROMPT = 48, 200  # generated; characters
# The largest difference of a logarithm of a probability above 1 %, for each layer: blocks of 8 bits, and of about 4.5.
BOUNDS = {"q8_0": 0.05, "q4_k_m": 0.5}


def run(*command):
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit("%s: %s" % (" ".join(command), done.stderr[-500:]))
    return done.stdout


def text_make(path, seed):
    random.seed(seed)
    line = " ".join(random.choice(WORDS) for _ in range(60)) + ".\n"
    with open(path, "w", encoding="utf-8") as file:
        file.write(line * 40)
    return line


def train(data, out, *flags):
    run(TRAIN, "--dataset=" + data, "--out_dir=" + out, "--block_size=128", "--batch_size=4", "--gradient_accumulation_steps=1", "--max_iters=80",
        "--eval_interval=80", "--eval_iters=1", "--learning_rate=2e-3", "--warmup_iters=5", "--decay_lr=False", "--dtype=float32", *flags)


def export(source, out, form, dtype):
    run(EXPORT, "--out_dir=" + source, "--format=" + form, "--dtype=" + dtype, "--force", out)


def continued(path, prompt, adapter=None, tokens=TOKENS):
    """Returns llama.cpp's text and, for each token, {id: logarithm of its probability}."""
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.warmup = path, 256, 1, False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    if adapter is not None:
        params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(adapter, 1.0)]
    server = xllamacpp.Server(params)
    done = server.handle_completions({"prompt": prompt, "n_predict": tokens, "temperature": 0, "top_k": 1, "n_probs": 5, "cache_prompt": False,
                                      "ignore_eos": True})
    choice = done["choices"][0]
    return choice["text"], [{top["id"]: top["logprob"] for top in each["top_logprobs"]} for each in choice["logprobs"]["content"]]


def difference(ours, theirs):
    """Returns the largest difference of logarithms of probabilities above 1 %, as far as both chose the same tokens."""
    found = 0.0
    for a, b in zip(ours, theirs):
        found = max([found] + [abs(a[i] - b[i]) for i in a if i in b and b[i] > -4.6])
        if max(a, key=a.get) != max(b, key=b.get):
            break
    return found


def compare(arch, line):
    prompt = line[:PROMPT].rsplit(" ", 1)[0]
    train("first", arch, "--arch=" + arch.split("-")[0], "--n_layer=2", "--n_head=4", "--n_embd=256", *ARCHS[arch])
    for dtype in ("float32", "bfloat16", *BOUNDS):
        export(arch, "%s-%s.gguf" % (arch, dtype), "gguf", dtype)
    for dtype in BOUNDS:
        export("%s-%s.gguf" % (arch, dtype), "%s-%s-weights.gguf" % (arch, dtype), "gguf", "float32")
    ours = run(SAMPLE, "--out_dir=%s-bfloat16.gguf" % arch, "--start=" + prompt, "--num_samples=1", "--max_new_tokens=%d" % TOKENS, "--temperature=0",
               "--dtype=float32")
    text, wanted = continued(arch + "-bfloat16.gguf", prompt)[0], continued(arch + "-float32.gguf", prompt)[1]
    same, by_heart = text in ours, line[len(prompt):].startswith(text[:100])
    found = {name: difference(continued("%s-%s.gguf" % (arch, name), prompt)[1], wanted)
             for dtype in BOUNDS for name in (dtype, dtype + "-weights")}
    layers = max(int(flag.split("=")[1]) for flag in ["--n_layer=2", *ARCHS[arch]] if flag.startswith("--n_layer"))
    train("second", arch + "-lora", "--init_from=./" + arch, "--lora_rank=4", "--lora_targets=all-linear")
    export(arch + "-lora", arch + "-adapter.gguf", "gguf-lora", "float32")
    export(arch + "-lora", arch + "-merged.gguf", "gguf", "float32")
    merged, apart = continued(arch + "-merged.gguf", prompt), continued(arch + "-float32.gguf", prompt, arch + "-adapter.gguf")
    lora = merged[0] == apart[0] != continued(arch + "-float32.gguf", prompt)[0]
    print("| %s | %s | %s | %s | %s, %.2g |" % (arch, "the same" if same else "ANOTHER", "yes" if by_heart else "no",
                                              " | ".join("%.2g" % value for value in found.values()), "the same" if lora else "ANOTHER",
                                              difference(apart[1], merged[1])), flush=True)
    return same and lora and all(found[dtype] <= layers * bound for dtype, bound in BOUNDS.items())


with tempfile.TemporaryDirectory() as work:
    os.chdir(work)
    learned = text_make("first.txt", 1)
    text_make("second.txt", 2)
    run(PREPARE, "--tokenizer=train", "--vocab-size=320", "--out-dir=data/first", "first.txt")
    run(PREPARE, "--tokenizer=data/first", "--out-dir=data/second", "second.txt")
    results = [compare(arch, learned) for arch in ARCHS if arch in sys.argv[1:] or len(sys.argv) == 1]
sys.exit(0 if all(results) else 1)
