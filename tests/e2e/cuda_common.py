"""Shared code of the tests of the emulated cuda backend: the programs of tests/cuda_on_cpu, a dataset, runs and their
counters."""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

from checks import LONG, check, finish, skip, some

BUILD = os.environ.get("top_builddir", ".")
FOLDER = os.path.join(BUILD, "tests", "cuda_on_cpu")
GPT_TRAIN_CUDA = os.path.join(FOLDER, "gpt-train-cuda")
GPT_SAMPLE_CUDA = os.path.join(FOLDER, "gpt-sample-cuda")
OPCHECK_CUDA = os.path.join(FOLDER, "opcheck-cuda")
NVML = os.path.join(FOLDER, "nvml")
MIB = 1 << 20
TINY = ["--n_layer=2", "--n_head=2", "--n_embd=16", "--block_size=16", "--batch_size=2", "--vocab_size=96",
        "--gradient_accumulation_steps=2", "--eval_iters=1", "--bias=True", "--threads=1", "--warmup_iters=2",
        "--log_interval=1"]


def leave_without_programs(name):
    """Ends the script as skipped when this build has no emulated programs."""
    if not os.path.exists(GPT_TRAIN_CUDA):
        skip(name, "no C++17 compiler, so that the cuda backend cannot be emulated")
        print("checks: 0 passed, 0 failed, 1 skipped")
        sys.exit(77)


def dataset(folder):
    os.makedirs(folder)
    with open(os.path.abspath(__file__), "rb") as file:
        text = file.read() * 4
    ids = [byte - 32 if byte >= 32 else 0 for byte in text if byte < 128]
    for name, part in (("train.bin", ids[: len(ids) * 9 // 10]), ("val.bin", ids[len(ids) * 9 // 10:])):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(struct.pack(f"<{len(part)}H", *part))


def settings(**more):
    """Returns the environment of a run; names are those of fake_runtime.h without GT_CUDA_ON_CPU_.  backend=auto must
    find the emulated card, and not another one, which OpenCL would find on some machines."""
    environment = dict(os.environ, GPT_TRAIN_BACKEND="", GPT_TRAIN_OPENCL_LIBRARY="/nonexistent.so")
    for name, value in more.items():
        environment[name if name.isupper() and "_" in name else "GT_CUDA_ON_CPU_" + name] = value
    return environment


class Run:
    """One run of a program: exit status, text, error lines, and the fake run-time library's counters."""

    def __init__(self, program, *arguments, work=".", **environment):
        report = os.path.join(work, "report.json")
        if os.path.exists(report):
            os.remove(report)
        self.command = [program, *arguments]
        done = subprocess.run(self.command, check=False, capture_output=True, text=True,
                              env=settings(REPORT=report, **environment), timeout=600)
        self.status, self.out, self.err = done.returncode, done.stdout, done.stderr
        self.errors = [line for line in self.err.splitlines() if ": error: " in line]
        self.report = None
        if os.path.exists(report):
            with open(report, encoding="ascii") as file:
                self.report = json.load(file)

    def calls(self, function, when="total"):
        return self.report["functions"].get(function, {}).get(when, 0)

    def said(self):
        return f"{' '.join(self.command[1:])}: exit status {self.status}: {self.err[-500:]}"


def losses(out):
    with open(os.path.join(out, "metrics.jsonl"), encoding="ascii") as file:
        return [(line["loss"], line["grad_norm"]) for line in map(json.loads, file) if "loss" in line]


def checkpoint(out):
    files = {}
    for name in sorted(os.listdir(out)):
        if name.endswith(".safetensors"):
            with open(os.path.join(out, name), "rb") as file:
                files[name] = file.read()
    return files


class Work:
    """A temporary folder with a dataset and the cache of timings."""

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="gpt-train-cuda-")
        os.environ["XDG_CACHE_HOME"] = os.path.join(self.folder, "cache")
        self.data = os.path.join(self.folder, "data")
        dataset(self.data)
        return self

    def __exit__(self, *unused):
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def train(self, out, *arguments, program=GPT_TRAIN_CUDA, **environment):
        return Run(program, f"--dataset={self.data}", f"--out_dir={self.path(out)}", *TINY, *arguments,
                   work=self.folder, **environment)


__all__ = ["BUILD", "GPT_SAMPLE_CUDA", "GPT_TRAIN_CUDA", "LONG", "MIB", "NVML", "OPCHECK_CUDA", "Run", "TINY", "Work", "check",
           "checkpoint", "finish", "leave_without_programs", "losses", "skip", "some"]
