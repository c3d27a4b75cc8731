#!/usr/bin/env python3
"""Simulates power cuts: replays a run's writes into the states that a file system may be in afterwards, and resumes
from there.

strace records the calls that change the out_dir, with their data.  A model of a file system that keeps only synced data
replays them.  At a cut, the data of an unsynced file are whole, partial (torn at any byte, the rest zeros; or some of
its blocks, in any order) or missing, and unsynced changes of a folder happened or did not, in any combination that
keeps each file's own order.  Every state is written out.  It must contain the last synced checkpoint, or a later one,
with its own metrics; config.json must belong to the weights next to it; and a resumed run must end with the bytes and
the metrics of an uninterrupted run.  The runs: a new one, a resumed one, and two new ones in the folder of a finished
run, of the same and of another shape: after any cut that run's checkpoint is there, or in earlier-001.

`make check` tries 30 states, CHECK_LONG=1 200.  Needs strace.
"""
import json
import os
import random
import re
import struct

import tiny

from checks import check, end

WIDE = 32  # n_embd of the model of another shape, which the last run replaces
STATES = 200 if tiny.LONG else 30
BLOCK_BYTES = 512
RECORD = "trainer_state.json"
FOLDER = -1  # in place of a file number
CALLS = "openat,write,pwrite64,ftruncate,fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,rmdir,close"


def unescape(text):
    """Decodes the output of strace -xx: \\x41\\x42."""
    return bytes(int(pair, 16) for pair in re.findall(r"\\x([0-9a-f]{2})", text))


class Recorder:
    """Turns strace's lines into operations on the names below one folder."""

    def __init__(self, out):
        self.out, self.operations, self.files, self.positions = os.path.abspath(out), [], {}, {}
        self.folders = set()  # descriptors of folders

    def names(self, arguments):
        """Returns the names, relative to the folder, of the call's paths: None for one elsewhere, "." for the folder,
        ".." for its parent."""
        found = []
        for folder, text in re.findall(r'(?:(AT_FDCWD|\d+), )?"((?:\\x[0-9a-f]{2})*)"', arguments):
            number = int(folder) if folder.isdigit() else -1
            base = os.path.join(self.out, self.files[number]) if number in self.folders else os.getcwd()
            path = os.path.normpath(os.path.join(base, os.fsdecode(unescape(text))))
            inside = path == os.path.dirname(self.out) or f"{path}/".startswith(f"{self.out}/")
            found.append(os.path.relpath(path, self.out) if inside else None)
        return found

    def line(self, line):
        match = re.match(r"(\w+)\((.*)\) += (-?\d+)", line)
        if match and int(match.group(3)) >= 0:
            name, arguments, result = match.group(1), match.group(2), int(match.group(3))
            if name == "openat":
                self.opened(arguments, result)
            elif name.startswith(("rename", "link", "unlink", "mkdir", "rmdir")):
                self.named(name.removesuffix("2").removesuffix("at"), self.names(arguments))
            else:
                self.changed(name, arguments, int(arguments.split(",")[0]), result)

    def opened(self, arguments, descriptor):
        name = self.names(arguments)[0]
        self.files.pop(descriptor, None)
        self.folders.discard(descriptor)
        if name and "O_DIRECTORY" in arguments:
            self.folders.add(descriptor)
        if name and ("O_DIRECTORY" in arguments or "O_WRONLY" in arguments or "O_RDWR" in arguments):
            self.files[descriptor], self.positions[descriptor] = name, 0
        if name and "O_CREAT" in arguments:
            self.operations.append(("create", name, "O_TRUNC" in arguments, "O_APPEND" in arguments))

    def named(self, kind, names):
        if None in names or not names:
            return
        self.operations.append((kind, *names))
        if kind == "rename":
            self.files = {key: names[1] if value == names[0] else value for key, value in self.files.items()}

    def changed(self, call, arguments, descriptor, result):
        name = self.files.get(descriptor)
        if call == "close":
            self.files.pop(descriptor, None)
            self.folders.discard(descriptor)
        elif descriptor in self.folders and call in ("fsync", "fdatasync"):
            self.operations.append(("syncparent",) if name == ".." else ("syncdir", name))
        elif name and call in ("fsync", "fdatasync"):
            self.operations.append(("sync", name))
        elif name and call == "ftruncate":
            self.operations.append(("truncate", name, int(arguments.rsplit(", ", 1)[1])))
        elif name and call in ("write", "pwrite64"):
            at = self.positions[descriptor] if call == "write" else int(arguments.rsplit(", ", 1)[1])
            self.operations.append(("data", name, at, unescape(arguments)[:result]))
            self.positions[descriptor] += result if call == "write" else 0


