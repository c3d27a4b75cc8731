#!/usr/bin/env python3
"""Foreign models as a start: Hugging Face's folders, shards and cache, llm.c's files, nanoGPT's ckpt.pt.

One small run of gpt-train gives weights and moments.  This script writes them in each foreign format by itself, loads
them through gpt-train with a learning rate of 0, and compares every saved tensor, bit for bit.  A ckpt.pt must continue
as the run itself does.  Bad files end with one line and exit status 2, and nothing in them is executed.  PyTorch is not
needed; if there is one (PYTHON_TORCH), its own torch.save() writes a ckpt.pt too.
"""

import array
import collections
import io
import math
import os
import pickle
import random
import re
import shutil
import struct
import subprocess
import sys
import types
import zipfile

from checks import (GPT_EXPORT, GPT_PREPARE, GPT_SAMPLE, GPT_TRAIN, check_named as check, end, error_lines, metrics, ran, read,
                    read_json, skip, tensors_read as read_safetensors, tensors_write as write_safetensors, write, write_json)

V, T, C, L, H = 61, 16, 12, 2, 3
SHAPE = [f"--n_layer={L}", f"--n_head={H}", f"--n_embd={C}", f"--block_size={T}", f"--vocab_size={V}"]
RUN = ["--dataset=./data", "--batch_size=2", "--gradient_accumulation_steps=1", "--eval_iters=1", "--threads=1",
       "--warmup_iters=0", "--lr_decay_iters=100", "--eval_interval=1000"]
STILL = ["--learning_rate=0", "--min_lr=0", "--decay_lr=False", "--max_iters=0"]


def gpt_train(*arguments, env=None):
    done = ran(GPT_TRAIN, *arguments, env=dict(os.environ, **(env or {})))
    return done


# ---- safetensors ----
def floats(raw):
    return array.array("f", raw)


def to_bf16(raw):
    """Rounds to the nearest, ties to even."""
    words = (bits + 0x7fff + (bits >> 16 & 1) >> 16 for bits, in struct.iter_unpack("<I", raw))
    return b"".join(struct.pack("<H", word) for word in words)


def bf16_as_f32(raw):
    return array.array("I", [word << 16 for word in array.array("H", raw)]).tobytes()


def to_f16(raw):
    return b"".join(struct.pack("<e", value) for value in floats(raw))


def f16_as_f32(raw):
    return b"".join(struct.pack("<f", value[0]) for value in struct.iter_unpack("<e", raw))


def transpose(raw, rows, columns, size=4):
    return b"".join(raw[(r * columns + c) * size:(r * columns + c + 1) * size]
                    for c in range(columns) for r in range(rows))


def converted(tensors, dtype, there):
    return {name: (dtype, shape, there(raw)) for name, (_, shape, raw) in tensors.items()}


def write_hf(folder, tensors, config, shards=1):
    os.makedirs(folder)
    write_json(os.path.join(folder, "config.json"), config)
    if shards == 1:
        write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
        return
    weight_map, names = {}, list(tensors)
    for shard in range(shards):
        file_name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in names[shard::shards]}
        weight_map.update(dict.fromkeys(part, file_name))
        write_safetensors(os.path.join(folder, file_name), part)
    write_json(os.path.join(folder, "model.safetensors.index.json"), {"metadata": {"total_size": 1}, "weight_map": weight_map})


def unprefixed(tensors):
    return {name.replace("transformer.", ""): value for name, value in tensors.items()}


# ---- llm.c ----
def write_llmc(path, tensors, version, padded=64, header=None):
    t = unprefixed(tensors)
    bf16 = version == 5

    def pack(raw):
        return to_bf16(raw) if bf16 else raw

    def linear(name, layer):
        _, (rows, columns), raw = t[f"h.{layer}.{name}.weight"]
        return pack(transpose(raw, rows, columns))

    out = pack(t["wte.weight"][2] + bytes(4 * C * (padded - V))) + pack(t["wpe.weight"][2])
    for name in ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"):
        for layer in range(L):
            out += pack(t[f"h.{layer}.{name}.weight"][2]) if name.startswith("ln") else linear(name, layer)
        for layer in range(L):
            out += pack(t[f"h.{layer}.{name}.bias"][2])
    out += pack(t["ln_f.weight"][2]) + pack(t["ln_f.bias"][2])
    words = header or [20240326, version, T, V, L, H, C, padded]
    return write(path, struct.pack("<256i", *(words + [0] * (256 - len(words)))) + out)


