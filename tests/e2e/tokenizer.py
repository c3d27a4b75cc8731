#!/usr/bin/env python3
"""Byte-pair encoding from the command line.

  train     gpt-prepare --tokenizer=train: its files, its ids (any number of threads), its messages about vocabularies
  model     gpt-train and gpt-sample with it, the tokenizer coming from out_dir alone; another one is refused
  gpt2      with GPT-2's vocabulary (GPT2_VOCAB_DIR): nanoGPT's and llm.c's token counts of tinyshakespeare, ids of
            Unicode's characters, of odd bytes and of the project's own sources, against tiktoken if Python has it
  tokenizers  Hugging Face's library, if Python has it, loads the trained files and gives the same ids
PYTHON_TOKENIZERS names a Python with tiktoken and tokenizers, if it is not this one.
"""

import array
import base64
import json
import os
import random
import struct
import subprocess
import sys

from checks import (BUILD, GPT_PREPARE, GPT_SAMPLE, GPT_TRAIN, SOURCE as TOP, byte_letters, check, end, read, read_json, skip,
                    write, write_json)

TOOL = os.environ.get("TOKENIZER_TOOL", os.path.join(BUILD, "tests", "tools", "tokenizer_tool"))
PYTHON = os.environ.get("PYTHON_TOKENIZERS", sys.executable)
GPT2 = os.environ.get("GPT2_VOCAB_DIR", os.path.join(TOP, "..", "shared", "data", "gpt2"))
SHAKESPEARE = os.environ.get("TINYSHAKESPEARE_DIR", os.path.join(TOP, "..", "shared", "data", "tinyshakespeare"))
EOT = "<|endoftext|>"


def run(*command, status=0, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, check=False, **options)
    if done.returncode != status:
        print("command", command, "status", done.returncode, done.stderr.decode(errors="replace")[-2000:])
    return done


# ---- records: the format of tokenizer_tool ----

def write_records(path, texts):
    write(path, b"".join(struct.pack("=I", len(text)) + text for text in texts))


def read_records(path, size):
    data, at, records = read(path), 0, []
    while at < len(data):
        count = struct.unpack_from("=I", data, at)[0] * size
        records.append(data[at + 4:at + 4 + count])
        at += 4 + count
    return records


def encode(vocabulary, texts, threads=2):
    write_records("texts.rec", texts)
    done = run(TOOL, "encode", vocabulary, threads, "texts.rec", "ids.rec")
    return [array.array("i", record).tolist() for record in read_records("ids.rec", 4)], done.returncode == 0


def decode(vocabulary, texts_file="ids.rec"):
    run(TOOL, "decode", vocabulary, texts_file, "back.rec")
    return read_records("back.rec", 1)


def tokens(path):
    return array.array("H", read(path))


# ---- texts ----

def source_files():
    names = []
    for folder in ("src", "tests", "doc", "backends"):
        for base, folders, files in os.walk(os.path.join(TOP, folder)):
            folders.sort()
            names += [os.path.join(base, name) for name in sorted(files)]
    return [name for name in names if name.endswith((".c", ".h", ".md", ".py", ".sh", ".mk"))]


def odd_texts(seed):
    """Returns valid UTF-8: stretches of all characters, then mixtures of the classes in GPT-2's pattern."""
    source = random.Random(seed)
    characters = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    texts = ["".join(characters[at:at + 64]) for at in range(0, len(characters), 64)]
    special = [" ", "  ", "\n", "\t", "\u00a0", "\u180e", "\u3000", "\u0085", "\u200b", "a", "1", "'", "'s", "'re",
               "\u00e9", "\u65e5", "\U0001f600", "!"]
    for _ in range(4000):
        texts.append("".join(source.choice(special) if source.random() < 0.8 else source.choice(characters)
                             for _ in range(source.randrange(1, 40))))
    texts += ["=" * 5000, "ab" * 4000, "a " * 2000, " " * 3000, "\u65e5\u672c" * 1000]
    return [text.encode() for text in texts]


