#!/usr/bin/env python3
"""Seconds per step and peak memory, gpt-train beside PyTorch, interleaved.

    bench/step_time.py --build=BUILD [--batch=4] [--block=64] [--rounds=3] [--steps=4] [--threads=2]
                       [--model=12,12,768,50304] [--work=FOLDER] [--python=PYTHON]

Each round runs gpt-train, then PyTorch (eager, fused AdamW, clipping) in a process of its own, for the same shape and
number of steps; the first step of each process is left out.  Prints one line per round, then minimum, median and the
ratio of medians.  PYTHON needs PyTorch 2; peak memory is the largest resident set of each process.
"""
import argparse
import array
import json
import os
import random
import re
import statistics
import subprocess
import sys
import time


def torch_side(options):
    import torch

    import torch_gpt2 as ref
    torch.set_num_threads(options.threads)
    layers, heads, width, vocab = map(int, options.model.split(","))
    model = ref.Gpt2(layers, heads, width, vocab, options.block, bias=True)
    optimizer = model.optimizer(6e-4, (0.9, 0.95), 0.1, fused=True)
    times = []
    for _ in range(options.steps + 1):
        x = torch.randint(0, 50257 if vocab > 50257 else vocab, (options.batch, options.block + 1))
        start = time.perf_counter()
        loss = model(x[:, :-1], x[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append(time.perf_counter() - start)
    print(json.dumps({"times": times[1:], "version": torch.__version__}))


def run(command, environment=None):
    """Output and the process's own peak resident set in MiB."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit("failed: " + " ".join(command))
    return text, usage.ru_maxrss / 1024


def gpt_train(options, data):
    layers, heads, width, vocab = options.model.split(",")
    text, rss = run([os.path.join(options.build, "gpt-train"), "--dataset=" + data, "--n_layer=" + layers,
                     "--n_head=" + heads, "--n_embd=" + width, "--vocab_size=" + vocab, "--bias=True",
                     "--batch_size=%d" % options.batch, "--block_size=%d" % options.block,
                     "--gradient_accumulation_steps=1", "--max_iters=%d" % options.steps, "--eval_iters=1",
                     "--eval_interval=1000000", "--always_save_checkpoint=False", "--threads=%d" % options.threads,
                     "--out_dir=" + os.path.join(options.work, "out")])
    times = [float(t) / 1e3 for t in re.findall(r"^iter \d+: loss [\d.]+, time ([\d.]+)ms", text, re.M)]
    return times[1:], rss


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name, kind, value in (("build", str, "build"), ("batch", int, 4), ("block", int, 64), ("rounds", int, 3),
                              ("steps", int, 4), ("threads", int, 2), ("model", str, "12,12,768,50304"),
                              ("work", str, "step-time-work"), ("python", str, sys.executable)):
        parser.add_argument("--" + name, type=kind, default=value)
    parser.add_argument("--torch-side", action="store_true")
    options = parser.parse_args()
    if options.torch_side:
        torch_side(options)
        return
    data = os.path.join(options.work, "data/")
    os.makedirs(data, exist_ok=True)
    random.seed(1)
    top = min(50257, int(options.model.split(",")[3]))
    for split in ("train", "val"):
        with open(os.path.join(data, split + ".bin"), "wb") as file:
            array.array("H", (random.randrange(top) for _ in range(200000))).tofile(file)
    ours, theirs, ours_rss, theirs_rss = [], [], 0.0, 0.0
    for number in range(options.rounds):
        times, rss = gpt_train(options, data)
        ours, ours_rss = ours + times, max(ours_rss, rss)
        text, rss = run([options.python, os.path.abspath(__file__), "--torch-side"] + sys.argv[1:])
        side = json.loads(text)
        theirs, theirs_rss = theirs + side["times"], max(theirs_rss, rss)
        print("round %d: gpt-train %.3f s, PyTorch %s %.3f s" %
              (number, statistics.median(times), side["version"], statistics.median(side["times"])), flush=True)
    for name, times, rss in (("gpt-train", ours, ours_rss), ("PyTorch", theirs, theirs_rss)):
        print("%-10s min %.3f s  median %.3f s  peak %.0f MiB" % (name, min(times), statistics.median(times), rss))
    print("ratio: time %.3f of PyTorch's (medians), %.3f (minima); memory %.3f" %
          (statistics.median(ours) / statistics.median(theirs), min(ours) / min(theirs), ours_rss / theirs_rss))


if __name__ == "__main__":
    main()