# ---- torch.save() without torch ----
def torch_names():
    """Makes modules with the names that torch.save() writes; they cannot compute."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for name in ("FloatStorage", "LongStorage", "HalfStorage", "BFloat16Storage", "BoolStorage"):
        setattr(torch, name, type(name, (), {"__module__": "torch"}))

    def _rebuild_tensor_v2():
        raise NotImplementedError

    _rebuild_tensor_v2.__module__ = "torch._utils"
    _rebuild_tensor_v2.__qualname__ = "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2
    torch._utils = utils
    return torch, utils


TORCH, UTILS = torch_names()


class Storage:
    def __init__(self, raw, kind="FloatStorage", size=4):
        self.raw, self.kind, self.count = raw, getattr(TORCH, kind), len(raw) // size


class Tensor:
    def __init__(self, raw, shape, storage=None, stride=None, first=0, **kind):
        self.storage, self.shape, self.first = storage or Storage(raw, **kind), tuple(shape), first
        step, strides = 1, []
        for size in reversed(self.shape):
            strides.insert(0, step)
            step *= size
        self.stride = stride or tuple(strides)

    def __reduce_ex__(self, protocol):
        return UTILS._rebuild_tensor_v2, (self.storage, self.first, self.shape, self.stride, False,
                                          collections.OrderedDict())


class Pickler(pickle.Pickler):
    def __init__(self, file):
        super().__init__(file, protocol=2)
        self.keys, self.order = {}, []

    def persistent_id(self, obj):
        if not isinstance(obj, Storage):
            return None
        if id(obj) not in self.keys:
            self.keys[id(obj)] = str(len(self.order))
            self.order.append(obj)
        return "storage", obj.kind, self.keys[id(obj)], "cpu", obj.count


def write_zip(path, text, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("ckpt/data.pkl", text)
        archive.writestr("ckpt/byteorder", "little")
        for key, raw in members.items():
            archive.writestr(f"ckpt/data/{key}", raw)
        archive.writestr("ckpt/version", "3\n")


def torch_save(path, value, compression=zipfile.ZIP_STORED):
    saved = {name: sys.modules.get(name) for name in ("torch", "torch._utils")}
    sys.modules.update({"torch": TORCH, "torch._utils": UTILS})
    try:
        buffer = io.BytesIO()
        pickler = Pickler(buffer)
        pickler.dump(value)
    finally:
        for name, module in saved.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
    write_zip(path, buffer.getvalue(), {str(i): storage.raw for i, storage in enumerate(pickler.order)}, compression)


def nanogpt_names():
    names = ["wte", "wpe"]
    for layer in range(L):
        names += [f"h.{layer}.{part}" for part in ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc",
                                                   "mlp.c_proj")]
    return names + ["ln_f"]


def nanogpt_tensor(name, shape, raw, make):
    if len(shape) == 2 and ".h." in name:
        return make(transpose(raw, *shape), shape[::-1])
    return make(raw, shape)


def nanogpt_checkpoint(folder, bias, make=Tensor, prefix=""):
    """Returns our checkpoint in `folder` in nanoGPT's form."""
    state = read_json(os.path.join(folder, "trainer_state.json"))
    weights = read_safetensors(os.path.join(folder, state["files"][0]["name"]))
    moments = read_safetensors(os.path.join(folder, state["files"][1]["name"]))
    model, order = collections.OrderedDict(), ([], [])
    for layer in nanogpt_names():
        for suffix in ("weight", "bias"):
            name = f"transformer.{layer}.{suffix}"
            if name in weights and (bias or suffix == "weight"):
                _, shape, raw = weights[name]
                model[prefix + name] = nanogpt_tensor(name, shape, raw, make)
                order[0 if len(shape) == 2 else 1].append(name)
    model[prefix + "lm_head.weight"] = model[prefix + "transformer.wte.weight"]
    adam, params = {}, []
    for name in order[0] + order[1]:
        entry = {"step": make(struct.pack("<f", state["adam_step"]), ())}
        for field, part in (("exp_avg", "m."), ("exp_avg_sq", "v.")):
            _, shape, raw = moments[part + name]
            entry[field] = nanogpt_tensor(name, shape, raw, make)
        adam[len(adam)] = entry
        params.append(len(params))
    groups = [{"lr": 1e-3, "betas": (0.9, 0.95), "weight_decay": 0.1, "params": params[:len(order[0])]},
              {"lr": 1e-3, "betas": (0.9, 0.95), "weight_decay": 0.0, "params": params[len(order[0]):]}]
    keys = ("dataset", "batch_size", "gradient_accumulation_steps", "learning_rate", "max_iters", "warmup_iters",
            "lr_decay_iters", "min_lr", "eval_interval", "eval_iters", "dropout", "weight_decay", "beta1", "beta2",
            "grad_clip", "decay_lr", "log_interval", "always_save_checkpoint")
    config = {key: state["configuration"][key] for key in keys}
    return {
        "model": model,
        "optimizer": {"state": adam, "param_groups": groups},
        "model_args": {"n_layer": L, "n_head": H, "n_embd": C, "block_size": T, "bias": bias, "vocab_size": V,
                       "dropout": 0.0},
        "iter_num": state["iter"],
        "best_val_loss": make(struct.pack("<f", 3.5), ()),
        "config": dict(config, device="cuda", dtype="bfloat16", compile=True, wandb_log=False, backend="nccl"),
    }


# ---- the tests ----
def losses(folder):
    return [(line["iter"], line["loss"]) for line in metrics(folder)]


def make_data():
    os.makedirs("data")
    value = 1
    for name, count in (("train", 4000), ("val", 500)):
        ids = array.array("H")
        for _ in range(count):
            value = value * 1103515245 + 12345 & 0x7fffffff
            ids.append((value >> 16) % V)
        write(f"data/{name}.bin", ids.tobytes())


def same_weights(name, source, expected, *extra, env=None):
    """Loads `source`, makes an update with a learning rate of 0, and compares the saved tensors."""
    shutil.rmtree("copy", ignore_errors=True)
    done = gpt_train(f"--init_from={source}", "--out_dir=copy", *RUN, *STILL, *extra, env=env)
    check(name + " loads", done.returncode == 0, done.stderr[-600:])
    if done.returncode != 0:
        return
    saved = read_safetensors("copy/model.safetensors")
    # As numbers: the update turns -0 into 0.
    wrong = [key for key, value in expected.items() if key not in saved or saved[key][1] != value[1] or
             floats(saved[key][2]) != floats(value[2])]
    check(name + " gives the same tensors", not wrong and len(saved) == len(expected), str(wrong[:3]))


def loads(base, config):
    write_hf("plain", unprefixed(base), config)
    same_weights("unprefixed", "plain", base)
    head = dict(base, **{"lm_head.weight": base["transformer.wte.weight"]})
    write_hf("untied", head, dict(config, tie_word_embeddings=False))
    same_weights("an untied head that is equal", "untied", base)
    half, brain = converted(base, "F16", to_f16), converted(base, "BF16", to_bf16)
    write_hf("f16", half, config)
    same_weights("float16", "f16", converted(half, "F32", f16_as_f32))
    write_hf("shards", base, config, shards=3)
    same_weights("three shards", "shards", base)
    write_hf("bf16-shards", unprefixed(brain), config, shards=2)
    same_weights("two bfloat16 shards", "bf16-shards", converted(brain, "F32", bf16_as_f32))
    write_llmc("llmc.bin", base, 3)
    same_weights("llm.c float32", "llmc.bin", base)
    write_llmc("llmc16.bin", base, 5)
    same_weights("llm.c bfloat16", "llmc16.bin", converted(brain, "F32", bf16_as_f32))
    write_llmc("llmc61.bin", base, 3, padded=V)
    same_weights("llm.c without padding", "llmc61.bin", base)


def llmc_exports():
    """gpt-export writes what write_llmc() writes; the vocabulary is padded to a multiple of 128."""
    for bias in (False, True):
        tensors = read_safetensors(f"run-{bias}/model.safetensors")
        for dtype, version in (("float32", 3), ("bfloat16", 5)):
            path = write_llmc(f"own-{bias}-{version}.bin", tensors, version, padded=128)
            done = ran(GPT_EXPORT, f"--out_dir=run-{bias}", "--format=llmc", f"--dtype={dtype}", "exported.bin", "--force")
            check(f"llm.c's file, bias {bias}, {dtype}", done.returncode == 0 and read("exported.bin") == read(path), done.stderr)


