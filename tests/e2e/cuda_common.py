"""Shared code of the tests of the emulated cuda backend: the programs of tests/cuda_on_cpu, runs and their counters."""
import os
import subprocess

from checks import BUILD, GPT_PREPARE, LONG, check, end, error_lines, files, make_tokens, metrics, patience, read_json, skip

FOLDER = os.path.join(BUILD, "tests", "cuda_on_cpu")
GPT_TRAIN_CUDA = os.path.join(FOLDER, "gpt-train-cuda")
GPT_SAMPLE_CUDA = os.path.join(FOLDER, "gpt-sample-cuda")
NVML = os.path.join(FOLDER, "nvml")
MIB = 1 << 20
TINY = ["--n_layer=2", "--n_head=2", "--n_embd=16", "--block_size=16", "--batch_size=2", "--micro_batch=2",
        "--gradient_accumulation_steps=2", "--eval_iters=1", "--bias=True", "--threads=1", "--warmup_iters=2", "--log_interval=1"]
DATA = ["--dataset=./data", "--vocab_size=96"]


def end_emulated(name, *parts):
    """Like end(), with a data set; skips the script when this build has no emulated programs."""
    def skipped():
        skip(name, "no C++17 compiler, so that the cuda backend cannot be emulated")
    if os.path.exists(GPT_TRAIN_CUDA):
        end(*parts, begin=lambda: make_tokens("data"))
    end(skipped)


class Run:
    """One run of a program: exit status, text, error lines, and the fake run-time library's counters.  Names of the
    environment are those of fake_runtime.h without GT_CUDA_ON_CPU_."""

    def __init__(self, program, *arguments, **environment):
        if os.path.exists("report.json"):
            os.remove("report.json")
        # backend=auto must find the emulated card, and not another one, which OpenCL would find on some machines.
        settings = {"GPT_TRAIN_BACKEND": "", "GPT_TRAIN_OPENCL_LIBRARY": "/nonexistent.so", "REPORT": "report.json", **environment}
        self.command = [program, *arguments]
        done = subprocess.run(self.command, check=False, capture_output=True, text=True, timeout=7200 if LONG else patience(600), env={
            **os.environ, **{name if "_" in name else "GT_CUDA_ON_CPU_" + name: value for name, value in settings.items()}})
        self.status, self.out, self.err = done.returncode, done.stdout, done.stderr
        self.errors, self.report = error_lines(done), None
        if os.path.exists("report.json"):
            self.report = read_json("report.json")

    def calls(self, function, when="total"):
        return self.report["functions"].get(function, {}).get(when, 0)

    def said(self):
        return f"{' '.join(self.command[1:])}: exit status {self.status}: {self.err[-500:]}"


def train(out, *arguments, program=GPT_TRAIN_CUDA, **environment):
    return Run(program, *DATA, f"--out_dir={out}", *TINY, *arguments, **environment)


def hashed(text):
    """FNV-1a, as in base/file.h."""
    value = 0xcbf29ce484222325
    for byte in text.encode("ascii"):
        value = (value ^ byte) * 0x100000001b3 % 2 ** 64
    return value


def shape(op, name):
    """Returns how a checkpoint names a launch shape."""
    return f"{hashed(op) ^ hashed(name):016x}"


def losses(out):
    return [(line["loss"], line["grad_norm"]) for line in metrics(out)]


def checkpoint(out):
    return files(out, ".safetensors")


def good(run, *words):
    """Checks that a run ended well, left no object on the card, and wrote these words; returns the run."""
    check(run.status == 0 and (run.report is None or run.report["objects_alive"] == 0), run.said())
    check(all(word in run.out + run.err for word in words), f"{words} not said: {run.err[-600:]}")
    return run


def train_letters(out, *arguments):
    """Trains on characters, so that gpt-sample has a tokenizer."""
    done = subprocess.run([GPT_PREPARE, "--tokenizer=chars", "--out-dir=letters", "data/text.txt"], check=False, capture_output=True,
                          text=True)
    check(done.returncode == 0, f"gpt-prepare: {done.stderr}")
    return good(Run(GPT_TRAIN_CUDA, "--dataset=./letters", f"--out_dir={out}", *TINY, *arguments))
