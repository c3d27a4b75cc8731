#!/usr/bin/env python3
"""Small models compared with PyTorch in double precision: gradients, updates, losses, final weights.

The reference below is written from the formulas (Radford et al. 2019; Loshchilov and Hutter 2019; for Llama's family
Touvron et al. 2023, Su et al. 2021, transformers' modeling_llama.py and those of the other classes), in float64.  Both
sides start from the same weights, which this script writes as a Hugging Face folder, and see the same batches, which
the helper tests/model/step_dump reports.  GPT-2 with and without biases and with both gelu kinds; Llama, Qwen2, Qwen3,
OLMo 2, SmolLM3, Granite, Gemma 3, Qwen3.5 and mixtures, with fewer key-value heads, other head sizes, windows, tied and
untied; with accumulation, clipping and weight decay:
  teacher   every step starts from the reference's weights and moments: each parameter's gradient, m, v and new weight
  shape     the same gradients if the micro-batch does not divide and loss chunks are small
  free      gpt-train itself, four steps on its own: each loss, the gradient norms, and the saved weights
  adapters  the same of steps that train adapters (LoRA) of some or all layers, of models whose adapters differ; PEFT's losses
            too, of some
  dropout   the losses of a run do not depend on the micro-batch
  chunks    the first of these over 160 tokens, three chunks of Qwen3.5's delta net, and transformers' gradients
  epochs    three epochs of packed conversations with the defaults of fine-tuning, of GPT-2, Qwen3 and Qwen3.5: each
            update's loss, that of the evaluation, and PEFT's with the same first adapters, rows, masks and rates, where transformers and peft are installed
GPT_TRAIN_BACKEND selects the backend.  Needs a Python with PyTorch (PYTHON_TORCH).
"""

import importlib.util
import json
import math
import os
import random
import subprocess
import sys

from checks import (BUILD, GPT_EXPORT, GPT_PREPARE, GPT_TRAIN, LONG, check, end, metrics, read, read_json, skip, tensors_read, tensors_write, write,
                    write_json)

try:
    import numpy as np
    import torch
except ImportError:
    other = os.environ.get("PYTHON_TORCH", "no")
    if other in ("", "no") or os.environ.get("PARITY_TORCH_TRIED"):
        print("SKIP parity_torch: no Python with PyTorch and NumPy (Debian: python3-torch)")
        print("checks: 0 passed, 0 failed, 1 skipped")
        sys.exit(77)
    os.environ["PARITY_TORCH_TRIED"] = "1"
    os.execv(other, [other, "-B"] + sys.argv)

STEP_DUMP = os.environ.get("STEP_DUMP", os.path.join(BUILD, "tests/model/step_dump"))
SEED = 20240611
LAYERS, HEADS, CHANNELS, BLOCK, VOCAB, BATCH, ACCUMULATION = 2, 4, 64, 32, 97, 5, 2
ORIGINAL = 16  # the context of rotary scalings
NORM_EPSILON = 3e-3  # about the mean square of an embedding, so that each norm needs its own
RATE, DECAY, BETAS, EPSILON, CLIP = 1e-3, 0.1, (0.9, 0.95), 1e-8, 0.8
STEPS = 4
GRADIENT_BOUND = LOSS_BOUND = 1e-5  # doc/numerics.md, the whole model
WEIGHT_BOUND = 2e-5  # Adam divides by the root of v, which magnifies the rounding of small gradients
PEFT = all(map(importlib.util.find_spec, ("transformers", "peft")))


# ---- the reference ----

