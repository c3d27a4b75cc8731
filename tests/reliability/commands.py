"""The commands that failing_memory.py and failing_calls.py attack: every program, from an empty folder or one that an earlier
run left, each with what its results are.

  train     a run from the beginning that evaluates, samples and saves
  over      one in the folder of a finished run
  resume    one that goes on
  foreign   one that begins with a model in Hugging Face's layout
  wide      one of which the speed of the device is measured, and kept in the cache
  warm      the same with what the cache then holds
  evaluate  one of a checkpoint, without training
  judge     the perplexity of a token file
  plan      the search for a plan that fits a budget
  sample
  prepare   text to tokens, with a tokenizer that is learnt
  goes_on   the same, from where a run was killed
  anew      the same, which is told to begin anew there
  again     the same, in the folder of another data set
  shards    documents of JSONL, compressed too, to token files of 400, without copies
  export    to a file
  folder    to a folder that is there already

And those of the backends for devices, which failing_memory.py attacks; failing_calls.py does not, since most calls are a driver's:

  opencl, opencl_warm, opencl_sample   training with an empty cache of kernels, and with one that holds them; sampling
  cuda, cuda_tune, cuda_sample         the emulated card: training; with --tune, where the cache has some of what is timed; sampling
"""
import contextlib
import glob
import gzip
import json
import os
import re
import shutil
import subprocess

import tiny

from checks import check
from faulty_device import COMPILE_SECONDS

WORDS = [word for word in tiny.RUN if not word.startswith(("--vocab_size", "--dataset"))] + [
    "--dataset=./text", "--sample_tokens=4", "--out_dir=work"]
MODEL = ["--n_layer=2", "--n_head=2", "--n_embd=32", "--block_size=64"]
FAULTY = os.path.join(os.path.abspath(os.environ.get("top_builddir", ".")), "tests", "reliability")
NVML = os.path.join(os.path.dirname(FAULTY), "cuda_on_cpu", "nvml")  # the emulated card's management library
HELD = "allocations"  # where a program of faulty_memory.c writes what it allocated and held at its end
TRACE = "trace"       # and where it asked for it
OBJECTS = "objects"   # where the library of a device writes how many objects are not given back
PROGRAMS = {name: os.path.abspath(os.environ[name.upper().replace("-", "_")])
            for name in ("gpt-train", "gpt-sample", "gpt-prepare", "gpt-export")}
LINES = "text.jsonl"
ARCHIVE = "text.jsonl.gz"
PREPARE = ["--tokenizer=train", "--vocab-size=280", "--threads=1", "--out-dir=work", "text.txt"]
SAVELESS = "--always_save_checkpoint=False"
SAMPLED = ["--out_dir=one", "--num_samples=2", "--max_new_tokens=8", "--start=green"]
TUNE = "--tune=True"
# On the card so little memory that only the smallest product is timed: how many others are depends on the time, and with it what
# --tune keeps.
SMALL = ["--batch_size=1", "--n_embd=8", "--block_size=8"]
SMALLER = [*SMALL, "--block_size=4"]
TUNED = set()  # the lines of the list that cuda_tune begins with
WIDE = [*WORDS, "--n_embd=64", "--block_size=32", "--max_iters=1", "--eval_interval=100", SAVELESS]
ANSWERS = ("--plan", "--eval_only", "--eval_data")  # these train nothing
OTHER_SEED = 7  # of the run in whose folder another one begins
UNLIKE = ("lock", "metrics.jsonl", "trainer_state.json")  # they say what differs between two runs


def is_faulty():
    """Whether there are programs with planted faults, which count what they hold at their end."""
    return os.path.exists(os.path.join(FAULTY, "gpt-prepare-faulty"))


def device_of(words):
    """The backend that the command line names."""
    return next((word.partition("=")[2] for word in words if word.startswith("--backend=")), "cpu")


def path_of(program, device="cpu"):
    """Of the one with planted faults, where there is one."""
    if not is_faulty():
        return PROGRAMS[program]
    return os.path.join(FAULTY, program + ("-cuda" if device == "cuda" else "") + "-faulty")


