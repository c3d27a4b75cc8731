#!/usr/bin/env python3
"""Checks the cuda backend on your card, measures it (--speed), or both, the most informative rows first (--quick), each in less
than ten minutes; prints a block to paste.

Usage: gpt-check [--speed | --quick] [--build=DIR] [--json=FILE] [--minutes=N] [--seconds=N] [--full] [--only=ROW,...]
                       [--python=PYTHON] [--emulated=DIR]; bench/gpu-check in the sources
  --speed          measure; without it, check
  --quick          the most informative rows first, in about seven minutes; prints a table last: predicted, measured, ratio
  --build=DIR      a build folder, used as it is if its gpt-train lists a card; else built there if there is an nvcc, and kept;
                   default: what packaging/carry made here, the source folder, build in it, or the current one
                   if it has a gpt-train with CUDA; else a temporary folder
  --json=FILE      default: gpu-check.json, gpu-speed.json or gpu-quick.json, in the current folder
  --minutes=N      rows that would start later, or are not done by then, are skipped; default 9, after the build
  --seconds=N      of steady speed; default 30, and 12 with --quick
  --full           opcheck with its planted mistakes too, however long that takes
  --only=ROW,...   rows by the beginning of their names; earlier rows that they need must have been run in --build
  --python=PYTHON  one with PyTorch 2 for this card; default: this one
  --emulated=DIR   a rehearsal without a card: the emulated programs of the build folder DIR, or the emulated module that
                   packaging/carry put there, with small models
It needs Python 3, an NVIDIA driver, and a gpt-train with CUDA or nvcc to build one; neither root nor PyTorch.
Rows of all: the machine; the build. Checks: smoke (each PTX wrapper against its formula; compiled ahead, or by nvcc); twenty
training steps in each dtype against the cpu backend's, with attention's gradients at once and with fp16 sums too; graphs
against launches; the story (GPT-2 124M, 64 x 1024 tokens in 16 bits) inside 11.4 and 9.7 GiB, the plan against the driver's
figure; GPT-2 XL inside 12 GiB with states in host memory, against the same in the card's; two ranks, on two cards or sharing
one, against one; MFU; opcheck of all ops in three dtypes, of attention's gradients at once, and of products with fp16 sums;
compute-sanitizer's tools; kills and resumes (tests/e2e/resume.sh).
Speed: what the card can do (bench/gpu_rates.cu; compiled ahead, or by nvcc): mma with fp32 and fp16 sums and how they round,
fp8, memory, L2, a graph's empty node, the link to host memory beside the profile's, and each product of GPT-2 124M by
workspace, tuned and not, with fp16 sums; the time of each op by the card's clock, its share of the roof, and the gaps of the
replayed graph; steady speed of gpt-train, tuned and not, and with half_sums, and of PyTorch, compiled, with flash and with
cuDNN attention, at our micro-batch and within our bytes; MFU at 350M; what offload adds to GPT-2 XL inside 12 GiB, beside the
forecast; opcheck --bench. Clocks, power, temperature and reasons of throttling are read five times a second.
It ends with what to do next, by the milliseconds of an update that it could save.
Quick: the checks and measurements that matter most, and: the kernels of other modules (variants.zip of packaging/carry) side by
side; adapters of an 8B Llama with random weights, resident and inside 12 GiB; OpenCL; a product of more than 2^31 elements. Each
row has a time limit of its own: one that exceeds it fails by name, and the rest go on.
A row with a missing requirement prints SKIP and the reason; the others still run.  Nothing is downloaded.
Where to paste the block: bench/results/README.md.
Exit status: 0 nothing failed, 1 something failed or a signal ended it, 2 bad usage, 77 no card.
"""

import glob
import json
import os
import re
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import zipfile

import predicted
import random_llama
from common import (SMI_SECONDS, TOP, Absent, Clocks, Failed, Rows, UsedMemory, emulated_command, gaps_of, has_torch, json_write,
                    nvcc_command, op_times, program_path, reap, results_of, smi_command, training, words_of)

DTYPES = ("float32", "bfloat16", "float16")
# Relative bounds of losses and norms: the first step, and twenty (tests/e2e/cuda_train.py explains them).
BOUNDS = {"float32": (1e-5, 1e-4), "bfloat16": (1e-3, 1e-2), "float16": (2e-4, 2e-3)}
HALF_SUMS_BOUNDS = (1e-3, 1e-2)
# For tests (doc/cuda.md): attention's gradients at once, which need as many heads as multiprocessors, and in two passes; fp16
# sums on cards that gain nothing from them.
AT_ONCE_HEADS = 128
AT_ONCE, AT_ONCE_FEW, TWO_PASSES = ({"GPT_TRAIN_CUDA_MULTIPROCESSORS": str(count)} for count in (AT_ONCE_HEADS, 2, 30000))
ANY_HALF_SUMS = {"GPT_TRAIN_CUDA_HALF_SUMS": "any"}
MODEL = ["--n_layer=2", "--n_head=4", "--n_embd=128", "--block_size=128", "--batch_size=4", "--vocab_size=96",
         "--gradient_accumulation_steps=2", "--eval_iters=1", "--bias=True", "--dropout=0.1", "--warmup_iters=2",
         "--log_interval=1", "--max_iters=19", "--eval_interval=100", "--lr_decay_iters=19"]
TINY = ["--n_embd=16", "--n_head=2", "--block_size=16", "--batch_size=2", "--max_iters=3"]  # of a rehearsal
MIB, GIB = 1 << 20, 1 << 30
# Layers, heads, channels, vocabulary, samples per update, tokens per sample.
STORY = (12, 12, 768, 50304, 64, 1024)
MEDIUM = (24, 16, 1024, 50304, 64, 1024)
XL = (48, 25, 1600, 50304, 12, 1024)
XL_BUDGET = 12 << 30
XL_SAMPLES = 480  # of an update in which offload is to be cheap
SMALL = (2, 2, 32, 97, 4, 16)  # of a rehearsal
SMALL_LLAMA = (2, 2, 1, 32, 64, 97)
LLAMA_SPARE = 4 * 10**9  # bytes of host memory
ADAPTERS = ["--lora_rank=16", "--learning_rate=1e-4"]
BUDGETS = {"11.4GiB": 11.4 * GIB, "9.7GiB": 9.7 * GIB}
TOOLS = ("racecheck", "initcheck", "synccheck")
# PyTorch's sides: attention, at our micro-batch, within our bytes.
SIDES = {"flash": ("flash", False, False), "cuDNN": ("cudnn", False, False), "at our micro-batch": ("flash", True, False),
         "within our bytes": ("flash", False, True)}
STEADY_SECONDS, QUICK_SECONDS = 30, 12
EMULATED_PATIENCE = 20  # times the limit of a row, in a rehearsal
ROW_SECONDS_LEAST = 30  # that a row has once it has begun
RATES_ROWS = 8192  # at most, of the products that are timed by themselves
SANITIZER_SECONDS = 60
BUILD_SECONDS = 3600
CASES_MOST = 1000  # per op: more than there are
MICRO_BATCHES = (64, 32, 16, 8, 4, 2, 1)
ENDINGS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
SLOWED = 0x8 | 0x20 | 0x40 | 0x80  # reasons of throttling: the hardware's, heat, the power supply's; not the power limit
BF16_FROM = 80  # capability; older cards have no bfloat16 to check


def flops_per_token(shape):
    """PaLM's formula, as in nanoGPT's estimate_mfu: 6 N + 12 L C T, N without positions; a model without biases."""
    layers, _, width, vocab, _, block = shape
    return 6 * (vocab * width + layers * (12 * width * width + 2 * width) + width) + 12 * layers * width * block