def record(out, *arguments):
    """Records a run: [(operation, name below `out`, ...)]: create, data, truncate, sync, syncdir, syncparent, rename,
    link, unlink, mkdir, rmdir."""
    log = os.path.abspath("ops.log")
    done = tiny.run(out, *arguments, tracer=("strace", "-qq", "-xx", "-s", "100000000", "-o", log, "-e", "trace=" + CALLS))
    check(done.returncode == 0, f"the recorded run: {done.stderr[-300:]}")
    recorder = Recorder(out)
    with open(log, encoding="ascii", errors="replace") as file:
        for line in file:
            recorder.line(line)
    return recorder.operations


class Disk:
    """Files by number: their current contents, and the contents that certainly survive a cut.  The same for the folder,
    and for its name in its parent: unless the parent was synced, a cut may remove the folder with everything synced in
    it."""

    def __init__(self, syncs, begin):
        """`begin` is the folder before the run: {name: content}."""
        self.syncs = syncs
        self.now = [bytearray(content) for content in begin.values()]  # contents by number
        self.safe = [bytearray(content) for content in begin.values()]
        self.names = {name: number for number, name in enumerate(begin)}
        self.kept, self.pending = dict(self.names), []  # the synced folder; changes since
        self.appended = set()
        self.folder_is_safe = True  # until mkdir

    def apply(self, operation):
        kind, *rest = operation
        if kind == "create":
            name, truncated, appended = rest
            if name not in self.names:
                self.now.append(bytearray())
                self.safe.append(bytearray())
                self.change(("add", name, len(self.now) - 1))
            elif truncated:
                self.now[self.names[name]] = bytearray()
            if appended:
                self.appended.add(name)
        elif kind == "data":
            name, at, data = rest
            content = self.now[self.names[name]]
            at = len(content) if name in self.appended else at
            content.extend(b"\0" * (at - len(content)))
            content[at:at + len(data)] = data
        elif kind == "truncate":
            del self.now[self.names[rest[0]]][rest[1]:]
        elif kind == "sync" and self.syncs:
            self.safe[self.names[rest[0]]] = bytearray(self.now[self.names[rest[0]]])
        elif kind == "syncdir" and self.syncs:
            def is_here(change):
                return os.path.normpath(os.path.dirname(change[1])) == rest[0]
            self.kept = changed(self.kept, filter(is_here, self.pending))
            self.pending = [change for change in self.pending if not is_here(change)]
        elif kind == "mkdir" and rest[0] == ".":
            self.folder_is_safe = False
        elif kind == "mkdir":
            self.change(("add", rest[0], FOLDER))
        elif kind == "syncparent" and self.syncs:
            self.folder_is_safe = True
        elif kind == "rename":
            self.change(("move", rest[0], rest[1]))
        elif kind == "link":
            self.change(("add", rest[1], self.names[rest[0]]))
        elif kind in ("unlink", "rmdir"):
            self.change(("drop", rest[0]))

    def change(self, change):
        self.pending.append(change)
        self.names = changed(self.names, [change])

    def cut(self, generator):
        """Returns a possible folder after the power cut: {name: content}."""
        if not self.folder_is_safe and generator.random() < 0.3:
            return {}
        share = generator.choice((0.0, 0.3, 0.7, 1.0))
        names = changed(dict(self.kept), [change for change in self.pending if generator.random() < share])
        return {name: self.torn(number, generator) for name, number in names.items()
                if number != FOLDER and ("/" not in name or os.path.dirname(name) in names)}

    def torn(self, number, generator):
        now, safe = self.now[number], self.safe[number]
        if now == safe:
            return bytes(now)
        how = generator.random()
        if how < 0.3:
            return bytes(safe)
        if how < 0.6:
            return bytes(now)
        if how < 0.75:
            return self.blocks(now, safe, generator)
        at = generator.randrange(len(safe) if now.startswith(safe) else 0, len(now) + 1)  # appending keeps the synced part
        return bytes(now[:at]) + (b"\0" * (len(now) - at) if how < 0.9 else b"")

    @staticmethod
    def blocks(now, safe, generator):
        """Returns the new length, with some blocks as they are now and the others as they were, or zeros."""
        content, share = bytearray(safe[:len(now)].ljust(len(now), b"\0")), generator.random()
        for at in range(0, len(now), BLOCK_BYTES):
            if generator.random() < share:
                content[at:at + BLOCK_BYTES] = now[at:at + BLOCK_BYTES]
        return bytes(content)