def cropped(base, config):
    """Crops the model to fewer positions: the first rows, as nanoGPT's crop_block_size."""
    expected = dict(base)
    dtype, shape, raw = base["transformer.wpe.weight"]
    expected["transformer.wpe.weight"] = (dtype, [T // 2, C], raw[:len(raw) // 2])
    same_weights("cropped positions", "plain", expected, f"--block_size={T // 2}")
    same_weights("cropped positions of shards", "shards", expected, f"--block_size={T // 2}")
    same_weights("cropped positions of llm.c's", "llmc.bin", expected, f"--block_size={T // 2}")


def cached(base, config):
    hub = os.path.abspath("hub")
    snapshot = os.path.join(hub, "models--openai-community--gpt2-medium", "snapshots", "0123abcd")
    done = gpt_train("--init_from=gpt2-medium", "--out_dir=copy-none", *RUN, env={"HF_HUB_CACHE": hub})
    lines = error_lines(done)
    check("a missing gpt2-medium", done.returncode == 2 and len(lines) == 1 and hub in lines[0] and
          "hf download openai-community/gpt2-medium" in lines[0], done.stderr)
    write_hf("blobs", unprefixed(base), config)
    os.makedirs(snapshot)
    os.makedirs(os.path.join(hub, "models--openai-community--gpt2-medium", "refs"))
    for name in ("config.json", "model.safetensors"):
        os.symlink(os.path.abspath(os.path.join("blobs", name)), os.path.join(snapshot, name))
    reference = os.path.join(hub, "models--openai-community--gpt2-medium", "refs", "main")
    write(reference, "0123abcd")
    same_weights("the cache", "gpt2-medium", base, env={"HF_HUB_CACHE": hub})
    same_weights("the cache below HF_HOME", "gpt2-medium", base,
                 env={"HF_HUB_CACHE": "", "HF_HOME": make_home(hub)})
    write(reference, "../snapshots/0123abcd")
    done = gpt_train("--init_from=gpt2-medium", "--out_dir=copy-none", *RUN, env={"HF_HUB_CACHE": hub})
    check("a reference that is a path", done.returncode == 2 and done.stderr.count("error:") == 1, done.stderr)
    write_hf("gpt2-large", unprefixed(base), config)
    same_weights("a folder of that name comes first", "gpt2-large", base, env={"HF_HUB_CACHE": "/nonexistent"})


# ---- Llama's family ----
def write_llama(folder, head=None, shards=1, **fields):
    """Writes a random model of one block; `head` is None, "equal" or "other"."""
    source = random.Random(5)

    def tensor(rows, columns=0):
        count = rows * max(columns, 1)
        return "F32", [rows, columns] if columns else [rows], array.array("f", [source.gauss(0, 0.3) for _ in range(count)]).tobytes()

    at = "model.layers.0."
    tensors = {"model.embed_tokens.weight": tensor(fields.get("vocab_size", V), C), "model.norm.weight": tensor(C),
               at + "self_attn.rotary_emb.inv_freq": tensor(2)}
    for name, rows, columns in (("self_attn.q_proj", C, C), ("self_attn.k_proj", C, C), ("self_attn.v_proj", C, C), ("self_attn.o_proj", C, C),
                                ("mlp.gate_proj", 8, C), ("mlp.up_proj", 8, C), ("mlp.down_proj", C, 8)):
        tensors[f"{at}{name}.weight"] = tensor(rows, columns)
    gemma = fields.get("model_type") == "gemma3_text"
    for name in ("input", "post_attention", *(("pre_feedforward", "post_feedforward") if gemma else ())):
        tensors[f"{at}{name}_layernorm.weight"] = tensor(C)
    for name in ("q_norm", "k_norm") if gemma else ():
        tensors[f"{at}self_attn.{name}.weight"] = tensor(C // H)
    if head is not None:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] if head == "equal" else tensor(V, C)
    write_hf(folder, tensors, {"model_type": "llama", "vocab_size": V, "hidden_size": C, "intermediate_size": 8, "num_hidden_layers": 1,
                               "num_attention_heads": H, "num_key_value_heads": H, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
                               "tie_word_embeddings": True, **fields}, shards)


def part_of_vision():
    """The text part of a model that also sees, under both of its names, is the text model; kinds that are not read are named."""
    write_llama("gemma3", model_type="gemma3_text", head_dim=C // H)
    text, tensors = read_json("gemma3/config.json"), read_safetensors("gemma3/model.safetensors")
    wanted = judged("gemma3").stdout
    for number, (at, sees) in enumerate((("language_model.", "vision_tower."), ("model.language_model", "model.vision_tower."))):
        given = {at + (name if at.endswith(".") else name[len("model"):]): value for name, value in tensors.items()}
        given.update({sees + "embeddings.weight": tensors["model.norm.weight"], sees.replace("vision_tower", "multi_modal_projector") + "w": tensors["model.norm.weight"]})
        write_hf(f"sees-{number}", given, {"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 7}, "eos_token_id": [1, 106]})
        done = judged(f"sees-{number}")
        check(f"text part: {at}", done.stdout == wanted != "" and "2 tensors of vision are skipped" in done.stderr, done.stdout + done.stderr)
    for kind in ("gemma2", "gemma3n", "gemma4"):
        write_hf(kind, tensors, {"model_type": kind, "text_config": text})
        done = judged(kind)
        check(f"{kind} is refused", done.returncode == 2 and f'"model_type": "{kind}" is not supported' in done.stderr, done.stderr)
    for number, (field, value, message) in enumerate((("sliding_window", 0, '"sliding_window": expected integer in [1, 2147483647], found 0'), ("sliding_window", -3, "found -3"),
                                  ("use_bidirectional_attention", True, '"use_bidirectional_attention": true'), ("vocab_size", V + 1, "embed_tokens.weight is"),
                                  ("vocab_size", V - 1, "embed_tokens.weight is"), ("final_logit_softcapping", 30.0, '"final_logit_softcapping": 30'))):
        write_hf(f"bad-gemma-{number}", tensors, {**text, field: value})
        done = judged(f"bad-gemma-{number}")
        check(f"bad gemma: {field} {value}", done.returncode == 2 and message in done.stderr, done.stderr)


def part_of_qwen3_5():
    """The text part of a Qwen3.5, without what sees and what predicts several tokens; a weight of another shape is refused."""
    source, at, keys, values, size = random.Random(7), "model.layers.0.linear_attn.", 1, 2, 6
    every = (2 * keys + values) * size
    shapes = {"in_proj_qkv.weight": [every, C], "in_proj_z.weight": [values * size, C], "in_proj_b.weight": [values, C], "in_proj_a.weight": [values, C],
              "conv1d.weight": [every, 1, 4], "A_log": [values], "dt_bias": [values], "norm.weight": [size], "out_proj.weight": [C, values * size]}
    write_llama("attention-35", model_type="llama")
    tensors = {name: value for name, value in read_safetensors("attention-35/model.safetensors").items() if "self_attn" not in name}
    tensors.update({at + name: ("F32", shape, array.array("f", [source.gauss(0, 0.3) for _ in range(math.prod(shape))]).tobytes())
                    for name, shape in shapes.items()})
    fields = read_json("attention-35/config.json")
    text = {**fields, "model_type": "qwen3_5_text", "head_dim": 8, "linear_num_key_heads": keys, "linear_num_value_heads": values,
            "linear_key_head_dim": size, "linear_value_head_dim": size, "mtp_num_hidden_layers": 1}
    write_hf("text-35", tensors, text)
    wanted = judged("text-35")
    other = {"model.visual.blocks.0.norm1.weight": tensors["model.norm.weight"], "mtp.fc.weight": tensors["model.norm.weight"], "mtp.norm.weight": tensors["model.norm.weight"]}
    given = {name.replace("model.", "model.language_model.", 1): value for name, value in tensors.items()}
    whole = {"model_type": "qwen3_5", "text_config": text, "vision_config": {"depth": 1}, "image_token_id": 3}
    write_hf("sees-35", {**given, **other}, whole)
    done = judged("sees-35")
    check("text part of Qwen3.5", done.stdout == wanted.stdout != "" and "1 tensors of vision are" in done.stderr and "2 tensors of multi-token" in done.stderr, done.stdout + done.stderr + wanted.stderr)
    write_hf("alone-35", {**tensors, **{name: value for name, value in other.items() if name.startswith("mtp.")}}, text)
    done = judged("alone-35")
    check("Qwen3.5 without text_config", done.stdout == wanted.stdout and "2 tensors of multi-token" in done.stderr and "vision" not in done.stderr, done.stdout + done.stderr)
    gone = "model.language_model.layers.0.linear_attn.dt_bias"
    for number, (name, changed) in enumerate((("linear_attn.conv1d.weight is", {at + "conv1d.weight": ("F32", [every, 4], given["model.language_model.layers.0.linear_attn.conv1d.weight"][2])}),
                                              (gone.replace("language_model.", ""), {at + "dt_bias": None}))):
        bad = {**tensors, **changed}
        write_hf(f"bad-35-{number}", {key: value for key, value in bad.items() if value}, text)
        done = judged(f"bad-35-{number}")
        check(f"bad Qwen3.5: {name}", done.returncode == 2 and name in done.stderr and len(error_lines(done)) == 1, done.stderr)
    for number, (field, value, message) in enumerate((("linear_key_head_dim", 5, '"linear_key_head_dim": 5'), ("attn_output_gate", False, '"attn_output_gate": false'),
                                                      ("linear_num_value_heads", 0, "linear_num_value_heads"), ("linear_conv_kernel_dim", 9, "linear_conv_kernel_dim must be 2 to 8"),
                                                      ("linear_num_key_heads", 3, "in_proj_qkv.weight is"), ("layer_types", ["sliding_attention"], '"layer_types"'),
                                                      ("hidden_act", "gelu", '"hidden_act"'))):
        taps = {at + "conv1d.weight": ("F32", [every, 1, 9], bytes(4 * 9 * every))} if value == 9 else {}
        write_hf(f"field-35-{number}", {**tensors, **taps}, {**text, field: value})
        done = judged(f"field-35-{number}")
        check(f"bad Qwen3.5: {field} {value}", done.returncode == 2 and message in done.stderr, done.stderr)


def resumes_a_mixture():
    """A resumed run may repeat the flags of a model whose properties are nearer to another architecture."""
    flags = [*RUN, *SHAPE, "--arch=llama", "--norm=layernorm", "--mlp=gelu", "--out_dir=mixture"]
    gpt_train(*flags, "--max_iters=1", "--always_save_checkpoint=True")
    done = gpt_train(*flags, "--max_iters=2", "--init_from=resume")
    check("a mixture is resumed with its flags", done.returncode == 0 and "iter 2: " in done.stdout, done.stderr)


def judged(source, *arguments):
    return gpt_train(f"--init_from={source}", "--eval_data=data/val.bin", "--dtype=float32", "--threads=1", *arguments)


def contexts():
    """--eval_data measures with block_size; a context within a window is as without one, beyond it is not."""
    write_llama("long", max_position_embeddings=131072)
    write_llama("short")
    results = [judged("long", *arguments).stdout for arguments in ((), ("--block_size=8",), ("--eval_block_size=8",))]
    check("--eval_data with 131,072 positions", "loss" not in results[0] and results[1] == results[2] != "", str(results))
    with open("data/more.bin", "wb") as file:
        file.write(read("data/val.bin") * 3)
    results = [judged("long", "--eval_data=data/more.bin", *arguments).stdout for arguments in ((), ("--block_size=1024",), ("--block_size=512",))]
    check("--eval_data: 1,024 positions", results[0] == results[1] != results[2] and "1499 tokens" in results[0], str(results))
    check("--eval_data: all positions", judged("short").stdout == judged("short", "--block_size=64").stdout != "")
    done = judged("plain", f"--block_size={T + 1}")
    check("--eval_data beyond a table", done.returncode == 2 and f"block_size={T + 1} is larger" in done.stderr, done.stderr)
    done = judged("plain", "--block_size=4")
    check("--eval_data with less of a table", done.returncode == 0 and done.stdout == judged("plain", "--eval_block_size=4").stdout, done.stderr)
    write_llama("mistral", model_type="mistral", sliding_window=24)
    write_llama("no-window", model_type="mistral", sliding_window=None)
    ways = {"train": lambda *arguments: gpt_train("--init_from=mistral", "--out_dir=w", *RUN, *STILL, *arguments),
            "evaluate": lambda *arguments: gpt_train("--init_from=mistral", "--out_dir=w", *RUN, "--eval_only=True", *arguments),
            "judge": lambda *arguments: judged("mistral", *arguments)}
    for name, way in ways.items():
        for arguments in ((), ("--block_size=24",)):
            done = way(*arguments)
            check(f"window: {name} {arguments}", done.returncode == 0 and "warning" not in done.stderr, done.stderr)
    for block, equal in ((20, True), (24, True), (25, False)):
        results = [judged(source, f"--block_size={block}").stdout for source in ("mistral", "no-window")]
        check(f"window: {block} tokens", (results[0] == results[1]) == equal and "" not in results, str(results))
    done = sample("mistral", "--max_new_tokens=30")
    check("window: 30 tokens sampled", done.returncode == 0 and "window" not in done.stderr, done.stderr)


def sample(source, *arguments):
    return ran(GPT_SAMPLE, f"--init_from={source}", "--tokenizer=characters", "--start=0", "--num_samples=1", *arguments)


def vocabularies():
    """A tokenizer may have fewer tokens than the embedding has rows, not more."""
    for rows, status, words in ((V + 3, 0, ""), (V - 2, 2, f"outside the vocabulary of {V - 2}")):
        source = f"rows-{rows}"
        write_llama(source, vocab_size=rows)
        done = gpt_train(f"--init_from={source}", f"--out_dir=out-{source}", *RUN, *STILL)
        check(f"{rows} rows and {V} tokens: trained", done.returncode == status and words in done.stderr, done.stderr)
        done = sample(source, "--max_new_tokens=5")
        words = status and f"this tokenizer has {V} tokens, the model only {rows}"
        check(f"{rows} rows and {V} tokens: sampled", done.returncode == status and (words or "") in done.stderr, done.stderr)


def heads():
    """A head of the file is used if it differs from the embedding, whatever the configuration says."""
    write_llama("tied")
    write_llama("head-other", head="other")
    write_llama("head-shards", head="other", shards=3)
    write_llama("head-untied", head="other", tie_word_embeddings=False)
    write_llama("head-equal", head="equal")
    texts = {}
    for name in ("tied", "head-equal", "head-untied", "head-other", "head-shards"):
        done = judged(name)
        sampled = sample(name, "--temperature=0", "--max_new_tokens=20")
        exported = ran(GPT_EXPORT, f"--out_dir={name}", "--format=hf", f"hf-{name}")
        check(f"{name}: read", done.returncode == sampled.returncode == exported.returncode == 0,
              done.stderr + sampled.stderr + exported.stderr)
        for each in (done, sampled, exported):
            check(f"{name}: one note", each.stderr.count("lm_head.weight differs") == (name in ("head-other", "head-shards")), each.stderr)
        own = "lm_head.weight" in read_safetensors(f"hf-{name}/model.safetensors")
        check(f"{name}: exported", own == (name not in ("tied", "head-equal")) == (not read_json(f"hf-{name}/config.json")["tie_word_embeddings"]))
        texts[name] = done.stdout, sampled.stdout
    check("heads: the embedding", texts["tied"] == texts["head-equal"] != texts["head-untied"], str(texts))
    check("heads: their own", texts["head-untied"] == texts["head-other"] == texts["head-shards"], str(texts))
    # The names that safetensors.torch.save_model(), AutoModel, and wrappers save.
    tensors = read_safetensors("tied/model.safetensors")
    for name, rename in (("save_model()", lambda key: key.replace("model.embed_tokens", "lm_head")), ("AutoModel", lambda key: key[len("model."):]),
                         ("wrappers", lambda key: "base_model.model._orig_mod." + key)):
        shutil.copytree("tied", "renamed", dirs_exist_ok=True)
        write_safetensors("renamed/model.safetensors", {rename(key): value for key, value in tensors.items()})
        done = judged("renamed")
        check(f"heads: names of {name}", done.returncode == 0 and done.stdout == texts["tied"][0], done.stdout + done.stderr)
    done = gpt_train("--init_from=head-other", "--out_dir=h", *RUN, *STILL)
    check("heads: trained", done.returncode == 0 and read_safetensors("h/model.safetensors")["lm_head.weight"] ==
          read_safetensors("head-other/model.safetensors")["lm_head.weight"], done.stderr)
    write_llama("strange", mup_scale=0.5)
    for done in (judged("strange"), gpt_train("--init_from=strange", "--out_dir=h", *RUN, "--eval_only=True")):
        check("an unknown field is named", done.returncode == 0 and done.stderr.count('"mup_scale": 0.5: not known here') == 1, done.stderr)


def make_home(hub):
    os.makedirs("home")
    os.symlink(hub, "home/hub")
    return os.path.abspath("home")


def continues(name, folder, source, *extra):
    """A run from `source` has the losses of the run that `folder` resumes, digit for digit."""
    for out in ("a", "b"):
        shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(folder, "a")
    first = gpt_train("--init_from=resume", "--out_dir=a", "--max_iters=9", "--threads=1")
    second = gpt_train(f"--init_from={source}", "--out_dir=b", "--max_iters=9", "--threads=1", *extra)
    if first.returncode != 0 or second.returncode != 0:
        check(name, False, first.stderr[-300:] + second.stderr[-600:])
        return
    expected = [pair for pair in losses("a") if pair[0] >= 6]
    check(name, losses("b") == expected and len(expected) == 4, f"{losses('b')} {expected}")
    same = read_safetensors("a/model.safetensors") == read_safetensors("b/model.safetensors")
    check(name + ": the weights", same)


def nanogpt_continues():
    for bias in (False, True):
        folder = f"run-{bias}"
        torch_save(f"ckpt-{bias}.pt", nanogpt_checkpoint(folder, bias))
        continues(f"ckpt.pt, bias {bias}", folder, f"ckpt-{bias}.pt")
    for number, prefix in enumerate(("_orig_mod.", "module.", "_orig_mod.module.", "module._orig_mod.")):
        torch_save("wrapped.pt", nanogpt_checkpoint("run-False", False, prefix=prefix))
        if number % 2 == 0:
            continues(f"ckpt.pt with {prefix}", "run-False", "wrapped.pt")
        else:
            done = gpt_train("--init_from=wrapped.pt", "--out_dir=copy", "--max_iters=6", "--threads=1")
            check(f"ckpt.pt with {prefix}", done.returncode == 0, done.stderr)
    nanogpt_variants()
    os.makedirs("nano")
    shutil.copy("ckpt-True.pt", "nano/ckpt.pt")
    continues("a folder with ckpt.pt", "run-True", "nano")
    shutil.rmtree("b")
    shutil.copytree("nano", "b")
    done = gpt_train("--init_from=resume", "--out_dir=b", "--max_iters=9", "--threads=1")
    check("resume of a nanoGPT folder", done.returncode == 0 and "iter 6: " in done.stdout and
          os.path.exists("b/trainer_state.json"), done.stderr)
    done = gpt_train("--init_from=ckpt-True.pt", "--resume_state=False", "--out_dir=c", *RUN, *STILL)
    check("weights alone", done.returncode == 0 and "iter 0: " in done.stdout, done.stderr)
    check("weights alone: the same", read_safetensors("c/model.safetensors") ==
          read_safetensors("run-True/model.safetensors"))


def nanogpt_variants():
    """Checkpoints that others' scripts write: what is read, what is refused, and the way on."""
    alone = "--resume_state=False takes the weights alone"

    def half(value):
        words = to_bf16(value["model"]["transformer.wpe.weight"].storage.raw)
        value["model"]["transformer.wpe.weight"] = Tensor(words, (T, C), kind="BFloat16Storage", size=2)

    def masked(value):
        for layer in range(L):
            value["model"][f"transformer.h.{layer}.attn.bias"] = Tensor(bytes(T * T), (1, 1, T, T), kind="BoolStorage", size=1)

    def compiled_blocks(value):
        value["model"] = {"module." + name.replace("h.1.", "h.1._orig_mod."): tensor for name, tensor in value["model"].items()}

    def group(**fields):
        return lambda value: value["optimizer"]["param_groups"][1].update(fields)

    cases = [("no optimizer", lambda value: value.pop("optimizer") and None, (alone,)),
             ("an optimizer that is None", lambda value: value.update(optimizer=None), (alone,)),
             ("no config", lambda value: value.pop("config") and None, (alone,)),
             ("no iter_num", lambda value: value.pop("iter_num") and None, ("iter_num", alone)),
             ("halves", half, ("BF16", "--convert_states=True", "--resume_state=False takes the weights alone")),
             ("amsgrad", group(amsgrad=True), ("amsgrad", alone)),
             ("Adam", group(decoupled_weight_decay=False, weight_decay=0.1), ("AdamW", alone)),
             ("no best_val_loss", lambda value: value.pop("best_val_loss") and None, None),
             ("no loss yet", lambda value: value.update(best_val_loss=float("inf")), None),
             ("a best loss in float16", lambda value: value.update(best_val_loss=Tensor(struct.pack("<e", 3.5), (), kind="HalfStorage", size=2)), None),
             ("masks of truth values", masked, None),
             ("compiled blocks", compiled_blocks, None)]
    for name, change, words in cases:
        value = nanogpt_checkpoint("run-True", True)
        change(value)
        torch_save("bad.pt", value)
        if words is not None:
            refused(name, "bad.pt", *words)
            done = gpt_train("--init_from=bad.pt", "--resume_state=False", "--out_dir=c", *RUN, *STILL)
        else:
            done = gpt_train("--init_from=bad.pt", "--out_dir=c", "--max_iters=6", "--threads=1")
        check(f"{name}: read", done.returncode == 0 and "warning" not in done.stderr, done.stderr)
        shutil.rmtree("c", ignore_errors=True)
    value = nanogpt_checkpoint("run-True", True)
    value["optimizer"]["param_groups"][0]["betas"] = (0.9, 0.97)
    torch_save("bad.pt", value)
    done = gpt_train("--init_from=bad.pt", "--out_dir=c", "--max_iters=6", "--threads=1")
    check("the optimizer's betas", read_json("c/trainer_state.json")["configuration"]["beta2"] == 0.97 and "has beta2=0.97" in done.stderr, done.stderr)
    shutil.rmtree("c")
    torch_save("bad.pt", {"model_state_dict": value["model"], "step": 3})
    refused("other names", "bad.pt", 'no dict "model_args"', '"n_layer"', "--resume_state=False")
    value = nanogpt_checkpoint("run-True", True)
    half(value)
    torch_save("bad.pt", value)
    done = gpt_train("--init_from=bad.pt", "--convert_states=True", "--out_dir=c", "--max_iters=6", "--threads=1")
    check("halves that are converted", done.returncode == 0 and "iter 6: " in done.stdout, done.stderr)
    value = nanogpt_checkpoint("run-True", True)
    value["model_args"].update(reluify=True, pos="rotary", window=None, scale=0.5, layers=[1, 2])
    torch_save("bad.pt", value)
    for arguments in ([], ["--eval_only=True"], ["--resume_state=False"]):
        done = gpt_train("--init_from=bad.pt", "--out_dir=c", *RUN, "--max_iters=6", *arguments)
        named = 'field "model_args": reluify=True, pos="rotary", window=None, scale=0.5, layers=[...]: not known here and ignored'
        check(f"unknown model_args {arguments}", done.returncode == 0 and done.stderr.count(named) == 1 and
              done.stderr.count("warning") == 1, done.stderr)


def nanogpt_over_another():
    """Continues a ckpt.pt in the folder of another run without saving: that run's files are unchanged."""
    write("characters.txt", "".join(chr(ord("0") + number) for number in range(V)) * 9)
    subprocess.run([GPT_PREPARE, "--tokenizer=chars", "--out-dir=characters", "characters.txt"], check=True,
                   capture_output=True)
    shutil.copy("characters/gpt_tokenizer.json", "data")
    shutil.rmtree("b", ignore_errors=True)
    shutil.copytree("run-False", "b")
    write("b/gpt_tokenizer.json", "of another run")
    before = read("b/metrics.jsonl")
    done = gpt_train("--init_from=ckpt-True.pt", "--out_dir=b", "--max_iters=6", "--always_save_checkpoint=False",
                     "--eval_interval=100")
    check("over another run", done.returncode == 0, done.stderr)
    kept = [name for name in os.listdir("b") if re.fullmatch(r"metrics-[0-9a-f]{8}\.jsonl", name)]
    check("over another run: its metrics wait", len(kept) == 1 and read(f"b/{kept[0]}") == before, str(kept))
    check("over another run: metrics of its own", [pair[0] for pair in losses("b")] == [6], str(losses("b")))
    check("over another run: its tokenizer", read("b/gpt_tokenizer.json") == b"of another run")
    os.remove("data/gpt_tokenizer.json")


def nanogpt_samples():
    """Like nanoGPT's sample.py, our programs take the characters from data/DATASET/meta.pkl, but as data."""
    checkpoint = nanogpt_checkpoint("run-True", True)
    checkpoint["config"]["dataset"] = "characters_of_pickle"
    os.makedirs("of-pickle")
    torch_save("of-pickle/ckpt.pt", checkpoint)
    letters = sorted(set("\n abcdefghijklmnopqrstuvwxyzäöüßÄÖÜ日本語の文を書くABCDEFGHIJKLMNOPQR"))
    folder = "data/characters_of_pickle"
    os.makedirs(folder)
    meta = {"vocab_size": len(letters), "itos": dict(enumerate(letters)), "stoi": {c: i for i, c in enumerate(letters)}}

    def sample(*arguments):
        return subprocess.run([GPT_SAMPLE, "--num_samples=1", "--max_new_tokens=40", "--start=ab", *arguments],
                              capture_output=True, text=True, encoding="utf-8", check=False)

    done = sample("--out_dir=of-pickle")
    check("nanoGPT's run without meta.pkl", done.returncode == 2 and done.stdout == "" and
          "of-pickle: the model has no tokenizer; name one with --tokenizer" in done.stderr, done.stderr)
    for protocol in (2, 4, 5):
        write(folder + "/meta.pkl", pickle.dumps(meta, protocol))
        done = sample("--out_dir=of-pickle")
        text = done.stdout.split("\n---------------")[0]
        check(f"nanoGPT's run with meta.pkl, protocol {protocol}", done.returncode == 0 and len(text) == 42 and
              text.startswith("ab") and set(text) <= set(letters) and folder + "/meta.pkl" in done.stderr, done.stderr)
    named = sample("--init_from=of-pickle/ckpt.pt", f"--tokenizer={folder}/meta.pkl")
    check("meta.pkl by name", named.returncode == 0 and named.stdout == done.stdout, named.stderr)
    swapped = dict(meta, itos={**meta["itos"], 0: letters[1], 1: letters[0]})
    for name, bad, words in (("none", {"vocab_size": 3}, 'has no "itos"'), ("swapped", swapped, "item 1"),
                             ("words", {"itos": {0: "ab"}}, "item 0"), ("ids", {"itos": {1: "a"}}, "item 0"),
                             ("code", {"itos": Evil(os.system, "touch executed")}, "refused, nothing was run")):
        write(folder + "/meta.pkl", pickle.dumps(bad))
        done = sample("--out_dir=of-pickle")
        check("a bad meta.pkl: " + name, done.returncode == 2 and words in done.stderr and
              done.stderr.count("error:") == 1, done.stderr)
    shutil.rmtree(folder)


def torch_writes():
    """The same through PyTorch's own torch.save()."""
    python = os.environ.get("PYTHON_TORCH", "no")
    if python == "no":
        skip("models_in_torch", "no Python with PyTorch (Debian: python3-torch)")
        return
    plain = nanogpt_checkpoint("run-True", True, make=lambda raw, shape, **_: ("tensor", raw, tuple(shape)))
    write("plain.pickle", pickle.dumps(plain))
    script = """
import pickle, torch
made = {}
def make(value):
    if isinstance(value, tuple) and value and value[0] == "tensor":
        if id(value) not in made:
            made[id(value)] = torch.frombuffer(bytearray(value[1]), dtype=torch.float32).reshape(value[2]).clone()
        return made[id(value)]
    if isinstance(value, dict):
        return type(value)((key, make(item)) for key, item in value.items())
    return [make(item) for item in value] if isinstance(value, list) else value
plain = pickle.load(open("plain.pickle", "rb"))
torch.save(make(plain), "torch.pt")
torch.save(make(plain), "torch-old.pt", _use_new_zipfile_serialization=False)
"""
    done = ran(python, "-c", script)
    check("torch.save()", done.returncode == 0, done.stderr)
    continues("ckpt.pt of torch.save()", "run-True", "torch.pt")
    refused("the format of before PyTorch 1.6", "torch-old.pt", "before 1.6")
    again("the format of before PyTorch 1.6", python, "torch-old.pt")
    write("odd.py", script.replace('torch.save(make(plain), "torch.pt")', """
import argparse, pathlib
plain = make(plain)
weight = plain["model"]["transformer.wpe.weight"]
plain["model"]["transformer.wpe.weight"] = weight.t().contiguous().t()
plain.update(iter_num=torch.tensor(plain["iter_num"]), args=argparse.Namespace(lr=1), best_val_loss=torch.tensor(3.5).double(),
             config=argparse.Namespace(**plain["config"], data=pathlib.Path("/x")), model_args=argparse.Namespace(**plain["model_args"]))
torch.save(plain, "odd.pt")
"""))
    done = ran(python, "odd.py")
    check("an odd torch.save()", done.returncode == 0, done.stderr)
    again("other objects", python, "odd.pt")


def again(name, python, source):
    """A refused checkpoint continues after the command of the refusal has saved it again."""
    done = gpt_train(f"--init_from={source}", "--out_dir=bad", *RUN, "--max_iters=0")
    command = re.search(r"save its plain content again: python3 -c '(.*)' IN.pt OUT.pt$", done.stderr.strip())
    check(f"{name}: the line that saves it again", command is not None, done.stderr)
    if command is not None:
        done = ran(python, "-c", command[1], source, "again.pt")
        check(f"{name}: saved again", done.returncode == 0, done.stderr)
        continues(f"{name}, saved again", "run-True", "again.pt")


def refused(name, source, *words, statuses=(2,)):
    done = gpt_train(f"--init_from={source}", "--out_dir=bad", *RUN, "--max_iters=0")
    lines = error_lines(done)
    good = done.returncode in statuses and len(lines) == 1 and all(word in lines[0] for word in words)
    check(f"refused: {name}", good, f"{done.returncode} {done.stderr[-500:]}")
    check(f"refused: {name}: nothing is left", not os.path.exists("bad") or os.listdir("bad") in ([], ["lock"]))


def bad_shards(base, config):
    def index(name, change):
        shutil.rmtree(name, ignore_errors=True)
        write_hf(name, base, config, shards=2)
        path = os.path.join(name, "model.safetensors.index.json")
        value = read_json(path)
        write_json(path, change(value) or value)

    wte, second = "transformer.wte.weight", "model-00002-of-00002.safetensors"
    named = [(f"shard name {bad[:20]!r}", lambda value, bad=bad: value["weight_map"].update({wte: bad}),
              (wte, "model.safetensors.index.json")) for bad in ("../model-00001-of-00002.safetensors", "/etc/passwd.safetensors", "",
                                                                 ".safetensors", "a.bin", "x" * 300)]
    for number, (name, change, words) in enumerate([
            *named,
            ("a tensor in another shard", lambda value: value["weight_map"].update({wte: second}), ("model-00001-of-00002", wte)),
            ("a tensor that the index lacks", lambda value: value["weight_map"].pop(wte) and None, (wte,)),
            ("a tensor that no shard has", lambda value: value["weight_map"].update({"transformer.h.0.extra": second}),
             ("transformer.h.0.extra", second)),
            ("a number for a shard", lambda value: value["weight_map"].update({wte: 7}), (wte,)),
            ("100,000 entries", lambda value: {"weight_map": {f"t{i}": "a.safetensors" for i in range(100000)}}, ("100000 tensors",)),
            ("an index that is a list", lambda value: [1], ("model.safetensors.index.json",)),
            ("no weight_map", lambda value: {"metadata": {}}, ("weight_map",))]):
        index(f"s{number}", change)
        refused(name, f"s{number}", f"s{number}", *words)
    index("missing", lambda value: None)
    os.unlink("missing/" + second)
    refused("a missing shard", "missing", f"missing/{second}", statuses=(1, 2))
    index("empty", lambda value: None)
    write_safetensors("empty/" + second, {})
    refused("an empty shard", "empty", second)


def bad_llmc(base):
    def variant(position, value, version=3):
        words = [20240326, version, T, V, L, H, C, 64]
        words[position] = value
        write_llmc("bad.bin", base, version, header=words)

    for position, value, word in ((1, 4, "version 4"), (2, 0, "max_seq_len"), (3, -5, "vocab_size"), (3, 65, "vocab_size"),
                                  (4, 2 ** 30, "num_layers"), (5, 5, "num_heads"), (6, 2 ** 31 - 1, "channels"),
                                  (7, 32, "padded_vocab_size"), (7, 72, "bytes"), (4, 3, "bytes long"), (4, 1000, "bytes long"),
                                  (2, 16777216, "bytes long")):
        variant(position, value)
        refused(f"llm.c header[{position}] = {value}", "bad.bin", "bad.bin", *([word] if word else []))
    write_llmc("bad.bin", base, 3)
    write("bad.bin", read("bad.bin") + b"1234")
    refused("llm.c, four bytes too many", "bad.bin", "bytes long")
    write("bad.bin", struct.pack("<8i", 20240326, 3, T, V, L, H, C, 64))
    refused("llm.c, a header cut short", "bad.bin", "32 bytes")


class Evil:
    """An attacker's pickle: it calls a function when it is loaded."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def bad_pickles():
    good = nanogpt_checkpoint("run-True", True)

    def text_of(value, protocol=2):
        return pickle.dumps(value, protocol=protocol)

    for protocol in (2, 4):
        write_zip("bad.pt", text_of({"model": Evil(os.system, "touch executed")}, protocol), {})
        refused(f"os.system, protocol {protocol}", "bad.pt", "posix.system")
        write_zip("bad.pt", text_of([Evil(eval, "open('executed', 'w')")], protocol), {})
        refused(f"eval, protocol {protocol}", "bad.pt", "eval")
    nested = Evil(os.system, "touch executed")
    for _ in range(50):
        nested = Evil(collections.OrderedDict, [("x", nested)])
    write_zip("bad.pt", text_of(nested), {})
    refused("nested reduce", "bad.pt", "bad.pt: data.pkl")
    for name, text in (("memo bomb", b"\x80\x02]r\xff\xff\xff\xff."), ("get before put", b"\x80\x02h\x05."),
                       ("deep marks", b"\x80\x02" + b"(" * 100000 + b"."), ("pop of nothing", b"\x80\x02R."),
                       ("a text of 4 GiB", b"\x80\x02X\xff\xff\xff\xffabc."), ("no stop", b"\x80\x02}"),
                       ("an opcode of classes", b"\x80\x02(ios\nsystem\n."), ("EXT1", b"\x80\x02\x82\x01."),
                       ("NEWOBJ", b"\x80\x02ctorch\nFloatStorage\n)\x81."), ("empty", b""), ("a list", b"\x80\x02]."),
                       ("a persistent id of text", b"\x80\x02X\x01\x00\x00\x00aQ."),
                       ("a call of a list", b"\x80\x02])R."), ("bytes after the end", b"\x80\x02}.}.")):
        write_zip("bad.pt", text, {})
        refused(name, "bad.pt", "bad.pt")
    doubling = b"\x80\x02]q\x00" + b"".join(b"(h" + bytes([i]) + b"h" + bytes([i]) + b"tq" + bytes([i + 1])
                                            for i in range(100)) + b"."
    write_zip("bad.pt", doubling, {})
    refused("a doubling memo", "bad.pt", "bad.pt")

    def change(name, function, *words):
        value = nanogpt_checkpoint("run-True", True)
        torch_save("bad.pt", function(value) or value)
        refused(name, "bad.pt", *words)

    wte = "transformer.wte.weight"
    for key in good:
        if key != "best_val_loss":
            change(f"no {key}", lambda value, key=key: value.pop(key) and None, key)
    def weight(name, raw, shape, **how):
        return lambda value: value["model"].update({name: Tensor(bytes(raw), shape, **how)})

    size = 4 * V * C
    for name, function, word in (
            ("n_layer is text", lambda value: value["model_args"].update(n_layer="2"), "n_layer"),
            ("n_embd overflows", lambda value: value["model_args"].update(n_embd=2 ** 62), "n_embd"),
            ("n_head does not divide", lambda value: value["model_args"].update(n_head=5), "n_head"),
            ("another shape", weight(wte, 4 * C * 60, (60, C)), "wte.weight"),
            ("a tensor is missing", lambda value: value["model"].pop("transformer.h.1.ln_2.bias") and None, "h.1.ln_2.bias"),
            ("a name with a slash", weight("../x", 4, (1,)), "name"),
            ("an unknown tensor", weight("transformer.x", 4, (1,)), "transformer.x"),
            ("int64 weights", weight(wte, 2 * size, (V, C), kind="LongStorage", size=8), wte),
            ("beyond its storage", weight(wte, size, (V + 1, C)), "beyond its storage"),
            ("an offset beyond its storage", weight(wte, size, (V, C), first=1), "beyond its storage"),
            ("sizes that overflow", weight(wte, size, (2 ** 62, 2 ** 62)), "64 bits"),
            ("columns first", weight(wte, size, (V, C), stride=(1, V)), "row by row"),
            ("a head of its own", weight("lm_head.weight", size, (V, C)), "lm_head.weight"),
            ("steps that differ", lambda value: value["optimizer"]["state"][3].update(step=99), "step"),
            ("half a step", lambda value: value["optimizer"]["state"][0].update(step=0.5), "step"),
            ("no moment", lambda value: value["optimizer"]["state"][3].pop("exp_avg_sq") and None, "exp_avg_sq"),
            ("a state too few", lambda value: value["optimizer"]["state"].pop(3) and None, "optimizer"),
            ("one group", lambda value: value["optimizer"]["param_groups"].pop() and None, "param_groups"),
            ("a parameter too many", lambda value: value["optimizer"]["param_groups"][0]["params"].append(1), "optimizer"),
            ("moments of another shape", lambda value: value["optimizer"]["state"][0].update(exp_avg=Tensor(bytes(4 * C), (C,))),
             "m.transformer.wte.weight"),
            ("a learning rate that is a list", lambda value: value["config"].update(learning_rate=[1]), "learning_rate"),
            ("a batch size of 0", lambda value: value["config"].update(batch_size=0), "batch_size")):
        change(name, function, word)
    value = nanogpt_checkpoint("run-True", True)
    value["model"][wte].storage.raw = value["model"][wte].storage.raw[:-4]
    torch_save("bad.pt", value)
    refused("a storage that is shorter than it says", "bad.pt", wte)
    torch_save("bad.pt", good, zipfile.ZIP_DEFLATED)
    refused("compressed", "bad.pt", "compressed")
    bad_archives()


def bad_archives():
    whole = read("ckpt-True.pt")
    with zipfile.ZipFile("ckpt-True.pt") as archive:
        members = [(info.filename, info.header_offset + 30 + len(info.filename), info.file_size) for info in archive.infolist()]
    for name, first, size in members[:-1]:  # the last member, "version", is not read
        at = first + size // 2
        write("bad.pt", whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
        refused(f"a flipped bit in {name}", "bad.pt", f"member {name} has checksum")
    for length in (4, 30, 100, len(whole) // 2, len(whole) - 22, len(whole) - 1):
        write("bad.pt", whole[:length])
        refused(f"the first {length} bytes", "bad.pt", "bad.pt")
    with zipfile.ZipFile("bad.pt", "w") as archive:
        archive.writestr("ckpt/readme", "x")
    refused("no data.pkl", "bad.pt", "data.pkl")
    end = whole.rindex(b"PK\5\6")
    first = struct.unpack("<I", whole[end + 16:end + 20])[0]
    for name, at, value in (("a member beyond the file", first + 42, 0xfffffff0), ("members that share bytes", first + 42, 40),
                            ("a member of 4 GiB", first + 24, 0xfffffff0), ("a directory beyond the file", end + 16, 0x7fffffff),
                            ("a directory that is too long", end + 12, 0x7fffffff)):
        write("bad.pt", whole[:at] + struct.pack("<I", value) + whole[at + 4:])
        refused(name, "bad.pt", "bad.pt")
    os.makedirs("bin")
    shutil.copy("ckpt-True.pt", "bin/pytorch_model.bin")
    shutil.copy("plain/config.json", "bin/config.json")
    refused("pytorch_model.bin", "bin", "pytorch_model.bin")
    for name, says in (("consolidated.00.pth", "hf download"), ("lit_model.pth", "convert_from_litgpt")):
        write(f"of-{name}/{name}", b"PK\3\4")
        refused(name, f"of-{name}", name, says)
    for name in ("model.safetensors", "config.json"):
        shutil.copytree("plain", f"pointer-{name}")
        write(f"pointer-{name}/{name}", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
        refused("a pointer of Git LFS", f"pointer-{name}", name, "git lfs pull")
    write("meta.pkl", pickle.dumps({"vocab_size": 5}))
    refused("meta.pkl", "meta.pkl", "meta.pkl")


def main():
    make_data()
    for bias in (False, True):
        done = gpt_train(*RUN, *SHAPE, f"--bias={bias}", f"--out_dir=run-{bias}", "--max_iters=5")
        check(f"a run, bias {bias}", done.returncode == 0, done.stderr)
    base, config = read_safetensors("run-True/model.safetensors"), read_json("run-True/config.json")
    loads(base, config)
    llmc_exports()
    cropped(base, config)
    cached(base, config)
    nanogpt_continues()
    nanogpt_over_another()
    nanogpt_samples()
    part_of_vision()
    part_of_qwen3_5()
    resumes_a_mixture()
    contexts()
    vocabularies()
    heads()
    torch_writes()
    bad_shards(base, config)
    bad_llmc(base)
    bad_pickles()
    check("nothing was executed", not os.path.exists("executed"))


end(main)
