#!/usr/bin/env python3
"""For published figures, not in CI: the speed of tokenizers and of gpt-prepare, with the results compared.

    bench/record_tokens.py tiktoken --build=BUILD --gpt2=FOLDER [--repeats=7] [--threads=2] [--vocab-sizes=1000,8192] TEXT...
    bench/record_tokens.py prepare --build=BUILD [--megabytes=1000] [--threads=2] [--kills=5] [--work=FOLDER]
                           [--tokenizer=bytes|chars|train|gpt2|PATH] [--flags="--dedup ..."] [TEXT...]

tiktoken: GPT-2's encoding against tiktoken, and training a vocabulary against Hugging Face's tokenizers.  PYTHON needs
both, BUILD tests/tools/tokenizer_tool (`make check TESTS=` makes it); FOLDER has vocab.bpe and encoder.json.  A TEXT is
a file of UTF-8, or a folder of such files.  Each is cut after empty lines into documents of about 64 KiB, which both
sides get.  Runs alternate and the best of each counts; ids are compared one by one.

prepare: repeats the texts (default: the sources of this project) to that size, with a number on every line so that no
two documents are alike, as a plain file and as JSONL in .gz.  Each is prepared once and timed; then killed --kills times
at random moments, continued, and compared byte for byte.  Peak memory is the process's own (VmHWM).  Fails when a peak
exceeds 1 GiB or a file differs.
"""
import array
import gzip
import hashlib
import json
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time

from common import TOP, options_of, run

PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
DOCUMENT_BYTES = 1 << 16
GIB = 1 << 30


def read_text(path):
    """Returns the content of the files that are valid UTF-8."""
    names = [path]
    if os.path.isdir(path):
        names = sorted(os.path.join(base, name) for base, _, files in os.walk(path) for name in files
                       if "/." not in base)
    parts = []
    for name in names:
        with open(name, "rb") as file:
            data = file.read()
        try:
            parts.append(data.decode())
        except UnicodeDecodeError:
            continue
    return "".join(parts)


# ---- tiktoken and tokenizers ----
def cut_documents(text):
    documents, begin = [], 0
    while begin < len(text):
        end = text.find("\n\n", begin + DOCUMENT_BYTES)
        end = len(text) if end < 0 else end + 2
        documents.append(text[begin:end])
        begin = end
    return documents


def write_records(path, documents):
    with open(path, "wb") as file:
        for text in map(str.encode, documents):
            file.write(struct.pack("=I", len(text)) + text)


def read_ids(path):
    with open(path, "rb") as file:
        data = file.read()
    at, records = 0, []
    while at < len(data):
        count = 4 * struct.unpack_from("=I", data, at)[0]
        records.append(array.array("i", data[at + 4:at + 4 + count]).tolist())
        at += 4 + count
    return records


def tool(options, *arguments):
    return json.loads(run([os.path.join(options.build, "tests", "tools", "tokenizer_tool"), *map(str, arguments)])[0])


def encode_both(options, encoding, documents, threads):
    """Returns the best seconds of each side, and whether all ids are the same."""
    write_records("texts.rec", documents)
    ours = theirs = 1e30
    for _ in range(options.repeats):
        ours = min(ours, tool(options, "encode", options.gpt2, threads, "texts.rec", "ids.rec", 1)["seconds"])
        begin = time.perf_counter()
        expected = encoding.encode_ordinary_batch(documents, num_threads=threads)
        theirs = min(theirs, time.perf_counter() - begin)
    return ours, theirs, read_ids("ids.rec") == expected


