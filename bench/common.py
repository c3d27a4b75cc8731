"""Shared code of the programs in this folder: options, running other programs, their memory, a card's memory, random
tokens, gpt-train's arguments and what it prints, the machine's roof, and the rows of gpt-check."""
import argparse
import array
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
import traceback

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOKENS = 1 << 18
TORCH_SECONDS = 60  # that `import torch` may take


def options_of(doc, *positional, **defaults):
    """Parses the command line: an option for each default, of its type, and positional arguments; "NAME..." takes
    several or none."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in positional:
        parser.add_argument(name.rstrip("."), nargs="*" if name.endswith("...") else None)
    for name, value in defaults.items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(value), default=value)
    options = parser.parse_intermixed_args()
    if "build" in defaults:
        options.build = os.path.abspath(options.build)
    return options


def program_path(folder, name):
    """Returns the path of a program in a build folder, or below a prefix where it was installed."""
    paths = [os.path.join(folder, place, name) for place in (".", "tests/opcheck", "bin", "libexec/gpt-train")]
    return os.path.abspath(next((path for path in paths if os.path.isfile(path)), paths[0]))


def program(build, name):
    path = program_path(build, name)
    if not os.access(path, os.X_OK):
        sys.exit(f"{path}: no such program; build first, or name the build's folder with --build=FOLDER")
    return path


def run(command, cwd=None, environment=None):
    """Returns the process's output and its peak resident set in bytes; ends this program when the process fails."""
    with subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=environment) as process:
        text = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)} failed ({process.returncode}): {text[-2000:]}")
    return text, usage.ru_maxrss * 1024


SMI_SECONDS = 30  # that nvidia-smi may take
KILLED_SECONDS = 10  # that a process may take to be gone


