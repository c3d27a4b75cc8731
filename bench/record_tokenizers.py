#!/usr/bin/env python3
"""For published figures, not in CI: GPT-2's encoding against tiktoken, and training a vocabulary against Hugging Face's
tokenizers.

    bench/record_tokenizers.py --build=BUILD --gpt2=FOLDER [--repeats=7] [--threads=2] [--vocab-sizes=1000,8192] TEXT...

Needs a Python with tiktoken and tokenizers, and tests/tools/tokenizer_tool in BUILD (`make check TESTS=` makes it).
FOLDER has vocab.bpe and encoder.json.  A TEXT is a file of UTF-8, or a folder of such files.  Each text is cut after
empty lines into documents of about 64 KiB, which both sides get.  Runs alternate and the best of each counts; ids are
compared one by one.  Prints two tables.
"""
import argparse
import array
import json
import os
import struct
import subprocess
import tempfile
import time

import tiktoken
import tokenizers
from tiktoken.load import data_gym_to_mergeable_bpe_ranks
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
DOCUMENT_BYTES = 1 << 16


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


def cut_documents(text):
    documents, begin = [], 0
    while begin < len(text):
        end = text.find("\n\n", begin + DOCUMENT_BYTES)
        end = len(text) if end < 0 else end + 2
        documents.append(text[begin:end])
        begin = end
    return documents


def write_records(path, texts):
    with open(path, "wb") as file:
        for text in texts:
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


def gpt2_encoding(folder):
    ranks = data_gym_to_mergeable_bpe_ranks(folder + "/vocab.bpe", folder + "/encoder.json")
    return tiktoken.Encoding("gpt2", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256})


def tool(build, *arguments):
    command = [os.path.join(build, "tests", "tools", "tokenizer_tool"), *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def encode_both(options, encoding, documents, threads):
    """Returns the best seconds of each side, and whether all ids are the same."""
    write_records("texts.rec", [document.encode() for document in documents])
    ours = theirs = 1e30
    for _ in range(options.repeats):
        ours = min(ours, tool(options.build, "encode", options.gpt2, threads, "texts.rec", "ids.rec", 1)["seconds"])
        begin = time.perf_counter()
        expected = encoding.encode_ordinary_batch(documents, num_threads=threads)
        theirs = min(theirs, time.perf_counter() - begin)
    return ours, theirs, read_ids("ids.rec") == expected


def hugging_face_train(documents, vocab_size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    # Their vocabulary has no <|endoftext|>, which is the last token of ours.
    trainer = trainers.BpeTrainer(vocab_size=vocab_size - 1, special_tokens=[], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    begin = time.perf_counter()
    tokenizer.train_from_iterator(documents, trainer)
    return tokenizer, time.perf_counter() - begin


def train_both(options, documents, vocab_size):
    write_records("texts.rec", [document.encode() for document in documents])
    ours = theirs = 1e30
    for _ in range(max(1, options.repeats // 3)):
        result = tool(options.build, "train", vocab_size, "texts.rec", ".")
        ours = min(ours, result["count_seconds"] + result["merge_seconds"])
        tokenizer, seconds = hugging_face_train(documents, vocab_size)
        theirs = min(theirs, seconds)
    loaded = Tokenizer.from_file("tokenizer.json")
    merges = [json.loads(each.to_str())["model"]["merges"] for each in (loaded, tokenizer)]
    tool(options.build, "encode", "gpt_tokenizer.json", options.threads, "texts.rec", "ids.rec")
    ids = sum(map(len, read_ids("ids.rec")))
    their_ids = sum(len(tokenizer.encode(document).ids) for document in documents)
    return ours, theirs, merges[0] == merges[1], 100 * (ids / their_ids - 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--gpt2", required=True)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--vocab-sizes", default="1000,8192")
    parser.add_argument("texts", nargs="+", metavar="TEXT")
    options = parser.parse_args()
    options.build, options.gpt2 = os.path.abspath(options.build), os.path.abspath(options.gpt2)
    os.environ["RAYON_NUM_THREADS"] = str(options.threads)
    texts = [(os.path.basename(path.rstrip("/")), cut_documents(read_text(path))) for path in options.texts]
    encoding = gpt2_encoding(options.gpt2)
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        print(f"encoding with GPT-2's vocabulary, MB/s; tiktoken {tiktoken.__version__}")
        print("| text | MB | threads | gpt-train | tiktoken | ratio | ids |")
        print("|---|---|---|---|---|---|---|")
        for name, documents in texts:
            mb = sum(len(document.encode()) for document in documents) / 1e6
            for threads in sorted({1, options.threads}):
                ours, theirs, same = encode_both(options, encoding, documents, threads)
                print(f"| {name} | {mb:.2f} | {threads} | {mb / ours:.1f} | {mb / theirs:.1f} | {theirs / ours:.2f} | "
                      f"{'identical' if same else 'DIFFERENT'} |", flush=True)
        print(f"\ntraining, seconds; tokenizers {tokenizers.__version__}, {options.threads} threads "
              "(gpt-train's trainer has one)")
        print("| text | vocabulary | gpt-train | tokenizers | ratio | merges | ids more than theirs |")
        print("|---|---|---|---|---|---|---|")
        for name, documents in texts:
            for size in map(int, options.vocab_sizes.split(",")):
                ours, theirs, same, more = train_both(options, documents, size)
                print(f"| {name} | {size} | {ours:.3f} | {theirs:.3f} | {theirs / ours:.1f} | "
                      f"{'identical' if same else 'different'} | {more:+.2f} % |", flush=True)
        os.chdir("/")


if __name__ == "__main__":
    main()