def hugging_face_train(documents, vocab_size):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers  # pylint: disable=import-outside-toplevel
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    # Their vocabulary has no <|endoftext|>, which is the last token of ours.
    trainer = trainers.BpeTrainer(vocab_size=vocab_size - 1, special_tokens=[], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    begin = time.perf_counter()
    tokenizer.train_from_iterator(documents, trainer)
    return tokenizer, time.perf_counter() - begin


def train_both(options, documents, vocab_size):
    write_records("texts.rec", documents)
    ours = theirs = 1e30
    for _ in range(max(1, options.repeats // 3)):
        result = tool(options, "train", vocab_size, "texts.rec", ".")
        ours = min(ours, result["count_seconds"] + result["merge_seconds"])
        tokenizer, seconds = hugging_face_train(documents, vocab_size)
        theirs = min(theirs, seconds)
    loaded = tokenizer.from_file("tokenizer.json")
    merges = [json.loads(each.to_str())["model"]["merges"] for each in (loaded, tokenizer)]
    tool(options, "encode", "gpt_tokenizer.json", options.threads, "texts.rec", "ids.rec")
    ids = sum(map(len, read_ids("ids.rec")))
    their_ids = sum(len(tokenizer.encode(document).ids) for document in documents)
    return ours, theirs, merges[0] == merges[1], 100 * (ids / their_ids - 1)


def compare_tokenizers(options):
    import tiktoken  # pylint: disable=import-outside-toplevel
    from tiktoken.load import data_gym_to_mergeable_bpe_ranks  # pylint: disable=import-outside-toplevel
    os.environ["RAYON_NUM_THREADS"] = str(options.threads)
    texts = [(os.path.basename(path.rstrip("/")), cut_documents(read_text(path))) for path in options.texts]
    ranks = data_gym_to_mergeable_bpe_ranks(options.gpt2 + "/vocab.bpe", options.gpt2 + "/encoder.json")
    encoding = tiktoken.Encoding("gpt2", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256})
    print(f"encoding with GPT-2's vocabulary, MB/s; tiktoken {tiktoken.__version__}")
    print("| text | MB | threads | gpt-train | tiktoken | ratio | ids |\n|---|---|---|---|---|---|---|")
    for name, documents in texts:
        mb = sum(len(document.encode()) for document in documents) / 1e6
        for threads in sorted({1, options.threads}):
            ours, theirs, same = encode_both(options, encoding, documents, threads)
            print(f"| {name} | {mb:.2f} | {threads} | {mb / ours:.1f} | {mb / theirs:.1f} | {theirs / ours:.2f} | "
                  f"{'identical' if same else 'DIFFERENT'} |", flush=True)
    print(f"\ntraining, seconds; {options.threads} threads (gpt-train's trainer has one)")
    print("| text | vocabulary | gpt-train | tokenizers | ratio | merges | ids more than theirs |\n|---|---|---|---|---|---|---|")
    for name, documents in texts:
        for size in map(int, options.vocab_sizes.split(",")):
            ours, theirs, same, more = train_both(options, documents, size)
            print(f"| {name} | {size} | {ours:.3f} | {theirs:.3f} | {theirs / ours:.1f} | "
                  f"{'identical' if same else 'different'} | {more:+.2f} % |", flush=True)
    return True


# ---- gpt-prepare ----
def make_inputs(options):
    lines = [line for path in options.texts for line in read_text(path).splitlines() if line.strip()]
    size, written, number = options.megabytes * 1000000, 0, 0
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
            return next((int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:")), 0)
    except OSError:
        return 0


def prepare_once(options, name, folder, limit=float("inf")):
    """Returns exit status (None: killed after `limit` seconds), seconds, peak bytes."""
    begin, peak = time.monotonic(), 0
    with subprocess.Popen([os.path.join(options.build, "gpt-prepare"), "--tokenizer=" + options.tokenizer, "--out-dir=" + folder,
                           f"--threads={options.threads}", "--save-every=64", *options.flags.split(), name],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            peak = max(peak, peak_bytes(process.pid))
            if time.monotonic() - begin > limit:
                process.kill()
                return None, limit, peak
            time.sleep(0.02)
        return process.returncode, time.monotonic() - begin, peak


def sums(folder):
    found = {}
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as file:
            digest = hashlib.sha256()
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
            found[name] = digest.hexdigest()
    return found


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(options, name, rng):
    before = cpu_seconds()
    status, seconds, peak = prepare_once(options, name, "whole")
    cpu = cpu_seconds() - before
    if status != 0:
        sys.exit(f"{name}: gpt-prepare ended with {status}")
    with open("whole/manifest.json", encoding="utf-8") as file:
        manifest = json.load(file)
    status, kills = None, -1
    while status is None:
        kills += 1
        limit = seconds * rng.uniform(0.05, 0.4) if kills < options.kills else float("inf")
        status, _, one_peak = prepare_once(options, name, "killed", limit)
        peak = max(peak, one_peak)
    same = status == 0 and sums("killed") == sums("whole")
    text = manifest["documents"]["text_bytes"]
    tokens = manifest["train"]["tokens"] + manifest["val"]["tokens"]
    print(f"{name:20} {text / 1e6:8.0f} {seconds:8.1f} {cpu:8.1f} {text / 1e6 / seconds:8.1f} {tokens / 1e6:9.1f} "
          f"{peak / (1 << 20):9.0f} {kills:6d}  {'yes' if same else 'NO'}", flush=True)
    shutil.rmtree("whole")
    shutil.rmtree("killed")
    return same and 0 < peak < GIB


def prepare_large(options):
    options.texts = options.texts or [os.path.join(TOP, "src"), os.path.join(TOP, "doc")]
    make_inputs(options)
    print(f"tokenizer {options.tokenizer}, {options.threads} threads {options.flags}")
    print(f"{'input':20} {'MB text':>8} {'seconds':>8} {'CPU s':>8} {'MB/s':>8} {'M tokens':>9} {'peak MiB':>9} {'kills':>6}  same")
    rng = random.Random(1337)
    return all([measure(options, name, rng) for name in ("plain.txt", "documents.jsonl.gz")])


def main():
    options = options_of(__doc__, "what", "texts...", build=".", gpt2="", repeats=7, threads=2, vocab_sizes="1000,8192",
                         megabytes=1000, kills=5, work="", tokenizer="bytes", flags="")
    options.texts, options.gpt2 = [os.path.abspath(path) for path in options.texts], os.path.abspath(options.gpt2)
    if os.path.exists(options.tokenizer):
        options.tokenizer = os.path.abspath(options.tokenizer)
    with tempfile.TemporaryDirectory(prefix="record-tokens-", dir=options.work or None) as work:
        os.chdir(work)
        good = {"tiktoken": compare_tokenizers, "prepare": prepare_large}[options.what](options)
        os.chdir("/")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
