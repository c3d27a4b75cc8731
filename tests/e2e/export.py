#!/usr/bin/env python3
"""gpt-export from the command line; independent readers check its files.

  hf      names, shapes and values (rounded here independently) in float32, bfloat16 and float16; configuration; a
          tokenizer that gives the data set's own ids; the export of an export has the same bytes; gpt-sample writes the
          same text
  gguf    every key and tensor, alignment, layout; the vocabulary gives the data set's own ids by an encoder written
          here
  blocks  quantised GGUF: the type of each tensor by llama.cpp's mixtures; values near the float32 file's, Q8_0 by a decoder
          written here, the other types by gguf-py, if it is there
  llama   of Llama's, Qwen2's and Qwen3's blocks: hf and gguf, with every key and tensor; models that llama.cpp lacks
  import  GGUF files as models: weights, shape and tokenizer come back, as do quantised ones; damaged ones are refused
  judged  the loss of an export that is opened again
  disks   an output that is a mounted folder, or a link to another disk; leftovers of killed exports
  bad     formats, dtypes, outputs that exist, damage, values that a dtype cannot represent, a full disk: one line, exit
          status, and no files left
  rss     a model of 200 MB is exported in less than 48 MiB
Models are tiny, of odd sizes: characters without biases, bytes with a padded vocabulary, a byte-pair encoding.
"""

import array
import fcntl
import itertools
import json
import math
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

from checks import (GPT_EXPORT, GPT_PREPARE, GPT_SAMPLE, GPT_TRAIN, byte_letters, check, end, files, is_instrumented, merged,
                    patience, read, read_json, skip, tensors_read, tensors_write, write, write_json)
from gguf_file import F16, F32, Q4_0, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0, Gguf

TEXT = ("Größe und Maß: für 10 € nähen wir Ärmel, naïve façade, 日本語の文 and 日本の本.\n" +
        "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich; it's what they'll do.\n") * 40
RSS_MAX = 48 << 20
UNJUDGED = "--evaluate=0"
LINEAR = {"attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}
NORMS = {"ln_1": "attn_norm", "ln_2": "ffn_norm"}
LLAMA_PARTS = {"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up",
               "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
               "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
               "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
               "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
LLAMA_FLAGS = ("--n_layer=2", "--n_head=4", "--n_embd=24", "--block_size=16")
LLAMA_MODELS = {"tied": ("--arch=llama", "--n_kv_head=2", "--rope_scaling=llama3:8,1,4,400"),
                "untied": ("--arch=llama", "--n_kv_head=1", "--head_dim=8", "--bias=True", "--tie_embeddings=False",
                           "--rope_scaling=linear:2"),
                "qwen2": ("--arch=qwen2", "--n_kv_head=2", "--rope_scaling=yarn:4,8"),
                "qwen3": ("--arch=qwen3", "--n_kv_head=2", "--head_dim=8", "--tie_embeddings=False"),
                "olmo2": ("--arch=olmo2", "--n_kv_head=2"),
                "smollm3": ("--arch=smollm3", "--n_kv_head=2"),
                "phi3": ("--arch=phi3", "--n_kv_head=2", "--head_dim=8", "--sliding_window=9", "--rope_scaling=longrope:8,1.25,1,1.5,2,3,4.5,6"),
                "gemma3": ("--arch=gemma3", "--n_kv_head=2", "--sliding_window=8", "--rope_scaling=linear:2"),
                "granite": ("--arch=granite", "--n_kv_head=2", "--logits_scaling=0.5", "--bias=True"),
                "qwen3_5": ("--arch=qwen3_5", "--n_kv_head=2", "--head_dim=8", "--full_attention_interval=2", "--linear_num_key_heads=2",
                            "--linear_num_value_heads=6", "--linear_value_head_dim=5", "--rope_scaling=yarn:4,8")}
GGUF_ARCHS = {"qwen3_5": "qwen35", "tied": "llama", "untied": "llama"} # of the others the name
DELTA_PARTS = {"in_proj_qkv.weight": "attn_qkv.weight", "in_proj_z.weight": "attn_gate.weight", "in_proj_b.weight": "ssm_beta.weight",
               "in_proj_a.weight": "ssm_alpha.weight", "conv1d.weight": "ssm_conv1d.weight", "A_log": "ssm_a", "dt_bias": "ssm_dt.bias",
               "norm.weight": "ssm_norm.weight", "out_proj.weight": "ssm_out.weight"}
NEIGHBOURS = ("llama", "smollm3", "granite") # whose heads llama.cpp rotates by pairs of neighbours
FACTORS = {"embedding_scale": "embedding_multiplier", "residual_scale": "residual_multiplier",
           "attention.scale": "attention_multiplier", "logit_scale": "logits_scaling"}


def run(*arguments, **options):
    return subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=patience(170), check=False, **options)


def must(*arguments):
    done = run(*arguments)
    if done.returncode != 0:
        sys.exit("%s: %s" % (" ".join(arguments), done.stderr.decode("utf-8", "replace")))
    return done.stdout


def exported(*arguments):
    """Exports without an evaluation, which check_evaluation() tests."""
    return must(GPT_EXPORT, UNJUDGED, *arguments)


# ---- numbers: independent 16-bit rounding ----

def to_bf16(value):
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def to_f16(value):
    return struct.unpack("<H", struct.pack("<e", value))[0]


def stored(values, dtype):
    """Returns the bytes of these fp32 values in `dtype`."""
    if dtype == "float32":
        return array.array("f", values).tobytes()
    convert = to_bf16 if dtype == "bfloat16" else to_f16
    return array.array("H", [convert(value) for value in values]).tobytes()


def transposed(values, rows, columns):
    return [values[row * columns + column] for column in range(columns) for row in range(rows)]


# ---- readers ----

def encode(text, tokens, merges):
    """A textbook byte-level BPE without a split."""
    table = byte_letters()
    parts = merged([table[byte] for byte in text.encode("utf-8")], {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)})
    ids = {token: i for i, token in enumerate(tokens)}
    return [ids[part] for part in parts]


# ---- models ----

def make_model(name, tokenizer, *flags):
    must(GPT_PREPARE, *tokenizer, "--out-dir=data/" + name, write("text.txt", TEXT))
    must(GPT_TRAIN, "--dataset=" + name, "--out_dir=out-" + name, "--batch_size=2", "--gradient_accumulation_steps=1",
         "--eval_iters=1", "--max_iters=2", "--learning_rate=0.05", "--warmup_iters=0", *flags)


def weights_of(name):
    """Returns {name without prefix: (shape, fp32 values)} of a run."""
    weights = {}
    for tensor, (dtype, shape, data) in tensors_read("out-%s/model.safetensors" % name).items():
        assert dtype == "F32"
        weights[tensor.removeprefix("transformer.")] = (shape, array.array("f", data).tolist())
    return weights


def dataset_ids(name, count):
    return array.array("H", read("data/%s/train.bin" % name)[:2 * count]).tolist()


def config_of(name):
    return read_json("out-%s/config.json" % name)


# ---- hf ----

def check_hf(name, dtype):
    out = "hf-%s-%s" % (name, dtype)
    exported("--out_dir=out-" + name, "--format=hf", "--dtype=" + dtype, out)
    found, wanted = tensors_read(out + "/model.safetensors"), weights_of(name)
    check({tensor.removeprefix("transformer.") for tensor in found} == set(wanted) and
          all(tensor.startswith("transformer.") for tensor in found), "%s: names" % out)
    word = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}[dtype]
    for tensor, (shape, values) in wanted.items():
        entry = found.get("transformer." + tensor)
        check(entry == (word, shape, stored(values, dtype)), "%s: %s" % (out, tensor))
    config, before = read_json(out + "/config.json"), config_of(name)
    same = [key for key in before if key not in ("torch_dtype", "bos_token_id", "eos_token_id")]
    check(all(config[key] == before[key] for key in same) and config["torch_dtype"] == dtype, "%s: config.json" % out)
    check(read_json(out + "/generation_config.json")["eos_token_id"] == config["eos_token_id"], "%s: generation_config.json" % out)