def changed(names, changes):
    """Applies changes to the names; changes that no longer apply are skipped."""
    for kind, *rest in changes:
        if kind == "add":
            names = {**names, rest[0]: rest[1]}
        elif kind == "move" and rest[0] in names:
            moved = {name: rest[1] + name[len(rest[0]):] for name in names if f"{name}/".startswith(f"{rest[0]}/")}
            names = {**{name: number for name, number in names.items() if name not in moved},
                     **{new: names[name] for name, new in moved.items()}}
        elif kind == "drop":
            names = {name: number for name, number in names.items() if name != rest[0]}
    return names


class Subject:
    """A recorded run: its operations, its initial folder, and the iterations that it saved."""

    def __init__(self, name, begin, operations, saved, lines):
        """`lines` are the metrics of the earlier run, None if there was none or it is the same run."""
        self.name, self.begin, self.operations, self.saved, self.lines = name, begin, operations, saved, lines

    def state(self, syncs, generator):
        """Cuts after a random operation; returns its index and the folder."""
        disk, at = Disk(syncs, self.begin), generator.randrange(1, len(self.operations) + 1)
        for operation in self.operations[:at]:
            disk.apply(operation)
        return at, disk.cut(generator)

    def whole(self):
        """Returns the folder after the run."""
        disk = Disk(True, self.begin)
        for operation in self.operations:
            disk.apply(operation)
        return {name: bytes(disk.now[number]) for name, number in disk.names.items() if number != FOLDER}

    def may_hold(self, at):
        """Returns the iterations whose record may exist after a cut, None for no record: from the last save whose
        rename was synced to the last renamed one."""
        saves = [json.loads(self.begin[RECORD])["iter"] if RECORD in self.begin else None, *self.saved]
        renamed = synced = 0
        for operation in self.operations[:at]:
            renamed += operation[0] == "rename" and operation[2] == RECORD
            synced = renamed if operation == ("syncdir", ".") else synced
        return saves[synced:renamed + 1]


def subjects():
    """A new run; a run resumed after its first half; new runs in the folder of a finished run."""
    tiny.run("half", f"--max_iters={tiny.ITERATIONS // 2}")
    tiny.run("over", "--seed=7")
    tiny.run("wide", "--seed=7", f"--n_embd={WIDE}")
    found = []
    for name, arguments, saved in (("one", [], [2, 4, 5]), ("half", ["--init_from=resume"], [4, 5]), ("over", [], [2, 4, 5]),
                                   ("wide", [], [2, 4, 5])):
        begin, lines = {}, tiny.metrics(name) if name in ("over", "wide") else None
        for entry in os.listdir(name) if os.path.isdir(name) else []:
            with open(os.path.join(name, entry), "rb") as file:
                begin[entry] = file.read()
        operations = record(name, *arguments)
        kinds = [operation[0] for operation in operations]
        check(kinds.count("sync") >= 6 and kinds.count("syncdir") >= 6 and kinds.count("rename") >= 6, f"{name}: the record: {kinds}")
        check(operations.count(("mkdir", ".")) == (name == "one"), f"{name}: the folder is made where there is none: {kinds}")
        check(kinds.count("link") >= 5 or lines is None, f"{name}: what was there is kept: {kinds}")
        subject = Subject(name, begin, operations, saved, lines)
        check(sum(operation[0] == "rename" and operation[2] == RECORD for operation in operations) == len(saved),
              f"{name}: a record for each save: {kinds}")
        with open(os.path.join(name, "model.safetensors"), "rb") as file:
            check(subject.whole()["model.safetensors"] == file.read(), f"{name}: the replay ends with the run's own bytes")
        found.append(subject)
    return found


