#!/usr/bin/env python3
"""Every allocation of the programs fails, once or from then on: those of the project's code and of jansson, mapped memory,
streams and threads (faulty_memory.c).

  train    a run from the beginning that evaluates, samples and saves
  resume   one that goes on
  foreign  one that begins with a model in Hugging Face's layout
  plan     the search for a plan that fits a budget
  sample, prepare, export

After each: no death by a signal, no hang, an error line where the program gave up, and where it did not, the results of a
run without faults; no memory that was never released (the programs count, and so does AddressSanitizer); and the same command
without a fault, on what was left, has those results.

In `make check` a sample; with CHECK_LONG=1 every one, or with --part=K/N every N-th; names on the command line choose
commands.  Needs a linker that wraps functions.  Prints "checks: P passed, F failed, S skipped".
"""
import glob
import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile

import tiny

from checks import check, finish, skip

FAULTY = os.path.join(os.path.abspath(os.environ.get("top_builddir", ".")), "tests", "reliability")
SAMPLE = 15 if not tiny.LONG else 1 << 30  # of each command
WORDS = [word for word in tiny.RUN if not word.startswith(("--vocab_size", "--dataset"))] + [
    "--dataset=./text", "--sample_tokens=4", "--out_dir=work"]
MODEL = ["--n_layer=2", "--n_head=2", "--n_embd=32", "--block_size=64"]


def digests(folder):
    """Of each file of a folder, but what a run says of its times."""
    found = {}
    for path in sorted(glob.glob(os.path.join(folder, "*"))):
        if os.path.isfile(path) and os.path.basename(path) not in ("lock", "metrics.jsonl", "trainer_state.json"):
            with open(path, "rb") as file:
                found[os.path.basename(path)] = hashlib.sha256(file.read()).hexdigest()
    return found


def checkpoint():
    """What tiny.contents() says; nothing of a record that cannot be read."""
    try:
        return tiny.contents("work")
    except (ValueError, KeyError) as error:
        return {"unreadable": str(error)}


class Command:
    """A program, its arguments, the folder that its work begins with, and what its results are."""

    def __init__(self, name, program, words, begin=None, results=lambda done: checkpoint()):
        self.name, self.program, self.words, self.begin, self.results = name, program, words, begin, results

    def run(self, fault=None):
        """The finished process, and how many allocations it made; None when it hangs."""
        environment = dict(tiny.ENVIRONMENT, GPT_FAULT_ALLOCATIONS="allocations", XDG_CACHE_HOME=os.path.abspath("cache"))
        if fault:
            environment["GPT_FAULT_ALLOCATION"] = fault
        try:
            return subprocess.run([os.path.join(FAULTY, self.program + "-faulty"), *self.words], env=environment,
                                  capture_output=True, text=True, timeout=tiny.LIMIT_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return None

    def fresh(self):
        tiny.clear("work")
        tiny.clear("cache")
        if self.begin:
            shutil.copytree(self.begin, "work")

    def again(self):
        """Without a fault, on what is there; a run that had begun is resumed."""
        begun = os.path.exists("work/trainer_state.json") and self.program == "gpt-train" and "--plan" not in self.words
        words = [word for word in self.words if not word.startswith("--init_from")] + ["--init_from=resume"]
        return (Command(self.name, self.program, words) if begun else self).run()


def commands():
    resumed = [*WORDS, "--init_from=resume"]
    tokens = ["--tokenizer=train", "--vocab_size=280", "--out-dir=work", "text.txt"]
    return [
        Command("train", "gpt-train", WORDS),
        Command("resume", "gpt-train", resumed, begin="half"),
        Command("foreign", "gpt-train", [*WORDS, "--init_from=hf"]),
        Command("plan", "gpt-train", [*WORDS, *MODEL, "--plan", "--memory_budget=66MiB"],
                results=lambda done: "Memory " in done.stdout),
        Command("sample", "gpt-sample", ["--out_dir=one", "--num_samples=2", "--max_new_tokens=8", "--start=green"],
                results=lambda done: done.stdout),
        Command("prepare", "gpt-prepare", tokens, results=lambda done: digests("work")),
        Command("export", "gpt-export", ["--out_dir=one", "--format=gguf", "--dtype=float16", "work/model.gguf"], begin="empty",
                results=lambda done: digests("work")),
    ]


def prepare():
    with open("text.txt", "w", encoding="ascii") as file:
        file.writelines(f"{number} bottles hang on the wall, and {number * 7 % 100} of them are green.\n" for number in range(60))
    os.makedirs("empty")
    for program, words in (
            ("gpt-prepare", ["--tokenizer=bytes", "--out-dir=text", "text.txt"]),
            ("gpt-train", [word.replace("=work", "=one") for word in WORDS]),
            ("gpt-train", [*(word.replace("=work", "=half") for word in WORDS), f"--max_iters={tiny.ITERATIONS // 2}"]),
            ("gpt-export", ["--out_dir=one", "--format=hf", "hf"])):
        done = Command("", program, words).run()
        check(done is not None and done.returncode == 0, f"{program} {words}: {done and done.stderr[-500:]}")


def judge(command, fault, expected):
    what = f"{command.name}: allocation {fault}"
    command.fresh()
    done = command.run(fault)
    if done is None:
        check(False, f"{what}: hangs")
        return
    check(0 <= done.returncode <= 3, f"{what}: died: {done.returncode} {done.stderr[-1500:]}")
    check("internal error" not in done.stderr, f"{what}: {done.stderr[-500:]}")
    if done.returncode == 0:
        check(command.results(done) == expected, f"{what}: success, and other results: {done.stderr[-300:]}")
    else:
        check(f"{command.program}: error: " in done.stderr, f"{what}: status {done.returncode} without a line: {done.stderr[-300:]}")
    again = command.again()
    check(again is not None and again.returncode == 0, f"{what}: what it left does not go on: {again and again.stderr[-300:]}")
    check(again is not None and command.results(again) == expected, f"{what}: then other results")
    check(tiny.leftovers("work") == [] if os.path.isdir("work") else True, f"{what}: left behind: {command.words}")


def main():
    generator = random.Random(tiny.SEED)
    if not os.path.exists(os.path.join(FAULTY, "gpt-prepare-faulty")):
        skip("failing_memory", "a linker without --wrap, or another C library")
        finish()
        return 77
    with tempfile.TemporaryDirectory(prefix="gpt-train-memory-") as work:
        os.chdir(work)
        prepare()
        for command in commands():
            if tiny.arguments() and command.name not in tiny.arguments():
                continue
            command.fresh()
            done = command.run()
            check(done is not None and done.returncode == 0, f"{command.name}: {done and done.stderr[-500:]}")
            expected = command.results(done)
            check(expected, f"{command.name}: results")
            with open("allocations", encoding="ascii") as file:
                count = int(file.read())
            every = [f"{number}{more}" for number in range(1, count + 1) for more in ("", "+")]
            picked = tiny.part(every if len(every) <= SAMPLE else generator.sample(every, SAMPLE))
            for fault in picked:
                judge(command, fault, expected)
            print(f"{command.name}: {len(picked)} of {len(every)} faults at {count} allocations tried", flush=True)
        os.chdir("/")
    return finish()


if __name__ == "__main__":
    sys.exit(main())