def smi_command(*fields, units=False):
    """Returns the command that asks nvidia-smi about the card that our programs take: the first of CUDA_VISIBLE_DEVICES, by number
    or whole name, in the order PCI_BUS_ID; else its first."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    known = re.fullmatch(r"\d+|GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", first)
    return ["nvidia-smi", "--id=" + (first if known else "0"), "--query-gpu=" + ",".join(fields),
            "--format=csv,noheader" + ("" if units else ",nounits")]


def smi(field):
    """Returns what nvidia-smi says of one field, "" if it fails, or does not answer."""
    try:
        done = subprocess.run(smi_command(field), check=False, capture_output=True, text=True, timeout=SMI_SECONDS)
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def reap(process):
    """Waits for a process that was killed, but not for ever: the driver of a card that has failed may hold it."""
    try:
        process.wait(KILLED_SECONDS)
    except subprocess.TimeoutExpired:
        pass


class UsedMemory:
    """The peak memory in use on the card while this object is open, beyond the initial value, as reported by the
    driver."""

    def __init__(self, absent=False):
        self.most, self.before, self.stop = 0, 0, threading.Event()
        self.read = (lambda: 0) if absent else self.driver
        self.thread = threading.Thread(target=self.watch, daemon=True)

    @staticmethod
    def driver():
        used = smi("memory.used")
        return int(used) * (1 << 20) if used.isdigit() else 0

    def watch(self):
        while not self.stop.wait(0.1):
            self.most = max(self.most, self.read())

    def __enter__(self):
        self.before = self.read()
        self.thread.start()
        return self

    def __exit__(self, *unused):
        self.stop.set()
        self.thread.join(SMI_SECONDS + KILLED_SECONDS)

    def bytes(self):
        return max(self.most - self.before, 0)


class Clocks:
    """Clocks, power, temperature and reasons of throttling, read five times a second while this object is open."""

    FIELDS = ("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu")
    REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")  # by drivers from 535 on, and before

    def __init__(self, absent=False):
        self.lines, self.process = [], None
        self.absent = absent

    def __enter__(self):
        reasons = None if self.absent else next((name for name in self.REASONS if smi(name).startswith("0x")), None)
        if reasons:
            self.process = subprocess.Popen(smi_command(*self.FIELDS, reasons) + ["--loop-ms=200"], text=True,
                                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            threading.Thread(target=lambda: self.lines.extend(self.process.stdout), daemon=True).start()
        return self

    def __exit__(self, *unused):
        if self.process:
            self.process.kill()
            reap(self.process)

    def mark(self):
        return len(self.lines)

    def since(self, mark):
        """Returns "clocks.sm 1500 to 1980, ..., reasons 0x4 (30 of 150)" of the lines since a mark; "" without any."""
        rows = [[word.strip() for word in line.split(",")] for line in list(self.lines)[mark:]]
        rows = [row for row in rows if len(row) == len(self.FIELDS) + 1]
        if not rows:
            return ""
        spans = []
        for at, field in enumerate(self.FIELDS):
            numbers = sorted(float(row[at]) for row in rows if re.fullmatch(r"[0-9.]+", row[at]))
            if numbers:
                spans.append(f"{field} {numbers[0]:g} to {numbers[-1]:g}, median {numbers[len(numbers) // 2]:g}")
        reasons = [row[-1].lstrip("0x") or "0" for row in rows]
        spans += [f"reasons 0x{one} ({reasons.count(one)} of {len(rows)})" for one in sorted(set(reasons))]
        return "; ".join(spans)


def random_tokens(folder, vocabulary):
    """Writes train.bin and val.bin of uint16 into the folder, unless it is there; returns it."""
    generator = random.Random(1)
    if not os.path.isdir(folder):
        os.makedirs(folder)
        for name in ("train.bin", "val.bin"):
            with open(os.path.join(folder, name), "wb") as file:
                array.array("H", (generator.randrange(min(vocabulary, 50257)) for _ in range(TOKENS))).tofile(file)
    return folder


def training(work, shape, steps, out=None):
    """Returns gpt-train's arguments for steps on random tokens into `out` (work/out), which is removed first, as it would
    keep the checkpoint of each run; a shape is layers, heads, channels, vocabulary, samples per update, tokens per sample."""
    layers, heads, width, vocabulary, samples, block = shape
    out = out or os.path.join(work, "out")
    shutil.rmtree(out, ignore_errors=True)
    return ["--out_dir=" + out,
            "--dataset=" + random_tokens(os.path.join(work, f"data-{vocabulary}"), vocabulary), f"--n_layer={layers}",
            f"--n_head={heads}", f"--n_embd={width}", f"--vocab_size={vocabulary}", f"--batch_size={samples}",
            f"--block_size={block}", "--gradient_accumulation_steps=1", "--dropout=0", f"--max_iters={steps}", "--eval_iters=1",
            "--eval_interval=1000000", "--always_save_checkpoint=False", "--log_interval=1"]


def step_seconds(log):
    """Returns the seconds of each step but the first."""
    return [float(ms) / 1e3 for ms in re.findall(r"^iter [1-9]\d*: .*time ([\d.]+)ms", log, re.M)]


def step_flops(shape):
    """Multiply-adds of forward and backward count as two, embeddings and recomputation not at all; attention counts its
    causal half (Chowdhery et al. 2022, B)."""
    layers, _, width, vocabulary, samples, block = shape
    return samples * block * (6 * (12 * layers * width * width + vocabulary * width) + 6 * layers * block * width)


def op_times(log):
    """Returns {op, runs, seconds, share, gflops, gbytes} of each op of a run with --profile=True, the longest first."""
    rows = re.findall(r"^(\w+) +(\d+) +([\d.]+) +([\d.]+) % +([\d.]+) +([\d.]+)$", log, re.M)
    if not rows:
        raise Failed("gpt-train --profile=True printed no table")
    ops = [dict(zip(("op", "runs", "seconds", "share", "gflops", "gbytes"), [row[0], *map(float, row[1:])])) for row in rows]
    return sorted(ops, key=lambda one: -one["seconds"])


def gaps_of(log):
    """Returns {whole_seconds, ops_seconds, share} of the replayed programs of a run with --profile=True; the share is in
    percent, 0 where the device does not time its programs."""
    found = re.search(r"^programs as they are replayed: ([\d.]+) s, the sum of their ops ([\d.]+) s, gaps (-?[\d.]+) %", log, re.M)
    return dict(zip(("whole_seconds", "ops_seconds", "share"), map(float, found.groups() if found else (0, 0, 0))))


# The programs that run on a card beside gpt-train: their sources, and what nvcc needs to know.
CARD_PROGRAMS = {
    "smoke": (["tests/cuda_on_cpu/smoke.cu"], ["--fmad=false"]),
    "gpu_rates": (["bench/gpu_rates.cu", "backends/cuda/kernels/gemm.cu", "backends/cuda/kernels/gemm_own.cu"], ["-O3", "-lcublasLt"]),
}


def nvcc_command(name, nvcc, capability, output, *more):
    """Returns the command that compiles one of CARD_PROGRAMS for a card; the program needs no C++ library."""
    sources, flags = CARD_PROGRAMS[name]
    return [nvcc, *more, "-std=c++17", "-arch=sm_" + capability, "-Xcompiler=-static-libstdc++", "-I" + TOP,
            "-I" + os.path.join(TOP, "src"), *(os.path.join(TOP, source) for source in sources), *flags, "-o", output]


def emulated_command(name, build, output):
    """Returns the command that compiles one of CARD_PROGRAMS for the emulator of a build folder."""
    here = os.path.join(TOP, "tests/cuda_on_cpu")
    includes = ["-I" + folder for folder in (TOP, os.path.join(TOP, "src"), here, os.path.join(here, "include"))]
    return ["g++", "-static-libstdc++", "-std=c++17", "-O2", "-w", "-ffp-contract=off", "-DGT_CUDA_EMULATED", *includes, "-x", "c++",
            *(os.path.join(TOP, source) for source in CARD_PROGRAMS[name][0]), "-x", "none",
            os.path.join(build, "tests/cuda_on_cpu/libemulator.a"), "-o", output]


def has_torch(python, card=False):
    """Returns true when this Python has PyTorch 2, and that knows a card if one is needed.  On processors torch.compile imports
    cpp_extension, and this setuptools."""
    has = "import torch; assert int(torch.__version__.split('.')[0]) >= 2; assert torch.cuda.is_available()" if card else \
        "import torch.utils.cpp_extension; assert int(torch.__version__.split('.')[0]) >= 2"
    try:
        return subprocess.run([python, "-c", has], check=False, capture_output=True, timeout=TORCH_SECONDS).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def compile_roof(folder):
    """Compiles bench/roof.c into the folder, with $CC or cc."""
    path = os.path.join(folder, "roof")
    subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-std=gnu11", "-O2", "-ffp-contract=fast", "-pthread",
                    os.path.join(TOP, "bench", "roof.c"), "-o", path], check=True)
    return path


def roof(path, threads):
    return json.loads(subprocess.run([path, str(threads)], check=True, capture_output=True, text=True).stdout)


class Failed(Exception):
    """A row that failed, with the reason."""


class Absent(Exception):
    """A row whose requirements are missing."""


class Rows:
    """The rows of a table: each is an action that returns its detail, or raises Failed or Absent."""

    def __init__(self, only, **common):
        self.only, self.common, self.rows = only, common, []

    def row(self, name, action):
        """Runs a row, which may also return figures for the JSON; returns true when it passed, or is not one of
        `only`."""
        if self.only and not any(name.startswith(word) for word in self.only.split(",")):
            return True
        started, figures = time.monotonic(), {}
        result, detail = "FAIL", "it was ended"
        try:
            result, detail = "PASS", action()
            if isinstance(detail, tuple):
                detail, figures = detail
        except Failed as failed:
            result, detail = "FAIL", str(failed)
        except (Absent, FileNotFoundError) as absent:
            result, detail = "SKIP", str(absent)
        except Exception as error:  # pylint: disable=broad-exception-caught # an answer that nobody foresaw: the rows after it run
            place = traceback.extract_tb(error.__traceback__)[-1]
            result, detail = "FAIL", f"{type(error).__name__} in line {place.lineno} of {os.path.basename(place.filename)}: {error}"
        finally:
            seconds = time.monotonic() - started
            self.rows.append({**self.common, "name": name, "result": result, "detail": detail,
                              "seconds": round(seconds, 1), **figures})
            print(f"{name:24} {result:5} {seconds:7.1f} s  {detail}", flush=True)
        return result == "PASS"


def json_write(path, found):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(found, file, indent=1)
        file.write("\n")


def results_of(rows):
    return "{} passed, {} failed, {} skipped".format(*(sum(row["result"] == result for row in rows)
                                                       for result in ("PASS", "FAIL", "SKIP")))


def words_of(doc, numbers, names, *flags):
    """Parses --NAME=VALUE and flags; prints the usage and ends with 2 on anything else, or a value that is not a
    number where `numbers` wants one."""
    options = {}
    for argument in sys.argv[1:]:
        name, mark, value = argument[2:].partition("=")
        is_number = re.fullmatch(r"[0-9]+(\.[0-9]+)?", value)
        if argument in ("--help", "-h"):
            print(doc.strip())
            sys.exit(0)
        if argument[:2] != "--" or not (name in names and value and (is_number or name not in numbers) or name in flags and not mark):
            print(f"{os.path.basename(sys.argv[0])}: unknown: {argument}\n\n{doc.strip()}", file=sys.stderr)
            sys.exit(2)
        options[name] = value or "yes"
    return options