def write_out(folder, content):
    tiny.clear(folder)
    os.makedirs(folder)
    for name, data in content.items():
        os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)


def is_mixture(content):
    """Returns true when a reader of Hugging Face's layout finds weights and a configuration of different shapes, or
    incomplete files."""
    if not {"config.json", "model.safetensors"} <= set(content):
        return False
    weights = content["model.safetensors"]
    try:
        header = json.loads(weights[8:8 + struct.unpack("<Q", weights[:8])[0]])
        return json.loads(content["config.json"])["n_embd"] not in header["transformer.wte.weight"]["shape"]
    except (ValueError, struct.error):
        return True


def survives(content, expected, may_hold, lines):
    """Returns "" when the folder has one of these checkpoints and a resumed run gives the bytes of an uninterrupted
    run; else an error text.  An earlier run's checkpoint is at its last iteration, with these lines of metrics."""
    write_out("cut", content)
    if is_mixture(content):
        return "config.json is of other weights"
    try:
        found = json.loads(content[RECORD])["iter"] if RECORD in content else None
    except ValueError as error:
        return f"a record that cannot be read: {error}"
    if found not in may_hold:
        return f"the checkpoint is of iteration {found}, not one of {may_hold}"
    if lines is not None and found == may_hold[0] and json.loads(content[RECORD])["seed"] != 1337:
        shape = f"--n_embd={json.loads(content['config.json'])['n_embd']}"
        done = tiny.run("cut", "--init_from=resume", shape)
        if done.returncode != 0:
            return f"the run that was there: {done.stderr[-300:]}"
        return "" if tiny.metrics("cut") == lines else "other metrics of the run that was there"
    if lines is not None and (tiny.contents("cut/earlier-001").get("seed") != 7 or tiny.metrics("cut/earlier-001") != lines):
        return "the run that was there is lost"
    done = tiny.resume("cut")
    if done.returncode != 0:
        return f"{done.returncode}: {done.stderr[-300:]}"
    if tiny.metrics("cut") != expected[1]:
        return "other metrics than in one go"
    return "" if tiny.contents("cut") == expected[0] else "other bytes than in one go"


def main():
    if not tiny.has_strace("crash_states"):
        return
    tiny.make_data()
    recorded = subjects()
    expected = tiny.contents("one"), tiny.metrics("one")
    check(all((tiny.contents(name), tiny.metrics(name)) == expected for name in ("half", "over", "wide")), "all four end alike")
    generator, resumed = random.Random(tiny.SEED), 0
    numbers = range(STATES)
    for turn, number in enumerate(numbers):
        subject = recorded[number % len(recorded)]
        at, content = subject.state(True, random.Random(tiny.SEED * STATES + number))
        resumed += RECORD in content
        why = survives(content, expected, subject.may_hold(at), subject.lines)
        check(why == "", f"state {number}, of {subject.name}, cut after operation {at}: {why}")
        if turn % 500 == 499:
            print(f"{turn + 1} states so far, {resumed} with a checkpoint", flush=True)
    print(f"{len(numbers)} states, {resumed} with a checkpoint in them")
    check(resumed >= len(numbers) // 3, f"{resumed} of {len(numbers)} states had a checkpoint: too few to prove anything")


end(main)
