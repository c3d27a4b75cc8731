"""Shared code of the programs in this folder: running other programs, their memory, a card's memory, random tokens, and
the machine's roof."""
import array
import json
import os
import random
import re
import shlex
import subprocess
import sys
import threading

TOKENS = 1 << 18


def program(build, name):
    path = os.path.join(build, name)
    if not os.access(path, os.X_OK):
        sys.exit(f"{path}: no such program; build first, or name the build's folder with --build=FOLDER")
    return path


def run(command, cwd, environment=None):
    """Returns the process's output and its peak resident set in bytes; ends this program when the process fails."""
    with subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=environment) as process:
        text = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)} failed ({process.returncode}): {text[-2000:]}")
    return text, usage.ru_maxrss * 1024


class UsedMemory:
    """The peak memory in use on the card while this object is open, beyond the initial value, as reported by the
    driver."""

    def __init__(self, absent=False):
        self.most, self.before, self.stop = 0, 0, threading.Event()
        self.read = (lambda: 0) if absent else self.driver
        self.thread = threading.Thread(target=self.watch, daemon=True)

    @staticmethod
    def driver():
        done = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], check=False,
                              capture_output=True, text=True)
        words = done.stdout.split()
        return int(words[0]) * (1 << 20) if words and words[0].isdigit() else 0

    def watch(self):
        while not self.stop.wait(0.1):
            self.most = max(self.most, self.read())

    def __enter__(self):
        self.before = self.read()
        self.thread.start()
        return self

    def __exit__(self, *unused):
        self.stop.set()
        self.thread.join()

    def bytes(self):
        return max(self.most - self.before, 0)


def random_tokens(folder, vocabulary):
    """Writes train.bin and val.bin of uint16."""
    generator = random.Random(1)
    os.makedirs(folder, exist_ok=True)
    for name in ("train.bin", "val.bin"):
        with open(os.path.join(folder, name), "wb") as file:
            array.array("H", (generator.randrange(vocabulary) for _ in range(TOKENS))).tofile(file)


def compile_roof(top, folder):
    """Compiles bench/roof.c into the folder, with $CC or cc."""
    path = os.path.join(folder, "roof")
    subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-std=gnu11", "-O2", "-ffp-contract=fast", "-pthread",
                    os.path.join(top, "bench", "roof.c"), "-o", path], check=True)
    return path


def roof(path, threads):
    return json.loads(subprocess.run([path, str(threads)], check=True, capture_output=True, text=True).stdout)


class Course:
    """A run of nanoGPT's CPU configuration and then an evaluation of the whole validation split: loss, curve, times."""

    def __init__(self, gpt_train, work, name, arguments, iterations, curve=(1000000, 0)):
        interval, batches = curve
        top = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        self.command = [gpt_train, os.path.join(top, "config", "shakespeare_char_cpu.py"), f"--dataset={work}/data",
                        f"--out_dir={work}/out-{name}", *arguments]
        log, _ = run([*self.command, f"--max_iters={iterations - 1}", "--log_interval=1", f"--eval_interval={interval}",
                      "--always_save_checkpoint=True", *([f"--eval_iters={batches}"] if batches else [])], work)
        self.times = [float(ms) for ms in re.findall(r"^iter \d+: .*time ([0-9.]+)ms", log, re.MULTILINE)]
        self.curve = [(int(step), float(loss))
                      for step, loss in re.findall(r"^step (\d+): .*val loss ([0-9.]+)", log, re.MULTILINE)]
        log, _ = run([*self.command, "--init_from=resume", "--eval_only=True", "--eval_iters=0"], work)
        self.loss = float(re.search(r"val loss ([0-9.]+)", log).group(1))


def prepare_characters(gpt_prepare, text, work):
    run([gpt_prepare, "--tokenizer=chars", f"--out_dir={work}/data", os.path.abspath(text)], work)
