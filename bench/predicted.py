"""What a model of the time of each op predicts for GPT-2 124M with 64 x 1024 tokens an update in bfloat16, and the table
of gpu-check --quick: predicted, measured, ratio.

No figure here is a measurement, except PyTorch's on an H100 with flash attention (bench/results/2026-11-23-h100.md).
They are FLOPs or bytes at a share of the card's rate; C = 768 elements of 2 bytes:

  products       6 x 124M x 65,536 = 48.6 TFLOP at 680 TFLOP/s of an H100's 989, at 0.92 of a GeForce's rate with fp32 sums
  attention      forward two causal products of 12 x 64 x 12 heads, 1.24 TFLOP; backward five, 3.1 TFLOP.  H100: its shared
                 memory takes 2,304 and 1,790 clocks where tensor cores take 1,640 and 1,024; GeForce: 0.8 and 0.75
  gelu           20 C a token and block: 24.2 GB at 0.76 of an H100's memory, 0.92 of a GeForce's
  layernorm      25 x 6 C a token: 15.1 GB at 0.75 and 0.88
  residual       24 x 3 C a token: 7.2 GB at 0.9
  cross-entropy  logits read and written: 13.2 GB
  AdamW, norm    34 bytes a parameter: 4.2 GB
  the rest       embeddings, sums of losses, 300 nodes of a graph
  fp16 sums      products 1.6 times as fast, and their ends; attention 1.5 times: tensor cores take half, the rest stays
  ends           of gelu's five passes two are left beside a product, of the residual's three one, for the product is not stored;
                 our own products with fp32 sums are as fast as cuBLASLt's on a GeForce
  PyTorch        the same library and bytes, residual and norm in one; casts of the weights and fp32 gradients; with cuDNN
                 attention's backward takes 5 to 7 ms less than with flash
  tuning         cuBLASLt's first algorithm is within 0 to 4 % of the best; on a GeForce it finds the ends besides
"""

# Rows of the table that are ops: the ops of a profile that each of them adds up, in milliseconds of an update.
OPS = {
    "products, ms": ("gemm",),
    "attention forward, ms": ("attention_forward",),
    "attention backward, ms": ("attention_backward",),
    "gelu, ms": ("gelu_forward", "gelu_backward"),
    "layernorm, ms": ("layernorm_forward", "layernorm_backward"),
    "residual, ms": ("residual",),
    "cross-entropy, ms": ("cross_entropy",),
    "AdamW and norm, ms": ("adamw", "sum_of_squares", "clip_factor"),
}
REST, UPDATE = "the rest and gaps, ms", "update, ms"
NAMES = ("tokens/s", *OPS, REST, UPDATE, "tokens/s, fp16 sums", "tokens/s, PyTorch flash", "tokens/s, PyTorch cuDNN",
         "gain of tuning", "own products, of cuBLASLt's rate", "mma, fp32 sums, TFLOP/s", "mma, fp16 sums, TFLOP/s", "memory, GB/s")
# What is left of an op beside the product that it ends, as a share of its own passes; of 12 blocks and 65,536 tokens.
ENDS = {"ends of gelu (ms)": ("gelu", 2 / 5), "ends of the residual (ms)": ("residual", 1 / 3)}
BLOCKS, TOKENS = 12, 65536
# By a part of the card's name; the longest that occurs in it counts.  None: no prediction.
CARDS = {
    "H100": (560e3, 70, 5.6, 15, 9.5, 6, 2.4, 5, 1.8, 1.7, 117, None, 511e3, 541e3, 1.01, None, None, None, 3350),
    "RTX 3060": (26.2e3, 2071, 61, 162, 75, 49, 23, 40, 13, 10, 2504, 41.2e3, 25.7e3, None, 1.05, 1, 25.5, 50.9, 360),
    "RTX 4070": (57.0e3, 906, 26, 70, 52, 34, 16, 29, 9, 7, 1149, 89.1e3, 56e3, None, 1.06, 1, 58.3, 116.6, 504),
    "RTX 4090": (154e3, 320, 9.4, 25, 26, 17, 8, 14, 5, 2, 426, 239e3, 150e3, None, 1.08, 1, 165, 330, 1008),
}
OTHER_CARDS = ("H100 PCIe", "H100 NVL", "RTX 3060 Ti", "RTX 3060 Laptop", "RTX 4070 Ti", "RTX 4070 SUPER", "RTX 4070 Laptop",
               "RTX 4090 D", "RTX 4090 Laptop")