def odd_bytes(seed):
    source = random.Random(seed)
    common = [32, 97, 0xE2, 0x80, 0x99, 39, 115, 0xFF, 10]
    return [bytes(source.choice(common) if source.random() < 0.6 else source.randrange(256)
                  for _ in range(source.randrange(0, 60))) for _ in range(3000)] + [b"", bytes(range(256))]


# ---- train ----

def test_train():
    write("text.txt", b"".join(read(name)[:20000] for name in source_files()))
    done = run(GPT_PREPARE, "--tokenizer=train", "--vocab-size=700", "--out-dir=data/bpe", "text.txt")
    check(done.returncode == 0, "gpt-prepare --tokenizer=train")
    for name in ("train.bin", "val.bin", "gpt_tokenizer.json", "tokenizer.json", "vocab.json", "merges.txt",
                 "manifest.json"):
        check(os.path.getsize("data/bpe/" + name) > 0, name)
    own = read_json("data/bpe/gpt_tokenizer.json")
    check(own["kind"] == "bpe" and own["vocab_size"] == 700, "gpt_tokenizer.json is a bpe of 700")
    text = read("text.txt")
    ids = tokens("data/bpe/train.bin") + tokens("data/bpe/val.bin")
    write("ids.rec", struct.pack("=I", len(ids)) + array.array("i", ids).tobytes())
    check(decode("data/bpe")[0] == text, "the token files decode to the text")
    check(len(ids) < len(text) / 2, "700 tokens take less than half as many ids as there are bytes")
    one = run(GPT_PREPARE, "--tokenizer=train", "--vocab-size=700", "--threads=1", "--out-dir=data/one", "text.txt")
    check(one.returncode == 0, "with one thread")
    for name in ("train.bin", "val.bin", "gpt_tokenizer.json", "tokenizer.json", "vocab.json", "merges.txt"):
        check(read("data/bpe/" + name) == read("data/one/" + name), name + " does not depend on the number of threads")
    texts = odd_bytes(11) + odd_texts(12)
    for vocabulary in ("data/bpe", "data/bpe/tokenizer.json", "data/bpe/vocab.json"):
        found, _ = encode(vocabulary, texts)
        check(decode(vocabulary) == texts, "every byte comes back from " + vocabulary)
        first = found if vocabulary == "data/bpe" else first
        check(found == first, "the same ids from " + vocabulary)
    check(encode("data/bpe", texts, 1)[0] == encode("data/bpe", texts, 7)[0], "1 and 7 threads")
    given = run(GPT_PREPARE, "--tokenizer=data/bpe", "--out-dir=data/given", "text.txt")
    check(given.returncode == 0 and tokens("data/given/train.bin") == tokens("data/bpe/train.bin"),
          "a folder as --tokenizer gives the ids that it was trained with")


