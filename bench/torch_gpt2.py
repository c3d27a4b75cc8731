"""A GPT-2 in PyTorch, and gpt-train's sample order, for side-by-side runs.

The model follows the published architecture (Radford et al. 2019; with Hugging Face's module names, so that a state
dict matches model.safetensors) and the optimizer set-up is the one that nanoGPT documents: AdamW, decay for tensors of
two dimensions or more, clipping by the global norm, warm-up and cosine.  Batches are gpt-train's own: Philox4x32-10 of
(seed, step, sample) selects the block of a sample, see src/base/rng.h and src/data/sampler.h.
"""
import json
import math
import os

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
    def __init__(self, width, bias):
        super().__init__()
        self.c_fc = Linear(width, 4 * width, bias)
        self.c_proj = Linear(4 * width, width, bias)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, width, heads, bias):
        super().__init__()
        self.ln_1 = Norm(width, bias)
        self.attn = Attention(width, heads, bias)
        self.ln_2 = Norm(width, bias)
        self.mlp = Mlp(width, bias)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt2(nn.Module):
    def __init__(self, layers, heads, width, vocab, block_size, bias=False):
        super().__init__()
        self.wte = nn.Embedding(vocab, width)
        self.wpe = nn.Embedding(block_size, width)
        self.h = nn.ModuleList(Block(width, heads, bias) for _ in range(layers))
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


def load_folder(model, folder):
    """Reads the weights that gpt-train saved; biases that the model does not have are left out."""
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        raw = file.read()
    length = int.from_bytes(raw[:8], "little")
    header, body = json.loads(raw[8:8 + length]), bytearray(raw[8 + length:])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            entry = header["transformer." + name]
            begin, end = entry["data_offsets"]
            parameter.copy_(torch.frombuffer(body[begin:end], dtype=torch.float32).view(entry["shape"]))