class Modern:
    """A model of Llama's family.  Weights are [out, in]; those of queries, keys and values are one, and so are the MLP's
    gate and its other factor, as in gpt-train's memory."""

    def __init__(self, kind, kv_heads, size, inner, tied, **rest):
        self.kind, self.kv_heads, self.size, self.inner, self.tied = kind, kv_heads, size, inner, tied
        self.norm, self.mlp, self.qk_norm = rest.get("norm", "rmsnorm"), rest.get("mlp", "swiglu"), rest.get("qk_norm", "none")
        self.qkv_bias, self.theta, self.scaling = rest.get("qkv_bias", False), rest.get("theta", 1e4), rest.get("scaling")
        self.q, self.kv = HEADS * size, kv_heads * size
        self.post, self.vocab = rest.get("norm_place", "pre") == "post", rest.get("vocab", VOCAB)
        self.windows = rest.get("windows", [0] * LAYERS)  # of the layers; 0: none
        self.interval = rest.get("no_rope_layer_interval", 0)
        self.turned = int(size * rest.get("share", 1.0))  # numbers of a head
        self.embedding, self.residual, self.scores, self.divisor = rest.get("multipliers", (1.0, 1.0, size ** -0.5, 1.0))
        self.norms = ("input_layernorm", "post_attention_layernorm")
        if kind == "olmo2":
            self.norms = ("post_attention_layernorm", "post_feedforward_layernorm")
        self.behind, self.plus, self.local = (), 0.0, None  # Gemma 3's: the second norms, what gains lack, theta of windows
        if kind == "gemma3_text":
            self.norms, self.behind = self.norms[:1] + ("pre_feedforward_layernorm",), ("post_attention_layernorm", "post_feedforward_layernorm")
            self.plus, self.local, self.embedding, self.scores = 1.0, 1e3, CHANNELS ** 0.5, 24 ** -0.5

    first = {}  # of parameters whose names end so: scale and centre of their first values

    def parts(self, name):
        """Returns the tensors of a file that a parameter consists of, {name: rows}."""
        qk = [self.size, self.size] if self.qk_norm == "head" else [self.q, self.kv]
        for whole, parts, rows in (("qkv_proj", ("q_proj", "k_proj", "v_proj"), (self.q, self.kv, self.kv)),
                                   ("gate_up_proj", ("gate_proj", "up_proj"), (self.inner, self.inner)),
                                   ("qk_norm", ("q_norm", "k_norm"), qk)):
            if whole in name and self.kind != "phi3":
                return {name.replace(whole, part): count for part, count in zip(parts, rows)}
        return {name: -1}

    def shapes(self):
        c, wide = CHANNELS, "up_proj" if self.mlp == "gelu" else "gate_up_proj"
        shapes = {"model.embed_tokens.weight": (self.vocab, c)}
        for layer in range(LAYERS):
            at = f"model.layers.{layer}."
            shapes.update({at + self.norms[0] + ".weight": (c,), **self.attention_shapes(at, layer),
                           **{at + name + ".weight": (c,) for name in self.behind[:1]},
                           at + self.norms[1] + ".weight": (c,),
                           at + f"mlp.{wide}.weight": ((1 if self.mlp == "gelu" else 2) * self.inner, c),
                           at + "mlp.down_proj.weight": (c, self.inner), **{at + name + ".weight": (c,) for name in self.behind[1:]}})
        shapes["model.norm.weight"] = (c,)
        if not self.tied:
            shapes["lm_head.weight"] = (self.vocab, c)
        return shapes

    def attention_shapes(self, at, layer):
        shapes = {at + "self_attn.qkv_proj.weight": (self.q + 2 * self.kv, CHANNELS)}
        if self.qkv_bias:
            shapes[at + "self_attn.qkv_proj.bias"] = (self.q + 2 * self.kv,)
        if self.qk_norm != "none":
            shapes[at + "self_attn.qk_norm.weight"] = (2 * self.size if self.qk_norm == "head" else self.q + self.kv,)
        return {**shapes, at + "self_attn.o_proj.weight": (CHANNELS, self.q)}

    def file_shape(self, part, shape):
        return shape

    def config(self):
        config = {"model_type": self.kind, "vocab_size": self.vocab, "max_position_embeddings": 2 * BLOCK, "hidden_size": CHANNELS,
                  "intermediate_size": self.inner, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
                  "num_key_value_heads": self.kv_heads, "head_dim": self.size, "rms_norm_eps": NORM_EPSILON, "rope_theta": self.theta,
                  "rope_scaling": self.scaling, "tie_word_embeddings": self.tied}
        if self.kind == "smollm3":
            config["no_rope_layer_interval"] = self.interval
        if self.kind == "granite":
            config.update({"embedding_multiplier": self.embedding, "residual_multiplier": self.residual,
                           "attention_multiplier": self.scores, "logits_scaling": self.divisor})
        if self.kind == "phi3":
            config.update(partial_rotary_factor=self.turned / self.size, original_max_position_embeddings=ORIGINAL)
        if any(self.windows):
            config["sliding_window"] = max(self.windows)
        if any(self.windows) and self.kind != "mistral":
            types = ["sliding_attention" if window else "full_attention" for window in self.windows]
            config.update({} if self.behind else {"use_sliding_window": True}, layer_types=types)
        if self.behind:
            del config["rope_theta"], config["rope_scaling"]
            config.update(hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=24, rope_parameters={
                "full_attention": {"rope_theta": self.theta, **self.scaling}, "sliding_attention": {"rope_type": "default", "rope_theta": self.local}})
        if self.kind == "gpt_train":
            config["gpt_train"] = {"norm": self.norm, "position": "rope", "mlp": self.mlp, "qk_norm": self.qk_norm, "bias": False,
                                   "qkv_bias": self.qkv_bias, "gelu": "erf", "dropout": 0.0}
            if self.post:
                config["gpt_train"]["norm_place"] = "post"
        return config

    def norm_of(self, x, gain):
        if self.norm == "layernorm":
            x = x - x.mean(-1, keepdim=True)
        return x / torch.sqrt((x ** 2).mean(-1, keepdim=True) + NORM_EPSILON) * (self.plus + gain)

    def frequencies(self, local):
        f = (self.local if local else self.theta) ** (-torch.arange(0, self.turned, 2, dtype=torch.float64) / self.turned)
        kind = self.scaling["rope_type"] if self.scaling and not local else "default"
        if kind == "linear":
            return f / self.scaling["factor"]
        if kind == "longrope":  # a block is longer than the original context
            return f / torch.tensor(self.scaling["long_factor"], dtype=torch.float64)
        if kind == "yarn":  # pairs that turn 32 times there keep their frequency, those that turn once have a fourth
            low, high = (self.turned * math.log(ORIGINAL / (turns * 2 * math.pi)) / (2 * math.log(self.theta)) for turns in (32, 1))
            share = ((torch.arange(self.turned // 2) - max(math.floor(low), 0)) / (math.ceil(high) - max(math.floor(low), 0))).clamp(0, 1)
            return share * f / self.scaling["factor"] + (1 - share) * f
        if kind == "llama3":
            s, waves = self.scaling, self.scaling["original_max_position_embeddings"] * f / (2 * torch.pi)
            share = ((waves - s["low_freq_factor"]) / (s["high_freq_factor"] - s["low_freq_factor"])).clamp(0, 1)
            return (1 - share) * f / s["factor"] + share * f
        return f

    def attention_factor(self):
        """Of cosines and sines: as modeling_rope_utils.py has it."""
        kind = self.scaling["rope_type"] if self.scaling else "default"
        if kind == "longrope":
            return math.sqrt(1 + math.log(2 * BLOCK / ORIGINAL) / math.log(ORIGINAL))
        return 0.1 * math.log(self.scaling["factor"]) + 1 if kind == "yarn" else 1.0

    def turn(self, x, local):
        """Turns the first R numbers of [B, heads, T, D] by pairs (i, i + R / 2)."""
        angles = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * self.frequencies(local)
        cosine, sine = (self.attention_factor() * values for values in (angles.cos(), angles.sin()))
        a, b = x[..., :self.turned].chunk(2, -1)
        return torch.cat([a * cosine - b * sine, b * cosine + a * sine, x[..., self.turned:]], -1)

    def heads_of(self, w, at, qkv, turns, local):
        """Returns queries, keys and values, [B, heads, T, D]."""
        rows, time, parts = qkv.shape[0], qkv.shape[1], list(qkv.split([self.q, self.kv, self.kv], -1))
        gains = w.get(at + "self_attn.qk_norm.weight")
        rms = lambda x, gain: x / torch.sqrt((x ** 2).mean(-1, keepdim=True) + NORM_EPSILON) * (self.plus + gain)
        if self.qk_norm == "full":
            parts[:2] = [rms(part, gain) for part, gain in zip(parts, gains.split([self.q, self.kv]))]
        parts = [part.reshape(rows, time, -1, self.size) for part in parts]
        if self.qk_norm == "head":
            parts[:2] = [rms(part, gain) for part, gain in zip(parts, gains.chunk(2))]
        q, k, v = (part.transpose(1, 2) for part in parts)
        group = HEADS // self.kv_heads
        q, k = (self.turn(q, local), self.turn(k, local)) if turns else (q, k)
        return q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)

    def attention(self, w, at, layer, x):
        return self.mixed(w, at, layer, x @ w[at + "self_attn.qkv_proj.weight"].T) @ w[at + "self_attn.o_proj.weight"].T

    def mixed(self, w, at, layer, qkv):
        """Returns the values of all heads, [B, T, H D]."""
        rows, time = qkv.shape[:2]
        hidden = torch.ones(time, time, dtype=torch.bool).triu(1)
        if self.windows[layer]:
            hidden = hidden | torch.ones(time, time, dtype=torch.bool).tril(-self.windows[layer])
        turns = self.interval == 0 or (layer + 1) % self.interval != 0
        local = self.local is not None and self.windows[layer] > 0
        q, k, v = self.heads_of(w, at, qkv + w.get(at + "self_attn.qkv_proj.bias", torch.zeros(())), turns, local)
        scores = (q @ k.transpose(2, 3) * self.scores).masked_fill(hidden, float("-inf"))
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, time, self.q)

    def logits(self, w, ids):
        x = w["model.embed_tokens.weight"][ids] * self.embedding
        for layer in range(LAYERS):
            at = f"model.layers.{layer}."
            before, after = [(lambda x, gain=w[at + name + ".weight"]: self.norm_of(x, gain)) for name in self.norms], [lambda x: x] * 2
            if self.post:
                before, after = after, before
            if self.behind:
                after = [(lambda x, gain=w[at + name + ".weight"]: self.norm_of(x, gain)) for name in self.behind]
            x = x + self.residual * after[0](self.attention(w, at, layer, before[0](x)))
            wide = before[1](x)
            if self.mlp != "gelu":
                gate, up = (wide @ w[at + "mlp.gate_up_proj.weight"].T).chunk(2, -1)
                wide = (gate * torch.sigmoid(gate) if self.mlp == "swiglu" else gelu(gate, "tanh")) * up
            else:
                wide = gelu(wide @ w[at + "mlp.up_proj.weight"].T, "erf")
            x = x + self.residual * after[1](wide @ w[at + "mlp.down_proj.weight"].T)
        head = w["model.embed_tokens.weight" if self.tied else "lm_head.weight"]
        return self.norm_of(x, w["model.norm.weight"]) @ head.T / self.divisor


class Hybrid(Modern):
    """Qwen3.5: a block with a gated delta net, token by token, and one with attention, whose queries have gates."""

    first = {"linear_attn.norm.weight": (0.1, 1.0), "conv1d.weight": (0.4, 0.0), "decay": (0.3, -2.0)}
    key_heads, value_heads, width, taps = 2, 4, 12, 4

    def __init__(self, **rest):
        super().__init__("qwen3_5_text", 2, 16, 72, True, qk_norm="head", theta=1e4, share=0.25, **rest)
        self.plus = 1.0
        self.values = self.value_heads * self.width
        self.all = self.values + 2 * self.key_heads * self.width

    def parts(self, name):
        at = name[:name.rindex("linear_attn.") + len("linear_attn.")] if "linear_attn." in name else ""
        if name.endswith("in_proj.weight"):
            return {at + "in_proj_qkv.weight": self.all, at + "in_proj_b.weight": self.value_heads, at + "in_proj_a.weight": self.value_heads}
        if name.endswith("decay"):
            return {at + "A_log": self.value_heads, at + "dt_bias": self.value_heads}
        if name.endswith("qkv_proj.weight"):
            return dict(zip(super().parts(name), (2 * self.q, self.kv, self.kv)))
        return super().parts(name)

    def attention_shapes(self, at, layer):
        if layer == 1:
            return {**super().attention_shapes(at, layer), at + "self_attn.qkv_proj.weight": (2 * (self.q + self.kv), CHANNELS)}
        return {at + "linear_attn." + name: shape for name, shape in (
            ("in_proj.weight", (self.all + 2 * self.value_heads, CHANNELS)), ("in_proj_z.weight", (self.values, CHANNELS)),
            ("conv1d.weight", (self.all * self.taps,)), ("decay", (2 * self.value_heads,)), ("norm.weight", (self.width,)),
            ("out_proj.weight", (CHANNELS, self.values)))}

    def file_shape(self, part, shape):
        return (self.all, 1, self.taps) if part.endswith("conv1d.weight") else shape

    def config(self):
        config = super().config()
        del config["rope_theta"], config["rope_scaling"]
        return {**config, "full_attention_interval": 2, "linear_num_key_heads": self.key_heads, "linear_num_value_heads": self.value_heads,
                "linear_key_head_dim": self.width, "linear_value_head_dim": self.width, "linear_conv_kernel_dim": self.taps,
                "rope_parameters": {"rope_type": "default", "rope_theta": self.theta, "partial_rotary_factor": self.turned / self.size}}

    def attention(self, w, at, layer, x):
        at += "" if layer == 1 else "linear_attn."
        if layer == 0:
            y, z = self.delta(w, at, x), x @ w[at + "in_proj_z.weight"].T
            z = z.reshape(y.shape)
            y = y / torch.sqrt((y ** 2).mean(-1, keepdim=True) + NORM_EPSILON) * w[at + "norm.weight"] * z * torch.sigmoid(z)
            return y.flatten(2) @ w[at + "out_proj.weight"].T
        qkv = x @ w[at + "self_attn.qkv_proj.weight"].T
        queries = qkv[..., :2 * self.q].unflatten(-1, (HEADS, 2, self.size))
        mixed = self.mixed(w, at, layer, torch.cat([queries[..., 0, :].flatten(2), qkv[..., 2 * self.q:]], -1))
        return mixed * torch.sigmoid(queries[..., 1, :].flatten(2)) @ w[at + "self_attn.o_proj.weight"].T

    def delta(self, w, at, x):
        """Returns the values that the gated delta rule reads, [B, T, H, D] (modeling_qwen3_5.py)."""
        x, b, a = (x @ w[at + "in_proj.weight"].T).split([self.all, self.value_heads, self.value_heads], -1)
        rows, time = x.shape[:2]
        padded, taps = torch.nn.functional.pad(x, (0, 0, self.taps - 1, 0)), w[at + "conv1d.weight"].reshape(-1, self.taps)
        u = sum(padded[:, j:j + time] * taps[:, j] for j in range(self.taps))
        q, k, v = (u * torch.sigmoid(u)).unflatten(-1, (-1, self.width)).split([self.key_heads, self.key_heads, self.value_heads], 2)
        q, k = ((part / torch.sqrt((part ** 2).sum(-1, keepdim=True) + 1e-6)).repeat_interleave(self.value_heads // self.key_heads, 2) for part in (q, k))
        rate, offset = w[at + "decay"].chunk(2)
        beta, kept = torch.sigmoid(b), torch.exp(-torch.exp(rate) * torch.nn.functional.softplus(a + offset))
        state, out = torch.zeros(rows, self.value_heads, self.width, self.width, dtype=x.dtype), []
        for t in range(time):
            state = state * kept[:, t, :, None, None]
            error = beta[:, t, :, None] * (v[:, t] - (state * k[:, t, :, :, None]).sum(-2))
            state = state + k[:, t, :, :, None] * error[:, :, None]
            out.append((state * q[:, t, :, :, None]).sum(-2) / self.width ** 0.5)
        return torch.stack(out, 1)


def parameter_shapes(case):
    """The parameters in the order of a checkpoint."""
    return case["modern"].shapes() if case.get("modern") else gpt2_shapes(case, case["bias"])


def gpt2_shapes(case, bias):
    """Hugging Face's names; weights are [in, out]."""
    c = CHANNELS
    shapes = {"wte.weight": (case.get("vocab", VOCAB), c), "wpe.weight": (case.get("positions", BLOCK), c)}
    for layer in range(LAYERS):
        at = f"h.{layer}."
        shapes.update({at + "ln_1.weight": (c,), at + "ln_1.bias": (c,),
                       at + "attn.c_attn.weight": (c, 3 * c), at + "attn.c_attn.bias": (3 * c,),
                       at + "attn.c_proj.weight": (c, c), at + "attn.c_proj.bias": (c,),
                       at + "ln_2.weight": (c,), at + "ln_2.bias": (c,),
                       at + "mlp.c_fc.weight": (c, 4 * c), at + "mlp.c_fc.bias": (4 * c,),
                       at + "mlp.c_proj.weight": (4 * c, c), at + "mlp.c_proj.bias": (c,)})
    shapes.update({"ln_f.weight": (c,), "ln_f.bias": (c,)})
    return {name: shape for name, shape in shapes.items() if bias or not name.endswith(".bias")}


def initial_weights(case, generator):
    """No value is exactly 0 or 1, so that a wrong gain or bias shows; rounded to fp32 for both sides."""
    weights = {}
    for name, shape in parameter_shapes(case).items():
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
        plus = case["modern"].plus if case.get("modern") else 0.0
        scale, centre = (0.1, 1.0 - plus) if len(shape) == 1 and name.endswith("weight") else (0.05, 0.0)
        if len(shape) == 2 and not name.startswith("w") and "embed" not in name:
            scale = 0.8 / shape[1 if "proj.weight" in name and "c_proj" not in name else 0] ** 0.5
        for ending, first in case["modern"].first.items() if case.get("modern") else ():
            scale, centre = first if name.endswith(ending) else (scale, centre)
        weights[name] = (centre + scale * values).float().double()
    return weights


def gelu(x, kind):
    if kind == "tanh":
        return 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1 + torch.erf(x / 2 ** 0.5))


def normalise(w, at, x):
    mean = x.mean(-1, keepdim=True)
    spread = ((x - mean) ** 2).mean(-1, keepdim=True)
    y = (x - mean) / torch.sqrt(spread + 1e-5) * w[at + ".weight"]
    return y + w[at + ".bias"] if at + ".bias" in w else y


def linear(w, at, x):
    y = x @ w[at + ".weight"]
    return y + w[at + ".bias"] if at + ".bias" in w else y


def gpt2_logits(w, ids, kind):
    rows, time = ids.shape
    x = w["wte.weight"][ids] + w["wpe.weight"][:time]
    future = torch.ones(time, time, dtype=torch.bool).triu(1)
    for layer in range(LAYERS):
        at = f"h.{layer}."
        qkv = linear(w, at + "attn.c_attn", normalise(w, at + "ln_1", x))
        q, k, v = (part.reshape(rows, time, HEADS, -1).transpose(1, 2) for part in qkv.split(CHANNELS, -1))
        scores = (q @ k.transpose(2, 3) / (CHANNELS // HEADS) ** 0.5).masked_fill(future, float("-inf"))
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, time, CHANNELS)
        x = x + linear(w, at + "attn.c_proj", mixed)
        x = x + linear(w, at + "mlp.c_proj", gelu(linear(w, at + "mlp.c_fc", normalise(w, at + "ln_2", x)), kind))
    return normalise(w, "ln_f", x) @ w["wte.weight"].T


def reference_loss(case, w, ids, targets):
    """Returns the sum of the losses of [B, T] tokens; targets below 0 do not count."""
    logits = case["modern"].logits(w, ids) if case.get("modern") else gpt2_logits(w, ids, case["kind"])
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum", ignore_index=-1)


class Reference:
    """Weights, AdamW's moments, and one step of training in float64."""

    def __init__(self, case, weights=None, whole=lambda weights: weights):
        """`whole` makes the model's weights of those that are trained."""
        weights = weights or case["weights"]
        self.case, self.whole, self.steps = case, whole, 0
        self.rate, self.betas, self.decay, self.clip = RATE, BETAS, DECAY, CLIP
        self.w = {name: value.clone() for name, value in weights.items()}
        self.m = {name: torch.zeros_like(value) for name, value in weights.items()}
        self.v = {name: torch.zeros_like(value) for name, value in weights.items()}
        self.g, self.loss, self.norm = {}, 0.0, 0.0

    def step(self, batches):
        leaves = {name: value.clone().requires_grad_() for name, value in self.w.items()}
        tokens = sum((targets >= 0).sum() for _, targets in batches)
        self.loss = 0.0
        for ids, targets in batches:
            loss = reference_loss(self.case, self.whole(leaves), ids, targets) / tokens
            loss.backward()
            self.loss += loss.item()
        self.g = {name: leaf.grad for name, leaf in leaves.items()}
        self.norm = torch.cat([g.reshape(-1) for g in self.g.values()]).norm().item()
        factor = min(1.0, self.clip / (self.norm + 1e-6))
        self.steps += 1
        for name, g in self.g.items():
            self.m[name] = self.betas[0] * self.m[name] + (1 - self.betas[0]) * g * factor
            self.v[name] = self.betas[1] * self.v[name] + (1 - self.betas[1]) * (g * factor) ** 2
            m, v = self.m[name] / (1 - self.betas[0] ** self.steps), self.v[name] / (1 - self.betas[1] ** self.steps)
            decay = self.decay if self.w[name].dim() >= 2 or name.endswith("conv1d.weight") else 0.0 # which has 3 dimensions
            self.w[name] = self.w[name] - self.rate * (m / (v.sqrt() + EPSILON) + decay * self.w[name])
        return factor


# ---- files ----

def float32(values):
    return values.float().numpy().astype("<f4").tobytes()


def write_folder(case):
    """Writes a model in Hugging Face's layout; without biases a GPT-2's are stored as zeros."""
    path, weights, modern, kind, bias = (case.get(name) for name in ("model", "weights", "modern", "kind", "bias"))
    os.makedirs(path)
    if modern:
        write_json(os.path.join(path, "config.json"), modern.config())
        tensors = {}
        for name, value in weights.items():
            parts = modern.parts(name)
            for part, rows in zip(parts, value.split(list(parts.values())) if len(parts) > 1 else [value]):
                tensors[part] = ("F32", modern.file_shape(part, rows.shape), float32(rows))
        tensors_write(os.path.join(path, "model.safetensors"), tensors)
        return
    write_json(os.path.join(path, "config.json"), {
        "model_type": "gpt2", "vocab_size": case.get("vocab", VOCAB), "n_positions": case.get("positions", BLOCK), "n_embd": CHANNELS,
        "n_layer": LAYERS, "n_head": HEADS, "activation_function": "gelu_new" if kind == "tanh" else "gelu", "gpt_train": {"bias": bias}})
    values = {name: weights.get(name, torch.zeros(shape)) for name, shape in gpt2_shapes(case, True).items()}
    tensors_write(os.path.join(path, "model.safetensors"), {
        "transformer." + name: ("F32", value.shape, float32(value)) for name, value in values.items()})


def read_weights(case, path):
    found = file_weights(path)
    if case.get("modern"):
        return {name: torch.cat([found[part] for part in case["modern"].parts(name)]).reshape(value.shape) for name, value in case["weights"].items()}
    return found


def file_weights(path):
    return {name.replace("transformer.", "", 1): value for name, value in tensors_of(path).items()}


def tensors_of(path):
    return {name: torch.from_numpy(np.frombuffer(raw, "<f4").reshape(shape).astype(np.float64))
            for name, (_, shape, raw) in tensors_read(path).items()}


def write_data(path, generator):
    """Writes tokens with structure (a noisy walk), so that there is something to learn."""
    os.makedirs(path)
    steps = torch.randint(0, 4, (6000,), generator=generator)
    ids = (torch.cumsum(steps, 0) % VOCAB).numpy().astype("<u2")
    ids[:5000].tofile(os.path.join(path, "train.bin"))
    ids[5000:].tofile(os.path.join(path, "val.bin"))


class Trainer:
    """The helper: the trainer's own session, one step at a time."""

    def __init__(self, folder, arguments, shapes, block):
        self.folder, self.shapes, self.block = folder, shapes, block
        self.process = subprocess.Popen([STEP_DUMP] + arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        lines = self.ask("describe")
        sizes = [line.split() for line in lines[:-1]]
        wanted = [[name, str(int(np.prod(shape)))] for name, shape in shapes.items()]
        check(sizes == wanted, f"parameters {sizes} are not {wanted}")

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        lines = []
        while not lines or not lines[-1].startswith("ok"):
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError(f"step_dump ended at: {command}")
            lines.append(line.rstrip("\n"))
        return lines

    def path(self, name):
        return os.path.join(self.folder, name)

    def put(self, part, tensors):
        np.concatenate([tensors[name].numpy().reshape(-1) for name in self.shapes]).astype("<f4").tofile(self.path(part))
        self.ask(f"put {part} {self.path(part)}")

    def get(self, part):
        self.ask(f"get {part} {self.path(part)}")
        values = np.fromfile(self.path(part), "<f4").astype(np.float64)
        tensors, first = {}, 0
        for name, shape in self.shapes.items():
            count = int(np.prod(shape))
            tensors[name] = torch.from_numpy(values[first:first + count].reshape(shape))
            first += count
        return tensors

    def step(self, iteration, updates):
        """Returns loss, norm, clip factor, and the batches."""
        answer = self.ask(f"step {iteration} {RATE} {updates} {self.path('tokens')}")[-1].split()
        tokens = torch.from_numpy(np.fromfile(self.path("tokens"), "<i4").astype(np.int64)).reshape(-1, self.block)
        batches, first, left = [], 0, BATCH * ACCUMULATION
        micro = -(-left // int(answer[4]))
        while left > 0:
            rows = min(micro, left)
            batches.append((tokens[first:first + rows], tokens[first + rows:first + 2 * rows]))
            first, left = first + 2 * rows, left - rows
        return float(answer[1]), float(answer[2]), float(answer[3]), batches

    def close(self):
        self.process.stdin.close()
        check(self.process.wait() == 0, "step_dump's exit status")


def distance(ours, reference):
    return ((ours - reference).norm() / reference.norm()).item()


def compare(what, ours, reference, worst):
    for name, value in reference.items():
        error = distance(ours[name], value)
        worst[what] = max(worst.get(what, 0.0), error)
        bound = {"weight": WEIGHT_BOUND, "v": 2 * GRADIENT_BOUND}.get(what, GRADIENT_BOUND)  # v has the gradient's square
        check(error <= bound, f"{what} of {name}: relative error {error:.3g}")


def determined(weights, modern):
    """Returns the weights without the keys' biases: softmax is invariant to them, their gradient is 0 except for
    rounding, and Adam turns the rounding into steps of up to RATE.  (Their gradient is compared like all others, as a
    part of the whole bias.)  With rotary positions that is nearly true of pairs that hardly turn."""
    def of(name, value):
        if not name.endswith(("c_attn.bias", "qkv_proj.bias")):
            return value
        q = CHANNELS if name.endswith("c_attn.bias") else modern.q
        kv = CHANNELS if name.endswith("c_attn.bias") else modern.kv
        return torch.cat([value[:q], value[q + kv:]])
    return {name: of(name, value) for name, value in weights.items()}


def common_arguments(case):
    return ["--dataset=" + case["data"], "--init_from=" + case["model"], f"--batch_size={BATCH}",
            f"--gradient_accumulation_steps={ACCUMULATION}", f"--block_size={case.get('block', BLOCK)}", f"--learning_rate={RATE}",
            "--decay_lr=False", f"--weight_decay={DECAY}", f"--beta1={BETAS[0]}", f"--beta2={BETAS[1]}",
            f"--grad_clip={CLIP}", f"--max_iters={STEPS - 1}", f"--bias={case.get('bias', False)}", f"--seed={SEED}",
            "--dtype=float32", "--threads=1", "--sampler=random", "--document_mask=False"]


def teacher(case, work, variant, arguments, steps):
    """Every step starts from the reference's weights and moments.  Returns the batches."""
    folder = os.path.join(work, variant)
    os.makedirs(folder)
    trainer = Trainer(folder, common_arguments(case) + arguments + ["--out_dir=" + folder], parameter_shapes(case), case.get("block", BLOCK))
    reference, seen, worst, clipped = Reference(case), [], {}, 0
    for iteration in range(steps):
        for part in ("w", "m", "v"):
            trainer.put({"w": "weights"}.get(part, part), getattr(reference, part))
        loss, norm, factor, batches = trainer.step(iteration, iteration)
        seen.append(batches)
        before = reference.loss
        expected = reference.step(batches)
        clipped += expected < 1.0
        worst["loss"] = max(worst.get("loss", 0.0), abs(loss - reference.loss))
        check(abs(loss - reference.loss) <= LOSS_BOUND, f"loss {loss} at step {iteration}, reference {reference.loss}")
        check(before != reference.loss, "the reference's loss does not move")
        check(abs(norm - reference.norm) <= GRADIENT_BOUND * reference.norm, f"norm {norm}, reference {reference.norm}")
        check(abs(factor - expected) <= GRADIENT_BOUND, f"clip factor {factor}, reference {expected}")
        compare("gradient", trainer.get("gradients"), reference.g, worst)
        compare("m", trainer.get("m"), reference.m, worst)
        compare("v", trainer.get("v"), reference.v, worst)
        compare("weight", determined(trainer.get("weights"), case.get("modern")), determined(reference.w, case.get("modern")),
                worst)
    trainer.close()
    check(clipped > 0, "no step was clipped")
    print(f"{case['name']} {variant}: " + ", ".join(f"{what} {error:.2g}" for what, error in worst.items()))
    return seen


def train(arguments):
    done = subprocess.run([GPT_TRAIN] + arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    check(done.returncode == 0, f"gpt-train {arguments}: {done.stderr}")


def free(case, work, batches):
    """Runs STEPS steps of the real program."""
    out = os.path.join(work, "free")
    train(common_arguments(case) + ["--out_dir=" + out, "--eval_iters=1", "--log_interval=1"])
    reference, worst, worst_way = Reference(case), 0.0, 0.0
    lines = metrics(out)
    check(len(lines) == STEPS, f"{len(lines)} lines of metrics")
    for line, micro_batches in zip(lines, batches):
        reference.step(micro_batches)
        worst = max(worst, abs(line["loss"] - reference.loss))
        check(abs(line["loss"] - reference.loss) <= LOSS_BOUND, f"free step {line['iter']}: {line['loss']}, {reference.loss}")
        check(abs(line["grad_norm"] - reference.norm) <= 1e-4 * reference.norm, f"free norm at {line['iter']}")
    saved, moved = read_weights(case, os.path.join(out, "model.safetensors")), 0
    ours, start = determined(saved, case.get("modern")), determined(case["weights"], case.get("modern"))
    for name, value in determined(reference.w, case.get("modern")).items():
        # Relative to the distance moved: the weights have hardly moved compared to their size.
        error = distance(ours[name] - start[name], value - start[name])
        worst_way = max(worst_way, error)
        check(error <= 1e-3, f"saved {name}: {error:.3g} of the way gone")
        moved += 1
    check(moved == len(parameter_shapes(case)), "parameters in the checkpoint")
    check(case.get("bias") or all(not value.any() for name, value in saved.items() if name not in reference.w), "zero biases")
    print(f"{case['name']} free: loss {worst:.2g}, saved weights {worst_way:.2g} of the way")


def adapted(case, leaves, scale):
    """Returns the weights of the case with scale B A added to them."""
    weights = {}
    for name, value in case["weights"].items():
        parts = case["modern"].parts(name) if case.get("modern") else {name: -1}
        pieces = []
        for part, piece in zip(parts, value.split(list(parts.values())) if len(parts) > 1 else [value]):
            at = f"base_model.model.{'' if case.get('modern') else 'transformer.'}{part[:-len('.weight')]}"
            if at + ".lora_A.weight" in leaves and part.endswith(".weight"):
                delta = scale * leaves[at + ".lora_B.weight"] @ leaves[at + ".lora_A.weight"]
                piece = piece + (delta if case.get("modern") else delta.T)
            pieces.append(piece)
        weights[name] = torch.cat(pieces)
    return weights


def peft_losses(case, adapter, updates, rates, betas, decay, clip):
    """Returns the losses of updates with transformers and PEFT in float32, which start from the adapter in a folder."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM
    base = AutoModelForCausalLM.from_pretrained(case["model"], dtype=torch.float32, pad_token_id=None)
    model = PeftModel.from_pretrained(base, adapter, is_trainable=True)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, betas=betas, eps=EPSILON, weight_decay=decay)
    losses = []
    for batches, rate in zip(updates, rates):
        counted = sum((targets >= 0).sum() for _, targets in batches)
        optimizer.zero_grad()
        losses.append(0.0)
        for ids, targets in batches:
            loss = torch.nn.functional.cross_entropy(model(input_ids=ids).logits.flatten(0, 1), targets.flatten(), reduction="sum", ignore_index=-1) / counted
            loss.backward()
            losses[-1] += loss.item()
        torch.nn.utils.clip_grad_norm_(trained, clip)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
    return losses


def adapters(case, work, batches, targets):
    """Steps of adapters, whose first values come from a run at rate 0: losses, norms and adapters."""
    arguments = common_arguments(case) + ["--eval_iters=1", "--log_interval=1", "--lora_rank=3", "--lora_alpha=4",
                                          f"--lora_targets={targets}"]
    outs = [os.path.join(work, f"adapters-{kind}") for kind in ("new", "trained")]
    train(arguments + ["--out_dir=" + outs[0], "--learning_rate=0", "--max_iters=0"])
    train(arguments + ["--out_dir=" + outs[1]])
    start, trained = (tensors_of(os.path.join(out, "model.safetensors")) for out in outs)
    bounds = [value.shape[1] ** -0.5 for name, value in start.items() if "lora_A" in name]
    check(all(0.7 * bound < value.abs().max() <= bound for bound, value in
              zip(bounds, (value for name, value in start.items() if "lora_A" in name))), "the bounds of A")
    check(not any(value.any() for name, value in start.items() if "lora_B" in name), "B does not begin at 0")

    reference, worst = Reference(case, start, lambda leaves: adapted(case, leaves, 4 / 3)), 0.0
    for line, micro_batches in zip(metrics(outs[1]), batches):
        reference.step(micro_batches)
        worst = max(worst, abs(line["loss"] - reference.loss))
        check(abs(line["loss"] - reference.loss) <= LOSS_BOUND, f"adapters, step {line['iter']}: {line['loss']}, {reference.loss}")
        check(abs(line["grad_norm"] - reference.norm) <= 1e-4 * reference.norm, f"adapters, norm at {line['iter']}")
    check(trained.keys() == reference.w.keys() and len(trained) > 0, "the adapters in the checkpoint")
    for name, value in reference.w.items():
        error = distance(trained[name] - start[name], value - start[name])
        check(error <= 1e-3, f"{name}: {error:.3g} of the way gone")
    print(f"{case['name']} adapters of {targets}: loss {worst:.2g}")
    if PEFT and case["name"] in ("gemma3", "phi3", "qwen3_5"):
        subprocess.run([GPT_EXPORT, "--out_dir=" + outs[0], "--format=peft", os.path.join(work, "peft")], check=True, capture_output=True)
        theirs = peft_losses(case, os.path.join(work, "peft"), batches, [RATE] * STEPS, BETAS, DECAY, CLIP)
        worst = max(abs(line["loss"] - loss) for line, loss in zip(metrics(outs[1]), theirs))
        check(worst <= LOSS_BOUND, f"PEFT of {case['name']}: losses differ by {worst:.2g}")
        print(f"{case['name']} adapters of PEFT: loss {worst:.2g}")


def dropout(case, work):
    lines = []
    for micro in (BATCH, 3, 2, 1):
        out = os.path.join(work, f"dropout-{micro}")
        train(common_arguments(case) + ["--out_dir=" + out, "--eval_iters=1", "--log_interval=1", "--dropout=0.2",
                                        f"--micro_batch={micro}"])
        lines.append([line["loss"] for line in metrics(out)])
    plain = [line["loss"] for line in metrics(os.path.join(work, "free"))]
    for other in lines[1:]:
        for a, b in zip(lines[0], other):
            check(abs(a - b) <= LOSS_BOUND, f"dropout: loss {a} and {b} for two micro-batches")
    check(all(abs(a - b) > 1e-3 for a, b in zip(lines[0], plain)), "dropout changes nothing")


MODERN = {
    "llama": Modern("llama", 2, 20, 72, False, theta=500.0, scaling={
        "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32}),
    "mistral": Modern("mistral", 4, 16, 40, True, scaling={"rope_type": "linear", "factor": 2.0}, windows=[9, 9]),
    "qwen2": Modern("qwen2", 1, 16, 96, True, qkv_bias=True, theta=1e3, scaling={
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": ORIGINAL}),
    "qwen3": Modern("qwen3", 2, 32, 64, False, qk_norm="head", theta=1e6),
    "wide-heads": Modern("qwen3", 1, 256, 48, True, qk_norm="head", windows=[20, 0]),
    "olmo2": Modern("olmo2", 2, 16, 72, False, norm_place="post", qk_norm="full", theta=5e5),
    "smollm3": Modern("smollm3", 2, 16, 56, True, theta=5e4, no_rope_layer_interval=2),
    "granite": Modern("granite", 2, 16, 64, True, multipliers=(2.0, 0.5, 0.15, 0.8)),
    "gemma3": Modern("gemma3_text", 1, 32, 72, True, mlp="geglu", qk_norm="head", theta=1e6, windows=[9, 0],
                     scaling={"rope_type": "linear", "factor": 8.0}),
    "mixture": Modern("gpt_train", 2, 16, 100, True, norm="layernorm", mlp="gelu", qk_norm="full"),
    "norms-behind": Modern("gpt_train", 4, 16, 48, True, norm="layernorm", norm_place="post", qkv_bias=True),
    "phi3": Modern("phi3", 2, 16, 64, True, share=0.75, scaling={
        "type": "longrope", "rope_type": "longrope", "short_factor": [1.0] * 6, "long_factor": [1 + i / 4 for i in range(6)]}),
    "qwen3_5": Hybrid(),
}


# Their layers are those of other models; CHECK_LONG=1 trains their adapters, too.
NO_ADAPTERS = ("mistral", "wide-heads", "olmo2", "smollm3", "mixture", "norms-behind")


def begin(case, folder, generator):
    """Writes the data and the first weights."""
    case.update(weights=initial_weights(case, generator), data=os.path.join(folder, "data"), model=os.path.join(folder, "model"))
    os.makedirs(folder)
    write_data(case["data"], generator)
    write_folder(case)


def modern():
    for number, (name, model) in enumerate(MODERN.items()):
        folder = os.path.abspath(name)
        case = {"name": name, "modern": model}
        begin(case, folder, torch.Generator().manual_seed(SEED + 10 + number))
        batches = teacher(case, folder, "whole", [], STEPS)
        teacher(case, folder, "recompute", ["--micro_batch=3", "--loss_chunk=7", "--recompute=full"], 2)
        free(case, folder, batches)
        some = "qkv_proj,gate_up_proj" if name == "phi3" else "q_proj,v_proj,up_proj"
        if LONG or name not in NO_ADAPTERS:
            adapters(case, folder, batches, "all-linear" if number % 2 == 0 else some)


def chunks():
    """Qwen3.5's delta net over two chunks of 64 tokens and a half, and transformers' losses, whose chunks are as long."""
    case = {"name": "qwen3_5-chunks", "modern": Hybrid(), "block": 160}
    begin(case, os.path.abspath("chunks"), torch.Generator().manual_seed(SEED))
    batches = teacher(case, "chunks", "whole", [], 2)
    teacher(case, "chunks", "recompute", ["--recompute=full"], 1)
    if not PEFT:
        return # as epochs() says
    from transformers import AutoModelForCausalLM
    model, reference = AutoModelForCausalLM.from_pretrained(case["model"], dtype=torch.float32), Reference(case)
    tokens, theirs = sum(targets.numel() for _, targets in batches[0]), 0.0
    for ids, targets in batches[0]:
        loss = torch.nn.functional.cross_entropy(model(input_ids=ids).logits.flatten(0, 1), targets.flatten(), reduction="sum") / tokens
        loss.backward()
        theirs += loss.item()
    reference.step(batches[0])
    ours = {name: torch.cat([dict(model.named_parameters())[part].grad.double() for part in case["modern"].parts(name)]).reshape(value.shape)
            for name, value in reference.g.items()}
    worst = max(distance(ours[name], value) for name, value in reference.g.items())
    check(abs(theirs - reference.loss) <= LOSS_BOUND and worst <= 1e-4, f"transformers over chunks: loss {theirs}, {reference.loss}, gradients {worst:.2g}")
    print(f"qwen3_5-chunks transformers: loss {abs(theirs - reference.loss):.2g}, gradients {worst:.2g}")


# ---- three epochs of conversations ----

CHAT_VOCAB, CHAT_ROW, CHAT_EPOCHS, CHAT_BATCH, CHAT_RATE, CHAT_CLIP = 320, 64, 3, 4, 5e-3, 1.0


def conversations(count):
    """Writes made conversations of one or two turns and their data set."""
    rng = random.Random(SEED)
    lines = []
    for _ in range(count):
        messages = []
        for _ in range(rng.randint(1, 2)):
            a, b = rng.randint(0, 99), rng.randint(0, 99)
            messages += [{"role": "user", "content": f"what is {a} plus {b}?"}, {"role": "assistant", "content": f"it is {a + b}."}]
        lines.append(json.dumps({"messages": messages}) + "\n")
    done = subprocess.run([GPT_PREPARE, "--tokenizer=train", f"--vocab-size={CHAT_VOCAB}", "--chat=chatml", f"--block-size={CHAT_ROW}",
                           "--out-dir=data", "--val-fraction=0.05", write("made.jsonl", "".join(lines))], check=False, capture_output=True, text=True)
    check(done.returncode == 0, f"gpt-prepare: {done.stderr}")


def rows_of_documents(split):
    """Returns the rows of a split of the data, each a list of its conversations: (ids, targets) with -1 where the mask does not
    count a target, which is so at the end of a conversation."""
    mask, ends = read(f"data/{split}.mask")[16:], read_json("data/gpt_tokenizer.json")
    last = ends["vocabulary"].index("<|endoftext|>")
    ids = np.fromfile(f"data/{split}.bin", "<u2").astype(np.int64)
    counted = [mask[i // 8] >> i % 8 & 1 for i in range(len(ids))]
    rows = []
    for at in range(0, len(ids) - 1, CHAT_ROW):
        row, first = [], at
        for i in range(at, at + CHAT_ROW):
            if ids[i] == last or i == at + CHAT_ROW - 1:
                targets = [ids[t + 1] if counted[t + 1] else -1 for t in range(first, i + 1)]
                row.append((torch.from_numpy(ids[first:i + 1])[None], torch.tensor(targets)[None]))
                first = i + 1
        rows.append([document for document in row if (document[1] >= 0).any()])
    return rows


def mean_loss(case, documents):
    """Returns the loss of the first weights over the targets that count."""
    with torch.no_grad():
        total = sum(reference_loss(case, case["weights"], *document) for document in documents).item()
    return total / sum((targets >= 0).sum().item() for _, targets in documents)


def order_of(case, rows, losses):
    """Returns the row of each loss of a run that sees one row an update and learns nothing."""
    known = [mean_loss(case, row) for row in rows]
    order = [min(range(len(rows)), key=lambda row: abs(known[row] - loss)) for loss in losses]
    check(all(abs(known[row] - loss) <= LOSS_BOUND for row, loss in zip(order, losses)), "losses of single rows")
    for epoch in range(0, len(order) - len(rows) + 1, len(rows)):
        check(sorted(order[epoch:epoch + len(rows)]) == list(range(len(rows))), f"the rows of an epoch: {order[epoch:epoch + len(rows)]}")
    return order


def rate_of(update, updates):
    """Warm-up of 3 %, then a cosine to 0, as nanoGPT counts them."""
    warmup = math.ceil(0.03 * updates)
    if update < warmup:
        return CHAT_RATE * (update + 1) / (warmup + 1)
    return CHAT_RATE * (1 + math.cos(math.pi * (update - warmup) / (updates - 1 - warmup))) / 2


def epochs():
    torch.set_num_threads(1)
    conversations(36)
    if not PEFT:
        skip("parity_peft", "no transformers or no peft (PyPI)")
    epochs_of({"name": "gpt2", "bias": True, "kind": "erf", "vocab": CHAT_VOCAB, "positions": CHAT_ROW, "model": os.path.abspath("chat-gpt2")})
    for name, model in (("qwen3", Modern("qwen3", 2, 32, 64, False, qk_norm="head", theta=1e6, vocab=CHAT_VOCAB)), ("qwen3_5", Hybrid(vocab=CHAT_VOCAB))):
        epochs_of({"name": name, "modern": model, "model": os.path.abspath(f"chat-{name}")})


def epochs_of(case):
    name, case["weights"] = case["name"], initial_weights(case, torch.Generator().manual_seed(SEED))
    write_folder(case)
    tune = [f"--init_from=./chat-{name}", "--dataset=./data", "--lora_rank=4", f"--epochs={CHAT_EPOCHS}", "--log_interval=1", "--eval_iters=0", "--dtype=float32",
            "--threads=1", "--sample_tokens=0", f"--grad_clip={CHAT_CLIP}"]
    train(tune + [f"--out_dir=order-{name}", "--batch_size=1", "--learning_rate=0"])
    train(tune + [f"--out_dir=tuned-{name}", f"--batch_size={CHAT_BATCH}", f"--learning_rate={CHAT_RATE}"])
    rows, ours = rows_of_documents("train"), [line["loss"] for line in metrics(f"tuned-{name}")]
    order = order_of(case, rows, [line["loss"] for line in metrics(f"order-{name}")])
    judged = metrics(f"order-{name}", "val_loss")[0]["val_loss"]
    wanted = mean_loss(case, [document for row in rows_of_documents("val") for document in row])
    check(abs(judged - wanted) <= LOSS_BOUND, f"evaluation: {judged}, reference {wanted}")
    # The last update of three epochs goes on into a fourth, whose order a run of three does not show.
    updates = [[document for row in order[at:at + CHAT_BATCH] for document in rows[row]] for at in range(0, len(order) - CHAT_BATCH + 1, CHAT_BATCH)]
    count = math.ceil(CHAT_EPOCHS * len(rows) / CHAT_BATCH)
    check(len(ours) == count and len(updates) >= count - 1, f"{len(ours)} updates, {len(updates)}, not {count}")
    start = tensors_of(f"order-{name}/model.safetensors")
    reference = Reference(case, start, lambda leaves: adapted(case, leaves, 2.0))
    reference.betas, reference.decay, reference.clip = (0.9, 0.999), 0.0, CHAT_CLIP
    worst = 0.0
    for update, documents in enumerate(updates):
        reference.rate = rate_of(update, count)
        reference.step(documents)
        worst = max(worst, abs(ours[update] - reference.loss))
    check(ours[0] - ours[-1] > 0.5, f"the losses hardly move: {ours[0]} to {ours[-1]}")
    check(worst <= LOSS_BOUND, f"three epochs: losses differ by {worst:.2g}")
    print(f"{name}: three epochs: {len(rows)} rows, {len(updates)} updates, loss {ours[0]:.3f} to {ours[-1]:.3f}, largest difference {worst:.2g}")
    subprocess.run([GPT_EXPORT, f"--out_dir=order-{name}", "--format=peft", f"peft-{name}"], check=True, capture_output=True)
    if not PEFT or "modern" not in case:
        return
    theirs = peft_losses(case, f"peft-{name}", updates, [rate_of(update, count) for update in range(len(updates))], (0.9, 0.999), 0.0, CHAT_CLIP)
    worst = max(abs(a - b) for a, b in zip(ours, theirs))
    check(worst <= 1e-3, f"three epochs of PEFT: losses differ by {worst:.2g}")
    print(f"{name}: three epochs of PEFT: largest difference {worst:.2g}")


def main():
    print(f"parity_torch: seed {SEED}, PyTorch {torch.__version__}")
    torch.set_num_threads(1)  # the helper runs in turn with it
    for number, (bias, kind) in enumerate(((True, "erf"), (False, "tanh"))):
        generator = torch.Generator().manual_seed(SEED + number)
        folder = os.path.abspath(f"case-{number}")
        case = {"bias": bias, "kind": kind, "name": f"bias={bias} gelu={kind}"}
        begin(case, folder, generator)
        batches = teacher(case, folder, "whole", [], STEPS)
        teacher(case, folder, "remainder", ["--micro_batch=3", "--loss_chunk=7"], 2)
        teacher(case, folder, "single", ["--micro_batch=1", "--loss_chunk=1000"], 2)
        free(case, folder, batches)
        if number == 0:
            dropout(case, folder)
        if number < 2:
            adapters(case, folder, batches, "c_attn,c_proj" if number == 0 else "all-linear")
    modern()


end(main, chunks, epochs)
