"""A GPT-2 in PyTorch, and gpt-train's sample order, for side-by-side runs.

The model follows the published architecture (Radford et al. 2019; with Hugging Face's module names, so that a state
dict matches model.safetensors) and the optimizer set-up is the one that nanoGPT documents: AdamW, decay for tensors of
two dimensions or more, clipping by the global norm, warm-up and cosine.  Batches are gpt-train's own: Philox4x32-10 of
(seed, step, sample) selects the block of a sample, see src/base/rng.h and src/data/sampler.h.
"""
import json
import math
import os
import struct

import torch
from torch import nn
from torch.nn import functional as F

MASK = 0xFFFFFFFF
PURPOSE_SAMPLE = 2


def philox4x32_10(key, counter):
    """One block: four 32-bit words (Salmon et al. 2011)."""
    k0, k1 = key
    c = list(counter)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k0, p1 & MASK, (p0 >> 32) ^ c[3] ^ k1, p0 & MASK]
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return c


def philox_key(seed, purpose):
    high = seed >> 32 & MASK
    return seed & MASK, ((high << 8 | high >> 24) & MASK) ^ purpose


def sample_position(seed, step, sample, starts):
    """Returns the start of sample `sample` of step `step`, of `starts` possible ones (sampler=random, one shard)."""
    word = philox4x32_10(philox_key(seed, PURPOSE_SAMPLE), (sample, 0, step & MASK, step >> 32))
    return (word[0] << 32 | word[1]) * starts >> 64


class TrainingBatches:
    """The samples of a step, as gpt-train reads them from a headerless uint16 file."""

    def __init__(self, path, seed, block_size):
        with open(path, "rb") as file:
            raw = bytearray(file.read())
        self.tokens = torch.frombuffer(raw, dtype=torch.int16).to(torch.int64) & 0xFFFF
        self.seed, self.block_size = seed, block_size

    def __call__(self, step, first, count):
        starts = len(self.tokens) - self.block_size
        at = [sample_position(self.seed, step, first + i, starts) for i in range(count)]
        x = torch.stack([self.tokens[p:p + self.block_size] for p in at])
        y = torch.stack([self.tokens[p + 1:p + 1 + self.block_size] for p in at])
        return x, y


class Linear(nn.Module):
    """Weights are [in, out], as in the file."""

    def __init__(self, inputs, outputs, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None

    def forward(self, x):
        return F.linear(x, self.weight.t(), self.bias)


class Norm(nn.Module):
    def __init__(self, width, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class Attention(nn.Module):
    def __init__(self, width, heads, bias):
        super().__init__()
        self.heads = heads
        self.c_attn = Linear(width, 3 * width, bias)
        self.c_proj = Linear(width, width, bias)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for part in self.c_attn(x).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(b, t, c))


class Mlp(nn.Module):
    def __init__(self, width, bias, gelu):
        super().__init__()
        self.c_fc = Linear(width, 4 * width, bias)
        self.c_proj = Linear(4 * width, width, bias)
        self.gelu = gelu

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate=self.gelu))


class Block(nn.Module):
    def __init__(self, width, heads, bias, gelu):
        super().__init__()
        self.ln_1 = Norm(width, bias)
        self.attn = Attention(width, heads, bias)
        self.ln_2 = Norm(width, bias)
        self.mlp = Mlp(width, bias, gelu)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt2(nn.Module):
    """gelu: "none" is erf, "tanh" is GPT-2's, as in F.gelu."""

    def __init__(self, layers, heads, width, vocab, block_size, bias=False, gelu="none"):
        super().__init__()
        self.wte = nn.Embedding(vocab, width)
        self.wpe = nn.Embedding(block_size, width)
        self.h = nn.ModuleList(Block(width, heads, bias, gelu) for _ in range(layers))
        self.ln_f = Norm(width, bias)
        for name, parameter in self.named_parameters():
            if parameter.dim() >= 2:
                residual = name.endswith("c_proj.weight")
                nn.init.normal_(parameter, 0.0, 0.02 / math.sqrt(2 * layers) if residual else 0.02)

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))

    def optimizer(self, lr, betas, weight_decay, **how):
        decayed = [p for p in self.parameters() if p.dim() >= 2]
        others = [p for p in self.parameters() if p.dim() < 2]
        groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=lr, betas=betas, eps=1e-8, **how)


def learning_rate(step, peak, low, warmup, end):
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    if step > end:
        return low
    return low + 0.5 * (1 + math.cos(math.pi * (step - warmup) / (end - warmup))) * (peak - low)


def save_folder(model, folder, heads, block_size, gelu="none"):
    """Writes the weights so that gpt-train and transformers open them; absent biases are zeros."""
    os.makedirs(folder, exist_ok=True)
    state = {name: value.detach().to(torch.float32).contiguous() for name, value in model.named_parameters()}
    layers = len(model.h)
    bias = model.ln_f.bias is not None
    for name in list(state):
        stem = name[:-len("weight")]
        if not bias and name.startswith(("h.", "ln_f")) and name.endswith("weight"):
            width = state[name].shape[-1]
            state[stem + "bias"] = torch.zeros(width)
    header, offset, parts = {"__metadata__": {"format": "pt"}}, 0, []
    for name, value in state.items():
        size = value.numel() * 4
        header["transformer." + name] = {"dtype": "F32", "shape": list(value.shape),
                                         "data_offsets": [offset, offset + size]}
        parts.append(value)
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for value in parts:
            file.write(bytes(value.untyped_storage()) if hasattr(value, "untyped_storage") else value.numpy().tobytes())
    config = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": model.wte.weight.shape[0],
              "n_positions": block_size, "n_ctx": block_size, "n_embd": model.wte.weight.shape[1], "n_layer": layers,
              "n_head": heads, "activation_function": "gelu" if gelu == "none" else "gelu_new",
              "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True, "bos_token_id": None, "eos_token_id": None,
              "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "gpt_train": {"bias": bias}}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