def start(program, words, fault=None, tracer=(), limit=tiny.LIMIT_SECONDS, **more):
    """The finished process of a program, with planted faults where there is one, and more in its environment."""
    for path in (HELD, OBJECTS):
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
    environment = dict(tiny.TRACED if tracer else tiny.ENVIRONMENT, GPT_FAULT_ALLOCATIONS=HELD, OPENCL_FAULT_REPORT=OBJECTS,
                       GT_CUDA_ON_CPU_REPORT=OBJECTS, XDG_CACHE_HOME=os.path.abspath("cache"), **more)
    if fault:
        environment["GPT_FAULT_ALLOCATION"] = fault
    if device_of(words) == "cuda":
        environment["LD_LIBRARY_PATH"] = NVML
    path = path_of(program, device_of(words))
    return subprocess.run([*tracer, path, *words], env=environment, capture_output=True, text=True, timeout=limit, check=False)


def held():
    """(Allocations, blocks not released, files open) of the last process at its end; None where it could not say."""
    try:
        with open(HELD, encoding="ascii") as file:
            return tuple(int(word) for word in file.read().split()) or None
    except FileNotFoundError:
        return None


def objects_left():
    """Of a device's library, made by the last process and not given back; None where nobody counted."""
    try:
        with open(OBJECTS, encoding="ascii") as file:
            return int(re.search(r'(?:"objects_alive":|^left) ?(\d+)', file.read(), re.MULTILINE).group(1))
    except FileNotFoundError:
        return None


def allocated_below(folder, command):
    """The numbers of the allocations of a run of the command that code of this folder of the project asks for, by itself or
    through others; none in a build without what a debugger needs, or without addr2line."""
    if shutil.which("addr2line") is None:
        return []
    command.fresh()
    command.run(lambda *how: start(*how, GPT_FAULT_TRACE=TRACE))
    with open(TRACE, encoding="ascii") as file:
        calls = [(int(number), frames) for number, *frames in map(str.split, file)]
    addresses = sorted({frame for _, frames in calls for frame in frames})
    done = subprocess.run(["addr2line", "-e", path_of(command.program, command.device)], input="\n".join(addresses),
                          capture_output=True, text=True, check=False)
    inside = {address for address, line in zip(addresses, done.stdout.splitlines()) if folder in line}
    return [number for number, frames in calls if not inside.isdisjoint(frames)]


def tuned():
    """The lines of the cache's list of what was timed on the card."""
    found = set()
    for path in glob.glob("cache/gpt-train/cuda/*"):
        with open(path, "rb") as file:
            found.update(re.findall(rb"(?:[0-9a-f]{16} )+[0-9a-f]+\n", file.read()))
    return found


def digests(folder):
    """Of each file of a folder, but what a run says of its times."""
    found = {}
    for path in sorted(glob.glob(os.path.join(folder, "*"))):
        if os.path.isfile(path) and os.path.basename(path) not in UNLIKE:
            found[os.path.basename(path)] = tiny.digest(path)
    return found


def checkpoint():
    """What tiny.contents() says; nothing of a record that cannot be read."""
    try:
        return tiny.contents("work")
    except (ValueError, KeyError) as error:
        return {"unreadable": str(error)}