def check_hf_tokens(name):
    tokenizer = read_json("hf-%s-float32/tokenizer.json" % name)
    vocab, ids = tokenizer["model"]["vocab"], dataset_ids(name, 300)
    if name == "chars":
        check([vocab[letter] for letter in TEXT[:300]] == ids and tokenizer["model"]["merges"] == [] and
              tokenizer["decoder"] == {"type": "Fuse"}, "hf: characters")
    if name == "bytes":
        tokens = sorted(vocab, key=vocab.get)
        check(encode(TEXT, tokens, tokenizer["model"]["merges"])[:300] == ids and len(tokens) == 256, "hf: bytes")
    if name == "bpe":
        check(len(vocab) == 300 and vocab["<|endoftext|>"] == 299 and len(tokenizer["model"]["merges"]) == 43, "hf: bpe")
        check(read_json("hf-bpe-float32/config.json")["eos_token_id"] == 299, "hf: the end of text")
        check(read_json("hf-bpe-float32/tokenizer_config.json")["eos_token"] == "<|endoftext|>", "hf: tokenizer_config.json")
    check(read("out-%s/gpt_tokenizer.json" % name) == read("hf-%s-float32/gpt_tokenizer.json" % name), "hf-%s: gpt_tokenizer.json" % name)


# Run by PYTHON: AutoTokenizer's result for the texts of a folder, one JSON text a line: [[text, ids, decoded], ...].
AUTO = r"""
import json, os, sys
os.environ["HF_HUB_OFFLINE"] = "1"
from transformers import AutoTokenizer
for line in sys.stdin:
    folder, texts = json.loads(line)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = [tokenizer(text)["input_ids"] for text in texts]
    print(json.dumps([len(tokenizer), ids, [tokenizer.decode(each) for each in ids]]))
"""


