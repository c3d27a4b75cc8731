#!/usr/bin/env python3
"""gpt-prepare in bounded memory, on any number of threads, and through kill -9.

  memory    the resident set stays below 256 MiB and does not grow with the input (6 and 24 MB)
  threads   1, 2 and 5 threads write the same files
  kills     killed repeatedly at random moments, then left alone: the same files as without a kill, byte for byte; 20 times
            with CHECK_LONG=1
  full      a run that fills the disk can be continued
  changed   a run is not continued with another text on standard input
  refusals  an unfinished run is not continued with other options or inputs; --restart starts afresh
Needs GPT_PREPARE, the path of the program.
"""

import gzip
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import time

from checks import GPT_PREPARE, LONG, check_named as check, end, files as files_of, is_instrumented, read, read_json, skip, write

MIB = 1 << 20
RSS_MAX = 256 * MIB
GROWTH_MAX = 8 * MIB
SEED = int(os.environ.get("SEED", "1337"))


def words(count, rng):
    """Returns `count` bytes of lines of made-up words, with characters of one to four bytes."""
    stock = ["".join(rng.choice("etaoinshrdlu") for _ in range(rng.randint(1, 9))) for _ in range(3000)]
    stock += ["größe", "naïve", "日本語", "😀"]
    block = "\n".join(" ".join(rng.choices(stock, k=12)) for _ in range(4000)).encode() + b"\n"
    return (block * (count // len(block) + 1))[:count].decode(errors="ignore").encode()


def write_words(name, count, rng):
    """Writes a file of them in blocks: a child's initial peak RSS includes this process's memory."""
    block = words(250000, rng)
    with open(name, "wb") as file:
        for _ in range(count // 250000):
            file.write(block)


def jsonl_of(count, rng):
    lines = []
    block = words(250000, rng).decode()
    for i in range(count):
        at = rng.randint(0, len(block) - 3000)
        body = block[at:at + rng.randint(0, 3000)] if i % 7 else "the same every time"
        lines.append(json.dumps({"text": body}))
    return "\n".join(lines).encode() + b"\n"


def write_packed(rng):
    """Writes a file of documents, compressed if this build reads that; returns its name."""
    documents = jsonl_of(2500, rng)
    with gzip.open("packed.jsonl.gz", "wb", 1) as file:
        file.write(documents)
    status, _, _ = run(["packed.jsonl.gz"], "tried")
    shutil.rmtree("tried", ignore_errors=True)
    if status == 0 or "without libarchive" not in stderr_text():
        return "packed.jsonl.gz"
    skip("prepare_resume_compressed", "a build without libarchive")
    return write("packed.jsonl", documents)


def write_wide():
    """Writes a plain text, in UTF-16 if this build reads that; returns its name."""
    run(["--encoding=latin1", "documents.jsonl"], "tried")
    shutil.rmtree("tried", ignore_errors=True)
    if "without iconv" in stderr_text():
        return "plain.txt"
    return write("wide.txt", read("plain.txt").decode(errors="ignore").encode("utf-16"))


def start(arguments, out, stdin=None):
    with open("stderr", "wb") as stderr:
        return subprocess.Popen([GPT_PREPARE, f"--out-dir={out}", *arguments], stdout=subprocess.DEVNULL, stderr=stderr,
                                stdin=open(stdin, "rb") if stdin else subprocess.DEVNULL)


def stderr_text():
    return read("stderr").decode(errors="replace")


def run(arguments, out, stdin=None):
    """Returns exit status, seconds, peak RSS in bytes."""
    begin = time.monotonic()
    process = start(arguments, out, stdin)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, time.monotonic() - begin, usage.ru_maxrss * 1024


def test_memory(rng):
    if is_instrumented(GPT_PREPARE):  # AddressSanitizer's shadow would be counted
        skip("prepare_rss", "a build with a sanitizer")
        return
    seen = []
    for size in (6, 24):
        write_words("big.txt", size * 1000000, rng)
        status, _, rss = run(["--threads=2", "big.txt"], "out")
        check(f"memory_{size}_status", status == 0, stderr_text())
        seen.append(rss)
        shutil.rmtree("out")
    print(f"resident: {seen[0] / MIB:.1f} MiB of 6 MB, {seen[1] / MIB:.1f} MiB of 24 MB")
    check("memory_bound", max(seen) < RSS_MAX, seen)
    check("memory_growth", seen[1] - seen[0] < GROWTH_MAX, seen)
    os.remove("big.txt")


def test_kills(name, arguments, rng, stdin=None):
    """Kills until `wanted` runs were continued ones, then lets one finish."""
    status, seconds, _ = run(arguments, "whole", stdin)
    check(f"{name}_whole", status == 0, stderr_text())
    expected = files_of("whole")
    resumed = kills = 0
    finished, latest = False, 1.05
    print(f"{name}: {seconds:.1f} s without a kill", flush=True)
    for _ in range(12 if not LONG else 100):
        if resumed >= (3 if not LONG else 20):
            break
        process = start(arguments, "killed", stdin)
        try:
            process.wait(timeout=seconds * rng.uniform(0.15, latest))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        if process.returncode == -signal.SIGKILL:
            kills += 1
        resumed += "continuing the run" in stderr_text()
        finished = process.returncode == 0
        if finished:
            latest *= 0.8  # other programs slowed the run that was timed
            check(f"{name}_same_after_{kills}_kills", files_of("killed") == expected, os.listdir("killed"))
            shutil.rmtree("killed")
    if not finished:
        status, _, _ = run(arguments, "killed", stdin)
        resumed += "continuing the run" in stderr_text()
        check(f"{name}_finishes", status == 0, stderr_text())
        check(f"{name}_same", files_of("killed") == expected, sorted(os.listdir("killed")))
        shutil.rmtree("killed")
    check(f"{name}_kills_hit", kills >= 1 and resumed >= 1, f"{kills} kills, {resumed} continued runs")
    shutil.rmtree("whole")


def leave_unfinished(arguments, rng, seconds):
    """Makes a folder "left" with a run in it that was stopped within its text."""
    for _ in range(60):
        shutil.rmtree("left", ignore_errors=True)
        process = start(arguments, "left")
        try:
            process.wait(timeout=seconds * rng.uniform(0.2, 0.9))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        if os.path.exists("left/.gpt-prepare.state"):
            with open("left/.gpt-prepare.state", encoding="utf-8") as file:
                if json.load(file)["text_bytes"] > 0:
                    return True
    return False


def test_refusals(rng):
    write_words("r.txt", 24 * 1000000, rng)
    arguments = ["--save-every=1", "--threads=1", "r.txt"]
    _, seconds, _ = run(arguments, "whole")
    check("refusals_unfinished", leave_unfinished(arguments, rng, seconds), "no kill left a state")
    for name, more, what in [("option", ["--val-fraction=0.2"], "--val-fraction 0.1"),
                             ("tokenizer", ["--tokenizer=chars"], '--tokenizer "bytes"'),
                             ("encoding", ["--encoding=latin1"], '--encoding "auto"'),
                             ("shards", ["--shard-tokens=5000000"], "--shard-tokens 0")]:
        status, _, _ = run(arguments + more, "left")
        check(f"refusal_{name}", status == 2 and what in stderr_text() and "--restart" in stderr_text() and
              len(stderr_text().splitlines()) == 1, stderr_text())
    check("refusals_keep_the_state", os.path.exists("left/.gpt-prepare.state"))
    os.utime("r.txt", (1000000000, 1000000000))
    status, _, _ = run(arguments, "left")
    check("refusal_input", status == 2 and "--restart" in stderr_text(), stderr_text())
    status, _, _ = run(["--restart"] + arguments, "left")
    check("restart", status == 0 and "continuing" not in stderr_text() and files_of("left") == files_of("whole"),
          stderr_text())
    check("refusals_unfinished_again", leave_unfinished(arguments, rng, seconds))
    with open("left/.gpt-prepare.state", encoding="utf-8") as file:
        state = json.load(file)
    state["text_crc32c"] ^= 1
    with open("left/.gpt-prepare.state", "w", encoding="utf-8") as file:
        json.dump(state, file)
    status, _, _ = run(arguments, "left")
    check("refusal_checksum", status == 2 and "the text changed" in stderr_text() and
          os.path.exists("left/.gpt-prepare.state"), stderr_text())
    os.truncate("left/.gpt-prepare.state", 100)
    status, _, _ = run(arguments, "left")
    check("refusal_broken_state", status == 2 and len(stderr_text().splitlines()) == 1 and "state" in stderr_text(),
          stderr_text())
    status, _, _ = run(["--restart"] + arguments, "left")
    check("restart_after_broken_state", status == 0 and files_of("left") == files_of("whole"), stderr_text())


def run_short_of_room(arguments, out, stdin=subprocess.DEVNULL, mebibytes=36):
    """Runs with a limit on the size of files, as on a full disk; returns the exit status."""
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (mebibytes * MIB, mebibytes * MIB))

    with open("stderr", "wb") as stderr:
        return subprocess.run([GPT_PREPARE, f"--out-dir={out}", *arguments], stdout=subprocess.DEVNULL, stderr=stderr,
                              stdin=stdin, preexec_fn=limit, check=False).returncode


def test_full_disk():
    """The run continues from the last saved state."""
    arguments = ["--save-every=1", "--threads=1", "r.txt"]
    status = run_short_of_room(arguments, "full")
    lines = stderr_text().splitlines()
    check("full_disk", status == 1 and len(lines) == 2 and "train.bin.partial" in lines[0] and
          "give the same command again" in lines[1], lines)
    status, _, _ = run(arguments, "full")
    check("full_disk_continued", status == 0 and "continuing the run" in stderr_text() and
          files_of("full") == files_of("whole"), stderr_text())


def test_split_after_resume():
    """The characters that the stopped run wrote count for the split by position."""
    write("hindi.txt", "नमस्ते 你好🙂\n" * 30000)
    run(["--tokenizer=train", "--vocab-size=257", write("few.txt", "नमस्ते")], "vocabulary")
    arguments = ["--save-every=1", "--threads=1", "--tokenizer=vocabulary", *3 * ["hindi.txt"]]
    status, _, _ = run(arguments, "whole_hindi")
    check("split_whole", status == 0, stderr_text())
    check("split_stopped", run_short_of_room(arguments, "hindi", mebibytes=4) == 1, stderr_text())
    status, _, _ = run(arguments, "hindi")
    check("split_continued", status == 0 and "continuing the run" in stderr_text() and
          files_of("hindi") == files_of("whole_hindi"), stderr_text())


def test_changed_stdin(rng):
    """A text that differs anywhere before the saved place, or ends before it, is refused, and the state stays."""
    text = read("r.txt")
    arguments = ["--save-every=1", "--threads=1", "--dedup", "-"]
    status, _, _ = run(arguments, "whole_stdin", "r.txt")
    check("changed_whole", status == 0, stderr_text())
    with open("r.txt", "rb") as stdin:
        check("changed_stopped", run_short_of_room(arguments, "changed", stdin) == 1, stderr_text())
    at = rng.randint(0, read_json("changed/.gpt-prepare.state")["text_bytes"] - 1)
    for name, other in (("byte", text[:at] + bytes([text[at] ^ 1]) + text[at + 1:]), ("end", text[:at])):
        write("other.txt", other)
        status, _, _ = run(arguments, "changed", "other.txt")
        check(f"changed_{name}", status == 2 and "the text changed" in stderr_text(), f"byte {at}: {stderr_text()}")
    status, _, _ = run(arguments, "changed", "r.txt")
    check("changed_back", status == 0 and "continuing the run" in stderr_text() and
          files_of("changed") == files_of("whole_stdin"), stderr_text())


def main():
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    test_memory(rng)
    write_words("plain.txt", 40 * 1000000, rng)
    write("documents.jsonl", jsonl_of(2500, rng))
    packed = write_packed(rng)
    bpe = ["--tokenizer=train", "--vocab-size=400", "--save-every=1", "--dedup"]
    outputs = []
    for threads in (1, 2, 5):
        status, _, _ = run(bpe + [f"--threads={threads}", "documents.jsonl", packed], "threads")
        check(f"threads_{threads}", status == 0, stderr_text())
        outputs.append(files_of("threads"))
        shutil.rmtree("threads")
    check("threads_same", outputs[0] == outputs[1] == outputs[2])
    check("threads_outputs", len(outputs[0]["train.bin"]) > 1000000 and "tokenizer.json" in outputs[0], list(outputs[0]))
    test_kills("bytes", ["--save-every=1", write_wide()], rng)
    test_kills("bytes_stdin", ["--save-every=1", "--shard-tokens=3000000", "-"], rng, stdin="plain.txt")
    test_kills("chars", ["--tokenizer=chars", "--save-every=1", "plain.txt", "documents.jsonl"], rng)
    test_kills("bpe_dedup", bpe + ["--shard-tokens=200000", "documents.jsonl", packed], rng)
    test_refusals(rng)
    test_full_disk()
    test_split_after_resume()
    test_changed_stdin(rng)


end(main)
