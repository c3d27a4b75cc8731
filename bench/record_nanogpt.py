#!/usr/bin/env python3
"""nanoGPT's own checkpoint, continued by nanoGPT and by gpt-train: ten steps' losses side by side.

Usage: record_nanogpt.py NANOGPT GPT_TRAIN [PYTHON]
NANOGPT is a checkout of nanoGPT (published figures: commit 3adf61e), GPT_TRAIN the program, PYTHON one with PyTorch and
numpy.  The token files have block_size + 1 tokens, so that every sample is the same in both programs and the batches
agree by construction; dropout is 0.  nanoGPT trains 20 iterations from scratch on the CPU and saves; both continue its
ckpt.pt to iteration 30.  Prints the losses (nanoGPT prints four digits) and the largest difference; exit status 1 if it
is above 1e-4.  This project contains no part of nanoGPT.
"""

import array
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

BLOCK = 64
STEPS = 10
TOLERANCE = 1e-4
CONFIG = f"""
dataset = 'one'
n_layer = 3
n_head = 4
n_embd = 64
block_size = {BLOCK}
batch_size = 4
gradient_accumulation_steps = 2
dropout = 0.0
learning_rate = 1e-3
min_lr = 1e-4
warmup_iters = 5
lr_decay_iters = 100
max_iters = 20
eval_interval = 20
eval_iters = 1
log_interval = 1
device = 'cpu'
compile = False
"""


def run(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return {int(i): float(loss) for i, loss in re.findall(r"^iter (\d+): loss ([\d.]+)", done.stdout, re.M)}


def data_make(folder):
    os.makedirs(folder)
    dice = random.Random(1337)
    ids = array.array("H", [dice.randrange(50000) for _ in range(BLOCK + 1)])
    for name in ("train.bin", "val.bin"):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(ids.tobytes())


def compare(nanogpt, program, python, bias, work):
    folder = os.path.join(work, f"bias-{bias}")
    shutil.copytree(nanogpt, folder, ignore=shutil.ignore_patterns(".git"))
    data_make(os.path.join(folder, "data", "one"))
    with open(os.path.join(folder, "record.py"), "w", encoding="utf-8") as file:
        file.write(CONFIG + f"bias = {bias}\nout_dir = 'out'\n")
    run([python, "train.py", "record.py"], folder)
    last, never = f"--max_iters={20 + STEPS}", "--eval_interval=1000"
    theirs = run([python, "train.py", "record.py", "--init_from=resume", last, never], folder)
    ours = run([program, "--init_from=out/ckpt.pt", "--out_dir=ours", last, never], folder)
    worst = 0.0
    for i in range(20, 20 + STEPS + 1):
        difference = abs(theirs[i] - ours[i])
        worst = max(worst, difference)
        print(f"bias {bias!s:5} iter {i}: nanoGPT {theirs[i]:.4f}  gpt-train {ours[i]:.4f}  difference {difference:.4f}")
    return worst


def main(arguments):
    if len(arguments) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    nanogpt, program = (os.path.abspath(path) for path in arguments[:2])
    python = arguments[2] if len(arguments) == 3 else sys.executable
    with tempfile.TemporaryDirectory() as work:
        worst = max(compare(nanogpt, program, python, bias, work) for bias in (False, True))
    # The losses have four digits.
    good = worst <= TOLERANCE + 1e-9
    print(f"largest difference {worst:.4f}: {'within' if good else 'ABOVE'} {TOLERANCE}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
