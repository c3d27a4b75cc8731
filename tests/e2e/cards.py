#!/usr/bin/env python3
"""Repeats scripts of this folder on the card that backend=auto finds on this machine, if any.

Otherwise the harness does not use cards (GPT_TRAIN_BACKEND, tests/tools/run_test.sh): most scripts compare results of
the cpu.  These compare a card's runs with each other and with PyTorch.  Their output is shown if they fail; their
checks are added up.  Prints "checks: P passed, F failed, S skipped".
"""
import json
import os
import re
import subprocess
import sys
import tempfile

from checks import check, counts, finish, patience, skip

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = ("bad_input.sh", "resume.sh", "sample.sh", "parity_torch.py")
COUNTS = re.compile(r"^checks: (\d+) passed, (\d+) failed, (\d+) skipped$", re.MULTILINE)


def found():
    """Returns the backend that auto selects, from the record of a tiny run."""
    environment = dict(os.environ, GPT_TRAIN_BACKEND="")
    with tempfile.TemporaryDirectory(prefix="gpt-train-cards-") as work:
        data = os.path.join(work, "data")
        os.makedirs(data)
        for name in ("train.bin", "val.bin"):
            with open(os.path.join(data, name), "wb") as file:
                file.write(bytes(2000))
        out = os.path.join(work, "out")
        done = subprocess.run([os.environ["GPT_TRAIN"], f"--dataset={data}", f"--out_dir={out}", "--n_layer=1", "--n_head=1",
                               "--n_embd=16", "--block_size=16", "--batch_size=1", "--gradient_accumulation_steps=1",
                               "--vocab_size=8", "--max_iters=1", "--eval_iters=1", "--always_save_checkpoint=True"],
                              env=environment, capture_output=True, text=True, timeout=patience(300), check=False)
        check(done.returncode == 0, f"a tiny run: {done.stderr[-500:]}")
        with open(os.path.join(out, "trainer_state.json"), encoding="utf-8") as file:
            return json.load(file)["plan"]["backend"]


def script(name, backend):
    path = os.path.join(HERE, name)
    command = ["sh", path] if name.endswith(".sh") else [sys.executable, "-B", path]
    done = subprocess.run(command, env=dict(os.environ, GPT_TRAIN_BACKEND=backend), capture_output=True, text=True, check=False)
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
        return finish()
    for name in SCRIPTS:
        script(name, backend)
    return finish()


if __name__ == "__main__":
    sys.exit(main())