def finished(command, limit_s, **more):
    """Returns (output, exit status) of a command; after limit_s, or when this program is to end, the command is ended with all
    its children, and the status is None."""
    with tempfile.TemporaryFile() as output:  # not a pipe, which children in sessions of their own would keep open
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, **more)
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                reap(process)
        output.seek(0)
        return output.read().decode(errors="replace"), status


class Check(Rows):
    def __init__(self, options):
        is_carried = "build" not in options and not os.path.exists(os.path.join(TOP, "configure.ac"))
        self.wheels = glob.glob(os.path.join(TOP, "*.whl")) if is_carried else []
        super().__init__(options["only"] + ",build" * bool(self.wheels) if "only" in options else None)
        self.options = options
        self.facts = {}
        self.work = tempfile.mkdtemp(prefix="gpt-train-gpu-check-")
        self.build = options.get("build") or options.get("emulated") or os.path.join(self.work, "build")
        self.emulated = "emulated" in options
        self.python = options.get("python", sys.executable)
        self.began = time.monotonic()
        self.limit_s = 60.0 * float(options.get("minutes", "9"))
        self.row_s = self.row_ends = None  # the limit of the current row, and when it ends
        self.row_began = self.began
        self.steady_s = float(options.get("seconds", QUICK_SECONDS if "quick" in options else STEADY_SECONDS))
        self.weights = None  # a temporary folder
        # Environment of our programs: where they find the module and cuBLASLt; no tuning of earlier runs, or of another row.
        self.places = {"XDG_CACHE_HOME": os.path.join(self.work, "cache")}

    def program(self, name):
        """Returns the path of a program of the build: the real one, or the emulated one of the tests."""
        emulated = os.path.join(self.options.get("emulated", ""), "tests/cuda_on_cpu", name + "-cuda")
        return os.path.abspath(emulated) if self.emulated and os.path.exists(emulated) else program_path(self.build, name)

    def card_program(self, name):
        """Returns the path of smoke or gpu_rates: compiled by packaging/carry, or now."""
        folders = [self.options["emulated"]] if self.emulated else [TOP, self.build]
        for path in (os.path.join(folder, name) for folder in folders):
            if os.path.isfile(path):
                return path
        path = os.path.join(self.work, name)
        self.run(emulated_command(name, self.build, path) if self.emulated else
                 nvcc_command(name, self.nvcc(), self.facts["capability"], path, *self.host_compiler()))
        return path

    def left_s(self):
        return self.limit_s - (time.monotonic() - self.began)

    def row(self, name, action, needs_s=1, limit_s=None):
        """Runs one row, which takes about needs_s, and at most limit_s."""
        def in_time():
            if self.left_s() < needs_s:
                raise Absent("no time left of %.0f minutes (--minutes=N)" % (self.limit_s / 60))
            return action()
        self.row_s = limit_s and limit_s * (EMULATED_PATIENCE if self.emulated else 1)
        self.row_began = time.monotonic()
        self.row_ends = self.row_s and self.row_began + self.row_s
        return super().row(name, in_time)

    def run(self, command, cwd=None, limit_s=3600, environment=None):
        """Returns the output of a command that must succeed; a row that runs out of time is skipped, not failed."""
        now = time.monotonic()
        left_s = limit_s if "full" in self.options else max(self.left_s(), self.row_began + ROW_SECONDS_LEAST - now, 0.1)
        row_s = max(self.row_ends - now, 0.1) if self.row_ends else limit_s
        places = {} if command[0] == self.python else self.places  # PyTorch has libraries of its own
        text, status = finished(command, min(limit_s, left_s, row_s), cwd=cwd, env={**os.environ, **places, **(environment or {})})
        if status is None and row_s < min(limit_s, left_s):
            raise Failed("%s is not done within the %.0f s of this row" % (os.path.basename(command[0]), self.row_s))
        if status is None and left_s < limit_s:
            raise Absent("not done within %.0f minutes (--minutes=N)" % (self.limit_s / 60))
        if status is None:
            raise Failed("%s: longer than %d s" % (os.path.basename(command[0]), limit_s))
        if status != 0:
            lines = [line for line in text.strip().split("\n")
                     if re.search(r"error|FAIL|refused", line, re.I) and not line.startswith("make")]
            raise Failed("%s ended with %d: %s" % (os.path.basename(command[0]), status,
                                                   (lines or text.strip().split("\n"))[-1][:200]))
        return text

    # ---- rows ----

    def machine(self):
        if self.emulated:
            self.facts["device"] = "emulated on the CPU"
            return "no card: emulated programs"
        if not shutil.which("nvidia-smi"):
            raise Absent("no nvidia-smi, so no NVIDIA driver")
        said = self.run(smi_command("name", "compute_cap", "memory.total", "driver_version", units=True), limit_s=SMI_SECONDS)
        found = re.search(r"^(.+), *(\d+\.\d+), *([^,\n]+), *([^,\n]+)$", said, re.M)
        if not found:
            raise Failed("nvidia-smi names no card: " + said.strip()[:200])
        name, capability, memory, driver = map(str.strip, found.groups())
        self.facts.update(device=name, capability=capability.replace(".", ""), memory=memory, driver=driver)
        return "%s, sm_%s, %s, driver %s" % (name, self.facts["capability"], memory, driver)

    def nvcc(self):
        return self.toolkit("nvcc")

    @staticmethod
    def toolkit(name):
        """Returns the path of a program of the CUDA toolkit."""
        folder = os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin")
        found = shutil.which(name) or os.path.join(folder, name)
        if not os.path.exists(found):
            raise Absent("no %s (in PATH or %s)" % (name, folder))
        return found

    def host_compiler(self):
        """Returns the host compiler options for nvcc: those that configure found and those that the user gave."""
        try:
            with open(os.path.join(self.build, "Makefile"), encoding="utf-8") as file:
                flags = dict(re.findall(r"^(NVCC_FLAGS|NVCCFLAGS) = (.*)$", file.read(), re.MULTILINE))
        except FileNotFoundError:
            return []
        words = flags.get("NVCC_FLAGS", "").split() + flags.get("NVCCFLAGS", "").split()
        return [word for word in words if word.startswith(("-ccbin", "--compiler-bindir", "-allow-unsupported-compiler"))]

    def has_cuda(self, folder):
        """Returns true when the folder has a gpt-train that lists a card."""
        program = program_path(folder, "gpt-train")
        return os.access(program, os.X_OK) and re.search(r"^cuda:\d", finished([program, "--list_devices"], 60)[0], re.M)

    def built_already(self):
        """Uses an existing build."""
        asked = self.options.get("build")
        found = next(filter(self.has_cuda, [asked] if asked else [TOP, os.path.join(TOP, "build"), os.getcwd()]), None)
        self.build = os.path.abspath(found or self.build)
        if found and not os.path.exists(self.program("opcheck")):
            finished(["make", "-s", "tests/opcheck/opcheck"], self.left_s(), cwd=self.build)  # its rows report a failure
        return bool(found)

    def library_folders(self):
        """Returns the folders of cuBLASLt and NCCL: those of toolkits, and of NVIDIA's wheels, as PyTorch brings them."""
        paths = finished([self.python, "-c", "import sys; print('\\n'.join(sys.path))"], 30)[0].split("\n")
        toolkits = [os.environ.get("CUDA_HOME", "/usr/local/cuda"), *sorted(glob.glob("/usr/local/cuda-*"), reverse=True)]
        folders = [os.path.join(folder, "lib64") for folder in toolkits]
        for path in filter(os.path.isdir, paths):
            folders += sorted(glob.glob(os.path.join(path, "nvidia", "*", "lib")))
        return [folder for folder in folders if any(glob.glob(os.path.join(folder, name)) for name in ("libcublasLt.so.*", "libnccl.so.*"))]

    def unpacked(self, wheel):
        """Unpacks the wheel into the build folder, where its programs find each other as where pip puts them."""
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.infolist():
                path = re.sub(r"^[^/]*\.data/(?:scripts/|(data/))", lambda found: "" if found.group(1) else "bin/", entry.filename)
                if path == entry.filename:
                    continue
                path = os.path.join(self.build, path)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with archive.open(entry) as source, open(path, "wb") as file:
                    shutil.copyfileobj(source, file)
                os.chmod(path, entry.external_attr >> 16 & 0o755)
        module = self.options.get("emulated") or os.path.join(self.build, "libexec/gpt-train")
        libraries = [os.environ.get("LD_LIBRARY_PATH", ""), *self.library_folders()]
        self.places.update(GPT_TRAIN_MODULE_DIR=module, LD_LIBRARY_PATH=":".join(filter(None, libraries)))
        listed = self.run([self.program("gpt-train"), "--list_devices"])
        if not re.search(r"^cuda:\d", listed, re.M):
            why = re.search(r"^(?:cuda: *none; |gpt-train: error: cuda: )(.*)$", listed, re.M)
            raise Failed("the programs that were carried here list no card: " + (why.group(1) if why else "they have no cuda backend"))
        return "unpacked from " + os.path.basename(wheel)

    def compiled(self):
        if self.wheels:
            self.build = os.path.join(self.work, "build")
            return self.unpacked(self.wheels[0])
        if self.emulated:
            raise Absent("a rehearsal builds nothing")
        if self.built_already():
            return "built already, in " + os.path.basename(self.build)
        try:
            self.began += BUILD_SECONDS  # does not count against the other rows
            return self.built()
        finally:
            self.began = time.monotonic()

    def built(self):
        self.facts["nvcc"] = self.run([self.nvcc(), "--version"]).strip().split("\n")[-1]
        os.makedirs(self.build, exist_ok=True)
        if os.path.exists(os.path.join(TOP, "config.status")) and not os.path.samefile(TOP, self.build):
            raise Failed("the source folder was configured itself: run `make distclean` there first, or give --build=" + TOP)
        if not os.path.exists(os.path.join(TOP, "configure")):
            self.run(["autoreconf", "-i"], cwd=TOP)
        jobs = "-j%d" % (os.cpu_count() or 1)
        self.run([os.path.join(TOP, "configure"), "-q", "--with-cuda",
                  "--with-cuda-arch=" + self.facts.get("capability", "86")], cwd=self.build)
        self.run(["make", "-s", jobs], cwd=self.build)
        self.run(["make", "-s", jobs, "tests/opcheck/opcheck"], cwd=self.build)
        return self.facts["nvcc"]

    def smoke(self):
        return self.run([self.card_program("smoke")]).strip().split("\n")[-1]

    def half(self):
        """Returns the 16-bit dtype that the card multiplies: bfloat16 if supported."""
        return "bfloat16" if int(self.facts.get("capability", BF16_FROM)) >= BF16_FROM else "float16"

    def dtype_need(self, dtype):
        if dtype == "bfloat16" and int(self.facts.get("capability", BF16_FROM)) < BF16_FROM:
            raise Absent("a card of capability %s has no bfloat16" % self.facts["capability"])

    def opcheck(self, dtype, *more, **environment):
        self.dtype_need(dtype)
        program = self.program("opcheck")
        if not os.path.exists(program):
            raise Absent("no tests/opcheck/opcheck in %s: `make tests/opcheck/opcheck` there builds it" % self.build)
        output = self.run([program, "--backend=cuda", "--dtype=" + dtype, *more], environment=environment)
        if "cases on backends: 0" in output:
            raise Failed("no case ran on the card")
        return output.strip().split("\n")[-1]

    def opcheck_row(self, dtype):
        return self.opcheck(dtype, *([] if "full" in self.options else [self.cases(2)]))

    def cases(self, few):
        return "--cases=%d" % (few if self.emulated else CASES_MOST)

    def at_once(self):
        """attention_backward at once, with as many blocks as any case has heads for."""
        dtypes = [dtype for dtype in DTYPES[1:] if dtype == self.half() or dtype == "float16"]
        return "; ".join(self.opcheck(dtype, "--op=attention_backward", self.cases(4), **AT_ONCE_FEW) for dtype in dtypes)

    def half_sums(self):
        """Products and attention with fp16 sums, under their own bounds, on any card that has the instruction."""
        outputs = [self.run([self.program("opcheck"), "--backend=cuda", "--dtype=float16", "--op=" + op, "--half_sums", self.cases(8)],
                            environment={**ANY_HALF_SUMS, **AT_ONCE_FEW}) for op in ("gemm", "attention_forward", "attention_backward")]
        note = re.search(r"half_sums has no effect.*", outputs[0])
        return "; ".join(output.strip().split("\n")[-1] for output in outputs) + ("; " + note.group() if note else "")

    def dataset(self):
        folder = os.path.join(self.work, "data")
        if os.path.isdir(folder):
            return folder
        os.makedirs(folder)
        with open(__file__, "rb") as file:
            text = file.read()
        ids = [byte - 32 if byte >= 32 else 0 for byte in text if byte < 128]
        for name, part in (("train.bin", ids[: len(ids) * 9 // 10]), ("val.bin", ids[len(ids) * 9 // 10:])):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(struct.pack("<%dH" % len(part), *part))
        return folder

    def losses(self, backend, dtype, *more, **environment):
        """Trains twenty steps; returns [(loss, norm)], and the bytes of the weights."""
        out = os.path.join(self.work, "parity")
        shutil.rmtree(out, ignore_errors=True)
        model = MODEL + (TINY if self.emulated else [])
        self.run([self.program("gpt-train"), "--backend=" + backend, "--dtype=" + dtype, "--dataset=" + self.dataset(),
                  "--out_dir=" + out, *model, *more], environment=environment)
        with open(os.path.join(out, "metrics.jsonl"), encoding="ascii") as file:
            lines = [json.loads(line) for line in file]
        with open(os.path.join(out, "model.safetensors"), "rb") as file:
            weights = file.read()
        return [(line["loss"], line["grad_norm"]) for line in lines if "loss" in line and "grad_norm" in line], weights

    def compared(self, cpu, cuda, bounds):
        """Compares the losses and norms of twenty steps with the cpu's, and of four in a rehearsal."""
        steps = 4 if self.emulated else 20
        if len(cpu) != steps or len(cuda) != steps:
            raise Failed("%d and %d steps, not %d" % (len(cpu), len(cuda), steps))
        apart = [max(abs(a - b) / abs(a) for a, b in zip(*step)) for step in zip(cpu, cuda)]
        text = "first step within %.2g, %d within %.2g of the cpu's" % (apart[0], steps, max(apart))
        if not (apart[0] <= bounds[0] and max(apart) <= bounds[1]):
            raise Failed(text)
        return text

    def parity(self, dtype):
        self.dtype_need(dtype)
        cuda, _ = self.losses("cuda", dtype)
        return self.compared(self.losses("cpu", dtype)[0], cuda, BOUNDS[dtype])

    def parity_at_once(self):
        """Attention's gradients at once, which need a head for each multiprocessor: against the cpu's, and two passes'."""
        dtype, samples = self.half(), AT_ONCE_HEADS // 4  # of four heads, and two blocks of 128 keys, between which sums of dq are kept
        keys = ["--gradient_accumulation_steps=1", "--n_layer=1", *(["--block_size=136"] if self.emulated else [
            "--batch_size=%d" % samples, "--micro_batch=%d" % samples, "--block_size=256"])]
        once, weights = self.losses("cuda", dtype, *keys, **(AT_ONCE_FEW if self.emulated else AT_ONCE))
        same = weights == self.losses("cuda", dtype, *keys, **TWO_PASSES)[1]
        return self.compared(self.losses("cpu", dtype, *keys)[0], once, BOUNDS[dtype]) + ("; the bits of two passes" if same else "; other bits than in two passes")

    def parity_half_sums(self):
        """Products with fp16 sums, on any card that has the instruction."""
        cuda, _ = self.losses("cuda", "float16", "--half_sums=on", **ANY_HALF_SUMS)
        return self.compared(self.losses("cpu", "float16")[0], cuda, HALF_SUMS_BOUNDS)

    def raced(self):
        """racecheck of the kernels that a card's own choice may never start: see AT_ONCE."""
        return "at once: %s; fp16 sums: %s" % (
            self.sanitizer("racecheck", "--dtype=" + self.half(), "--op=attention_backward", **AT_ONCE_FEW),
            self.sanitizer("racecheck", "--dtype=float16", "--op=gemm", "--half_sums", **ANY_HALF_SUMS))

    # ---- measurements ----

    def shape(self, shape):
        return SMALL if self.emulated else shape

    def measured(self, shape, steps, *more, **environment):
        """Runs gpt-train for a GPT-2; returns what trained() does."""
        return self.trained(*training(self.work, shape, steps, os.path.join(self.work, "measured")), "--bias=False", *more, **environment)

    def trained(self, *arguments, **environment):
        """Runs gpt-train; returns {"times", "mfu", "planned", "asked", "used", "micro_batch", "log", "forecast", "losses"}."""
        out, report = os.path.join(self.work, "measured"), os.path.join(self.work, "report.json")
        with UsedMemory(self.emulated) as used:
            log = self.run([self.program("gpt-train"), "--backend=cuda", "--dtype=" + self.half(), *arguments], limit_s=240,
                           environment={"GT_CUDA_ON_CPU_REPORT": report, **environment})
        with open(os.path.join(out, "metrics.jsonl"), encoding="ascii") as file:
            lines = list(map(json.loads, file))
        forecast = next((line["step_s"] for line in lines if line.get("start") == "forecast"), 0.0)
        lines = [line for line in lines if "loss" in line]
        micro = re.search(r"^plan: .*?(\d+) sequences? of \d+ tokens", log, re.M)
        found = {"times": [line["time_ms"] * 1e-3 for line in lines[2:]], "mfu": lines[-1]["mfu"],
                 "planned": lines[-1]["planned_bytes"], "asked": lines[-1]["allocated_bytes"], "used": used.bytes(),
                 "micro_batch": int(micro.group(1)) if micro else 0, "log": log, "forecast": forecast,
                 "losses": [line["loss"] for line in lines]}
        if self.emulated:
            with open(report, encoding="ascii") as file:
                found["used"] = json.load(file)["live_bytes_peak"]
        return found

    def room_need(self, most):
        """A card with less free memory than `most` cannot prove that it suffices."""
        if self.emulated:
            return
        free = self.run(smi_command("memory.free"), limit_s=SMI_SECONDS).strip()
        if free.isdigit() and int(free) * MIB < most:
            raise Absent("%.1f GiB are free on the card" % (int(free) / 1024))

    def story(self, budget):
        """The README's configuration inside the budget: the planned memory is requested, and the driver agrees."""
        self.room_need(BUDGETS[budget])
        shape = self.shape(STORY)
        found = self.measured(shape, 4, "--memory_budget=" + ("64MiB" if self.emulated else budget))
        seconds = statistics.median(found["times"])
        rate = shape[4] * shape[5] / seconds
        self.facts["story " + budget] = {name: found[name] for name in ("planned", "asked", "used", "micro_batch")}
        self.facts["story " + budget]["tokens_per_s"] = rate
        self.forecast("story in %s, MiB" % budget, found["planned"] / MIB, found["asked"] / MIB)
        text = "planned %.1f MiB, asked for %.1f, in use %.1f with the context; %d samples at once, %.0f tokens/s" % (
            found["planned"] / MIB, found["asked"] / MIB, found["used"] / MIB, found["micro_batch"], rate)
        if found["planned"] != found["asked"]:
            raise Failed("asked for other bytes than were planned: " + text)
        if not self.emulated and found["used"] > BUDGETS[budget]:
            raise Failed("more than %s is in use: %s" % (budget, text))
        return text

    def offloaded(self, steps, samples=XL[4], *more):
        """GPT-2 XL with masters inside 12 GiB."""
        shape = self.shape(XL[:4] + (samples,) + XL[5:])
        budget = ["--offload=states"] if self.emulated else ["--memory_budget=%dB" % XL_BUDGET, "--state_format=master"]
        return self.measured(shape, steps, *budget, *more)

    def resident(self, like, steps, samples=XL[4]):
        """The same with all of it in the card's memory, if that is large enough: the same micro-batch and loss chunks."""
        shape = self.shape(XL[:4] + (samples,) + XL[5:])
        chunk = re.search(r"loss in chunks of (\d+)", like["log"])
        try:
            return self.measured(shape, steps, "--offload=none", "--micro_batch=%d" % like["micro_batch"],
                                 *(["--loss_chunk=" + chunk.group(1)] if chunk else []))
        except Failed as failed:
            if "not enough memory" in str(failed):
                return None
            raise

    def offload(self):
        """States in host memory: the planned memory is requested, the driver agrees, and the losses are those without."""
        self.room_need(XL_BUDGET)
        found = self.offloaded(19)
        if "in host memory" not in found["log"]:
            raise Failed("nothing is in host memory: " + found["log"][:200])
        other = self.resident(found, 19)
        text = "planned %.1f MiB, asked for %.1f, in use %.1f with the context; %d updates, %s" % (
            found["planned"] / MIB, found["asked"] / MIB, found["used"] / MIB, len(found["losses"]),
            "no room for the same without offload" if other is None else "the losses of those without offload")
        if found["planned"] != found["asked"] or not self.emulated and found["used"] > XL_BUDGET:
            raise Failed("other bytes than were planned: " + text)
        if other is not None and (found["losses"] != other["losses"] or len(found["losses"]) != 20):
            raise Failed("losses differ: %s, %s" % (found["losses"], other["losses"]))
        return text

    def forecast(self, name, forecast, found):
        """Adds a row to the table, whose prediction is of this machine itself."""
        self.facts.setdefault("forecasts", {})[name] = (forecast, found)

    def offload_speed(self, *sizes):
        """What offload adds to an update, beside the forecast: to few tokens, and to many if that takes no minutes."""
        texts = []
        for samples in sizes:
            if texts and seconds * samples / XL[4] * 14 > self.left_s():
                texts.append("no time for %d samples" % samples)
                break
            found = self.offloaded(5, samples)
            other = self.resident(found, 5, samples)
            seconds = statistics.median(found["times"])
            fact = {"seconds": seconds, "forecast": found["forecast"], "resident": other and statistics.median(other["times"])}
            self.facts["offload %d" % samples] = fact
            self.forecast("offload, %d samples, s" % samples, found["forecast"], seconds)
            texts.append("%d samples in %.3f s, %.2f of the forecast%s" % (samples, seconds, seconds / found["forecast"],
                         ", %.3f of the time without" % (seconds / fact["resident"]) if other else ""))
        return "; ".join(texts)

    def steady(self, name, *more, **environment):
        """Some seconds of updates, after a short run, whose losses they must repeat; returns measured()'s result with the
        tokens a second of its median update."""
        shape = self.shape(STORY)
        first = self.measured(shape, 2 if self.emulated else 4, *more, **environment)
        steps = 3 if self.emulated else max(5, int(self.steady_s / statistics.median(first["times"])) + 2)
        found = self.measured(shape, steps, *more, **environment)
        seconds = statistics.median(found["times"])
        found["tokens_per_s"] = shape[4] * shape[5] / seconds
        self.facts["steady " + name] = {**{key: found[key] for key in ("tokens_per_s", "mfu", "used", "micro_batch")},
                                        "seconds": seconds, "slowest_seconds": max(found["times"]), "updates": len(found["times"])}
        if found["losses"][:len(first["losses"])] != first["losses"]:
            raise Failed("two runs have other losses: %s, %s" % (first["losses"], found["losses"][:len(first["losses"])]))
        return found

    def steady_row(self, name, *more, **environment):
        found = self.steady(name, *more, **environment)
        text = "%.0f tokens/s, %d updates, %d at once, %.1f MiB in use, mfu %.1f %%" % (
            found["tokens_per_s"], len(found["times"]), found["micro_batch"], found["used"] / MIB, 100 * found["mfu"])
        before = self.facts.get("steady gpt-train")
        return text + ("; %.3f x" % (found["tokens_per_s"] / before["tokens_per_s"]) if before and name != "gpt-train" else "")

    def tuned(self):
        return self.steady_row("tuned", "--tune=True", XDG_CACHE_HOME=os.path.join(self.work, "tuned"))

    def side(self, name):
        """Some seconds of PyTorch, compiled, with the attention of this side."""
        attention, ours, within = SIDES[name]
        own = self.facts.get("steady gpt-train")
        if not has_torch(self.python, card=not self.emulated):
            raise Absent("no PyTorch 2 for this card (--python=PYTHON names a Python that has it)")
        if not own:
            raise Absent("gpt-train's speed is not known")
        shape = self.shape(STORY)
        before = self.facts.get("PyTorch " + attention)
        sizes = [own["micro_batch"]] if ours else [size for size in MICRO_BATCHES if shape[4] % size == 0]
        if ours and before and before["micro_batch"] == own["micro_batch"]:
            raise Absent("its own micro-batch is ours")
        if within and before and before["used"] <= own["used"]:
            raise Absent("it takes %.1f MiB, and ours %.1f" % (before["used"] / MIB, own["used"] / MIB))
        task = {"shape": shape, "micro_batches": sizes, "mode": "compile", "attention": attention, "bias": False,
                "steps": 2 if self.emulated else 10000, "seconds": 1 if self.emulated else self.steady_s,
                "device": "cpu" if self.emulated else "cuda", "most_bytes": own["used"] if within else 0}
        with UsedMemory(self.emulated) as used:
            try:
                text = self.run([self.python, os.path.join(TOP, "bench", "torch_side.py"), json.dumps(task)], limit_s=240)
            except Failed as failed:
                raise Absent("PyTorch: %s" % failed) from None
        found = json.loads(text.strip().split("\n")[-1])
        if "times" not in found:
            raise Absent("PyTorch runs out of memory with %d samples" % sizes[-1])
        rate = shape[4] * shape[5] / statistics.median(found["times"])
        found = dict(found, used=max(found["card_bytes"] - used.before, 0), tokens_per_s=rate)
        self.facts["PyTorch " + name] = {key: one for key, one in found.items() if key != "times"}
        return "%.0f tokens/s (%d updates, %d at once), %.1f MiB; gpt-train is %.2f x as fast in %.2f x the memory" % (
            rate, len(found["times"]), found["micro_batch"], found["used"] / MIB, own["tokens_per_s"] / rate,
            own["used"] / max(found["used"], 1))

    def mfu(self, name, shape, *more):
        found = self.measured(shape, 4, *more)
        rate, mfu = shape[4] * shape[5] / statistics.median(found["times"]), found["mfu"]
        tflops = rate * flops_per_token(shape) * 1e-12
        self.facts["mfu " + name] = {"tokens_per_s": rate, "tflops": tflops, "of_measured_products": mfu}
        return "%.0f tokens/s, %.1f TFLOP/s, %.1f %% of the rate of its own products" % (rate, tflops, 100 * mfu)

    def rates(self):
        """bench/gpu_rates.cu: what the card and cuBLASLt reach."""
        program = self.card_program("gpu_rates")
        shape = self.shape(STORY)
        rows = min(shape[4] * shape[5], RATES_ROWS)
        found = json.loads(self.run([program, str(rows), str(shape[2]), str((shape[3] + 7) // 8 * 8), "1" if self.emulated else "5"], limit_s=180))
        self.facts["rates"] = found
        plus = found["fp16_sums_plus"]
        fp8 = ", fp8 %.1f and %.1f" % tuple(found[name] * 1e-12 for name in ("fp8_fp32_sums_flops", "fp8_fp16_sums_flops"))
        return "mma %.1f TFLOP/s with fp32 sums, %.1f with fp16 sums (%s)%s, memory %.0f GB/s, L2 %.0f, a graph's node %.2f us" % (
            found["fp32_sums_flops"] * 1e-12, found["fp16_sums_flops"] * 1e-12,
            "they round to nearest" if plus[0] > 0 else "they truncate, or are not there",
            fp8 if found["fp8_fp32_sums_flops"] > 0 else "", found["memory_bytes"] * 1e-9,
            found["l2_rate_bytes"] * 1e-9, found["node_seconds"] * 1e6)

    def link(self):
        """The rates of the link to host memory, beside those that the card's profile has."""
        rates = self.rates_need()
        text = ", ".join("%s %.1f" % (way, rates["link_%s_bytes" % way] * 1e-9) for way in ("in", "out", "both", "kernel"))
        self.facts["link profile"] = self.profile_link(self.facts.get("device", ""))
        return "GB/s: %s (each way at once); the profile has %s" % (text, self.facts["link profile"] or "no such card")

    def profile_link(self, name):
        """Returns the GB/s of the first profile whose id begins with the card's name, or with its first words."""
        lines = self.run([self.program("gpt-train"), "--device_profile=list"]).split("\n")
        header = next(i for i, line in enumerate(lines) if line.startswith("name "))
        column = lines[header].split().index("link")
        words = re.sub(r"NVIDIA|GeForce|Tesla|RTX|-", " ", name).lower().split()
        for count in range(len(words), 0, -1):
            for line in lines[header + 1:]:
                if line.split() and re.sub("rtx|-", "", line.split()[0]).startswith("".join(words[:count])):
                    return float(line.split()[column])
        return None

    def rates_need(self):
        if "rates" not in self.facts:
            raise Absent("the card's rates are not known")
        return self.facts["rates"]

    def products(self):
        """What the products of an update gain by workspace, by tuning, by our own kernel and by fp16 sums, weighted by their
        time."""
        table = self.rates_need()["products"]
        library, own = ([one for one in table if one["own"] == is_own and not one["end"]] for is_own in (False, True))

        def time(one, key):
            return 2e-12 * one["m"] * one["n"] * one["k"] / one[key] if one[key] > 0 else 0.0

        def seconds(key, workspace):
            return sum(time(one, key) for one in library if one["workspace_mib"] == workspace)
        base = max(seconds("tflops", 32), 1e-12)
        gains = {"32 MiB before 8": seconds("tflops", 8) / base, "64 before 32": base / max(seconds("tflops", 64), 1e-12),
                 "tuned before not": base / max(seconds("tuned_tflops", 32), 1e-12)}
        for name, half, key in (("fp16 sums before fp32", True, "tflops"), ("own before cuBLASLt's", False, "tuned_tflops")):
            pairs = [(time(one, key), time(other, key)) for one in own for other in library if one["half_sums"] == half and
                     one["product"] == other["product"] and other["workspace_mib"] == 32 and one[key] > 0 < other[key]]
            if pairs:
                gains[name] = sum(other for _, other in pairs) / sum(one for one, _ in pairs)
        ends = [(one["end"], time(one, "tuned_tflops") - time(plain, "tuned_tflops"), one["m"]) for one in table if one["end"]
                for plain in own if not plain["half_sums"] and plain["product"] == one["product"]]
        self.facts["ends"] = {name: sum(cost / rows for end, cost, rows in ends if end.startswith(name)) for name in ("gelu", "residual")}
        self.facts["product gains"] = gains
        rates = [one["tflops"] for one in library if one["workspace_mib"] == 32]
        return "%d products at %.1f to %.1f TFLOP/s; %s" % (len(rates), min(rates), max(rates), ", ".join(
            "%s %.3f x" % gain for gain in gains.items()))

    def ops(self):
        """The time of an update by op, by the card's clock, at the run's micro-batch; shares of the card's roofs."""
        log = self.measured(self.shape(STORY), 3 if self.emulated else 5, "--profile=True")["log"]
        self.facts["ops"], self.facts["gaps"] = op_times(log), gaps_of(log)
        rates = self.facts.get("rates")
        for one in self.facts["ops"]:
            one["of_roof"] = 100 * max(one["gflops"] * 1e9 / rates["fp32_sums_flops"], one["gbytes"] * 1e9 / rates["memory_bytes"]) if rates else 0.0
        return "gaps %.1f %%; %s" % (self.facts["gaps"]["share"], ", ".join(
            "%s %.0f %% (%.0f %% of its roof)" % (one["op"], one["share"], one["of_roof"]) for one in self.facts["ops"][:5]))

    def next_steps(self):
        """Ranks what is left, in milliseconds of an update."""
        own = self.facts.get("steady gpt-train")
        if not own or "ops" not in self.facts or "rates" not in self.facts:
            raise Absent("speed, ops or rates are not known")
        total, gains = own["seconds"] * 1e3, self.facts.get("product gains", {})
        share = {one["op"]: one["share"] * 0.01 * total for one in self.facts["ops"]}
        left = {"%s at its roof" % one["op"]: share[one["op"]] * (1 - min(one["of_roof"], 100) / 100)
                for one in self.facts["ops"] if one["op"] != "gemm"}
        left["no gaps"] = max(self.facts["gaps"]["share"], 0) * 0.01 * total
        for name, text in (("tuned before not", "tuned products"), ("64 before 32", "64 MiB for products"),
                           ("fp16 sums before fp32", "fp16 sums in products")):
            if gains.get(name, 0) > 1:
                left[text] = share.get("gemm", 0) * (1 - 1 / gains[name])
        self.facts["next"] = sorted(([text, ms] for text, ms in left.items() if ms > 0), key=lambda one: -one[1])[:8]
        return "; ".join("%s %.1f ms" % tuple(one) for one in self.facts["next"]) + " of %.1f" % total

    def variants(self):
        """Returns {name: folder} of the modules that packaging/carry made."""
        archive, folder = os.path.join(TOP, "variants.zip"), os.path.join(self.work, "variants")
        if os.path.exists(archive):
            with zipfile.ZipFile(archive) as file:
                file.extractall(folder)
        return {os.path.basename(os.path.dirname(path)): os.path.dirname(path)
                for path in sorted(glob.glob(os.path.join(folder, "*", "gpt-train-cuda.so")))}

    def variant(self, name, folder):
        """Steady speed, and the time of attention, with another module than ours."""
        own = self.facts.get("steady gpt-train")
        if not own or "ops" not in self.facts:
            raise Absent("the speed of our own module is not known")
        found = self.steady("variant " + name, GPT_TRAIN_MODULE_DIR=folder)
        log = self.measured(self.shape(STORY), 3 if self.emulated else 5, "--profile=True", GPT_TRAIN_MODULE_DIR=folder)["log"]
        other = {**self.facts, "ops": op_times(log), "gaps": gaps_of(log), "steady gpt-train": self.facts["steady variant " + name]}
        ms, before = predicted.op_milliseconds(other), predicted.op_milliseconds(self.facts)
        self.forecast("module %s, tokens/s" % name, own["tokens_per_s"], found["tokens_per_s"])
        for op in ("attention forward, ms", "attention backward, ms", "products, ms"):
            self.forecast("module %s, %s" % (name, op), before[op], ms[op])
        return "%.3f x the speed of ours; attention %.2f and %.2f ms" % (
            found["tokens_per_s"] / own["tokens_per_s"], ms["attention forward, ms"], ms["attention backward, ms"])

    def random_llama(self, times):
        """Returns a folder with random weights of an 8B Llama, in memory if there is room; a run takes host memory of so many
        times the weights."""
        shape = SMALL_LLAMA if self.emulated else random_llama.LLAMA_8B
        needed = random_llama.bytes_of(shape)
        with open("/proc/meminfo", encoding="ascii") as file:
            available = int(re.search(r"^MemAvailable: +(\d+) kB", file.read(), re.M).group(1)) << 10
        if self.weights:
            available += needed
        place = self.weights or next((folder for folder in ("/dev/shm", tempfile.gettempdir()) if os.access(folder, os.W_OK) and
                                      shutil.disk_usage(folder).free > needed * 1.1), None)
        if not place or available < times * needed + LLAMA_SPARE:
            raise Absent("%.0f GB of memory and a folder with room for %.0f GB of random weights are needed" % (
                (times * needed + LLAMA_SPARE) * 1e-9, needed * 1e-9))
        if not self.weights:
            self.weights = tempfile.mkdtemp(prefix="gpt-train-llama-", dir=place)
            try:
                self.run([sys.executable, os.path.join(TOP, "bench/random_llama.py"), self.weights, *map(str, shape)])
            except (Absent, Failed):
                shutil.rmtree(self.weights)
                self.weights = None
                raise
        return self.weights

    def adapters(self, budget):
        """Updates of adapters of an 8B Llama, whose frozen weights are in the card's memory, or as the budget allows."""
        self.room_need(XL_BUDGET if budget else random_llama.bytes_of(random_llama.LLAMA_8B) * 5 // 4)
        shape = (0, 0, 0, SMALL_LLAMA[5] if self.emulated else 50257, 4, 16 if self.emulated else 1024)
        keys = [word for word in training(self.work, shape, 5, os.path.join(self.work, "measured"))
                if not re.match("--(n_|vocab_size)", word)]
        where = ["--offload=" + ("states" if budget else "none")] if self.emulated or not budget else ["--memory_budget=" + budget]
        folder = self.random_llama(2 if budget else 1.25)  # the file in memory, and what is offloaded
        found = self.trained(*keys, "--init_from=" + folder, *ADAPTERS, *where)
        seconds = statistics.median(found["times"])
        name = "LoRA 8B " + (budget and "in " + budget or "resident")
        self.forecast(name + ", s", found["forecast"], seconds)
        self.forecast(name + ", MiB", found["planned"] / MIB, found["asked"] / MIB)
        text = "%.0f tokens/s, %d at once; planned %.1f MiB, asked for %.1f, in use %.1f with the context" % (
            shape[4] * shape[5] / seconds, found["micro_batch"], found["planned"] / MIB, found["asked"] / MIB, found["used"] / MIB)
        if found["planned"] != found["asked"]:
            raise Failed("asked for other bytes than were planned: " + text)
        return text

    def large_product(self):
        """Logits of more than 2^31 elements in one product: the losses of smaller ones."""
        shape, found = self.shape(STORY), []
        keys = ["--micro_batch=%d" % shape[4]]
        for more in (["--loss_chunk=%d" % (shape[4] * shape[5])], []):
            try:
                found.append(self.measured(shape, 2, *keys, *more)["losses"])
            except Failed as failed:
                if "not enough memory" in str(failed):
                    raise Absent("no room for all logits: %s" % failed) from None
                raise
        apart = max(abs(a - b) / abs(b) for a, b in zip(*found))
        text = "losses of %d x %d logits within %.2g of those in chunks" % (shape[4] * shape[5], shape[3], apart)
        if not apart <= BOUNDS[self.half()][0]:
            raise Failed(text)
        return text

    def opencl(self):
        """The same updates by the OpenCL backend, on the same card."""
        if self.emulated:
            raise Absent("a rehearsal has no card")
        listed = self.run([self.program("gpt-train"), "--list_devices"])
        found = re.search(r"^(opencl:\d+) +.*NVIDIA", listed, re.M)
        if not found:
            raise Absent(" ".join((re.search(r"^opencl:.*", listed, re.M) or re.match("", "")).group().split()) or "no OpenCL backend")
        log = self.measured(self.shape(STORY), 3, "--backend=opencl", "--device=" + found.group(1))
        seconds, own = statistics.median(log["times"]), self.facts.get("steady gpt-train")
        return "%.1f ms an update%s" % (seconds * 1e3, ", %.2f x cuda's" % (seconds / own["seconds"]) if own else "")

    def half_sums_steady(self):
        if not self.emulated and "GeForce" not in self.facts.get("device", ""):
            raise Absent("this card's products are as fast with fp32 sums, or not known to gain")
        return self.steady_row("half_sums", "--dtype=float16", "--half_sums=on")

    def roofs(self):
        """opcheck --bench: every op's bytes, FLOPs and time against the measured memory and matrix rates."""
        if self.emulated:
            raise Absent("a rehearsal has no roofs")
        text = self.run([self.program("opcheck"), "--backend=cuda", "--bench", "--dtype=" + self.half()], limit_s=120)
        self.facts["roofs"] = text.strip().split("\n")
        return self.facts["roofs"][0]

    def graphs(self):
        """Some steps with graphs and without: the same losses to the last digit."""
        steps = 3 if self.emulated else 12
        shape, found = self.shape((4, 4, 256, 512, 8, 256)), {}
        for word in ("auto", "off"):
            one = self.measured(shape, steps, "--cuda_graphs=" + word)
            if "cannot be kept as a graph" in one["log"]:
                raise Failed("programs cannot be recorded: " + one["log"][:200])
            found[word] = (re.findall(r"^iter \d+: loss ([\d.]+)", one["log"], re.M), statistics.median(one["times"]))
        if found["auto"][0] != found["off"][0] or len(found["auto"][0]) != steps + 1:
            raise Failed("losses differ: %s" % (found,))
        return "the same losses, %.2f of the time of launches" % (found["auto"][1] / found["off"][1])

    def ranks(self):
        """Two ranks, and one with as many parts: the same losses.  Two cards exchange by NCCL, with P2P and without, and
        through host memory; one card is shared."""
        cards = 1 if self.emulated else len(self.run(["nvidia-smi", "-L"]).strip().split("\n"))
        shape, steps, keys, found = self.shape(STORY), 2 if self.emulated else 6, ["--parts=2"], {}
        ways = {"through host memory": {"GPT_TRAIN_NCCL_LIBRARY": ""}}
        if cards > 1:
            ways.update({"by NCCL": {}, "by NCCL without P2P": {"NCCL_P2P_DISABLE": "1"}})
        for way, environment in ways.items():
            one = found[way] = self.measured(shape, steps, "--ranks=2", *keys, **environment)
            keys = ["--parts=2", "--micro_batch=%d" % one["micro_batch"]]
            if ("gradients through NCCL" in one["log"]) != way.startswith("by NCCL"):
                raise Failed("ranks did not exchange %s: %s" % (way, one["log"][:300]))
        alone = self.measured(shape, steps, *keys)
        times = {way: statistics.median(one["times"]) for way, one in found.items()}
        self.facts["ranks"] = dict(times, alone=statistics.median(alone["times"]), cards=cards)
        text = "the speed of one: %s" % ", ".join("%.3f %s" % (self.facts["ranks"]["alone"] / seconds, way) for way, seconds in times.items())
        if any(one["losses"] != alone["losses"] or one["planned"] != one["asked"] for one in found.values()):
            raise Failed("other losses, or other bytes than were planned; " + text)
        return "%s, the same losses; %s" % ("two cards" if cards > 1 else "two ranks share the card", text)

    def devices(self):
        self.facts["release"] = self.run([self.program("gpt-train"), "--version"]).split("\n")[0].split()[-1] + self.commit()
        output = self.run([self.program("gpt-train"), "--list-devices"])
        return " ".join(output.split())[:200]

    def commit(self):
        """Returns the source folder's commit, if it is a clone or packaging/carry's."""
        if os.path.exists(os.path.join(TOP, "commit")):
            with open(os.path.join(TOP, "commit"), encoding="ascii") as file:
                return ", commit " + file.read().strip()
        text, status = finished(["git", "-C", TOP, "describe", "--always", "--dirty"], 10) if shutil.which("git") else ("", 1)
        return ", commit " + text.strip() if status == 0 else ""

    def sanitizer(self, tool, *selection, **environment):
        if self.emulated:
            raise Absent("a rehearsal has no card")
        program = self.toolkit("compute-sanitizer")
        try:
            text = self.run([program, "--tool=" + tool, "--error-exitcode=9", self.program("opcheck"), "--backend=cuda",
                             "--cases=12", *(selection or ["--dtype=" + self.half()])],
                            limit_s=SANITIZER_SECONDS, environment=environment)
        except Failed as failed:
            if "longer than" in str(failed):
                raise Absent("not finished in %d s" % SANITIZER_SECONDS) from None
            raise
        cases = re.search(r"^cases on backends: ([1-9]\d*)$", text, re.M)
        if not cases or not re.search(r"SUMMARY: 0 (errors|hazards)", text):
            raise Failed("it did not look: " + text.strip().split("\n")[-1][:160])
        return "%s cases, nothing found" % cases.group(1)

    def script(self, *command):
        """Runs a test of this source tree on the card; returns the last line of each kind of its counts."""
        if self.emulated:
            raise Absent("a rehearsal has no card")
        if not os.path.exists(os.path.join(TOP, "tests", command[1])):
            raise Absent("no tests/%s: it is part of the sources" % command[1])
        programs = {name.upper().replace("-", "_"): os.path.join(self.build, name)
                    for name in ("gpt-train", "gpt-prepare", "gpt-sample", "gpt-export")}
        text = self.run([command[0], os.path.join(TOP, "tests", command[1]), *command[2:]], cwd=self.work, environment=dict(
            programs, top_srcdir=TOP, top_builddir=os.path.abspath(self.build), PYTHON=sys.executable,
            XDG_CACHE_HOME=os.path.join(self.work, "cache"), GPT_TRAIN_BACKEND="cuda"))
        return "; ".join(re.findall(r"^(?:checks|the card): .*$", text, re.M))

    def all_rows(self):
        if "quick" in self.options:
            try:
                self.machine()
            except (Absent, Failed) as why:
                print("gpt-check: %s; nothing is checked or measured" % why)
                return 77
        has_card = self.row("machine", self.machine, needs_s=0)
        if not has_card:
            return 77
        built = self.row("build", self.compiled, needs_s=0) or (self.emulated and not self.failed()) or self.has_cuda(self.build)
        with Clocks(self.emulated) as self.clocks:
            if "quick" in self.options:
                self.quick(built)
            elif "speed" in self.options:
                self.speed(built)
            else:
                self.row("smoke", self.smoke)
                if built:
                    self.checks()
        return 1 if self.failed() else 0

    def failed(self):
        return any(row["result"] == "FAIL" for row in self.rows)

    def quick(self, built):
        """Rows, the most informative first, with the seconds that each may take."""
        self.clocked("smoke", self.smoke, limit_s=40)
        if not built:
            return
        half = self.half()
        rows = [("devices", self.devices, 20)]
        rows += [("parity " + dtype, lambda dtype=dtype: self.parity(dtype), 30) for dtype in (half, *(one for one in DTYPES if one != half))]
        rows += [("at once", self.parity_at_once, 60), ("fp16 sums", self.parity_half_sums, 30), ("graphs", self.graphs, 30),
                 ("story 11.4GiB", lambda: self.story("11.4GiB"), 40)]
        rows += [("opcheck " + dtype, lambda dtype=dtype: self.opcheck_row(dtype), 60) for dtype in DTYPES]
        rows += [("opcheck at once", self.at_once, 40), ("half_sums", self.half_sums, 40), ("racecheck", self.raced, 60),
                 ("rates", self.rates, 60), ("products", self.products, 5), ("link", self.link, 5),
                 ("steady gpt-train", lambda: self.steady_row("gpt-train"), 45), ("ops", self.ops, 30),
                 ("steady half_sums", self.half_sums_steady, 45),
                 ("PyTorch flash", lambda: self.side("flash"), 110), ("PyTorch cuDNN", lambda: self.side("cuDNN"), 80),
                 ("steady tuned", self.tuned, 60),
                 ("MFU 350M", lambda: self.mfu("350M", self.shape(MEDIUM)), 40),
                 ("offload speed", lambda: self.offload_speed(XL[4]), 80)]
        rows += [("variant " + name, lambda name=name, folder=folder: self.variant(name, folder), 50)
                 for name, folder in self.variants().items()]
        rows += [("LoRA 8B resident", lambda: self.adapters(None), 70), ("LoRA 8B 12GiB", lambda: self.adapters("12GiB"), 70),
                 ("OpenCL", self.opencl, 70), ("large product", self.large_product, 60)]
        for name, action, limit_s in rows:
            self.clocked(name, action, needs_s=limit_s / 3, limit_s=limit_s)

    def checks(self):
        self.row("devices", self.devices)
        for dtype in DTYPES:
            self.row("parity " + dtype, lambda dtype=dtype: self.parity(dtype))
        self.row("at once", self.parity_at_once)
        self.row("fp16 sums", self.parity_half_sums)
        self.row("graphs", self.graphs)
        for budget in BUDGETS:
            self.row("story " + budget, lambda budget=budget: self.story(budget), needs_s=30)
        self.row("offload", self.offload, needs_s=60)
        self.row("two ranks", self.ranks, needs_s=40)
        self.row("MFU 124M", lambda: self.mfu("124M", self.shape(STORY)), needs_s=20)
        self.row("MFU llmq's twin", lambda: self.mfu("twin", self.shape(STORY), "--arch=llama", "--n_inner=%d" % (self.shape(STORY)[2] * 8 // 3)),
                 needs_s=20)
        for dtype in DTYPES:
            self.row("opcheck " + dtype, lambda dtype=dtype: self.opcheck_row(dtype))
        self.row("opcheck at once", self.at_once)
        self.row("half_sums", self.half_sums)
        self.row("memcheck", lambda: self.sanitizer("memcheck"), needs_s=SANITIZER_SECONDS)
        for tool in TOOLS:
            self.row(tool, lambda tool=tool: self.sanitizer(tool), needs_s=20)
        self.row("racecheck of both", self.raced, needs_s=20)
        self.row("resume", lambda: self.script("sh", "e2e/resume.sh"), needs_s=60)

    def clocked(self, name, action, needs_s=1, limit_s=None):
        """A row, with the clocks of its time; it says when heat or the power supply slowed the card down."""
        begin = self.clocks.mark()

        def said():
            detail = action()
            slow = [int(count) for reasons, count in re.findall(r"reasons 0x(\w+) \((\d+) of", self.clocks.since(begin))
                    if int(reasons, 16) & SLOWED]
            return detail + ("; CLOCKS THROTTLED in %d of %d readings" % (sum(slow), self.clocks.mark() - begin) if slow else "")
        self.row(name, said, needs_s, limit_s)
        found = self.clocks.since(begin)
        if found:
            self.facts["clocks " + name] = found

    def speed(self, built):
        self.clocked("rates", self.rates, needs_s=30)
        self.row("products", self.products)
        self.row("link", self.link)
        if not built:
            return
        self.clocked("steady gpt-train", lambda: self.steady_row("gpt-train"), needs_s=40)
        self.clocked("ops", self.ops, needs_s=20)
        for name in SIDES:
            self.clocked("PyTorch " + name, lambda name=name: self.side(name), needs_s=100)
        self.clocked("steady tuned", self.tuned, needs_s=60)
        self.clocked("steady half_sums", lambda: self.steady_row("half_sums", "--dtype=float16", "--half_sums=on"), needs_s=40)
        self.clocked("MFU 350M", lambda: self.mfu("350M", self.shape(MEDIUM)), needs_s=20)
        self.clocked("offload speed", lambda: self.offload_speed(XL[4], XL_SAMPLES), needs_s=60)
        self.row("roofs", self.roofs, needs_s=30)
        self.row("next", self.next_steps)

    def block(self):
        """Returns the block to paste into an issue, or into a file of bench/results."""
        speeds = ["%.0f %s" % (self.facts[row]["tokens_per_s"], text) for row, text in
                  (("mfu 124M", "with all of its memory"), *(("story " + budget, "in " + budget) for budget in BUDGETS))
                  if row in self.facts]
        lines = ["```", "gpu-check of %s" % self.facts.get("device", "?")]
        lines += ["%s: %s" % (name, self.facts[name]) for name in ("capability", "memory", "driver", "nvcc", "release")
                  if name in self.facts]
        if speeds:
            lines.append("tokens/s: %s (GPT-2 124M, 64 x 1024, %s)" % (", ".join(speeds), self.half()))
        lines += ["%-18s %s  %s" % (row["name"], row["result"], row["detail"]) for row in self.rows]
        lines += ["%-22s %5.1f %%  %9.1f GFLOP/s  %7.1f GB/s  %5.1f %% of its roof" % (
            one["op"], one["share"], one["gflops"], one["gbytes"], one["of_roof"]) for one in self.facts.get("ops", [])]
        lines += ["%-26s %s" % (name, text) for name, text in self.facts.items() if name.startswith("clocks ")]
        if "quick" in self.options:
            lines += ["", *predicted.table(self.facts)]
        return "\n".join(lines + ["```"])

    def print_and_store(self):
        """Prints the block, and stores the figures, also of a run that was ended."""
        kind = next((kind for kind in ("quick", "speed") if kind in self.options), "check")
        target = self.options.get("json", "gpu-%s.json" % kind)
        try:
            json_write(target, {"facts": self.facts, "rows": self.rows})
            stored = "the figures are in " + target
        except OSError as error:
            stored = "the figures are not stored: %s" % error
        print("%s; %s.  The block to paste in an issue:\n" % (results_of(self.rows), stored))
        print(self.block(), flush=True)

    def remove(self):
        for folder in filter(None, (self.work, self.weights)):
            shutil.rmtree(folder, ignore_errors=True)


def end_once(*_unused):
    """The handler of signals: the first one ends the run.  timeout(1) sends two."""
    for ending in ENDINGS:
        signal.signal(ending, signal.SIG_IGN)
    raise KeyboardInterrupt


def main():
    names = ("build", "json", "emulated", "minutes", "only", "python", "seconds")
    options = words_of(__doc__, ("minutes", "seconds"), names, "full", "speed", "quick")
    for name in ("build", "emulated"):
        if name in options:
            options[name] = os.path.abspath(options[name])
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # the order of nvidia-smi, which names the first card
    os.umask(os.umask(0) | 0o022)  # modules that anyone may change are not loaded
    for ending in ENDINGS:
        signal.signal(ending, end_once)
    check = Check(options)
    try:
        status = check.all_rows()
    except KeyboardInterrupt:
        status = 1
    finally:
        for ending in ENDINGS:
            signal.signal(ending, signal.SIG_IGN)  # until the figures are out
        if check.rows:
            check.print_and_store()
        check.remove()
    return status


if __name__ == "__main__":
    sys.exit(main())
