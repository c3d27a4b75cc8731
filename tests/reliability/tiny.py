"""What the scripts of this folder share: a tiny run that saves twice, system calls of it, and what a folder holds.

The run is one thread, so that strace's count of calls per name is the same in every run.  Scripts that try cases for long
take "--part=K/N" on their command line: every N-th case from the K-th on, so that N runs together try each once.
"""
import array
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "e2e"))  # for checks.py
from checks import part  # noqa: E402,F401  pylint: disable=wrong-import-position,unused-import

GPT_TRAIN = os.environ["GPT_TRAIN"]
LONG = os.environ.get("CHECK_LONG", "") not in ("", "0")
SEED = int(os.environ.get("SEED", "1337"))
ITERATIONS = 4
LIMIT_SECONDS = 60 if not LONG else 1200  # a hang; what takes hours may be stopped for a while, or be the least urgent
RUN = ["--dataset=./data", "--n_layer=1", "--n_head=2", "--n_embd=16", "--block_size=16", "--batch_size=2", "--vocab_size=61",
       "--gradient_accumulation_steps=2", "--eval_interval=2", "--eval_iters=1", "--threads=1", "--warmup_iters=1",
       "--lr_decay_iters=4", "--dropout=0.1", f"--max_iters={ITERATIONS}"]
# Waiting threads are limited already, so that the program does not start itself anew.
ENVIRONMENT = dict(os.environ, GOMP_SPINCOUNT="0", OMP_NUM_THREADS="1", LC_ALL="C", TZ="UTC")
# A build with AddressSanitizer looks for leaks by tracing itself, which cannot be where strace does.
TRACED = dict(ENVIRONMENT, ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0")


def arguments():
    """What the command line says beside the part."""
    return [argument for argument in sys.argv[1:] if not argument.startswith("--part=")]


def make_data():
    generator = random.Random(SEED)
    os.makedirs("data")
    for name in ("train.bin", "val.bin"):
        with open(os.path.join("data", name), "wb") as file:
            array.array("H", (generator.randrange(61) for _ in range(2000))).tofile(file)


def command(out, *arguments):
    return [GPT_TRAIN, *RUN, f"--out_dir={out}", *arguments]


def run(out, *arguments, tracer=(), timeout=LIMIT_SECONDS):
    return subprocess.run([*tracer, *command(out, *arguments)], env=TRACED if tracer else ENVIRONMENT, capture_output=True,
                          text=True, timeout=timeout, check=False)


def resume(out, *arguments, **how):
    """Goes on where the folder stands, or from scratch where it holds no run."""
    begun = os.path.exists(os.path.join(out, "trainer_state.json"))
    return run(out, *(["--init_from=resume"] if begun else []), *arguments, **how)


def contents(out):
    """What a checkpoint is: where it stands, and a digest of each of its files, by their role; {} without a record."""
    try:
        with open(os.path.join(out, "trainer_state.json"), encoding="utf-8") as file:
            record = json.load(file)
    except FileNotFoundError:
        return {}
    found = {name: record[name] for name in ("iter", "adam_step", "tokens_seen", "samples_seen", "evaluations")}
    for role, entry in zip(("model", "optimizer"), record["files"]):
        with open(os.path.join(out, entry["name"]), "rb") as file:
            found[role] = hashlib.sha256(file.read()).hexdigest()
    with open(os.path.join(out, "model.safetensors"), "rb") as file:
        found["published"] = hashlib.sha256(file.read()).hexdigest()
    with open(os.path.join(out, "config.json"), "rb") as file:
        found["config"] = hashlib.sha256(file.read()).hexdigest()
    return found


def leftovers(out):
    """Files that a finished run does not leave."""
    return [name for name in os.listdir(out) if ".tmp-" in name]


def clear(folder):
    shutil.rmtree(folder, ignore_errors=True)


def has_strace():
    try:
        return subprocess.run(["strace", "-qq", "-o", os.devnull, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def trace(out, *arguments, start=None):
    """The system calls of a run, in order: [(name, number of this name, inside a save)].  A save begins with a file aside and
    ends with the line that reports it.  The list ends where the run, at its end, looks at the other processes of the machine:
    from there on the numbers depend on how many there are."""
    log = os.path.abspath("strace.log")
    if start is None:
        done = run(out, *arguments, tracer=("strace", "-qq", "-o", log))
    else:
        done = start(tracer=("strace", "-qq", "-o", log))
    if done.returncode != 0:
        sys.exit(f"the run under strace failed: {done.stderr[-2000:]}")
    calls, counts, saving = [], {}, False
    with open(log, encoding="utf-8", errors="replace") as file:
        for line in file:
            match = re.match(r"(\w+)\(", line)
            if not match:
                continue
            if re.search(r'"/proc/\d+/', line):
                break
            name = match.group(1)
            counts[name] = counts.get(name, 0) + 1
            saving = saving or ".tmp-" in line
            calls.append((name, counts[name], saving))
            saving = saving and not (name == "write" and "saving checkpoint" in line)
    return calls
