#!/usr/bin/env python3
"""gpt-prepare on a large input: speed, peak memory, and the same files after kills.

    bench/record_prepare.py --build=BUILD [--megabytes=1000] [--threads=2] [--kills=5] [--work=FOLDER]
                            [--tokenizer=bytes|chars|train|gpt2|PATH] [--text=FILE] [--flags="--dedup ..."]

Repeats FILE (default: the sources of this project) to a text of that size, with a number on every line so that
no two documents are alike, as a plain file and as JSONL in .gz.  Each is prepared once and timed; then killed --kills
times at random moments, continued, and compared byte for byte.  Peak memory is the process's own (VmHWM).  Fails when a
peak exceeds 1 GiB or a file differs.  Prints one table.
"""
import argparse
import glob
import gzip
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

GIB = 1 << 30


def source_text(options):
    if options.text:
        names = [options.text]
    else:
        top = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
        names = sorted(glob.glob(os.path.join(top, "src", "*", "*.c")) + glob.glob(os.path.join(top, "doc", "*.md")))
    lines = []
    for name in names:
        with open(name, encoding="utf-8") as file:
            lines += file.read().splitlines()
    return [line for line in lines if line.strip()]


def make_inputs(options):
    lines = source_text(options)
    size = options.megabytes * 1000000
    written = number = 0
    with open("plain.txt", "w", encoding="utf-8") as plain, \
            gzip.open("documents.jsonl.gz", "wt", compresslevel=1, encoding="utf-8") as packed:
        while written < size:
            start = number * 37 % len(lines)
            text = "\n".join(f"{number} {line}" for line in lines[start:start + 37]) + "\n"
            plain.write(text)
            packed.write(json.dumps({"text": text}) + "\n")
            written += len(text.encode())
            number += 1


def peak_bytes(pid):
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def run(options, name, folder, limit=None):
    """Returns exit status (None: killed after `limit` seconds), seconds, peak bytes.  CPU seconds:
    resource.getrusage()."""
    command = [os.path.join(options.build, "gpt-prepare"), "--tokenizer=" + options.tokenizer, "--out-dir=" + folder,
               f"--threads={options.threads}", "--save-every=64", *options.flags.split(), name]
    begin = time.monotonic()
    peak = 0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        peak = max(peak, peak_bytes(process.pid))
        if limit is not None and time.monotonic() - begin > limit:
            process.send_signal(signal.SIGKILL)
            process.wait()
            return None, limit, peak
        time.sleep(0.02)
    return process.returncode, time.monotonic() - begin, peak


def sums(folder):
    found = {}
    for name in sorted(os.listdir(folder)):
        digest = hashlib.sha256()
        with open(os.path.join(folder, name), "rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
        found[name] = digest.hexdigest()
    return found


def measure(options, name, rng):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    status, seconds, peak = run(options, name, "whole")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if status != 0:
        sys.exit(f"{name}: gpt-prepare ended with {status}")
    with open("whole/manifest.json", encoding="utf-8") as file:
        manifest = json.load(file)
    expected = sums("whole")
    kills = 0
    for _ in range(options.kills):
        status, _, killed_peak = run(options, name, "killed", seconds * rng.uniform(0.05, 0.4))
        peak = max(peak, killed_peak)
        if status == 0:
            break
        kills += 1
    if status != 0:
        status, _, last_peak = run(options, name, "killed")
        peak = max(peak, last_peak)
    same = status == 0 and sums("killed") == expected
    text = manifest["documents"]["text_bytes"]
    tokens = manifest["train"]["tokens"] + manifest["val"]["tokens"]
    print(f"{name:20} {text / 1e6:8.0f} {seconds:8.1f} {cpu:8.1f} {text / 1e6 / seconds:8.1f} {tokens / 1e6:9.1f} "
          f"{peak / (1 << 20):9.0f} {kills:6d}  {'yes' if same else 'NO'}", flush=True)
    shutil.rmtree("whole")
    shutil.rmtree("killed")
    return same and 0 < peak < GIB


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--work")
    parser.add_argument("--tokenizer", default="bytes")
    parser.add_argument("--text")
    parser.add_argument("--flags", default="")
    options = parser.parse_args()
    options.build = os.path.abspath(options.build)
    options.text = options.text and os.path.abspath(options.text)
    if os.path.exists(options.tokenizer):
        options.tokenizer = os.path.abspath(options.tokenizer)
    work = tempfile.mkdtemp(prefix="record-prepare-", dir=options.work)
    os.chdir(work)
    try:
        make_inputs(options)
        print(f"tokenizer {options.tokenizer}, {options.threads} threads {options.flags}")
        print(f"{'input':20} {'MB text':>8} {'seconds':>8} {'CPU s':>8} {'MB/s':>8} {'M tokens':>9} {'peak MiB':>9} {'kills':>6}  same")
        rng = random.Random(1337)
        good = [measure(options, name, rng) for name in ("plain.txt", "documents.jsonl.gz")]
    finally:
        os.chdir("/")
        shutil.rmtree(work)
    return 0 if all(good) else 1


sys.exit(main())
