"""The commands that failing_calls.py attacks: every program, from an empty folder or one that an
earlier run left, each with its expected results.

  train     a new run that evaluates, samples and saves
  over      a new run in the folder of a finished run
  resume    a resumed run
  foreign   a run that starts from a model in Hugging Face's layout
  wide      a run that measures the device's speed and stores it in the cache
  warm      the same with the result in the cache
  evaluate  an evaluation of a checkpoint, without training
  judge     the perplexity of a token file
  plan      the search for a plan that fits a budget
  sample
  prepare   text to tokens, with a learned tokenizer
  goes_on   the same, continued after a kill
  anew      the same, restarted after a kill
  again     the same, in the folder of another data set
  shards    JSONL documents, some compressed, to token files of 400, deduplicated
  export    to a file
  folder    to an existing folder
"""
import glob
import gzip
import json
import os
import re
import shutil
import subprocess

import tiny

from checks import check, ran, read, write

WORDS = [word for word in tiny.RUN if not word.startswith(("--vocab_size", "--dataset"))] + [
    "--dataset=./text", "--sample_tokens=4", "--out_dir=work"]
MODEL = ["--n_layer=2", "--n_head=2", "--n_embd=32", "--block_size=64"]
PROGRAMS = {name: os.path.abspath(os.environ[name.upper().replace("-", "_")])
            for name in ("gpt-train", "gpt-sample", "gpt-prepare", "gpt-export")}
LINES = "text.jsonl"
ARCHIVE = "text.jsonl.gz"
PREPARE = ["--tokenizer=train", "--vocab-size=280", "--threads=1", "--out-dir=work", "text.txt"]
SAVELESS = "--always_save_checkpoint=False"
SAMPLED = ["--out_dir=one", "--num_samples=2", "--max_new_tokens=8", "--start=green"]
WIDE = [*WORDS, "--n_embd=64", "--block_size=32", "--max_iters=1", "--eval_interval=100", SAVELESS]
ANSWERS = ("--plan", "--eval_only", "--eval_data")  # these do not train
OTHER_SEED = 7  # of the existing run in whose folder another one starts
UNLIKE = ("lock", "metrics.jsonl", "trainer_state.json")  # these files differ between two runs


def start(program, words, tracer=(), limit=tiny.LIMIT_SECONDS):
    """Runs a program; returns the finished process."""
    environment = dict(tiny.TRACED if tracer else tiny.ENVIRONMENT, XDG_CACHE_HOME=os.path.abspath("cache"))
    return ran(*tracer, PROGRAMS[program], *words, env=environment, timeout=limit)


def digests(folder):
    """Returns the digest of each file in a folder, except for those that contain a run's times."""
    return {os.path.basename(path): tiny.digest(path) for path in sorted(glob.glob(os.path.join(folder, "*")))
            if os.path.isfile(path) and os.path.basename(path) not in UNLIKE}


def checkpoint():
    """Returns tiny.contents(), or nothing when the record cannot be read."""
    try:
        return tiny.contents("work")
    except (ValueError, KeyError) as error:
        return {"unreadable": str(error)}


class Command:
    """A program, its arguments, the initial contents of its work and cache folders, and its results."""

    def __init__(self, name, program, words, begin=None, cache=None, results=lambda done: checkpoint()):
        self.name, self.program, self.words, self.begin, self.cache, self.results = name, program, words, begin, cache, results

    def trains(self):
        """Returns true when the command trains: it then continues after a failed save or cache access, with an error
        line."""
        return self.program == "gpt-train" and not any(word.startswith(ANSWERS) for word in self.words)

    def saves(self):
        """Returns true when the command leaves checkpoints."""
        return self.trains() and SAVELESS not in self.words

    def least_iter(self):
        """Returns the iteration of the checkpoint that must survive any fault; 0 for none."""
        record = tiny.record_of(self.begin) if self.begin and self.saves() else None
        if record is None:
            return 0
        return 1 if record["seed"] == OTHER_SEED else record["iter"]  # the old run's, or any of its replacement's

    def run(self, start):
        """Runs start(program, words); returns the finished process, or None when it hangs."""
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
        """Returns the files that others can read now, although the initial folder's were private.  Training only: it
        replaces all files except the metrics, which a new run starts afresh."""
        if not (self.begin and self.saves()):
            return []
        return [os.path.join(folder, name) for folder, _, names in os.walk("work") for name in names
                if os.stat(os.path.join(folder, name)).st_mode & 0o77 and not name.startswith("metrics")]

    def is_lost(self):
        """Returns true when a new run has lost the checkpoint that was there before."""
        kept = glob.glob("work/earlier-*") if self.begin == "other" else []
        return self.begin == "other" and tiny.contents("other") not in [tiny.contents(folder) for folder in kept]

    def is_mixed(self):
        """Returns true when the folder has files of a half replaced or removed data set, and neither a manifest nor a
        state."""
        names = set(os.listdir("work")) if self.program == "gpt-prepare" and os.path.isdir("work") else set()
        return bool(names & {"train.bin", "val.bin"}) and not names & {"manifest.json", ".gpt-prepare.state"}

    def again(self, start):
        """Runs the command without a fault on the existing files; a run that has saved is resumed."""
        begun = self.saves() and os.path.exists("work/trainer_state.json")
        words = [word for word in self.words if not word.startswith("--init_from")] + ["--init_from=resume"]
        if begun and tiny.record_of("work")["seed"] == OTHER_SEED:
            words = self.words  # the record is that of the earlier run
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


def prepare(start):
    """Makes the text and the initial folders of the commands."""
    tiny.make_bottles(60)
    write(LINES, "".join(json.dumps({"text": f"{number % 40} apples"}) + "\n" for number in range(60)))
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
    for _ in range(5):  # a calibration that other programs disturb is not stored
        tiny.clear("cache")
        check(Command("", "gpt-train", to("wide", WIDE)).run(start).returncode == 0, "a wide run")
        if os.path.isdir("cache"):
            break
    os.makedirs("cache", exist_ok=True)
    shutil.copytree("cache", "cached")
    write(ARCHIVE, gzip.compress(read(LINES).replace(b"apples", b"pears"), mtime=0))
    if Command("", "gpt-prepare", ["--tokenizer=bytes", "--out-dir=unpacked", ARCHIVE]).run(start).returncode != 0:
        os.remove(ARCHIVE)  # a build without libarchive
    if not tiny.has_strace():
        return
    # Killed after it renamed one of two token files.
    done = start("gpt-prepare", to("killed", PREPARE), tracer=tiny.inject(("rename", "signal=SIGKILL", 2)))
    check(os.path.exists("killed/train.bin") and os.path.exists("killed/val.bin.partial"), f"a killed gpt-prepare: {done.stderr}")


def possible():
    """Returns the commands whose initial folders could be made."""
    return [command for command in every() if command.begin is None or os.path.isdir(command.begin)]