class Command:
    """A program, its arguments, the folders that its work and its cache begin with, and what its results are."""

    def __init__(self, name, program, words, begin=None, cache=None, results=lambda done: checkpoint()):
        self.name, self.program, self.words, self.begin, self.cache, self.results = name, program, words, begin, cache, results
        self.device = device_of(words)

    def trains(self):
        """It goes on where a save fails, or the cache, after an error line."""
        return self.program == "gpt-train" and not any(word.startswith(ANSWERS) for word in self.words)

    def saves(self):
        """Whether it leaves checkpoints."""
        return self.trains() and SAVELESS not in self.words

    def least_iter(self):
        """Of the checkpoint that must be there whatever goes wrong; 0 for none."""
        record = tiny.record_of(self.begin) if self.begin and self.saves() else None
        if record is None:
            return 0
        return 1 if record["seed"] == OTHER_SEED else record["iter"]  # an old run's, or any of the one that replaces it

    def run(self, start):
        """The finished process, or None when it hangs; start(program, words) starts it."""
        try:
            return start(self.program, self.words)
        except subprocess.TimeoutExpired:
            return None

    def fresh(self):
        tiny.clear("work")
        tiny.clear("cache")
        if self.begin:
            shutil.copytree(self.begin, "work")
            for name in os.listdir("work"):
                os.chmod(os.path.join("work", name), 0o600)
        if self.cache:
            shutil.copytree(self.cache, "cache")
        else:
            os.mkdir("cache")

    def widened(self):
        """The files that others may read now, although those of the folder that the work began with were private; of training,
        which replaces each of them but the metrics, whose file a run begins anew."""
        if not (self.begin and self.saves()):
            return []
        return [os.path.join(folder, name) for folder, _, names in os.walk("work") for name in names
                if os.stat(os.path.join(folder, name)).st_mode & 0o77 and not name.startswith("metrics")]

    def is_lost(self):
        """Whether the checkpoint is gone that was there before a run which began anew."""
        kept = glob.glob("work/earlier-*") if self.begin == "other" else []
        return self.begin == "other" and tiny.contents("other") not in [tiny.contents(folder) for folder in kept]

    def is_mixed(self):
        """Whether files of a data set lie there that was half replaced or removed, and nothing says so."""
        names = set(os.listdir("work")) if self.program == "gpt-prepare" and os.path.isdir("work") else set()
        return bool(names & {"train.bin", "val.bin"}) and not names & {"manifest.json", ".gpt-prepare.state"}

    def again(self, start):
        """Without a fault, on what is there; a run that had begun is resumed."""
        begun = self.saves() and os.path.exists("work/trainer_state.json")
        words = [word for word in self.words if not word.startswith("--init_from")] + ["--init_from=resume"]
        if begun and tiny.record_of("work")["seed"] == OTHER_SEED:
            words = self.words  # of the run that was there before
        return Command(self.name, self.program, words if begun else self.words).run(start)


def every():
    resumed = [*WORDS, "--init_from=resume"]
    prepared = {"results": lambda done: digests("work")}
    losses = {"results": lambda done: re.findall(r"\d+: .*loss [0-9.]+", done.stdout)}
    return [
        Command("train", "gpt-train", WORDS),
        Command("over", "gpt-train", WORDS, begin="other"),
        Command("resume", "gpt-train", resumed, begin="half"),
        Command("foreign", "gpt-train", [*WORDS, "--init_from=hf"]),
        Command("wide", "gpt-train", WIDE, **losses),
        Command("warm", "gpt-train", WIDE, cache="cached", **losses),
        Command("evaluate", "gpt-train", [*resumed, "--eval_only=True"], begin="one", **losses),
        Command("judge", "gpt-train", ["--init_from=resume", "--out_dir=one", "--eval_data=text/val.bin", "--threads=1"],
                results=lambda done: re.findall(".*perplexity.*", done.stdout)),
        Command("plan", "gpt-train", [*WORDS, *MODEL, "--plan", "--memory_budget=66MiB"],
                results=lambda done: "Memory " in done.stdout),
        Command("sample", "gpt-sample", SAMPLED, results=lambda done: done.stdout),
        Command("prepare", "gpt-prepare", PREPARE, **prepared),
        Command("goes_on", "gpt-prepare", PREPARE, begin="killed", **prepared),
        Command("anew", "gpt-prepare", [*PREPARE, "--restart"], begin="killed", **prepared),
        Command("again", "gpt-prepare", PREPARE, begin="bytes", **prepared),
        Command("shards", "gpt-prepare", ["--tokenizer=bytes", "--dedup", "--shard-tokens=400", "--val-fraction=0.3", "--threads=1",
                                          "--out-dir=work", LINES, *(name for name in (ARCHIVE,) if os.path.exists(name))], **prepared),
        Command("export", "gpt-export", ["--out_dir=one", "--format=gguf", "--dtype=float16", "--force", "work/model.gguf"], begin="empty",
                **prepared),
        Command("folder", "gpt-export", ["--out_dir=one", "--format=hf", "--force", "work"], begin="hf_other", **prepared),
    ]