def predictions(device):
    """Returns {name: prediction} for a card, all None for a card that has none."""
    known = max((name for name in (*CARDS, *OTHER_CARDS) if name in device), key=len, default=None)
    found = dict(zip(NAMES, CARDS.get(known, [None] * len(NAMES))))
    ends = {name: found[op + ", ms"] * share if known in CARDS else None for name, (op, share) in ENDS.items()}
    return {**found, **ends}


def op_milliseconds(facts):
    """Returns {name: milliseconds} of an update's ops, from the shares of a profile and the time of steady updates."""
    total = facts["steady gpt-train"]["seconds"] * 1e3
    busy = total * (1 - max(facts["gaps"]["share"], 0) / 100)
    share = {one["op"]: one["share"] for one in facts["ops"]}
    found = {name: busy * sum(share.get(op, 0) for op in ops) / 100 for name, ops in OPS.items()}
    return {**found, REST: total - sum(found.values()), UPDATE: total}


def measurements(facts):
    """Returns {name: figure} of what was measured."""
    found = {}
    for name, fact in (("tokens/s", "steady gpt-train"), ("tokens/s, fp16 sums", "steady half_sums"),
                       ("tokens/s, PyTorch flash", "PyTorch flash"), ("tokens/s, PyTorch cuDNN", "PyTorch cuDNN")):
        if fact in facts:
            found[name] = facts[fact]["tokens_per_s"]
    if "tokens/s" in found:
        found.update(op_milliseconds(facts) if "ops" in facts else {})
        if "steady tuned" in facts:
            found["gain of tuning"] = facts["steady tuned"]["tokens_per_s"] / found["tokens/s"]
    if "own before cuBLASLt's" in facts.get("product gains", {}):
        found["own products, of cuBLASLt's rate"] = facts["product gains"]["own before cuBLASLt's"]
    if "ends" in facts:
        found.update({name: facts["ends"][op] * BLOCKS * TOKENS * 1e3 for name, (op, _) in ENDS.items()})
    for name, fact, scale in (("mma, fp32 sums, TFLOP/s", "fp32_sums_flops", 1e-12), ("mma, fp16 sums, TFLOP/s", "fp16_sums_flops", 1e-12),
                              ("memory, GB/s", "memory_bytes", 1e-9)):
        if "rates" in facts:
            found[name] = facts["rates"][fact] * scale
    return found


def number(value):
    return "-" if value is None else "%.4g" % value if value < 1e4 else "%.0f" % value


def table(facts):
    """Returns the lines of the table: the card's figures, then those of `facts["forecasts"]`, {name: (forecast, measured)},
    whose predictions are of the machine itself: forecasts of runs, planned bytes."""
    known, measured = predictions(facts.get("device", "")), measurements(facts)
    rows = [(name, known[name], measured.get(name)) for name in (*NAMES, *ENDS)] + [
        (name, *pair) for name, pair in facts.get("forecasts", {}).items()]
    lines = ["%-34s %12s %12s %8s" % ("", "predicted", "measured", "ratio")]
    for name, predicted, found in rows:
        ratio = found / predicted if predicted and found is not None else None
        lines.append("%-34s %12s %12s %8s" % (name, number(predicted), number(found), "-" if ratio is None else "%.3f" % ratio))
    return lines
