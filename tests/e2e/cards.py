#!/usr/bin/env python3
"""Repeats scripts of this folder on the card that backend=auto finds on this machine, if any.

Otherwise the harness does not use cards (GPT_TRAIN_BACKEND, tests/tools/run_test.sh): most scripts compare results of
the cpu.  These compare a card's runs with each other and with PyTorch.  Their output is shown if they fail; their
checks are added up.
"""
import os
import re
import subprocess
import sys

from checks import GPT_TRAIN, check, counts, end, patience, ran, read_json, skip, write

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = ("bad_input.sh", "resume.sh", "sample.sh", "parity_torch.py")
COUNTS = re.compile(r"^checks: (\d+) passed, (\d+) failed, (\d+) skipped$", re.MULTILINE)


def found():
    """Returns the backend that auto selects, from the record of a tiny run."""
    for name in ("train.bin", "val.bin"):
        write(f"data/{name}", bytes(2000))
    done = subprocess.run([GPT_TRAIN, "--dataset=./data", "--n_layer=1", "--n_head=1", "--n_embd=16", "--block_size=16", "--batch_size=1",
                           "--gradient_accumulation_steps=1", "--vocab_size=8", "--max_iters=1", "--eval_iters=1"],
                          env=dict(os.environ, GPT_TRAIN_BACKEND=""), capture_output=True, text=True, timeout=patience(300), check=False)
    check(done.returncode == 0, f"a tiny run: {done.stderr[-500:]}")
    return read_json("out/trainer_state.json")["plan"]["backend"]


def script(name, backend):
    path = os.path.join(HERE, name)
    command = ["sh", path] if name.endswith(".sh") else [sys.executable, "-B", path]
    done = ran(*command, env=dict(os.environ, GPT_TRAIN_BACKEND=backend))
    sums = COUNTS.findall(done.stdout)
    check(sums and (done.returncode in (0, 77)) == (sums[-1][1] == "0"), f"{name} on {backend} ended with {done.returncode}")
    if done.returncode not in (0, 77):
        sys.stderr.write(done.stdout + done.stderr)
    print("".join(line + "\n" for line in done.stdout.splitlines() if line.startswith("SKIP ")), end="")
    for word, number in zip(("passed", "failed", "skipped"), sums[-1] if sums else ()):
        counts[word] += int(number)


def main():
    backend = found()
    if backend == "cpu":
        skip("cards", "backend=auto takes the cpu here: no card, or this build has no backend for it")
        return
    for name in SCRIPTS:
        script(name, backend)


end(main)