def check_run_tokens(names):
    """A run's folder has the same tokenizer files as the export, whose content check_hf_tokens() checks; with
    transformers, AutoTokenizer gives our ids."""
    for name in names:
        for file in ("tokenizer.json", "tokenizer_config.json"):
            ours, theirs = "out-%s/%s" % (name, file), "hf-%s-float32/%s" % (name, file)
            check(os.path.exists(ours) and read(ours) == read(theirs), "%s is not that of the export" % ours)
    python = os.environ.get("PYTHON_TOKENIZERS", sys.executable)
    if subprocess.run([python, "-c", "import transformers"], capture_output=True, check=False).returncode != 0:
        skip("export_transformers", "no Python with transformers (PYTHON_TOKENIZERS)")
        return
    texts = [TEXT[:len(TEXT) // 2], "\n", "日本語  und .", "naïve it's n't , ."]
    asked = "".join(json.dumps(["out-" + name, texts]) + "\n" for name in names)
    done = subprocess.run([python, "-c", AUTO], input=asked.encode(), capture_output=True, check=False)
    check(done.returncode == 0, "AutoTokenizer: " + done.stderr.decode()[-600:])
    for name, line in zip(names, done.stdout.decode().splitlines()):
        count, ids, back = json.loads(line)
        mine = dataset_ids(name, 300)
        check(count == {"chars": len(set(TEXT)), "bytes": 256, "bpe": 300}[name], "%s: AutoTokenizer has %d tokens" % (name, count))
        check(ids[0][:300] == mine and len(mine) == 300, "%s: AutoTokenizer's ids" % name)
        check(back == texts, "%s: AutoTokenizer decodes to %r" % (name, back[1:]))


def check_round_trip(name):
    """The export of an export, and samples from it."""
    exported("--out_dir=hf-%s-float32" % name, "--format=hf", "again-" + name)
    check(read("out-%s/model.safetensors" % name) == read("again-%s/model.safetensors" % name), "%s: the export of an export differs" % name)
    sample = (GPT_SAMPLE, "--num_samples=2", "--max_new_tokens=30", "--start=it", "--seed=3")
    text = must(*sample, "--out_dir=out-" + name)
    check(len(text) > 40 and text == must(*sample, "--init_from=again-" + name), "%s: samples differ" % name)


# ---- gguf ----

def gguf_name(tensor):
    fixed = {"wte.weight": "token_embd.weight", "wpe.weight": "position_embd.weight",
             "ln_f.weight": "output_norm.weight", "ln_f.bias": "output_norm.bias"}
    if tensor in fixed:
        return fixed[tensor]
    _, layer, rest = tensor.split(".", 2)
    part, kind = rest.rsplit(".", 1)
    return "blk.%s.%s.%s" % (layer, {**LINEAR, **NORMS}[part], kind)


def check_gguf_tensors(name, dtype, gguf):
    wanted = weights_of(name)
    names = {gguf_name(tensor) for tensor in wanted} | {"output.weight"}
    check(set(gguf.tensors) == names and len(gguf.data) == -(-gguf.end // 32) * 32, "gguf-%s-%s: names" % (name, dtype))
    for tensor, (shape, values) in list(wanted.items()) + [("output", wanted["wte.weight"])]:
        target = "output.weight" if tensor == "output" else gguf_name(tensor)
        kept = len(shape) == 1 or tensor == "wpe.weight"
        kind = "float32" if kept else dtype
        dims = shape[::-1]
        if any("." + part + "." in tensor for part in LINEAR) and len(shape) == 2:
            values, dims = transposed(values, *shape), shape
        number = {"float32": 0, "float16": 1, "bfloat16": 30}[kind]
        check(gguf.tensors.get(target) == (dims, number, stored(values, kind)), "gguf-%s-%s: %s" % (name, dtype, target))


def check_gguf(name, dtype):
    path = "%s-%s.gguf" % (name, dtype)
    done = run(GPT_EXPORT, UNJUDGED, "--out_dir=out-" + name, "--format=gguf", "--dtype", dtype, path)
    config = config_of(name)
    check(done.returncode == 0, path)
    check((b"computes tanh" in done.stderr) == (config["activation_function"] == "gelu"), "%s: the warning" % path)
    gguf = Gguf(path)
    keys = {"general.architecture": "gpt2", "general.type": "model", "general.name": "out-" + name,
            "general.file_type": {"float32": 0, "float16": 1, "bfloat16": 32}[dtype], "general.alignment": 32,
            "gpt2.vocab_size": config["vocab_size"], "gpt2.block_count": config["n_layer"],
            "gpt2.context_length": config["n_positions"], "gpt2.embedding_length": config["n_embd"],
            "gpt2.feed_forward_length": 4 * config["n_embd"], "gpt2.attention.head_count": config["n_head"],
            "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.add_bos_token": False}
    check(gguf.magic == b"GGUF" and gguf.version == 3, "%s: head" % path)
    for key, value in keys.items():
        check(gguf.keys.get(key) == value, "%s: %s is %s" % (path, key, gguf.keys.get(key)))
    check(gguf.keys["gpt2.attention.layer_norm_epsilon"] == struct.unpack("<f", struct.pack("<f", 1e-5))[0],
          "%s: epsilon" % path)
    check_gguf_tensors(name, dtype, gguf)
    return gguf


def check_gguf_tokens(name, gguf):
    tokens, types = gguf.keys["tokenizer.ggml.tokens"], gguf.keys["tokenizer.ggml.token_type"]
    merges, config = gguf.keys["tokenizer.ggml.merges"], config_of(name)
    check(len(tokens) == len(types) == len(set(tokens)) == config["vocab_size"], "gguf-%s: tokens" % name)
    if name == "bpe":
        check(gguf.keys["tokenizer.ggml.eos_token_id"] == gguf.keys["tokenizer.ggml.bos_token_id"] == 299 and
              tokens[299] == "<|endoftext|>" and types == [1] * 299 + [3] and len(merges) == 43, "gguf: bpe")
        check(read("hf-bpe-float32/merges.txt").decode().splitlines()[1:] == merges, "gguf: merges")
        return
    check("tokenizer.ggml.eos_token_id" not in gguf.keys, "gguf-%s: has no end of text" % name)
    check(encode(TEXT[:200], tokens, merges) == dataset_ids(name, 250)[:len(encode(TEXT[:200], tokens, merges))],
          "gguf-%s: other ids" % name)
    if name == "bytes":
        check(types == [1] * 256 + [5] * 4 and tokens[256] == "[PAD256]", "gguf: padding")


# ---- Llama's family ----

def single(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


OLMO2_NORMS = {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}
OTHER_NORMS = {"olmo2": OLMO2_NORMS, "gemma3": {**OLMO2_NORMS, "pre_feedforward_layernorm": "ffn_norm"},
               "qwen35": {"post_attention_layernorm": "post_attention_norm"}}


def llama_gguf_name(tensor, architecture):
    fixed = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
             "lm_head.weight": "output.weight"}
    if tensor in fixed:
        return fixed[tensor]
    _, _, layer, rest = tensor.split(".", 3)
    part, kind = rest.rsplit(".", 1)
    if rest.startswith("linear_attn."):
        return "blk.%s.%s" % (layer, DELTA_PARTS[rest.removeprefix("linear_attn.")])
    parts = dict(LLAMA_PARTS, **OTHER_NORMS.get(architecture, {}))
    return "blk.%s.%s.%s" % (layer, parts[part], kind)


def llama_keys(architecture, config):
    head_dim, scaling = config["head_dim"], config["rope_scaling"] or config.get("rope_parameters")
    keys = {"vocab_size": config["vocab_size"], "block_count": 2, "context_length": config["max_position_embeddings"],
            "embedding_length": 24, "feed_forward_length": config["intermediate_size"], "attention.head_count": 4,
            "attention.head_count_kv": config["num_key_value_heads"], "attention.key_length": head_dim,
            "attention.value_length": head_dim, "attention.layer_norm_rms_epsilon": single(config["rms_norm_eps"]),
            "rope.dimension_count": int(head_dim * config.get("partial_rotary_factor", 1)), "rope.freq_base": single(config["rope_theta"])}
    if scaling and scaling.get("type") == "longrope":
        keys.update({"rope.scaling.original_context_length": config["original_max_position_embeddings"],
                     "rope.scaling.attn_factor": scaling["attention_factor"], "attention.sliding_window": config["sliding_window"]})
    elif scaling and scaling["rope_type"] == "yarn":
        keys.update({"rope.scaling.type": "yarn", "rope.scaling.factor": scaling["factor"],
                     "rope.scaling.original_context_length": scaling["original_max_position_embeddings"]})
    elif scaling and scaling["rope_type"] == "linear":
        keys.update({"rope.scaling.type": "linear", "rope.scaling.factor": scaling["factor"]})
    keys.update({key: single(config[field]) for key, field in FACTORS.items() if field in config})
    if architecture == "gemma3":
        keys["attention.sliding_window"] = config["sliding_window"]
    if architecture == "qwen35":
        keys.update({"full_attention_interval": 2, "ssm.conv_kernel": 4, "ssm.state_size": 5, "ssm.group_count": 2, "ssm.time_step_rank": 6,
                     "ssm.inner_size": 30, "rope.dimension_sections": [11, 11, 10, 0]})
    return {architecture + "." + key: value for key, value in keys.items()}


def llama_divisors(config):
    """Returns what transformers' llama3 scaling divides each frequency by."""
    divisors, scaling = [], config["rope_scaling"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    for i in range(config["head_dim"] // 2):
        wave = 2 * math.pi * config["rope_theta"]**(2 * i / config["head_dim"])
        turns = scaling["original_max_position_embeddings"] / wave
        smooth = min(max((turns - low) / (high - low), 0), 1)
        divisors.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
    return divisors


def neighbours_parted(rows, head_dim):
    """Undoes llama.cpp's order of rows, in which i and i + D/2 of a head are neighbours."""
    return [row for head in range(0, len(rows), head_dim) for first in (0, 1) for row in rows[head + first:head + head_dim:2]]


def delta_values(part, values, shape, config):
    """Returns a gated delta net's values as llama.cpp has them: -e^A_log, and heads of values k * R + r, of key head k, as r * K + k."""
    keys, heads, size = (config["linear_" + name] for name in ("num_key_heads", "num_value_heads", "value_head_dim"))
    width = shape[-1] if len(shape) > 1 else 1
    unit = {"out_proj.weight": size, "in_proj_qkv.weight": size * width, "in_proj_z.weight": size * width, "conv1d.weight": size * width}.get(part, width)
    first = {"in_proj_qkv.weight": 2 * keys * unit, "conv1d.weight": 2 * keys * unit, "norm.weight": len(values)}.get(part, 0)
    values = [-math.exp(value) for value in values] if part == "A_log" else values
    groups = [values[at:at + heads * unit] for at in range(first, len(values), heads * unit)]
    order = [key * heads // keys + i for i in range(heads // keys) for key in range(keys)]
    return values[:first] + [value for group in groups for i in order for value in group[i * unit:(i + 1) * unit]]


def check_llama_gguf(name, dtype):
    path = "%s-%s.gguf" % (name, dtype)
    done = run(GPT_EXPORT, *([UNJUDGED] if dtype == "float32" else []), "--out_dir=out-" + name, "--format=gguf", "--dtype", dtype, path)
    check(done.returncode == 0 and b"tanh" not in done.stderr, "%s: %s" % (path, done.stderr))
    config, wanted, gguf = config_of(name), weights_of(name), Gguf(path)
    architecture = GGUF_ARCHS.get(name, name)
    check(gguf.keys["general.architecture"] == architecture and gguf.keys["tokenizer.ggml.model"] == "gpt2", "%s: architecture" % path)
    check(gguf.keys["general.name"] == "out-" + name.replace("phi3", "phi 3"), "%s: llama.cpp would demand Phi 3's tokens" % path)
    found = {key: value for key, value in gguf.keys.items() if key.split(".")[0] not in ("general", "tokenizer", "gpt_train")}
    check(found == llama_keys(architecture, config), "%s: keys %s" % (path, found))
    tensors = dict(gguf.tensors)
    if name == "tied":
        dims, kind, data = tensors.pop("rope_freqs.weight")
        pairs = list(zip(array.array("f", data), llama_divisors(config)))
        check((dims, kind) == ([3], 0) and all(abs(a - b) < 1e-6 * b for a, b in pairs), "%s: divisors %s" % (path, pairs))
        check(pairs[0][0] == 1 and 1 < pairs[1][0] < 8 and pairs[2][0] == 8, "%s: kinds of divisors" % path)
    for which in ("long", "short") if name == "phi3" else ():
        divisors = array.array("f", config["rope_scaling"][which + "_factor"]).tobytes()
        check(tensors.pop(f"rope_factors_{which}.weight") == ([3], 0, divisors), f"{path}: {which} divisors")
    check(("output.weight" in tensors) == (name in ("untied", "qwen3", "olmo2")), "%s: the output layer" % path)
    if name == "olmo2": # which llama.cpp needs even if it is the embedding
        check(tensors.pop("output.weight") == tensors["token_embd.weight"], "%s: the copy of the embedding" % path)
    check(set(tensors) == {llama_gguf_name(tensor, architecture) for tensor in wanted}, "%s: names" % path)
    for tensor, (shape, values) in wanted.items():
        dims, kind, data = tensors[llama_gguf_name(tensor, architecture)]
        of, part = "float32" if len(shape) == 1 or "conv1d" in tensor else dtype, tensor.partition(".linear_attn.")[2]
        if part:
            values, shape = delta_values(part, values, shape, config), [size for size in shape if size > 1]
        elif architecture in ("gemma3", "qwen35") and "norm" in tensor: # whose files have 1 + w
            values = [value + 1 for value in values]
        if architecture in NEIGHBOURS and (".q_proj." in tensor or ".k_proj." in tensor):
            size = len(data) // shape[0]
            data = b"".join(neighbours_parted([data[i:i + size] for i in range(0, len(data), size)], config["head_dim"]))
        check((dims, kind, data) == (shape[::-1], {"float32": 0, "bfloat16": 30}[of], stored(values, of)), "%s: %s" % (path, tensor))


def check_delta_files():
    """Of a Qwen3.5's adapters, rows of B and columns of A have llama.cpp's order too.  Blocks of multi-token prediction, the last, are skipped."""
    config, once = config_of("qwen3_5"), ("--dataset=qwen3_5", "--batch_size=2", "--gradient_accumulation_steps=1", "--eval_iters=1", "--max_iters=1")
    must(GPT_TRAIN, *once, "--init_from=./out-qwen3_5", "--out_dir=out-adapters", "--block_size=16", "--lora_rank=3", "--lora_targets=all-linear", "--learning_rate=0.1")
    exported("--out_dir=out-adapters", "--format=peft", "peft")
    exported("--out_dir=out-adapters", "--format=gguf-lora", "adapters.gguf")
    found = Gguf("adapters.gguf").tensors
    for tensor, (_, shape, raw) in tensors_read("peft/adapter_model.safetensors").items():
        layer, _, matrix = tensor.removeprefix("base_model.model.").removesuffix(".weight").rpartition(".lora_")
        values, part = array.array("f", raw).tolist(), layer.partition(".linear_attn.")[2] + ".weight"
        if layer.startswith("model.layers.0.linear_attn.") and (part == "out_proj.weight") == (matrix == "A"):
            values = delta_values(part, values, shape, config)
        name = llama_gguf_name(layer + ".weight", "qwen35") + ".lora_" + matrix.lower()
        check(any(values) and found[name] == (shape[::-1], F32, stored(values, "float32")), "adapters: %s" % name)
    make_model("mtp", ("--tokenizer=bytes",), *LLAMA_FLAGS, *LLAMA_MODELS["qwen3_5"], "--n_layer=4")
    exported("--out_dir=out-mtp", "--format=gguf", "--dtype=float32", "mtp.gguf")
    # Instead of how much of a head turns, which is 2 of 8 and then all of it, the file says that 2 of its 4 blocks predict more tokens.
    write("mtp.gguf", read("mtp.gguf").replace(b"qwen35.rope.dimension_count", b"qwen35.nextn_predict_layers"))
    done, own = run(GPT_EXPORT, UNJUDGED, "--out_dir=mtp.gguf", "--format=hf", "hf-mtp"), tensors_read("out-mtp/model.safetensors")
    check(done.returncode == 0 and b"25 tensors of multi-token prediction (mtp) are skipped" in done.stderr, "mtp: %s" % done.stderr)
    config, kept = read_json("hf-mtp/config.json"), tensors_read("hf-mtp/model.safetensors")
    check((config["num_hidden_layers"], config["partial_rotary_factor"]) == (2, 1), "mtp: %s" % config)
    check(kept.keys() == {name for name in own if ".layers.2." not in name and ".layers.3." not in name}, "mtp: %s" % kept.keys())


def check_names():
    """The names of tensors and keys are those of gguf-py, if it is there."""
    try:
        import gguf  # pylint: disable=import-outside-toplevel
    except ImportError: # which decoder() says
        return
    known = {key for group in vars(gguf.Keys).values() if isinstance(group, type) for key in vars(group).values()}
    for name in LLAMA_MODELS:
        architecture = GGUF_ARCHS.get(name, name)
        names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture.upper()], 2)
        for tensor in weights_of(name):
            theirs, ours = names.get_name(tensor.replace(".dt_bias", ".dt_proj.bias"), (".weight", ".bias")), llama_gguf_name(tensor, architecture)
            check(theirs == ours, "%s: gguf-py names %s %s, not %s" % (name, tensor, theirs, ours))
        keys = {key.replace(architecture, "{arch}", 1) for key in Gguf(name + "-float32.gguf").keys if key.startswith(architecture + ".")}
        check(keys <= known, "%s: gguf-py has no keys %s" % (name, keys - known))


def check_llama():
    for name, flags in LLAMA_MODELS.items():
        make_model(name, ("--tokenizer=bytes",), *LLAMA_FLAGS, *flags)
        for dtype in ("float32", "bfloat16"):
            check_llama_gguf(name, dtype)
        exported("--out_dir=out-" + name, "--format=hf", "hf-" + name)
        check(name not in ("phi3", "smollm3") or read_json(f"hf-{name}/config.json")["pad_token_id"] is None, "%s: a token outside the vocabulary" % name)
        check(tensors_read("hf-%s/model.safetensors" % name) == tensors_read("out-%s/model.safetensors" % name), "hf-%s: tensors" % name)
        exported("--out_dir=hf-" + name, "--format=gguf", "--dtype=float32", "again.gguf", "--force")
        check(Gguf("again.gguf").tensors == Gguf(name + "-float32.gguf").tensors, "%s: the export of an export differs" % name)
    must(GPT_TRAIN, "--init_from=phi3-float32.gguf", "--dataset=phi3", "--out_dir=out-gguf", "--block_size=16", "--max_iters=0", "--eval_iters=1",
         "--batch_size=1", "--gradient_accumulation_steps=1", "--always_save_checkpoint=True", "--learning_rate=0", "--min_lr=0",
         "--decay_lr=False")
    check(tensors_read("out-gguf/model.safetensors") == tensors_read("out-phi3/model.safetensors"), "phi3: tensors of a GGUF")
    wanted, found = read_json("out-phi3/config.json"), read_json("out-gguf/config.json")
    found["rms_norm_eps"] = wanted["rms_norm_eps"] # which has 32 bits there
    check(found == wanted, f"phi3: {found} of a GGUF, not {wanted}")
    folder, longer = "hf-tied", dict(read_json("hf-tied/config.json"), max_position_embeddings=64) # than its run's block_size
    write_json(folder + "/config.json", longer)
    must(GPT_TRAIN, "--init_from=./" + folder, "--dataset=tied", "--out_dir=out-longer", "--block_size=16", "--max_iters=0", "--eval_iters=1",
         "--batch_size=1", "--gradient_accumulation_steps=1", "--always_save_checkpoint=True")
    for source in (folder, "out-longer"):
        exported("--out_dir=" + source, "--format=gguf", "again.gguf", "--force")
        check(Gguf("again.gguf").keys["llama.context_length"] == 64, "%s: the context is not the model's" % source)
    refused("llmc holds GPT-2's blocks only; --format=hf holds this model", 2, "--out_dir=out-tied", "--format=llmc", "x")
    make_model("wide", ("--tokenizer=bytes",), *LLAMA_FLAGS, "--arch=qwen2", "--head_dim=8")
    refused("llama.cpp holds a model with a head_dim other than n_embd / n_head in qwen2's blocks", 2, "--out_dir=out-wide", "--format=gguf", "x")
    exported("--out_dir=out-olmo2", "--format=gguf", "--dtype=q8_0", "small.gguf", "--force")
    check("output.weight" in Gguf("small.gguf").tensors, "olmo2: a quantised file needs the output layer too")
    make_model("wider", ("--tokenizer=bytes",), *LLAMA_FLAGS, "--arch=olmo2", "--head_dim=8")
    refused("llama.cpp holds a model with a head_dim other than n_embd / n_head in olmo2's blocks", 2, "--out_dir=out-wider", "--format=gguf", "x")
    make_model("other", ("--tokenizer=bytes",), *LLAMA_FLAGS, "--arch=smollm3", "--no_rope_layer_interval=2")
    refused("llama.cpp holds a model with a no_rope_layer_interval other than 4 in smollm3's blocks", 2, "--out_dir=out-other", "--format=gguf", "x")
    for flag, message in (("--sliding_window_pattern=2", "a sliding_window in other layers than five of six"),
                          ("--rope_local_theta=100", "a rope_local_theta other than 1e4"), ("--query_pre_attn_scalar=9", "a query_pre_attn_scalar other than head_dim"),
                          ("--mlp=swiglu", "this mlp")):
        make_model("other", ("--tokenizer=bytes",), *LLAMA_FLAGS, "--arch=gemma3", flag)
        refused("llama.cpp holds a model with %s in gemma3's blocks" % message, 2, "--out_dir=out-other", "--format=gguf", "x")
    make_model("own", ("--tokenizer=bytes",), *LLAMA_FLAGS, "--arch=llama", "--qk_norm=full")
    refused("llama.cpp holds a model with qk_norm='full'", 2, "--out_dir=out-own", "--format=gguf", "x")
    refused("transformers holds a model with qk_norm='full'", 2, "--out_dir=out-own", "--format=hf", "x")
    refused("llmc holds GPT-2's blocks only", 2, "--out_dir=out-own", "--format=llmc", "x")
    exported("--out_dir=hf-qwen3_5", "--format=hf", "hf-again-35")
    check(files("hf-again-35", (".safetensors", "config.json")) == files("hf-qwen3_5", (".safetensors", "config.json")), "qwen3_5: the export of an export differs")
    config, shapes = read_json("hf-qwen3_5/config.json"), {name: shape for name, (_, shape, _) in tensors_read("hf-qwen3_5/model.safetensors").items()}
    check(config["rope_parameters"] == {"rope_type": "yarn", "rope_theta": 1e7, "partial_rotary_factor": 0.25, "factor": 4, "beta_fast": 32, "beta_slow": 1,
                                        "original_max_position_embeddings": 8} and config["rope_scaling"] is None, f"qwen3_5: {config}")
    check(config["layer_types"] == ["linear_attention", "full_attention"] and config["architectures"] == ["Qwen3_5ForCausalLM"] and
          (config["model_type"], config["linear_key_head_dim"], config["attn_output_gate"]) == ("qwen3_5_text", 5, True), f"qwen3_5: {config}")
    at, names = "model.layers.0.linear_attn.", {"in_proj_qkv.weight": [50, 24], "in_proj_z.weight": [30, 24], "in_proj_b.weight": [6, 24], "in_proj_a.weight": [6, 24],
             "conv1d.weight": [50, 1, 4], "A_log": [6], "dt_bias": [6], "norm.weight": [5], "out_proj.weight": [24, 30]}
    check({name[len(at):]: shape for name, shape in shapes.items() if name.startswith(at)} == names and
          shapes["model.layers.1.self_attn.q_proj.weight"] == [2 * 4 * 8, 24], f"qwen3_5: {shapes}")
    check_delta_files()
    check_names()
    scaling = read_json("hf-tied/config.json")["rope_scaling"]
    for name in ("qwen2", "qwen3"):
        write_json("hf-%s/config.json" % name, {**read_json("hf-%s/config.json" % name), "rope_scaling": scaling})
        refused("a model with rope_scaling='llama3:...' in %s's blocks" % name, 2, "--out_dir=hf-" + name, "--format=gguf", "x")


# ---- blocks ----

# Of quantised files: general.file_type, and the types of most matrices, the output layer, values in half of the blocks, and GPT-2's attn_qkv;
# the same for rows of 64 and of 40 numbers.
MIXTURES = {"q8_0": (7, (Q8_0,) * 4, (Q8_0,) * 4), "q6_k": (18, (Q6_K,) * 4, (Q8_0,) * 4),
            "q5_k_m": (17, (Q5_K, Q6_K, Q6_K, Q6_K), (Q5_1, Q8_0, Q8_0, Q8_0)), "q5_0": (8, (Q5_0, Q6_K, Q5_0, Q5_0), (Q5_0, Q8_0, Q5_0, Q5_0)),
            "q4_k_m": (15, (Q4_K, Q6_K, Q6_K, Q5_K), (Q5_0, Q8_0, Q8_0, Q5_1)), "q4_0": (2, (Q4_0, Q6_K, Q4_0, Q4_0), (Q4_0, Q8_0, Q4_0, Q4_0))}
# Of the error's root mean square over the values', for weights that are about normal: a step of the range, and room for scales.
ERRORS = {"q8_0": 0.01, "q6_k": 0.03, "q5_k_m": 0.06, "q5_0": 0.06, "q4_k_m": 0.12, "q4_0": 0.12}


def q8_0_values(data):
    """Decodes Q8_0, by the format's description."""
    values = []
    for at in range(0, len(data), 34):
        scale = struct.unpack_from("<e", data, at)[0]
        values += [scale * code for code in struct.unpack_from("<32b", data, at + 2)]
    return values


def decoder():
    """Returns gguf-py's dequantize of (type, data), or NULL; it is optional."""
    try:
        import gguf.quants  # pylint: disable=import-outside-toplevel
        import numpy  # pylint: disable=import-outside-toplevel
    except ImportError:
        skip("export_gguf_py", "no gguf (gguf-py) for this Python")
        return None
    return lambda kind, data: gguf.quants.dequantize(numpy.frombuffer(data, numpy.uint8), gguf.GGMLQuantizationType(kind)).tolist()


def check_close(what, data, wanted, bound):
    error = sum((a - b) ** 2 for a, b in zip(data, wanted))
    check(len(data) == len(wanted) and error <= bound * bound * sum(b * b for b in wanted) + 1e-12, "%s: error %g" % (what, error))


def check_mixture(name, word, blocks, decode):
    path = "%s-%s.gguf" % (name, word)
    done = run(GPT_EXPORT, UNJUDGED, "--out_dir=out-" + name, "--format=gguf", "--dtype=" + word.upper(), path)
    check(done.returncode == 0, "%s: %s" % (path, done.stderr))
    number, whole, parted = MIXTURES[word]
    most, output, values, qkv = whole if name == "wide256" else parted
    gguf, plain = Gguf(path), Gguf(name + "-plain.gguf")
    check((whole != parted and name != "wide256") == (b"are not a whole number of blocks of" in done.stderr), "%s: the note: %s" % (path, done.stderr))
    check((gguf.keys["general.file_type"], gguf.keys["general.quantization_version"]) == (number, 2), "%s: file_type" % path)
    check(set(gguf.tensors) == set(plain.tensors) - {"output.weight"}, "%s: tensors" % path)
    for tensor, (dims, kind, data) in gguf.tensors.items():
        layer = int(tensor.split(".")[1]) if tensor.startswith("blk.") else 0
        more = layer < blocks // 8 or layer >= 7 * blocks // 8 or (layer - blocks // 8) % 3 == 2
        wanted = F32 if len(dims) == 1 or tensor == "position_embd.weight" else output if tensor == "token_embd.weight" else \
            qkv if ".attn_qkv." in tensor else values if more and (".attn_v." in tensor or ".ffn_down." in tensor) else most
        check((dims, kind) == (plain.tensors[tensor][0], wanted), "%s: %s is %s %d, not %d" % (path, tensor, dims, kind, wanted))
        exact = array.array("f", plain.tensors[tensor][2]).tolist()
        if kind == F32:
            check(data == plain.tensors[tensor][2], "%s: %s" % (path, tensor))
        elif kind == Q8_0:
            check_close("%s: %s" % (path, tensor), q8_0_values(data), exact, ERRORS["q8_0"])
        elif decode is not None:
            check_close("%s: %s" % (path, tensor), decode(kind, data), exact, ERRORS[word])


def check_mixtures():
    """Quantised files: the type of each tensor, and its values against the float32 file's."""
    decode = decoder()
    for name, width, blocks, arch in (("wide256", 256, 2, "gpt2"), ("wide64", 64, 9, "llama")):
        make_model(name, ("--tokenizer=bytes",), "--n_layer=%d" % blocks, "--n_head=2", "--n_embd=%d" % width, "--block_size=16", "--arch=" + arch,
                   "--gelu=tanh", *(("--n_kv_head=1", "--n_inner=128") if arch == "llama" else ()))
        exported("--out_dir=out-" + name, "--format=gguf", "--dtype=float32", name + "-plain.gguf")
        for word in MIXTURES:
            check_mixture(name, word, blocks, decode)
        exported("--out_dir=out-" + name, "--format=gguf", name + "-usual.gguf")
        check(Gguf(name + "-usual.gguf").keys["general.file_type"] == 32, "%s: bfloat16 is not the default" % name)
    make_model("half", ("--tokenizer=bytes",), *LLAMA_FLAGS, "--arch=llama", "--n_embd=40")
    exported("--out_dir=out-half", "--format=hf", "--dtype=float16", "hf-half")
    exported("--out_dir=hf-half", "--format=gguf", "half.gguf")
    check(Gguf("half.gguf").keys["general.file_type"] == 1, "a model in float16: not the default")
    done = run(GPT_EXPORT, UNJUDGED, "--out_dir=hf-half", "--format=gguf", "--dtype=q4_0", "half-q4.gguf")
    check(b"blk.0.attn_q.weight and " in done.stderr or b"token_embd.weight and " in done.stderr, "rows of 40: %s" % done.stderr)
    check({Gguf("half-q4.gguf").tensors[tensor][1] for tensor in ("token_embd.weight", "blk.1.ffn_up.weight")} == {F16}, "rows of 40: not float16")


# ---- GGUF as input ----

def changed(path, change, name="changed.gguf"):
    """Writes a copy of a GGUF file with other bytes."""
    data = bytearray(read(path))
    change(data)
    with open(name, "wb") as file:
        file.write(data)
    return name


def check_import_of(name):
    """A float32 file gives the model's own text and bytes; quantised ones are decoded, and say so."""
    path = name + "-float32.gguf"
    exported("--out_dir=out-" + name, "--format=gguf", "--dtype=float32", "--force", path)
    sample = (GPT_SAMPLE, "--num_samples=1", "--max_new_tokens=20", "--start=it", "--seed=3", "--dtype=float32")
    check(must(*sample, "--out_dir=out-" + name) == must(*sample, "--init_from=" + path), "%s: other samples" % path)
    exported("--out_dir=" + path, "--format=hf", "--force", "back-" + name)
    back, own = (tensors_read("%s-%s/model.safetensors" % (folder, name)) for folder in ("back", "out"))
    for tensor in own.keys() - {tensor for tensor in own if back[tensor] == own[tensor]}: # w + 1 less 1, or log e^w, in float32
        pairs = list(zip(*(array.array("f", weights.pop(tensor)[2]) for weights in (back, own))))
        check(name in ("gemma3", "qwen3_5") and ("norm" in tensor or "A_log" in tensor) and
              all(abs(a - b) <= (1 + abs(b)) * 2**-24 for a, b in pairs), "%s: %s" % (path, tensor))
    check(back == own, "%s: other weights" % path)
    ours, theirs = read_json("back-%s/config.json" % name), read_json("out-%s/config.json" % name)
    for key in ("model_type", "vocab_size", "rope_scaling", "tie_word_embeddings", "num_key_value_heads", "n_head"):
        check(ours.get(key) == theirs.get(key), "%s: %s is %s" % (path, key, ours.get(key)))


def check_import():
    for name in ("bytes", "bpe", "tied", "untied", "qwen2", "qwen3", "gemma3", "qwen3_5"):
        if name != "bytes":  # GPT-2 in GGUF has no name for padding
            check_import_of(name)
    check(read("back-bpe/tokenizer.json") == read("out-bpe/tokenizer.json"), "the tokenizer of a GGUF file is another one")
    train = (GPT_TRAIN, "--dataset=wide64", "--out_dir=out-import", "--batch_size=2", "--gradient_accumulation_steps=1", "--max_iters=1",
             "--eval_iters=1", "--block_size=16", "--warmup_iters=0")
    for more in ((), ("--lora_rank=2",)):
        done = run(*train, "--init_from=wide64-q8_0.gguf", *more)
        check(done.returncode == 0 and b"are quantised (Q8_0 ...); loading dequantises" in done.stderr, "training from Q8_0: %s" % done.stderr)
    done = run(GPT_EXPORT, UNJUDGED, "--out_dir=out-import", "--format=gguf-lora", "import-lora.gguf")
    check(done.returncode == 0, "adapters of a GGUF base: %s" % done.stderr)
    # Absent keys have llama.cpp's meaning: granite.cpp's scale of scores is 1 / sqrt(6), with as many heads of keys as heads, and theta 10000.
    make_model("whole", ("--tokenizer=bytes",), *LLAMA_FLAGS, "--arch=granite", "--n_kv_head=4", "--rope_theta=777")
    exported("--out_dir=out-whole", "--format=gguf", "whole.gguf")
    data = read("whole.gguf")
    for name in (b"attention.scale", b"attention.head_count_kv", b"rope.freq_base"):
        data = data.replace(b"granite." + name, b"another." + name)
    exported("--out_dir=" + write("absent.gguf", data), "--format=gguf", "--evaluate=0", "again.gguf", "--force")
    keys = Gguf("again.gguf").keys
    check([round(keys["granite." + name], 6) for name in ("attention.scale", "attention.head_count_kv", "rope.freq_base")] == [round(6**-0.5, 6), 4, 1e4],
          "absent keys: %s" % keys)
    check_import_keys()
    check_import_bad("wide64-q8_0.gguf")


def with_key(path, name, kind, value):
    """Writes a copy of a GGUF file with one more key, and a second that makes both a multiple of 32 bytes: the data stay aligned."""
    def entry(name, kind, value):
        return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", kind) + value
    data = read(path)
    key, fill = entry(name, kind, value), len(entry("fill", 8, bytes(8)))
    count = -(len(key) + fill) % 32
    key += entry("fill", 8, struct.pack("<Q", count) + b"x" * count)
    return write("with-key.gguf", data[:16] + struct.pack("<Q", struct.unpack_from("<Q", data, 16)[0] + 2) + key + data[24:])


def check_import_keys():
    """Keys with which llama.cpp computes something else are read or refused."""
    for key in ("rope.scaling.factor", "rope.scale_linear"):
        exported("--out_dir=" + with_key("qwen3-float32.gguf", "qwen3." + key, 6, struct.pack("<f", 4)), "--format=hf", "--force", "back-keys")
        check(read_json("back-keys/config.json")["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}, "%s without a type is linear" % key)
    exported("--out_dir=out-olmo2", "--format=gguf", "--dtype=float32", "--force", "olmo2-float32.gguf")
    exported("--out_dir=out-whole", "--format=gguf", "--dtype=float32", "--force", "granite-float32.gguf")
    for name, architecture, key, kind, value in (
            ("qwen3", "qwen3", "attention.causal", 7, b"\0"), ("gemma3", "gemma3", "final_logit_softcapping", 6, struct.pack("<f", 30)),
            ("qwen2", "qwen2", "rope.scaling.attn_factor", 6, struct.pack("<f", 1.5)), ("qwen2", "qwen2", "rope.scaling.yarn_beta_fast", 6, struct.pack("<f", 16)),
            ("tied", "llama", "rope.scaling.factor", 6, struct.pack("<f", 2)), ("granite", "granite", "rope.scaling.finetuned", 7, b"\0"),
            ("gemma3", "gemma3", "rope.freq_base_swa", 6, struct.pack("<f", 1e5)), ("olmo2", "olmo2", "attention.sliding_window", 4, struct.pack("<I", 8))):
        refused("key %s.%s" % (architecture, key), 2, "--out_dir=" + with_key(name + "-float32.gguf", architecture + "." + key, kind, value), "--format=hf", "none",
                leaves=() if os.path.exists("with-key.gguf") else ("with-key.gguf",))
    exported("--out_dir=" + with_key("olmo2-float32.gguf", "olmo2.attention.sliding_window", 4, bytes(4)), "--format=hf", "--force", "back-keys")
    key = b"qwen3.rope.dimension_count"
    turned = changed("qwen3-float32.gguf", lambda data: struct.pack_into("<I", data, data.index(key) + len(key) + 4, 2))
    refused("partial_rotary_factor", 2, "--out_dir=" + turned, "--format=hf", "none")
    # llama.cpp knows Gemma 3 27B by its 62 blocks, whose scores are divided by the root of n_embd / n_head.
    make_model("layers", ("--tokenizer=bytes",), *LLAMA_FLAGS, "--arch=gemma3", "--n_layer=62", "--head_dim=8")
    refused("a query_pre_attn_scalar other than n_embd / n_head", 2, "--out_dir=out-layers", "--format=gguf", "x")
    make_model("layers", ("--tokenizer=bytes",), *LLAMA_FLAGS, "--arch=gemma3", "--n_layer=62", "--head_dim=8", "--query_pre_attn_scalar=6")
    exported("--out_dir=out-layers", "--format=gguf", "layers.gguf")
    exported("--out_dir=layers.gguf", "--format=hf", "back-layers")
    check(read_json("back-layers/config.json")["query_pre_attn_scalar"] == 6, "62 blocks: the root of n_embd / n_head")


def check_import_bad(path):
    data, whole = read(path), Gguf(path)

    def put(at, form, *values):
        return lambda data: struct.pack_into(form, data, at, *values)

    def replace(old, new):
        return lambda data: data.__setitem__(slice(0, len(data)), bytes(data).replace(old, new, 1))
    kind = data.index(b"blk.0.attn_q.weight") + len("blk.0.attn_q.weight") + 4 + 16
    cases = {"version": (put(4, "<I", 9), "version 9"), "tensors": (put(8, "<Q", 1 << 60), "tensors and"), "keys": (put(16, "<Q", 5000), "keys; at most"),
             "a length": (put(24, "<Q", 1 << 62), "the name of a key"), "architecture": (replace(b"\5\0\0\0\0\0\0\0llama", b"\5\0\0\0\0\0\0\0mamba"), "mamba"),
             "a type": (put(kind, "<I", 23), "number 23 of ggml"), "an offset": (put(kind + 4, "<Q", 1 << 61), "begins at byte"),
             "a name": (replace(b"blk.1.ffn_up.weight", b"blk.1.ffn_uq.weight"), "ffn_up.weight: is missing"),
             "a shape": (put(kind - 16, "<Q", 32), "the model needs"), "heads": (replace(b"head_count_kv", b"head_count_kx"), "")}
    for what, (change, text) in cases.items():
        name = changed(path, change)
        for program in ((GPT_SAMPLE, "--init_from=" + name), (GPT_EXPORT, "--out_dir=" + name, "--format=hf", "none")):
            done = run(*program)
            lines = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if ": error" in line]
            check(done.returncode == 2 and len(lines) == 1 and name in lines[0] and text in lines[0], "%s: %d %s" % (what, done.returncode, done.stderr[-300:]))
    for size in (3, 20, 200, 3000, len(data) - 64 - (len(data) - whole.end)):
        name = changed(path, lambda data, size=size: data.__delitem__(slice(size, len(data))))
        refused("", 2, "--out_dir=" + name, "--format=hf", "none")


# ---- bad input ----

def refused(text, status, *arguments, leaves=(), **options):
    before = sorted(os.listdir("."))
    done = run(GPT_EXPORT, *arguments, **options)
    lines = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if ": error" in line]
    check(done.returncode == status and len(lines) == 1 and text in lines[0],
          "%s: exit status %d, %s" % (" ".join(arguments), done.returncode, lines or done.stderr[-200:]))
    check(sorted(os.listdir(".")) == sorted(before + list(leaves)), "%s: left files behind" % " ".join(arguments))


def small_file_limit():
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


def check_usage():
    refused("choose a format: --format=hf, gguf, llmc, peft, ollama or gguf-lora", 2, "--out_dir=out-bpe", "x")
    refused("expected hf, gguf, llmc, peft, ollama or gguf-lora", 2, "--format=onnx", "x")
    refused("float32, bfloat16, float16, q8_0, q6_k, q5_k_m, q5_0, q4_k_m or q4_0", 2, "--format=hf", "--dtype=int8", "x")
    for form in ("hf", "llmc"):
        refused("cannot store q4_k_m; --format=gguf can", 2, "--out_dir=out-bpe", "--format=" + form, "--dtype=Q4_K_M", "x")
    refused("name the OUTPUT", 2, "--out_dir=out-bpe", "--format=hf")
    refused("only one OUTPUT", 2, "--out_dir=out-bpe", "--format=hf", "x", "y")
    refused("no such flag", 2, "--out_dir=out-bpe", "--format=hf", "--quantize", "x")
    refused("cannot store float16", 2, "--out_dir=out-bpe", "--format=llmc", "--dtype=float16", "x")
    refused("no such folder", 2, "--out_dir=nowhere", "--format=gguf", "x")
    refused("folder of a run", 2, "--out_dir=out-bpe", "--format=hf", "--force", "out-bpe")
    before = files("out-bpe")
    model = next(name for name in before if name.startswith("model-"))
    for name in (model, "optimizer-999999.safetensors", "model.safetensors", "trainer_state.json", "config.json", "gpt_tokenizer.json", "tokenizer.json"):
        refused("is a file of a run", 2, "--out_dir=out-bpe", "--format=llmc", "--force", "out-bpe/" + name)
    refused("is a file of a run", 2, "--out_dir=../out-bpe", "--format=gguf", "--force", "config.json", cwd="out-bpe")
    check(files("out-bpe") == before, "a checkpoint was changed")
    refused("is a folder", 2, "--out_dir=out-bpe", "--format=gguf", "--force", "out-bpe")
    refused("is a file, but --format=hf", 2, "--out_dir=out-bpe", "--format=hf", "--force", "text.txt")
    for form in ("hf", "gguf", "llmc"):
        refused("no/such/folder", 1, "--out_dir=out-bpe", "--format=" + form, "no/such/folder/x")
        refused("", 1, "--out_dir=out-bpe", "--format=" + form, "x", preexec_fn=small_file_limit)
    check(b"--format=FORMAT" in must(GPT_EXPORT, "--help") and must(GPT_EXPORT, "--version").startswith(b"gpt-export "),
          "--help or --version")


def model_files(folder):
    """Returns the files of a folder without its model card, which stays (report.py)."""
    return {name: data for name, data in files(folder).items() if name not in ("README.md", "memory.svg")}


def check_force():
    for name in ("bpe", "chars"):
        exported("--out_dir=out-" + name, "--format=llmc", "--dtype=float32", name + "-float32.bin")
    before = read("bpe-float32.bin")
    refused("already exists", 2, "--out_dir=out-chars", "--format=llmc", "bpe-float32.bin")
    refused("already exists", 2, "--out_dir=out-chars", "--format=hf", "again-bpe")
    check(read("bpe-float32.bin") == before, "an output was changed without --force")
    exported("--out_dir=out-chars", "--format=llmc", "--force", "bpe-float32.bin")
    check(read("bpe-float32.bin") == read("chars-float32.bin"), "--force: not the same file")
    write("again-bpe/mine.txt", "mine")
    exported("--out_dir=out-chars", "--format=hf", "--force", "again-bpe/")
    check(model_files("again-bpe") == {**model_files("hf-chars-float32"), "mine.txt": b"mine"}, "--force: not the same folder")


def check_replaced(what, output):
    """Exports twice, to a new folder and over another model."""
    for name in ("chars", "bpe"):
        done = run(GPT_EXPORT, UNJUDGED, "--out_dir=out-" + name, "--format=hf", "--force", output)
        check(done.returncode == 0, "%s: %s" % (what, done.stderr[-300:]))
        check(model_files(output) == model_files("hf-%s-float32" % name), "%s: not the files of %s" % (what, name))


def check_other_disks():
    """OUTPUT is on another file system than its parent folder."""
    os.mkdir("mounted")
    if run("mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", "mounted").returncode == 0:
        try:
            check_replaced("a mounted folder", "mounted")
        finally:
            must("umount", "-l", "mounted")
    else:
        skip("export_mount", "a tmpfs cannot be mounted here (root only)")
    shared = "/dev/shm"
    if not os.access(shared, os.W_OK) or os.stat(shared).st_dev == os.stat(".").st_dev:
        skip("export_link", "%s is not there, or no other file system" % shared)
        return
    with tempfile.TemporaryDirectory(prefix="gpt-train-export-", dir=shared) as folder:
        os.symlink(folder, "linked")
        check_replaced("a link to another disk", "linked")


def check_killed_export():
    """The next export removes what a killed export left, but does not touch what another one is writing."""
    shutil.copytree("hf-chars-float32", "killed/hf")
    for output, aside in (("killed/hf", "killed/hf/gpt-export.tmp"), ("killed/new", "killed/new.gpt-export.tmp")):
        os.mkdir(aside)
        left = ("config.json", "tokenizer_config.json", "model.safetensors.tmp-1")
        for name in left:
            write(aside + "/" + name, "x")
        held = os.open(aside, os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX)
        refused("another export", 2, "--out_dir=out-bpe", "--format=hf", "--force", output)
        check(sorted(os.listdir(aside)) == sorted(left), "what another process holds went: %s" % os.listdir(aside))
        os.close(held)
        exported("--out_dir=out-bpe", "--format=hf", "--force", output)
        check(not os.path.exists(aside) and left[2] not in os.listdir(output), "a killed export left: %s" % os.listdir(output))


def patched(name, change):
    """Makes a copy of a run's folder with changed weights."""
    shutil.rmtree("patched", ignore_errors=True)
    shutil.copytree(name, "patched")
    with open("patched/model.safetensors", "r+b") as file:
        change(file)


def check_damage():
    def last_value(value):
        def change(file):
            file.seek(-4, os.SEEK_END)
            file.write(struct.pack("<f", value))
        return change

    for form in ("hf", "gguf", "llmc"):
        patched("hf-chars-float32", last_value(float("nan")))
        refused("ln_f.bias", 2, "--out_dir=patched", "--format=" + form, "x")
    # This model has no ln_f.bias, so it must be zero; the other model's may be anything.
    patched("hf-bpe-float32", last_value(1e5))
    refused("ln_f.bias: holds 100000, which float16 cannot", 2, "--out_dir=patched", "--format=hf", "--dtype=float16", "x")
    patched("hf-bpe-float32", last_value(3.4e38))
    refused("bfloat16 cannot", 2, "--out_dir=patched", "--format=llmc", "--dtype=bfloat16", "x")
    patched("hf-bpe-float32", last_value(1e5))
    check(run(GPT_EXPORT, UNJUDGED, "--out_dir=patched", "--format=gguf", "--dtype=float16", "kept.gguf").returncode == 0,
          "gguf keeps vectors in float32, so that 1e5 fits")
    record = read_json("out-bpe/trainer_state.json")
    shutil.rmtree("patched")
    shutil.copytree("out-bpe", "patched")
    model = next(name for name in os.listdir("patched") if name.startswith("model-"))
    with open("patched/" + model, "r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(struct.pack("<f", 0.25))
    check(record is not None, "no record")
    refused("checksum", 2, "--out_dir=patched", "--format=gguf", "x")
    shutil.copy("out-chars/gpt_tokenizer.json", "patched/gpt_tokenizer.json")
    refused("tokenizer", 2, "--out_dir=patched", "--format=gguf", "x")


def check_lost_output():
    """When standard output is closed: the status of SIGPIPE, no line, and the export is complete."""
    read, closed = os.pipe()
    os.close(read)
    done = subprocess.run((GPT_EXPORT, "--out_dir=out-chars", "--format=gguf", "lost.gguf"), stdout=closed, stderr=subprocess.PIPE,
                          check=False)
    os.close(closed)
    check(done.returncode == 128 + signal.SIGPIPE and b"error" not in done.stderr and os.path.exists("lost.gguf"),
          "a closed pipe: %s" % done)


def check_no_tokenizer():
    shutil.rmtree("patched")
    shutil.copytree("out-bpe", "patched")
    for name in ("gpt_tokenizer.json", "tokenizer.json", "tokenizer_config.json"):
        os.remove("patched/" + name)
    exported("--out_dir=patched", "--format=gguf", "none.gguf")
    keys = Gguf("none.gguf").keys
    check(keys["tokenizer.ggml.model"] == "none" and keys["gpt2.vocab_size"] == 300 and
          "tokenizer.ggml.tokens" not in keys, "gguf without a tokenizer")
    exported("--out_dir=patched", "--format=hf", "none-hf")
    check(sorted(model_files("none-hf")) == ["config.json", "generation_config.json", "model.safetensors"],
          "hf without a tokenizer: %s" % os.listdir("none-hf"))


def check_evaluation():
    """Exports are opened again and their loss compared, on the run's validation data, else on our own text; a difference is an error."""
    for form, dtype in (("hf", "bfloat16"), ("gguf", "q8_0"), ("llmc", "float32")):
        text = must(GPT_EXPORT, "--out_dir=out-bpe", "--format=" + form, "--dtype=" + dtype, "--force", "judged-" + form).decode()
        losses = [float(word.strip("(,")) for word in text.replace("+", "").split() if word.strip("(,-").replace(".", "").isdigit()][:3]
        check("of the validation data" in text and len(losses) == 3 and abs(losses[0] - losses[1]) < 0.02 and losses[1] > 1, "%s: %s" % (form, text))
    text = must(GPT_EXPORT, "--out_dir=hf-bpe-float32", "--format=gguf", "--evaluate=100", "judged.gguf").decode()
    check("96 tokens of our own text" in text, "another text: %s" % text)
    check(b"loss" not in must(GPT_EXPORT, "--out_dir=out-bpe", "--format=gguf", "--evaluate=0", "--force", "judged.gguf"), "--evaluate=0")
    shutil.copytree("hf-bpe-float32", "other-norm")
    write_json("other-norm/config.json", {**read_json("other-norm/config.json"), "layer_norm_epsilon": 0.9})
    tensors = tensors_read("other-norm/model.safetensors")
    dtype, shape, data = tensors["transformer.ln_f.weight"]
    tensors["transformer.ln_f.weight"] = (dtype, shape, array.array("f", [50 * value for value in array.array("f", data)]).tobytes())
    tensors_write("other-norm/model.safetensors", tensors)
    refused("the loss differs by more than", 1, "--out_dir=other-norm", "--format=llmc", "differs.bin", leaves=("differs.bin",))


# ---- memory ----

def make_large(folder):
    """50 million zero parameters: a sparse file.  The width does not divide the buffers."""
    config = {"model_type": "gpt2", "vocab_size": 50000, "n_positions": 512, "n_embd": 504, "n_layer": 8, "n_head": 8}
    shapes = {"wte.weight": [50000, 504], "wpe.weight": [512, 504], "ln_f.weight": [504], "ln_f.bias": [504]}
    block = {"ln_1.weight": [504], "ln_1.bias": [504], "attn.c_attn.weight": [504, 1512], "attn.c_attn.bias": [1512],
             "attn.c_proj.weight": [504, 504], "attn.c_proj.bias": [504], "ln_2.weight": [504], "ln_2.bias": [504],
             "mlp.c_fc.weight": [504, 2016], "mlp.c_fc.bias": [2016], "mlp.c_proj.weight": [2016, 504],
             "mlp.c_proj.bias": [504]}
    for layer in range(8):
        shapes.update({"h.%d.%s" % (layer, part): shape for part, shape in block.items()})
    os.mkdir(folder)
    write_json(folder + "/config.json", config)
    sizes = {name: 4 * shape[0] * (shape[1] if len(shape) == 2 else 1) for name, shape in shapes.items()}
    offsets = dict(zip(sizes, itertools.accumulate(sizes.values(), initial=0)))
    text = json.dumps({name: {"dtype": "F32", "shape": shape, "data_offsets": [offsets[name], offsets[name] + sizes[name]]}
                       for name, shape in shapes.items()}).encode()
    path = write(folder + "/model.safetensors", struct.pack("<Q", len(text)) + text)
    os.truncate(path, 8 + len(text) + sum(sizes.values()))


def check_rss():
    if is_instrumented(GPT_EXPORT):
        skip("export_rss", "a build with a sanitizer")
        return
    make_large("large")
    for form in ("hf", "gguf", "llmc"):
        process = subprocess.Popen((GPT_EXPORT, "--out_dir=large", "--format=" + form, "--dtype=bfloat16", "--evaluate=0", "large-" + form),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        check(status == 0 and usage.ru_maxrss * 1024 <= RSS_MAX,
              "%s: status %d, %d KiB at the peak" % (form, status, usage.ru_maxrss))
        if form != "hf":
            os.remove("large-" + form)


def main():
    check_rss()  # first: a child's peak includes what this process has when it forks
    models = {"chars": ("--n_layer=2", "--n_head=3", "--n_embd=21", "--block_size=19", "--bias=False", "--gelu=erf"),
              "bytes": ("--n_layer=1", "--n_head=2", "--n_embd=10", "--block_size=33", "--bias=True", "--gelu=tanh",
                        "--vocab_size=260"),
              "bpe": ("--n_layer=3", "--n_head=1", "--n_embd=13", "--block_size=16", "--bias=True", "--gelu=tanh")}
    tokenizers = {"chars": ("--tokenizer=chars",), "bytes": ("--tokenizer=bytes",),
                  "bpe": ("--tokenizer=train", "--vocab-size=300")}
    for name, flags in models.items():
        make_model(name, tokenizers[name], *flags)
        for dtype in ("float32", "bfloat16", "float16"):
            check_hf(name, dtype)
            gguf = check_gguf(name, dtype)
        check_hf_tokens(name)
        check_gguf_tokens(name, gguf)
        check_round_trip(name)
    check_run_tokens(list(models))
    check_llama()
    check_mixtures()
    check_evaluation()
    check_import()
    check_usage()
    check_force()
    check_other_disks()
    check_killed_export()
    check_damage()
    check_lost_output()
    check_no_tokenizer()


end(main)
