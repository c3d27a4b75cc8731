#!/usr/bin/env python3
"""For published figures, not in CI: what a run learns in other dtypes, in other state formats, with Muon, and in PyTorch.

    bench/record_training.py --build=BUILD [--iterations=2000] [--seeds=3] [--threads=N] [--only=NAME,...] TEXT

Trains nanoGPT's CPU configuration (config/shakespeare_char_cpu.py) on the text, by characters, from the same initial
weights and batches: float32, then float16, every state format in bfloat16, Muon, and, if named, torch (PYTHON needs
PyTorch 2).  Prints the loss of the whole validation split after the last update, the mean and largest difference from
float32's, bytes per parameter and the milliseconds per step.  For Muon it also prints the interpolated iteration at
which the loss of 20 validation batches reaches AdamW's final one, and the seconds until then.  Bounds of dtypes and
formats: a mean difference of 0.005; of master and float16 also 0.01 for any seed.
"""
import json
import os
import re
import statistics
import sys
import tempfile
import time

from common import TOP, options_of, program, run

RUNS = {
    "float32": ["--dtype=float32"],
    "float16": ["--dtype=float16"],
    "master": ["--dtype=bfloat16", "--state_format=master"],
    "sr": ["--dtype=bfloat16", "--state_format=sr"],
    "sr_bf16": ["--dtype=bfloat16", "--state_format=sr_bf16"],
    "sr_8bit": ["--dtype=bfloat16", "--state_format=sr_8bit"],
    "sr_8bit_full": ["--dtype=bfloat16", "--state_format=sr_8bit_full"],
    "muon": ["--dtype=float32", "--optimizer=muon"],
    "muon_sr_bf16": ["--dtype=bfloat16", "--state_format=sr_bf16", "--optimizer=muon"],
}
MEAN_BOUND, SEED_BOUND = 0.005, 0.01
CURVE = 100, 20  # iterations between evaluations, and batches of each
LAYERS, HEADS, WIDTH, BLOCK, BATCH = 4, 4, 128, 64, 12  # of the configuration, as are the optimizer's numbers below


class Course:
    """A run and then an evaluation of the whole validation split: loss, curve, times in milliseconds, bytes per
    parameter."""

    def __init__(self, options, work, name, seed):
        command = [program(options.build, "gpt-train"), os.path.join(TOP, "config", "shakespeare_char_cpu.py"),
                   f"--dataset={work}/data", f"--out_dir={work}/out-{name}-{seed}", f"--seed={seed}",
                   f"--threads={options.threads}", *RUNS[name]]
        log, _ = run([*command, f"--max_iters={options.iterations - 1}", "--log_interval=1", f"--eval_interval={CURVE[0]}",
                      f"--eval_iters={CURVE[1]}", "--always_save_checkpoint=True"], work)
        self.times = [float(ms) for ms in re.findall(r"^iter \d+: .*time ([0-9.]+)ms", log, re.MULTILINE)]
        self.curve = [(int(step), float(loss))
                      for step, loss in re.findall(r"^step (\d+): .*val loss ([0-9.]+)", log, re.MULTILINE)]
        log, _ = run([*command, "--init_from=resume", "--eval_only=True", "--eval_iters=0"], work)
        self.loss = float(re.search(r"val loss ([0-9.]+)", log).group(1))
        log, _ = run([*command, "--plan"], work)
        self.bytes = float(re.search(r"([0-9.]+) bytes per parameter", log).group(1))

    def reaches(self, target):
        """Returns the iteration at which the curve falls to the target, and the seconds until then; None when it does
        not."""
        for (before, high), (after, low) in zip(self.curve, self.curve[1:]):
            if low <= target < high:
                at = before + (after - before) * (high - target) / (high - low)
                return at, sum(self.times[:int(at)]) / 1e3
        return None