def test_refusals():
    os.makedirs("empty", exist_ok=True)
    environment = {**os.environ, "HOME": os.path.abspath("empty"), "GPT_TRAIN_TOKENIZER_DIR": "empty"}
    for name in ("XDG_DATA_HOME", "XDG_DATA_DIRS", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE"):
        environment.pop(name, None)
    write("bad.tiktoken", "IQ== 0\nIQ== 1\n")
    write_json("bad.json", {"model": {"type": "WordPiece"}})
    for word, says in (("bad.tiktoken", "bad.tiktoken: line 2"), ("bad.json", "bad.json: this is a WordPiece vocabulary"),
                       ("nowhere", "nowhere"), ("empty", "empty: this folder has no"), ("gpt2", "curl")):
        if word == "gpt2" and os.path.exists("/usr/share/gpt-train/gpt2"):
            continue
        done = run(GPT_PREPARE, "--tokenizer=" + word, "--out-dir=data/no", "text.txt", status=2, env=environment)
        lines = done.stderr.decode().strip().split("\n")
        check(done.returncode == 2 and len(lines) == 1 and says in lines[0], f"--tokenizer={word}: {lines}")
        check(not os.path.exists("data/no"), "nothing is left of " + word)
    for size in ("256", "0", "x", "99999999"):
        done = run(GPT_PREPARE, "--tokenizer=train", "--vocab-size=" + size, "--out-dir=data/no", "text.txt", status=2)
        check(done.returncode == 2, "--vocab-size=" + size)


# ---- model ----

def test_model():
    small = ["--n_layer=1", "--n_head=2", "--n_embd=32", "--block_size=32", "--batch_size=4", "--eval_iters=2",
             "--gradient_accumulation_steps=1", "--warmup_iters=0", "--eval_interval=10", "--learning_rate=1e-2"]
    done = run(GPT_TRAIN, "--dataset=bpe", "--out_dir=out", "--max_iters=10", "--always_save_checkpoint=True", *small)
    check(done.returncode == 0, "gpt-train")
    check(read("data/bpe/gpt_tokenizer.json") == read("out/gpt_tokenizer.json"), "out_dir has the tokenizer")
    os.rename("data/bpe/gpt_tokenizer.json", "aside.json")
    start = "int main(\u00e9"
    done = run(GPT_SAMPLE, "--out_dir=out", "--num_samples=2", "--max_new_tokens=60", "--start=" + start)
    try:
        text = done.stdout.decode()
    except UnicodeDecodeError:
        text = ""
    check(done.returncode == 0 and text.count(start) == 2, "gpt-sample from out_dir alone, in UTF-8")
    special = run(GPT_SAMPLE, "--out_dir=out", "--num_samples=1", "--max_new_tokens=2", "--start=" + EOT)
    check(special.returncode == 0 and special.stdout.decode().startswith(EOT), "a prompt may be a special token")
    os.rename("aside.json", "data/bpe/gpt_tokenizer.json")
    done = run(GPT_TRAIN, "--dataset=bpe", "--out_dir=out", "--init_from=resume", "--max_iters=12", *small)
    check(done.returncode == 0, "resume")
    run(GPT_PREPARE, "--tokenizer=train", "--vocab-size=699", "--out-dir=data/other", "text.txt")
    done = run(GPT_TRAIN, "--dataset=other", "--out_dir=out", "--init_from=resume", "--max_iters=14", *small, status=2)
    check(done.returncode == 2 and b"tokenizer" in done.stderr, "another tokenizer is refused")


# ---- gpt2 ----

# Run by PYTHON: ids of each record by tiktoken, from GPT-2's files.
TIKTOKEN = r"""
import array, struct, sys, tiktoken
from tiktoken.load import data_gym_to_mergeable_bpe_ranks
folder, source, target = sys.argv[1:4]
ranks = data_gym_to_mergeable_bpe_ranks(folder + "/vocab.bpe", folder + "/encoder.json")
pattern = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
encoding = tiktoken.Encoding("gpt2", pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256})
data, at = open(source, "rb").read(), 0
with open(target, "wb") as out:
    while at < len(data):
        count = struct.unpack_from("=I", data, at)[0]
        ids = encoding.encode_ordinary(data[at + 4:at + 4 + count].decode())
        out.write(struct.pack("=I", len(ids)) + array.array("i", ids).tobytes())
        at += 4 + count
"""


def test_shakespeare():
    path = os.path.join(SHAKESPEARE, "input.txt")
    if not os.path.exists(path):
        skip("tokenizer_tinyshakespeare", "no tinyshakespeare; set TINYSHAKESPEARE_DIR")
        return
    environment = {**os.environ, "GPT_TRAIN_TOKENIZER_DIR": GPT2}
    run(GPT_PREPARE, "--tokenizer=gpt2", "--out-dir=data/shakespeare", path, env=environment)
    counts = (len(tokens("data/shakespeare/train.bin")), len(tokens("data/shakespeare/val.bin")))
    check(counts == (301966, 36059), f"nanoGPT's data/shakespeare has 301,966 and 36,059 tokens, this {counts}")
    parts = read(path).split(b"\n\n")
    ids, _ = encode(GPT2, [part + b"\n\n" for part in parts[:-1]] + parts[-1:])
    # llm.c's dev/data/tinyshakespeare.py: an end-of-text before each part; the first 32,768 tokens validate.
    count = sum(len(part) + 1 for part in ids) - 32768
    check(count == 305260, f"llm.c's tinyshakespeare has 305,260 tokens to train on, this {count}")


def test_gpt2():
    if not os.path.exists(os.path.join(GPT2, "vocab.bpe")):
        skip("tokenizer_gpt2", "no GPT-2 vocabulary; set GPT2_VOCAB_DIR")
        return
    test_shakespeare()
    texts = odd_texts(21) + [read(name) for name in source_files()]
    ids, good = encode(GPT2, texts)
    check(good and decode(GPT2) == texts, "every character comes back")
    noise = odd_bytes(22)
    encode(GPT2, noise)
    check(decode(GPT2) == noise, "every byte comes back")
    order = sorted((number, text) for text, number in read_json(os.path.join(GPT2, "encoder.json")).items() if text != EOT)
    write_tiktoken([text for _, text in order])
    check(encode("gpt2.tiktoken", texts)[0] == ids, "the same ids by ranks of tokens (.tiktoken)")
    if subprocess.run([PYTHON, "-c", "import tiktoken"], capture_output=True, check=False).returncode != 0:
        skip("tokenizer_tiktoken", "no Python with tiktoken (PYTHON_TOKENIZERS)")
        return
    write_records("texts.rec", texts)
    run(PYTHON, "-c", TIKTOKEN, GPT2, "texts.rec", "tiktoken.rec")
    theirs = [array.array("i", record).tolist() for record in read_records("tiktoken.rec", 4)]
    wrong = sum(a != b for a, b in zip(ids, theirs))
    check(len(theirs) == len(ids) and wrong == 0, f"tiktoken: {wrong} of {len(ids)} texts have other ids")


def write_tiktoken(order):
    """Writes GPT-2's tokens as a .tiktoken file."""
    table = {letter: byte for byte, letter in enumerate(byte_letters())}
    write("gpt2.tiktoken", "".join(f"{base64.b64encode(bytes(table[character] for character in text)).decode()} {rank}\n"
                                   for rank, text in enumerate(order)))


# ---- tokenizers ----

# Run by PYTHON: a tokenizer.json's ids for each record, and the merges that its own trainer finds in the last record.
HUGGING_FACE = r"""
import array, json, struct, sys
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
loaded = Tokenizer.from_file(sys.argv[1])
data, at, texts = open(sys.argv[2], "rb").read(), 0, []
while at < len(data):
    count = struct.unpack_from("=I", data, at)[0]
    texts.append(data[at + 4:at + 4 + count].decode())
    at += 4 + count
with open(sys.argv[3], "wb") as out:
    for text in texts:
        ids = loaded.encode(text).ids
        out.write(struct.pack("=I", len(ids)) + array.array("i", ids).tobytes())
trained = Tokenizer(models.BPE())
trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
alphabet = pre_tokenizers.ByteLevel.alphabet()
trainer = trainers.BpeTrainer(vocab_size=699, special_tokens=[], initial_alphabet=alphabet, show_progress=False)
trained.train_from_iterator([texts[-1]], trainer)
ours, theirs = (json.loads(each.to_str())["model"]["merges"] for each in (loaded, trained))
print(json.dumps({"same_merges": ours == theirs, "merges": len(theirs)}))
"""


def test_hugging_face():
    if subprocess.run([PYTHON, "-c", "import tokenizers"], capture_output=True, check=False).returncode != 0:
        skip("tokenizer_hugging_face", "no Python with tokenizers (PYTHON_TOKENIZERS)")
        return
    # Their library replaces the special token's text anywhere; ours never does in a corpus.
    text = read("text.txt").decode(errors="replace").replace(EOT, "").encode()
    run(GPT_PREPARE, "--tokenizer=train", "--vocab-size=700", "--out-dir=data/hf", "-", input=text)
    texts = odd_texts(31) + [text]
    ids, _ = encode("data/hf", texts)
    done = run(PYTHON, "-c", HUGGING_FACE, "data/hf/tokenizer.json", "texts.rec", "hf.rec")
    theirs = [array.array("i", record).tolist() for record in read_records("hf.rec", 4)]
    wrong = sum(a != b for a, b in zip(ids, theirs))
    check(len(theirs) == len(ids) and wrong == 0,
          f"tokenizers: {wrong} of {len(ids)} texts have other ids")
    check(json.loads(done.stdout)["same_merges"], "tokenizers' trainer finds the same merges")


end(test_train, test_refusals, test_model, test_gpt2, test_hugging_face)