def on_devices():
    cuda, opencl = [*WORDS, *SMALL, "--backend=cuda"], [*WORDS, "--backend=opencl"]
    sampled = {"results": lambda done: done.stdout}
    return [
        Command("opencl", "gpt-train", opencl),
        Command("opencl_warm", "gpt-train", opencl, cache="opencl_cached"),
        Command("opencl_sample", "gpt-sample", [*SAMPLED, "--backend=opencl"], cache="opencl_cached", **sampled),
        Command("cuda", "gpt-train", cuda),
        Command("cuda_tune", "gpt-train", [*cuda, TUNE], cache="cuda_cached",
                results=lambda done: (checkpoint(), tuned() >= TUNED)),
        Command("cuda_sample", "gpt-sample", [*SAMPLED, "--backend=cuda"], **sampled),
    ]


def prepare_device(start, device):
    """A cache that has its kernels, or some of what is timed."""
    tiny.clear("cache")
    os.mkdir("cache")
    words = [word.replace("=work", f"={device}") for word in WORDS] + [f"--backend={device}"]
    for program, words in (("gpt-train", [*words, *SMALLER, TUNE] if device == "cuda" else words),
                           ("gpt-sample", [*SAMPLED, f"--backend={device}"])):
        done = Command("", program, words).run(lambda *how: start(*how, limit=COMPILE_SECONDS))
        check(done is not None and done.returncode == 0, f"{program} {words}: {done and done.stderr[-500:]}")
    TUNED.update(tuned())
    check(device != "cuda" or len(TUNED) > 10, f"what was timed on the card: {TUNED}")
    shutil.copytree("cache", f"{device}_cached")


def prepare(start):
    """The text, and the folders that commands begin with."""
    with open("text.txt", "w", encoding="ascii") as file:
        file.writelines(f"{number} bottles hang on the wall, and {number * 7 % 100} of them are green.\n" for number in range(60))
    with open(LINES, "w", encoding="ascii") as file:
        file.writelines(json.dumps({"text": f"{number % 40} apples"}) + "\n" for number in range(60))
    os.makedirs("empty")
    os.makedirs("cache")

    def to(folder, words=WORDS):
        return [word.replace("=work", f"={folder}") for word in words]

    for program, words in (
            ("gpt-prepare", ["--tokenizer=bytes", "--out-dir=text", "text.txt"]),
            ("gpt-train", to("one")),
            ("gpt-train", [*to("half"), f"--max_iters={tiny.ITERATIONS // 2}"]),
            ("gpt-train", [*to("other"), f"--seed={OTHER_SEED}"]),
            ("gpt-export", ["--out_dir=one", "--format=hf", "hf"]),
            ("gpt-export", ["--out_dir=other", "--format=hf", "hf_other"])):
        done = Command("", program, words).run(start)
        check(done is not None and done.returncode == 0, f"{program} {words}: {done and done.stderr[-500:]}")
    shutil.copytree("text", "bytes")
    shutil.rmtree("cache")
    check(Command("", "gpt-train", to("wide", WIDE)).run(start).returncode == 0, "a wide run")
    shutil.copytree("cache", "cached")
    with open(LINES, "rb") as file, gzip.GzipFile(ARCHIVE, "wb", mtime=0) as compressed:
        compressed.write(file.read().replace(b"apples", b"pears"))
    if Command("", "gpt-prepare", ["--tokenizer=bytes", "--out-dir=unpacked", ARCHIVE]).run(start).returncode != 0:
        os.remove(ARCHIVE)  # a build without libarchive
    if not tiny.has_strace():
        return
    # Killed when it has named one of two token files.
    done = start("gpt-prepare", to("killed", PREPARE), tracer=("strace", "-qq", "-o", os.devnull, "-e", "trace=rename", "-e",
                                                               "inject=rename:signal=SIGKILL:when=2"))
    check(os.path.exists("killed/train.bin") and os.path.exists("killed/val.bin.partial"), f"a killed gpt-prepare: {done.stderr}")


def possible():
    """Those whose folders could be made."""
    return [command for command in every() if command.begin is None or os.path.isdir(command.begin)]