class TorchCourse:
    """The same by PyTorch, from gpt-train's own initial weights (those of float32) and in the order of its samples."""

    bytes = 16.0

    def __init__(self, options, work, _, seed):
        import torch  # pylint: disable=import-outside-toplevel
        import torch_gpt2 as ref  # pylint: disable=import-outside-toplevel
        torch.set_num_threads(options.threads or len(os.sched_getaffinity(0)))
        start = f"{work}/out-start-{seed}"
        run([program(options.build, "gpt-train"), os.path.join(TOP, "config", "shakespeare_char_cpu.py"),
             f"--dataset={work}/data", f"--out_dir={start}", f"--seed={seed}", *RUNS["float32"], "--max_iters=0", "--eval_iters=1",
             "--learning_rate=0", "--min_lr=0", "--always_save_checkpoint=True"], work)
        with open(os.path.join(start, "config.json"), encoding="utf-8") as file:
            self.model = ref.Gpt2(LAYERS, HEADS, WIDTH, json.load(file)["vocab_size"], BLOCK)
        ref.load_folder(self.model, start)
        batches, self.times = ref.TrainingBatches(f"{work}/data/train.bin", seed, BLOCK), []
        optimizer = self.model.optimizer(1e-3, (0.9, 0.99), 0.1)
        for step in range(options.iterations):
            begin = time.perf_counter()
            for group in optimizer.param_groups:
                group["lr"] = ref.learning_rate(step, 1e-3, 1e-4, 100, 2000)
            self.model(*batches(step, 0, BATCH)).backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            self.times.append(1e3 * (time.perf_counter() - begin))
        with torch.no_grad():
            self.loss = self.whole_split(ref.TrainingBatches(f"{work}/data/val.bin", 0, BLOCK).tokens)

    def whole_split(self, tokens):
        """Returns the mean loss of all tokens but the first, by windows; the last has its full context too."""
        total, count = 0.0, len(tokens) - 1
        for at in range(0, count, BLOCK):
            start = min(at, count - BLOCK)
            targets = tokens[start + 1:start + 1 + BLOCK].clone()
            targets[:at - start] = -100  # counted before
            total += self.model(tokens[start:start + BLOCK][None], targets[None]).item() * (start + BLOCK - at)
        return total / count


def report(name, courses, base):
    """Prints the seeds of a run compared with float32's; returns true when the bounds, if any, are met."""
    losses = [course.loss for course in courses]
    differences = [loss - other.loss for loss, other in zip(losses, base)]
    mean, worst = statistics.fmean(differences), max(map(abs, differences))
    free = name.startswith("muon") or name == "torch"
    holds = free or mean <= MEAN_BOUND and (worst <= SEED_BOUND or name not in ("master", "float16"))
    print(f"{name:13} {statistics.fmean(losses):.4f} ({' '.join(f'{loss:.4f}' for loss in losses)}), {mean:+.4f} to float32, "
          f"{worst:.4f} at most, {courses[0].bytes:.2f} bytes per parameter, {statistics.median(courses[0].times):.2f} ms per "
          f"step{'' if holds else '  FAILED'}", flush=True)
    for seed, (course, other) in enumerate(zip(courses, base), start=1):
        if name.startswith("muon"):
            reached = course.reaches(other.curve[-1][1])
            print(f"  seed {seed}: AdamW's {other.curve[-1][1]:.4f} after {sum(other.times) / 1e3:.0f} s; " +
                  ("not reached" if reached is None else f"iteration {reached[0]:.0f}, {reached[1]:.0f} s"), flush=True)
    return holds


def main():
    options = options_of(__doc__, "text", build=".", iterations=2000, seeds=3, threads=0, only=",".join(RUNS))
    names = ["float32"] + [name for name in options.only.split(",") if name != "float32"]
    with tempfile.TemporaryDirectory(prefix="gpt-train-training-") as work:
        run([program(options.build, "gpt-prepare"), "--tokenizer=chars", f"--out_dir={work}/data", os.path.abspath(options.text)])
        courses = {name: [] for name in names}
        for seed in range(1, options.seeds + 1):
            for name in names:
                courses[name].append((TorchCourse if name == "torch" else Course)(options, work, name, seed))
                print(f"seed {seed} {name:13} validation loss {courses[name][-1].loss:.4f}", flush=True)
        good = all([report(name, courses[name], courses["float32"]) for name in names])
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
