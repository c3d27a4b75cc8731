"""Shared code of the scripts in this folder: a tiny run that saves twice, its system calls, and the contents of a
folder.

The run has one thread, so that strace's count of calls per name is the same in every run.  """
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "e2e"))

from checks import GPT_PREPARE, GPT_TRAIN, LONG, patience, ran, read, read_json, skip, write

SEED = int(os.environ.get("SEED", "1337"))
ITERATIONS = 4
VOCAB = 61
LIMIT_SECONDS = patience(60 if not LONG else 1200)  # a hang; long runs may be paused or have low priority
RUN = ["--dataset=./data", "--n_layer=1", "--n_head=2", "--n_embd=16", "--block_size=16", "--batch_size=2", f"--vocab_size={VOCAB}",
       "--gradient_accumulation_steps=2", "--eval_interval=2", "--eval_iters=1", "--threads=1", "--warmup_iters=1",
       "--lr_decay_iters=4", "--dropout=0.1", f"--max_iters={ITERATIONS}"]
# The variables limit waiting threads, so that the program does not restart itself.
ENVIRONMENT = dict(os.environ, GOMP_SPINCOUNT="0", OMP_NUM_THREADS="1", LC_ALL="C", TZ="UTC")
# AddressSanitizer's leak detection traces the process, which is impossible under strace.
TRACED = dict(ENVIRONMENT, ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0")


def arguments():
    """Returns the names of cases on the command line."""
    return sys.argv[1:]


def sample(generator, cases, most):
    """Returns all cases, or `most` random ones."""
    return cases if len(cases) <= most else generator.sample(cases, most)


def make_data():
    """Makes a data set of 61 random characters, with a tokenizer."""
    generator = random.Random(SEED)
    characters = [chr(ord("A") + number) for number in range(VOCAB)]
    write("text.txt", "".join(characters) + "".join(generator.choice(characters) for _ in range(4000 - VOCAB)))
    done = ran(GPT_PREPARE, "--tokenizer=chars", "--val-fraction=0.5", "--out-dir=data", "text.txt", env=ENVIRONMENT)
    if done.returncode != 0:
        sys.exit(f"gpt-prepare: {done.stderr}")


def make_bottles(count):
    """Writes a text of so many lines in words."""
    write("text.txt", "".join(f"{number} bottles hang on the wall, and {number * 7 % 100} of them are green.\n" for number in range(count)))


def command(out, *arguments):
    return [GPT_TRAIN, *RUN, f"--out_dir={out}", *arguments]


def run(out, *arguments, tracer=(), timeout=LIMIT_SECONDS):
    return ran(*tracer, *command(out, *arguments), env=TRACED if tracer else ENVIRONMENT, timeout=timeout)


def resume(out, *arguments, **how):
    """Resumes the folder's run, or starts a new one when it has none."""
    begun = os.path.exists(os.path.join(out, "trainer_state.json"))
    return run(out, *arguments, *(["--init_from=resume"] if begun else []), **how)


def record_of(out):
    """Returns the commit record, or None."""
    try:
        return read_json(os.path.join(out, "trainer_state.json"))
    except FileNotFoundError:
        return None


def digest(path):
    """Returns a file's digest; None when it does not exist."""
    try:
        return hashlib.sha256(read(path)).hexdigest()
    except FileNotFoundError:
        return None


def contents(out):
    """Returns a checkpoint's record, and a digest of each of its files, by role; {} without a record."""
    found = record_of(out)
    if found is None:
        return {}
    for role, entry in zip(("model", "optimizer"), found.pop("files")):
        found[role] = (digest(os.path.join(out, entry["name"])), entry["size_bytes"])
    del found["record_crc32c"]  # it covers the names, which another attempt of a save changes
    for name in ("model.safetensors", "config.json", "gpt_tokenizer.json", "tokenizer.json", "tokenizer_config.json"):
        found[name] = digest(os.path.join(out, name))
    return found


def metrics(out, name="metrics.jsonl"):
    """Returns the lines of metrics.jsonl without start lines, times, and the bytes of this number of ranks."""
    lines = [json.loads(line) for line in read(os.path.join(out, name)).splitlines()]
    other = ("time", "time_ms", "tokens_per_s", "mfu", "planned_bytes", "allocated_bytes")
    return [{name: value for name, value in line.items() if name not in other}
            for line in lines if "start" not in line]


def lost(out, done, before=0):
    """Checks the folder that a run, finished or not, left: the checkpoint must be the last that the run reported, or a
    later one, or the one of iteration `before` that the folder began with; and the files that its record names must be
    intact.  Returns an error text, "" if there is none.  To be called before anything repairs the folder."""
    reported = re.findall(r"saving checkpoint to \S+ \(iter (\d+),", done.stdout)
    least = int(reported[-1]) if reported else before
    record = record_of(out)
    if record is None:
        return f"no record, and iteration {least} was saved" if least else ""
    if record["iter"] < least:
        return f"the record is of iteration {record['iter']}, and {least} was saved"
    for entry in record["files"]:
        path = os.path.join(out, entry["name"])
        if not os.path.exists(path) or os.path.getsize(path) != entry["size_bytes"]:
            return f"the record names {entry['name']}, which is not there, or cut"
    return ""


def leftovers(out):
    """Returns files that a finished run must not leave."""
    return [name for name in os.listdir(out) if ".tmp" in name]


def clear(folder):
    shutil.rmtree(folder, ignore_errors=True)


def has_strace(name=None):
    """Returns true when strace may trace; without it skips `name`, if any."""
    try:
        found = subprocess.run(["strace", "-qq", "-o", os.devnull, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        found = False
    if name and not found:
        skip(name, "no strace that may trace (Debian: strace)")
    return found


def inject(*faults, log=os.devnull):
    """Returns strace's arguments for faults (system call, what happens, when)."""
    words = ["strace", "-qq", "-o", log, "-e", "trace=" + ",".join(dict.fromkeys(name for name, *_ in faults))]
    for name, what, when in faults:
        words += ["-e", f"inject={name}:{what}:when={when}"]
    return tuple(words)


def trace(out, *arguments):
    """Returns trace_of() of a training run, from its very start."""
    return trace_of(lambda tracer: run(out, *arguments, tracer=tracer), os.path.abspath("strace.log"), "")


def trace_of(start, log, begin):
    """Returns the system calls of the program that start(tracer) runs, in order: [(name, number of this name, inside a
    save, the path or else the first argument)].  A save begins with a temporary file and ends with the line that
    reports it.  The list begins where a line matches `begin`, and ends where a run, at its end, inspects the machine's
    other processes: from there on the numbers depend on how many there are."""
    done = start(("strace", "-qq", "-o", log))
    if done.returncode != 0:
        sys.exit(f"the run under strace failed: {done.stderr[-2000:]}")
    calls, counts, saving, begun = [], {}, False, False
    for line in read(log).decode(errors="replace").splitlines():
        match = re.match(r'(\w+)\((?:AT_FDCWD, )?("[^"]*"|[^,)]*)', line)
        if not match:
            continue
        if re.search(r'"/proc/\d+/', line):
            break
        name = match.group(1)
        counts[name] = counts.get(name, 0) + 1
        saving = saving or ".tmp-" in line
        begun = begun or bool(re.search(begin, line)) and name != "execve"
        if begun:
            calls.append((name, counts[name], saving, match.group(2)))
        saving = saving and not (name == "write" and "saving checkpoint" in line)
    return calls
