#!/usr/bin/env python3
"""half_sums in the emulated cuda backend (tests/cuda_on_cpu), whose tensor cores round an fp16 sum after every 4 of K.

  ends      gelu, swiglu, their backwards and residual end the products that they read, and leave the bytes of kernels of
            their own, as which every other run is profiled
  used      with float16 on a GeForce, auto and on leave the same bytes; they are others than off's, and losses and
            norms are close
  resumed   a resumed run leaves the bytes of the uninterrupted one
  tuned     --tune chooses between fp16 and fp32 sums, and a resumed run does not choose again
  no gain   on a card that gains nothing or lacks the instruction, or with another dtype, `on` says so once and leaves the
            bytes of `off`; `auto` waits for a card that is known to gain; tests have them on every card from 8.0 on
  overflow  updates whose gradients overflow are skipped and counted, and training goes on
  seeds     2,000 steps with fp16 sums end within the spread of three seeds without them (CHECK_LONG=1)
"""
import math

from checks import LONG, check, make_tokens, metrics
from cuda_common import Run, GPT_TRAIN_CUDA, checkpoint, end_emulated, good, losses, train

COMMON = ["--backend=cuda", "--eval_interval=100", "--max_iters=2", "--dropout=0.1", "--lr_decay_iters=2",
          "--batch_size=4", "--micro_batch=4"]
SEEDED = ["--dataset=./long", "--vocab_size=256", "--n_layer=2", "--n_head=3", "--n_embd=48", "--block_size=32", "--batch_size=8",
          "--gradient_accumulation_steps=1", "--dtype=float16", "--max_iters=2000", "--eval_interval=2000", "--eval_iters=20",
          "--learning_rate=2e-3", "--warmup_iters=100", "--lr_decay_iters=2000", "--threads=1", "--log_interval=100"]
EFFECT = "half_sums has no effect"


def halved(out, word, *more, dtype="float16", **environment):
    return good(train(out, *COMMON, f"--dtype={dtype}", f"--half_sums={word}", *more, **environment))


def used():
    runs = {word: halved(word, word) for word in ("off", "auto", "on")}
    check(not any(EFFECT in run.err for run in runs.values()), f"{EFFECT} on a GeForce")
    check(checkpoint("on") == checkpoint("auto") != checkpoint("off"), "fp16 sums are not used, or not by both words")
    pairs = [max(abs(a - b) / abs(a) for a, b in zip(*both)) for both in zip(losses("off"), losses("on"))]
    check(len(pairs) == 3 and max(pairs) < 2 ** -8, f"fp16 sums are {pairs} from fp32 sums")


def ends():
    # With dropout swiglu's gradients may replace what the product before reads, and stay a kernel of their own.
    for name, more in (("gpt", ()), ("tanh", ("--gelu=tanh", "--recompute=mlp")), ("llama", ("--arch=llama", "--n_inner=64", "--dropout=0")),
                       ("recomputed", ("--arch=llama", "--n_inner=192", "--micro_batch=5", "--batch_size=5", "--recompute=mlp", "--dropout=0")),
                       ("narrow", ("--arch=llama", "--n_inner=72")), ("geglu", ("--arch=llama", "--mlp=geglu", "--n_inner=128", "--dropout=0"))):
        more = ("--max_iters=0", *more)
        halved("ends-" + name, "on", *more, ORDER="random:7")
        halved("apart-" + name, "on", "--profile=True", *more)
        check(checkpoint("ends-" + name) == checkpoint("apart-" + name), f"{name}: the end of a product leaves other bytes")


def resumed():
    halved("parts", "on", "--max_iters=1")
    halved("parts", "on", "--init_from=resume")
    check(checkpoint("parts") == checkpoint("on"), "a resumed run leaves other bytes")


def tuned():
    halved("tuned", "on", "--tune=True", "--max_iters=1")
    halved("tuned", "on", "--tune=True", "--init_from=resume")
    halved("tuned-once", "on", "--tune=True")
    check(checkpoint("tuned") == checkpoint("tuned-once"), "a resumed run chooses other sums")


def no_gain():
    for name, dtype, environment, words in (
            ("h100", "float16", {"DEVICES": "90:12g:NVIDIA H100"}, "as fast with fp32 sums"),
            ("bfloat16", "bfloat16", {}, "dtype=bfloat16"),
            ("turing", "float16", {"DEVICES": "75:12g:GeForce RTX 2060"}, "needs capability 8.0")):
        halved("without-" + name, "off", "--max_iters=0", dtype=dtype, **environment)
        said = halved(name, "on", "--max_iters=0", dtype=dtype, **environment)
        check(said.err.count(words) == 1, f"{name}: {words} is not said once: {said.err[-600:]}")
        check(checkpoint(name) == checkpoint("without-" + name), f"{name}: other bytes than without fp16 sums")
    said = halved("h100-test", "on", DEVICES="90:12g:NVIDIA H100", GPT_TRAIN_CUDA_HALF_SUMS="any")
    check(EFFECT not in said.err and said.err.count("which is for tests") == 1, f"a test's fp16 sums are not said once: {said.err[-600:]}")
    check(checkpoint("h100-test") == checkpoint("on"), "a test has no fp16 sums on an H100")
    for word, same in (("auto", True), ("on", False)):
        said = halved("unknown-" + word, word, DEVICES="86:12g:NVIDIA RTX A4000")
        check(EFFECT not in said.err and (checkpoint("unknown-" + word) == checkpoint("off")) == same, f"A4000: {word}")


def overflow():
    halved("overflow", "on", "--gradient_accumulation_steps=1", "--learning_rate=3", "--max_iters=12",
           "--dropout=0", "--warmup_iters=0")
    lines = metrics("overflow")
    skipped = [line["skipped"] for line in lines]
    check(skipped[-1] > 0, f"no update was skipped: {skipped}")
    check(lines[-1]["loss_scale"] == 65536 / 2 ** skipped[-1], f"{skipped}, scale {lines[-1]['loss_scale']}")
    check(skipped[-1] < len(lines) - 1 and math.isfinite(lines[-1]["loss"]), f"training does not go on: {skipped}")


def seeds():
    if not LONG:
        return
    make_tokens("long", 400000)
    ends = {}
    for seed, backend, word in ((1, "cpu", "off"), (2, "cpu", "off"), (3, "cpu", "off"), (1, "cuda", "on")):
        out = f"seed-{seed}-{word}"
        good(Run(GPT_TRAIN_CUDA, *SEEDED, f"--out_dir={out}", f"--seed={seed}", f"--backend={backend}", f"--half_sums={word}"))
        ends[out] = metrics(out, "val_loss")[-1]["val_loss"]
        print(f"{out}: validation loss {ends[out]:.4f}", flush=True)
    half = ends.pop("seed-1-on")
    check(abs(half - ends["seed-1-off"]) <= max(ends.values()) - min(ends.values()), f"{half} with fp16 sums, {ends} without")


end_emulated("cuda_half_sums", used, ends, resumed, tuned, no_gain, overflow, seeds)
