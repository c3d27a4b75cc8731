#!/usr/bin/env python3
"""What happens around a run: files that change while they are read, large files, other runs, clocks, disks.

  changed    a data file gets token ids beyond the vocabulary during the run, or shrinks: one line that names it,
             exit status 2 or 1, and the last checkpoint can be resumed once the data are whole; shards too
  sparse     data sets of 100 GB, mostly holes: read like any other, in little memory; models of all formats of
             that size: refused, in little memory too
  listed     any call of listing a folder of a thousand shards fails: an error, or the usual bytes
  clocks     the wall clock jumps over centuries at every query: the usual bytes
  two        of several runs that start in one folder at once, one works and the others are refused
  read_only  a disk is made read-only before the start or at a resume of gpt-train, gpt-prepare or gpt-export: one line
             each, nothing lost
  between    the same from the second save of a run on, for good or until the third, and from any call on in the other
             two programs: a disk in use cannot be remounted, so strace makes its calls fail
  full       a disk fills up, at every number of free bytes in steps: at a resume, in a new run, while gpt-prepare
             replaces a data set, while gpt-export writes; the old files are intact, and with enough room everything
             continues; the disk of the cache: runs continue without what they could not store there
  killed     gpt-prepare is killed at each call that changes the folder of its data set: gpt-train then trains on the
             old data set or the new one, or refuses the folder; and no power cut brings the old manifest back among new
             files

Mounting disks needs root, and `listed`, `between` and `killed` need strace; without them these are skipped.  Prints
"checks: P passed, F failed, S skipped".
"""
import array
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import tiny

from checks import GPT_EXPORT, GPT_PREPARE, check, end, error_lines, is_instrumented, preloadable, read, skip, write

RESUME = "--init_from=resume"
SPARSE_BYTES = 100 * 10**9
RESIDENT_KIB_MAX = 64 << 10
STARTERS, STARTS = 6, 5
FREE_KIB = range(0, 120, 40) if not tiny.LONG else range(0, 120, 4)
ROOM_KIB = (0, 60, 80, 100) if not tiny.LONG else FREE_KIB  # for a checkpoint of 56 KiB, refused without room


def refused(what, done, *words):
    lines = error_lines(done)
    check(1 <= done.returncode <= 3 and len(lines) >= 1, f"{what}: status {done.returncode}: {done.stderr[-300:]}")
    check(all(any(word in line for line in lines) for word in words), f"{what}: {words} not in {lines}")


def goes_on(what, out, expected):
    done = tiny.resume(out)
    check(done.returncode == 0 and tiny.contents(out) == expected, f"{what}: does not go on: {done.stderr[-300:]}")
    check(tiny.leftovers(out) == [], f"{what}: left behind: {tiny.leftovers(out)}")


def saved(out):
    return tiny.contents(out).get("iter", 0)


def begun(out, *arguments):
    """Starts a run that has saved and keeps working, for longer than any test takes."""
    process = subprocess.Popen(tiny.command(out, "--max_iters=100000000", "--log_interval=1000", *arguments),
                               env=tiny.ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    for _ in range(600):
        time.sleep(0.05)
        if os.path.exists(os.path.join(out, "trainer_state.json")) or process.poll() is not None:
            break
    check(process.poll() is None, "a run that works")
    return process


def ended(process):
    """Waits for the process to end by itself; returns it like subprocess.run()."""
    try:
        _, text = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        _, text = process.communicate()
        check(False, "a run that goes on as if nothing were")
    return subprocess.CompletedProcess(process.args, process.returncode, "", text)


def damages(file_bytes):
    """Returns (name, words of the error line, function) for changes of a data file while a run reads it."""
    beyond = array.array("H", [61] * (file_bytes // 2)).tobytes()
    return (("ids beyond the vocabulary", ("61",), lambda file: file.write(beyond)),
            ("a file cut short", (), lambda file: file.truncate(20)), ("an empty file", (), lambda file: file.truncate(0)))


def make_shards():
    """Makes three shards of each split, from the data set's tokens."""
    for split in ("train", "val"):
        tokens = read(f"data/{split}.bin")
        part = len(tokens) // 6 * 2
        for number in range(3):
            write(f"shards/{split}_{number:06}.bin", tokens[number * part:(number + 1) * part])


def changed(_):
    make_shards()
    for path in ("data/train.bin", "data/val.bin", "shards/train_000001.bin", "shards/val_000002.bin"):
        folder, name = os.path.split(path)
        shutil.copytree(folder, "whole")
        data = f"--dataset=./{folder}"
        for what, words, damage in damages(os.path.getsize(path)):
            tiny.clear("out")
            what, words = f"{path}: {what}", (name, *words)
            process = begun("out", data)
            with open(path, "r+b") as file:
                damage(file)
            refused(what, ended(process), *words)
            before = saved("out")
            done = tiny.run("out", RESUME, data, f"--max_iters={before + 3}")
            if done.returncode == 0:  # a short shard is ignored
                check(folder == "shards" and "the data have changed since the run began" in done.stderr,
                      f"{what}: still there at the resume: {done.stderr[-300:]}")
                before = saved("out")
            check(saved("out") == before, f"{what}: still there at the resume, and saved: {done.stderr[-300:]}")
            shutil.copytree("whole", folder, dirs_exist_ok=True)
            done = tiny.run("out", RESUME, data, f"--max_iters={before + 3}")
            check(done.returncode == 0 and saved("out") == before + 4, f"{what}, data whole again: {done.stderr[-300:]}")
        tiny.clear("whole")
    tiny.clear("shards")


def frugal(what, command):
    """Runs a program that must use little memory; returns its exit status and its standard error."""
    with open("stderr", "w+", encoding="utf-8") as stderr, subprocess.Popen(
            command, env=tiny.ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=stderr) as process:
        _, status, usage = os.wait4(process.pid, 0)  # of this process alone
        process.returncode = os.waitstatus_to_exitcode(status)
        stderr.seek(0)
        text = stderr.read()
    check(usage.ru_maxrss <= RESIDENT_KIB_MAX or is_instrumented(tiny.GPT_TRAIN), f"{what}: {usage.ru_maxrss} KiB of memory")
    return subprocess.CompletedProcess(command, process.returncode, "", text)


def sparse_models():
    """Makes the first bytes of each kind of model, followed by holes."""
    done = subprocess.run([GPT_EXPORT, "--format=hf", "--out_dir=sparse/out", "sparse/hf"], capture_output=True,
                          check=False)
    check(done.returncode == 0, "an export")
    done = subprocess.run([GPT_EXPORT, "--format=llmc", "--out_dir=sparse/out", "sparse/model.bin"],
                          capture_output=True, text=True, check=False)
    check(done.returncode == 0, f"an export for llm.c: {done.stderr[-300:]}")
    write("sparse/ckpt.pt", b"PK\x03\x04")
    for name in ("hf/model.safetensors", "hf/config.json", "model.bin", "ckpt.pt"):
        path, whole = f"sparse/{name}", read(f"sparse/{name}")
        os.truncate(path, SPARSE_BYTES)
        source = "sparse/hf" if "/" in name else path
        refused(f"100 GB of {name}", frugal(f"100 GB of {name}", tiny.command("sparse/other", f"--init_from=./{source}")),
                os.path.basename(name))
        write(path, whole)


def sparse(_):
    for name in ("train.bin", "val.bin"):
        path = write(f"sparse/data/{name}", array.array("H", range(61)).tobytes())
        try:
            os.truncate(path, SPARSE_BYTES)
        except OSError as error:
            skip("surroundings_sparse", f"no files of 100 GB here: {error}")
            return
    done = frugal("100 GB", tiny.command("sparse/out", "--dataset=./sparse/data"))
    check(done.returncode == 0, f"100 GB: {done.returncode} {done.stderr[-300:]}")
    sparse_models()
    os.truncate("sparse/data/train.bin", SPARSE_BYTES + 1)
    refused("100 GB and a byte", tiny.run("sparse/out2", "--dataset=./sparse/data"), "train.bin")
    shutil.rmtree("sparse")


def listed(_):
    """One call returns about 800 names."""
    if not tiny.has_strace("surroundings_listed"):
        return
    for number in range(1000):
        for split in ("train", "val"):
            write(f"shards/{split}_{number:06}.bin", array.array("H", [(number + i) % tiny.VOCAB for i in range(20)]).tobytes())
    many = ("--dataset=./shards", "--max_iters=1")
    done = tiny.run("whole_listing", *many, tracer=("strace", "-qq", "-o", "listing.log", "-e", "trace=getdents64"))
    check(done.returncode == 0, f"a thousand shards: {done.stderr[-300:]}")
    expected, hits = tiny.contents("whole_listing"), 0
    calls = read("listing.log").count(b"getdents64(")
    for number in range(1, calls + 1):
        tiny.clear("listing")
        done = tiny.run("listing", *many, tracer=tiny.inject(("getdents64", "error=EIO", number)))
        hits += done.returncode != 0
        if done.returncode != 0:
            refused(f"listing, call {number} of {calls}", done, "Input/output error")
        else:
            check(tiny.contents("listing") == expected, f"listing, call {number} of {calls}: success, and other bytes")
    check(hits >= 8, f"{hits} of {calls} listings of shards failed")
    tiny.clear("shards")


def clocks(expected):
    library = preloadable("surroundings_clocks", tiny.GPT_TRAIN, "tests/reliability/clock_jumps.c")
    if library is None:
        return
    preload = {"LD_PRELOAD": library, "CLOCK_JUMPS_REPORT": "jumps"}
    done = subprocess.run(tiny.command("clocks"), capture_output=True, text=True, timeout=60, check=False,
                          env={**tiny.ENVIRONMENT, **preload})
    check(done.returncode == 0 and tiny.contents("clocks") == expected, f"clocks that jump: {done.stderr[-300:]}")
    calls = int(read("jumps")) if os.path.exists("jumps") else 0
    check(calls > 0, "no call asked the clock that jumps")
    check(re.search(r"(?<![+\d])-\d", "".join(line for line in done.stdout.splitlines() if "time " in line and "ms" in line)) is None,
          "a step that took less than no time")


def two(expected):
    """All start at once.  The lock admits one at a time, so a late one may continue where the first has ended."""
    done = []
    for _ in range(STARTS):  # a resume that looks before there is a checkpoint may keep out the new run
        tiny.clear("shared")
        started = [subprocess.Popen(tiny.command("shared", *([RESUME] if number else [])), env=tiny.ENVIRONMENT,
                                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for number in range(STARTERS)]
        done = [ended(process) for process in started]
        if any(run.returncode == 0 for run in done):
            break
    check(any(run.returncode == 0 for run in done), f"none of {STARTERS} works: {[run.stderr[-100:] for run in done]}")
    for run in done:
        check(run.returncode in (0, 2) and len(error_lines(run)) == (run.returncode == 2),
              f"{run.returncode}: {run.stderr[-300:]}")
    if tiny.contents("shared") != expected:
        goes_on("after all of them", "shared", expected)
    process = begun("busy")
    refused("a second run", tiny.run("busy", RESUME), "lock", str(process.pid))
    process.send_signal(signal.SIGTERM)
    check(ended(process).returncode == 128 + signal.SIGTERM, "the first run is not disturbed")


class Disk:
    """A tmpfs of `kib` KiB, unmounted at the end."""

    def __init__(self, name, kib):
        self.name = os.path.abspath(name)
        os.makedirs(self.name, exist_ok=True)
        self.mounted = self.mount(f"size={kib}k")

    def mount(self, options):
        return subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", self.name], capture_output=True,
                              check=False).returncode == 0

    def remount(self, options):
        """Returns false when a file is open for writing: such a disk cannot become read-only."""
        return subprocess.run(["mount", "-o", f"remount,{options}", self.name], capture_output=True, check=False).returncode == 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.mounted:
            subprocess.run(["umount", "-l", self.name], check=False)


def traceable(command, tracer=()):
    return subprocess.run([*tracer, *command], env=tiny.TRACED if tracer else tiny.ENVIRONMENT, capture_output=True, text=True,
                          timeout=tiny.LIMIT_SECONDS, check=False)


def prepare(folder, text, tracer=()):
    """Prepares a data set of `text`, with a vocabulary that depends on the text."""
    return traceable([GPT_PREPARE, "--tokenizer=chars", "--threads=1", f"--out-dir={folder}", text], tracer)


def export(folder, run, tracer=()):
    return traceable([GPT_EXPORT, "--format=hf", f"--out_dir={run}", os.path.join(folder, "hf")], tracer)


def everything(folder):
    """Returns each file's bytes, by its path below the folder."""
    return {os.path.relpath(path, folder): read(path) for path in
            (os.path.join(place, name) for place, _, names in os.walk(folder) for name in names)}


def make_references(_):
    """Makes two texts and their data sets, and an export."""
    for name, text in (("old", "the old text, "), ("new", "A NEWER ONE; ")):
        write(f"{name}.txt", text * 2000)
        done = prepare(f"{name}-data", f"{name}.txt")
        check(done.returncode == 0, f"gpt-prepare: {done.stderr[-300:]}")
    os.makedirs("exported")
    done = export("exported", "one")
    check(done.returncode == 0 and everything("exported"), f"gpt-export: {done.stderr[-300:]}")


class Prepared:
    """gpt-prepare replaces the data set of old.txt in a folder by that of new.txt."""
    name, expected = "gpt-prepare", "new-data"

    def __init__(self, folder):
        self.folder = os.path.join(folder, "set")
        tiny.clear(self.folder)
        shutil.copytree("old-data", self.folder)

    def start(self, tracer=()):
        return prepare(self.folder, "new.txt", tracer)

    def whole(self):
        """Returns true when the data set is the old one or the new one, or, during the replacement, has no manifest."""
        now = self.finished()
        return now in (everything("old-data"), everything(self.expected)) or "manifest.json" not in now

    def found(self):
        return everything(self.folder)

    def finished(self):
        return {name: text for name, text in everything(self.folder).items() if "partial" not in name and name[0] != "."}

    def right(self):
        """If a state could not be removed at the end, the next run removes it."""
        return self.finished() == everything(self.expected)


class Exported:
    """gpt-export writes a new folder."""
    name, expected = "gpt-export", "exported"

    def __init__(self, folder):
        self.folder = os.path.join(folder, "exported")
        tiny.clear(self.folder)
        os.makedirs(self.folder)

    def start(self, tracer=()):
        return export(self.folder, "one", tracer)

    def found(self):
        """Temporary files cannot be removed from a disk that became read-only."""
        return {name: text for name, text in everything(self.folder).items() if not name.startswith("hf.gpt-export.tmp")}

    def whole(self):
        """The output stays in place when the last sync fails."""
        return self.found() == {} or self.right()

    def right(self):
        return self.found() == everything(self.expected)


def judge_failure(what, job, done, words):
    """Checks a run that gave up: one line, the old files are intact, and the same command succeeds once the fault is
    gone."""
    lines = error_lines(done)
    check(done.returncode == 1 and len(lines) == 1 and words in lines[0], f"{what}: status {done.returncode}: {done.stderr[-400:]}")
    check(job.whole(), f"{what}: what was there is not whole: {sorted(everything(job.folder))}")


def judge_end(what, job):
    done = job.start()
    is_there = done.returncode == 2 and "already exists" in done.stderr
    check((done.returncode == 0 or is_there) and job.found() == everything(job.expected),
          f"{what}: then: status {done.returncode}: {done.stderr[-300:]} {sorted(everything(job.folder))}")


def read_only(expected):
    with Disk("disk", 4096) as disk:
        if not disk.mounted:
            skip("surroundings_disks", "a tmpfs cannot be mounted here (root only)")
            return
        out = os.path.join(disk.name, "out")
        check(disk.remount("ro"), "read-only")
        refused("read-only at the start", tiny.run(out), "Read-only")
        disk.remount("rw")
        check(tiny.run(out, "--max_iters=1").returncode == 0, "a first part")
        before = tiny.contents(out)
        check(disk.remount("ro"), "read-only again")
        refused("read-only at the resume", tiny.resume(out), "Read-only")
        disk.remount("rw")
        check(tiny.contents(out) == before, "read-only: the checkpoint changed")
        goes_on("after read-only", out, expected)
        for kind in (Prepared, Exported):
            job = kind(disk.name)
            check(disk.remount("ro"), f"read-only for {job.name}")
            judge_failure(f"{job.name}, read-only", job, job.start(), "Read-only")
            disk.remount("rw")
            judge_end(f"{job.name}, read-only", job)


CHANGING = ("openat", "rename", "unlink", "unlinkat", "mkdir", "ftruncate")


def failing(points, forever="+"):
    """Returns strace's arguments: calls that would change the disk fail from these numbers on, or only one of each."""
    return tiny.inject(*((name, "error=EROFS", f"{number}{forever}") for name, number in points.items()))


def first_of_each(calls):
    """Returns the number of the first call of each name; names without calls are left out."""
    return {name: number for name, number, *_ in reversed(calls) if name in CHANGING}


def saves(calls):
    """Returns first_of_each() from the start of each save on."""
    return [first_of_each(calls[i:]) for i, call in enumerate(calls) if call[2] and not (i and calls[i - 1][2])]


def between(_):
    """A run saves at every iteration; the second save, or also all later ones, find the disk read-only."""
    if not tiny.has_strace("surroundings_between"):
        return
    each = "--eval_interval=1"
    begun_at = saves(tiny.trace("each", each))
    expected = tiny.contents("each")
    check(len(begun_at) >= 4, f"{len(begun_at)} saves")
    tiny.clear("between")
    done = tiny.run("between", each, tracer=failing(begun_at[1]))
    refused("read-only from the second save on", done, "Read-only")
    first = tiny.contents("between").get("iter")
    check(first is not None and first < expected["iter"], f"read-only from the second save on: the first is gone: {first}")
    done = tiny.resume("between", each)
    check(done.returncode == 0 and tiny.contents("between") == expected and tiny.leftovers("between") == [],
          f"read-only from the second save on: does not go on: {done.stderr[-300:]}")
    tiny.clear("between")
    done = tiny.run("between", each, tracer=failing({"openat": begun_at[1]["openat"]}, ""))
    check(done.returncode == 0 and "Read-only" in done.stderr, f"read-only for one save: {done.stderr[-300:]}")
    check(tiny.contents("between") == expected and tiny.leftovers("between") == [], "read-only for one save: other bytes")
    for kind in (Prepared, Exported):
        from_each_call(kind)


def from_each_call(kind):
    """The same for a program with a single task, from its first own call on, or its second, and so on."""
    calls = tiny.trace_of(lambda tracer: kind("jobs").start(tracer=tracer), os.path.abspath("strace.log"), "")
    first = next(i for i, call in enumerate(calls) if call[0] in ("flock", "mkdir") or call[2])
    places = [i for i in range(first, len(calls)) if calls[i][0] in CHANGING]
    hits = 0
    for place in places[::1 if tiny.LONG else max(1, len(places) // 3)]:
        job = kind("jobs")
        what = f"{job.name}, read-only from {calls[place][0]} {calls[place][1]} on"
        done = job.start(failing(first_of_each(calls[place:])))
        hits += done.returncode != 0
        if done.returncode != 0:
            judge_failure(what, job, done, "Read-only")
        else:
            check(job.right(), f"{what}: success, and not the right bytes")
        judge_end(what, kind("jobs") if done.returncode == 0 else job)
    check(hits > 0, f"{kind.name}: no disk was read-only")


class First(Prepared):
    """The same without an old data set."""
    name = "gpt-prepare, first"

    def __init__(self, folder):
        super().__init__(folder)
        tiny.clear(self.folder)


def killed(_):
    if not tiny.has_strace("surroundings_killed"):
        return
    for kind in (Prepared, First):
        calls = tiny.trace_of(lambda tracer: kind("jobs").start(tracer=tracer), os.path.abspath("strace.log"), "")
        gone = next(i for i, call in enumerate(calls) if call[0] == "unlink" and "/manifest.json" in call[3])
        after = [(name, path.strip('"')) for name, _, _, path in calls[gone + 1:gone + 3]]
        check(after[0] == ("openat", kind("jobs").folder) and after[1][0] == "fsync",
              f"{kind.name}: the old manifest is gone, and that is not synced: {after}")
        changes = [call for call in calls if call[0] in CHANGING]
        picked = [call for i, call in enumerate(changes) if tiny.LONG or call[0] == "rename" or i % 10 == 0]
        mixed = sum(kill_and_train(kind, *call) for call in picked)
        print(f"killed, {kind.name}: {mixed} folders between two data sets")
        check(mixed > 1, f"{kind.name}: no kill hit the renames")


def kill_and_train(kind, name, number, *_):
    """Returns true when the folder was neither the old nor the new data set."""
    job = kind("jobs")
    before = job.finished()
    job.start(tiny.inject((name, "signal=SIGKILL", number)))
    tokens = [{name: text for name, text in found.items() if name != "manifest.json"}
              for found in (job.finished(), before, everything(job.expected))]
    what = f"{job.name}, killed at {name} {number}"
    mixed = tokens[0] not in tokens[1:]
    done = tiny.run("trained", f"--dataset=./{job.folder}", "--vocab_size=0", "--max_iters=0", "--block_size=8")
    if done.returncode != 0 and (mixed or tokens[0]):
        refused(what, done, "give its command again")
    check(done.returncode == 2 if mixed or not tokens[0] else done.returncode in (0, 2), f"{what}: {done.returncode}, {done.stderr[-300:]}")
    judge_end(what, job)
    return mixed


def full(expected):
    """The disk has room for a checkpoint and `free` KiB when the run continues: its next save fails at any place."""
    with Disk("small", 4096) as disk:
        if not disk.mounted:
            skip("surroundings_disks", "a tmpfs cannot be mounted here (root only)")
            return
        full_run(disk, expected, "resume")
        full_run(disk, expected, "start")
        for kind in (Prepared, Exported):
            full_job(disk, kind)
        full_cache(disk)


def full_run(disk, expected, when):
    out, hits = os.path.join(disk.name, "out"), 0
    for free in ROOM_KIB:
        tiny.clear(out)
        if when == "resume":
            check(tiny.run(out, "--max_iters=1").returncode == 0, "a first part")
        before = tiny.contents(out)
        fill(disk.name, free)
        done = tiny.resume(out)
        what = f"{when}, {free} KiB free"
        hits += done.returncode != 0
        check(done.returncode in (0, 1), f"{what}: status {done.returncode}: {done.stderr[-300:]}")
        if done.returncode == 1:
            check(("No space left" if free > 56 else "not enough disk space") in done.stderr, f"{what}: {done.stderr[-300:]}")
        else:
            check(tiny.contents(out) == expected, f"{what}: success, and other bytes than in one go")
        now = tiny.contents(out)
        check(now.get("iter", 0) >= before.get("iter", 0), f"{what}: from {before.get('iter')} to {now.get('iter')}")
        check(not os.path.isdir(out) or tiny.leftovers(out) == [], f"{what}: left aside")
        os.remove(os.path.join(disk.name, "ballast"))
        goes_on(f"after {what}", out, expected)
    tiny.clear(out)
    print(f"full, {when}: {hits} of {len(ROOM_KIB)} disks too small for a save")
    check(hits > 0, f"{when}: no disk was full")


def full_job(disk, kind):
    hits = 0
    for free in FREE_KIB:
        job = kind(disk.name)
        what = f"{job.name}, {free} KiB free"
        fill(disk.name, free)
        done = job.start()
        hits += done.returncode != 0
        if done.returncode != 0:
            judge_failure(what, job, done, "No space left")
            check(not any(".tmp-" in name for name in everything(job.folder)), f"{what}: left aside")
        else:
            check(job.right(), f"{what}: success, and not the right bytes")
        os.remove(os.path.join(disk.name, "ballast"))
        judge_end(what, kind(disk.name) if done.returncode == 0 else job)
        tiny.clear(job.folder)
    print(f"full, {kind.name}: {hits} of {len(FREE_KIB)} disks too small")
    check(hits > 0, f"{kind.name}: no disk was full")


def full_cache(disk):
    """A run stores its speed in the cache: on a full disk, on a read-only one, and then with room."""
    home, wide, hits = os.path.join(disk.name, "cache"), ("--n_embd=64", "--block_size=32", "--max_iters=1"), 0
    places = [*FREE_KIB[:3], None]
    tiny.ENVIRONMENT["XDG_CACHE_HOME"] = home
    for free in places:
        what = "a read-only cache" if free is None else f"a cache with {free} KiB free"
        tiny.clear(home)
        tiny.clear("cached")
        if free is None:
            disk.remount("ro")
        else:
            fill(disk.name, free)
        done = tiny.run("cached", *wide)
        found = tiny.contents("cached")
        disk.remount("rw")
        check(done.returncode == 0 and "calibration: " in done.stdout, f"{what}: {done.returncode} {done.stderr[-300:]}")
        kept = everything(home)
        check(not any(".tmp-" in name for name in kept), f"{what}: left aside: {sorted(kept)}")
        hits += not kept
        fill(disk.name, 1024)
        done = tiny.run("cached", *wide)
        check(done.returncode == 0 and tiny.contents("cached") == found, f"{what}, then with room: {done.stderr[-300:]}")
        stored = everything(home) or "does not settle" in done.stderr  # on a machine that other programs use
        check(("calibration: " in done.stdout) == (not kept) and stored, f"{what}, then with room: not kept: {done.stdout[-900:]}")
        os.remove(os.path.join(disk.name, "ballast"))
    print(f"full, cache: {hits} of {len(places)} could not be kept")
    check(hits >= 2, "no cache was full")


def fill(folder, free_kib):
    """Leaves about free_kib KiB."""
    state = os.statvfs(folder)
    size = max(0, state.f_bavail * state.f_frsize - free_kib * 1024)
    write(os.path.join(folder, "ballast"), bytes(size))


def main():
    only = sys.argv[1:]
    tiny.make_data()
    check(tiny.run("one").returncode == 0, "the run in one go")
    expected = tiny.contents("one")
    for test in (changed, sparse, listed, clocks, two, make_references, read_only, between, killed, full):
        if not only or test.__name__ in only or test is make_references:
            test(expected)


end(main)
