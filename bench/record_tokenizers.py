#!/usr/bin/env python3
"""For published figures, not in CI: the splits of Llama 3, Qwen2 and 3.5, Phi-4-mini, SmolLM and GPT-2 against Hugging Face's tokenizers.

    bench/record_tokenizers.py --build=BUILD [--megabytes=10] [--vocab-size=8192] [--seed=1] [--work=FOLDER]

PYTHON needs tokenizers and transformers; BUILD needs tests/tools/tokenizer_tool, which `make check` builds.

The text is this machine's translations of programs (the .mo files below /usr/share; of record 95 languages and some
twenty-five scripts), this project's sources, and all code points, and characters of all scripts mixed at random, with runs of
white space, numbers, contractions and combining marks.  For each model a tokenizer.json with its layout is made: `tokenizers` trains
the vocabulary with the model's real expression.  Then both sides encode every document; the ids are compared one by one.

  gpt2     ByteLevel alone
  smollm   Digits and ByteLevel, special tokens inside the vocabulary
  llama3   its expression, ignore_merges (every seventh merge is taken out, and its token stays), a template with BOS
  qwen2    its expression, NFC, added tokens that are not special
  o200k    Phi-4-mini's expression, the same added tokens
  qwen3.5  its expression, NFC, the same added tokens

tokenizers 0.23 normalizes by Unicode 9: it does not know the classes of the marks that were added later (98 up to
Unicode 14), and leaves two such marks in the order of the text.  gpt-train puts them in order, as Unicode says.  These
marks are left out of the mixtures and counted.

Last, a small model is trained with each: AutoTokenizer of the run's folder and of the folder that gpt-export wrote must give
the ids of the tokenizer.json that was read, BOS included.
"""
import array
import gettext
import glob
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
import unicodedata

import tokenizers
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from common import TOP, options_of, run

FAMILY = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = "|".join([r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                  r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                  r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"])
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
TOOLS = ["<tool_call>", "</tool_call>", "<think>", "</think>"]
DOCUMENT = 1 << 14


# ---- tests/tools/tokenizer_tool and its files ----
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


# ---- text ----
def translations(source, size):
    names = sorted(glob.glob("/usr/share/**/*.mo", recursive=True))
    source.shuffle(names)
    texts, total = [], 0
    for name in names:
        if total >= size:
            break
        try:
            with open(name, "rb") as file:
                catalog = gettext.GNUTranslations(file)._catalog  # pylint: disable=protected-access
        except (OSError, UnicodeError, ValueError):
            continue
        text = "\n".join(value for value in catalog.values() if isinstance(value, str))[:200000]
        texts.append(text)
        total += len(text.encode(errors="ignore"))
    return texts


def sources(size):
    names = sorted(glob.glob(TOP + "/src/*/*.c") + glob.glob(TOP + "/backends/*/*.c") + glob.glob(TOP + "/doc/*.md"))
    texts, total = [], 0
    for name in names:
        with open(name, encoding="utf-8") as file:
            texts.append(file.read())
        total += len(texts[-1])
        if total >= size:
            break
    return texts


def unknown_marks():
    """The characters that `tokenizers` normalizes otherwise than Unicode does."""
    theirs, found = normalizers.NFC(), set()
    for character in map(chr, range(0x20000)):
        if unicodedata.category(character) in ("Mn", "Mc"):
            texts = ("a\u0301" + character, "a\u0318" + character, "a" + character + "\u0301", "a" + character + "\u0318")
            if any(theirs.normalize_str(text) != unicodedata.normalize("NFC", text) for text in texts):
                found.add(character)
    return found


def mixtures(source, size):
    """Characters of all assigned blocks; neighbours come from the same block, as in a text."""
    unknown = unknown_marks()
    print(f"{len(unknown)} marks that tokenizers does not know are left out of the mixtures")
    characters = [chr(code) for code in range(0x20000)
                  if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co") and chr(code) not in unknown]
    marks = [each for each in characters if unicodedata.combining(each)]
    common = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n", "\u00a0", "\u3000", "\u2028", "1", "12", "1234", "\u0663\u0664",
              "\u00b2", "\u2167", "'s", "'LL", "'\u017f", "\u2019s", ".", "...\n", "!?\r\n", "a", "Re", "\U0001f600",
              *TOOLS, "<|endoftext|>"]
    # A letter follows what is unassigned here: it may be a mark of a newer Unicode, whose order only gpt-train knows.
    every = (chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000 and chr(code) not in unknown)
    texts, total = ["".join(each + "a" * (unicodedata.category(each) == "Cn") for each in every)], 0
    while total < size:
        parts = []
        for _ in range(400):
            at, draw = source.randrange(len(characters)), source.random()
            if draw < 0.5:
                parts += [characters[(at + source.randrange(40)) % len(characters)] for _ in range(source.randrange(1, 8))]
            elif draw < 0.6:
                parts += [characters[at], source.choice(marks), source.choice(marks)]
            else:
                parts.append(source.choice(common))
        texts.append("".join(parts))
        total += len(texts[-1].encode())
    return texts


def documents(options):
    source, size = random.Random(options.seed), options.megabytes * 1000000
    texts = translations(source, 0.7 * size) + sources(0.1 * size)
    texts += mixtures(source, size - sum(len(text.encode(errors="ignore")) for text in texts))
    cut = [text[at:at + DOCUMENT] for text in texts for at in range(0, len(text), DOCUMENT)]
    return [text.encode(errors="ignore").decode() for text in cut]


# ---- tokenizers ----
def byte_level(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def split(regex):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated"), byte_level(False)])


SPLITS = {"gpt2": lambda: byte_level(True),
          "smollm": lambda: pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(True)]),
          "llama3": lambda: split(FAMILY % r"\p{N}{1,3}"), "qwen2": lambda: split(FAMILY % r"\p{N}"),
          "o200k": lambda: split(O200K), "qwen3.5": lambda: split(QWEN35)}


def added(number, text, special):
    return {"id": number, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": special}


def make(name, texts, vocab_size):
    """Returns tokenizer.json as the model's own is laid out."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = SPLITS[name]()
    if name in ("qwen2", "qwen3.5"):
        tokenizer.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"] if name == "smollm" else [])
    tokenizer.train_from_iterator(texts, trainer)
    root = json.loads(tokenizer.to_str())
    byte_step = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    root["decoder"] = root["post_processor"] = byte_step
    count = len(root["model"]["vocab"])
    if name == "gpt2":
        root["added_tokens"] = [added(count, "<|endoftext|>", True)]
    if name in ("qwen2", "qwen3.5", "o200k"):
        specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
        root["added_tokens"] = [added(count + i, text, i < 3) for i, text in enumerate(specials + TOOLS)]
    if name == "llama3":
        specials = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]
        root["added_tokens"] = [added(count + i, text, True) for i, text in enumerate(specials)]
        root["model"]["ignore_merges"] = True
        root["model"]["merges"] = [merge for i, merge in enumerate(root["model"]["merges"]) if i % 7 != 6 or i < 500]
        single = [{"SpecialToken": {"id": specials[0], "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
        root["post_processor"] = {"type": "Sequence", "processors": [byte_step, {
            "type": "TemplateProcessing", "single": single, "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {specials[0]: {"id": specials[0], "ids": [count], "tokens": [specials[0]]}}}]}
    return root


# ---- comparing ----
def ids_here(options, folder, texts):
    write_records("texts.rec", texts)
    done = tool(options, "encode", folder, 1, "texts.rec", "ids.rec")
    return read_ids("ids.rec"), done["seconds"]


def ids_there(folder, texts):
    tokenizer = Tokenizer.from_file(folder + "/tokenizer.json")
    tokenizer.encode_special_tokens = True  # the text of special tokens is text, as in gpt-prepare
    begin = time.perf_counter()
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in texts], time.perf_counter() - begin


def first_difference(texts, ours, theirs):
    for text, a, b in zip(texts, ours, theirs):
        if a != b:
            at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
            print("differs:", a[at - 3:at + 5], b[at - 3:at + 5], ascii(text[:60]))
            return


def compare(options, name, texts):
    os.makedirs(name)
    root = make(name, texts[::4], options.vocab_size)
    with open(name + "/tokenizer.json", "w", encoding="utf-8") as file:
        json.dump(root, file, ensure_ascii=False)
    ours, seconds = ids_here(options, "./" + name, texts)
    theirs, their_seconds = ids_there(name, texts)
    wrong = sum(a != b for a, b in zip(ours, theirs))
    mb = sum(len(text.encode()) for text in texts) / 1e6
    print(f"| {name} | {len(root['model']['vocab']) + len(root['added_tokens'])} | {mb:.2f} | {len(texts)} | "
          f"{sum(map(len, theirs))} | {'identical' if wrong == 0 else f'{wrong} DOCUMENTS DIFFER'} | {mb / seconds:.1f} | "
          f"{mb / their_seconds:.1f} |", flush=True)
    if wrong:
        first_difference(texts, ours, theirs)
    return wrong == 0


def through_transformers(options, name, texts):
    """Trains two updates, exports, and opens both folders in transformers."""
    from transformers import AutoTokenizer  # pylint: disable=import-outside-toplevel
    with open("text.txt", "w", encoding="utf-8") as file:
        file.write("".join(texts[:20]))
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    program = {word: os.path.join(options.build, "gpt-" + word) for word in ("prepare", "train", "export")}
    subprocess.run([program["prepare"], "--tokenizer=./" + name, "--out-dir=data/" + name, "text.txt"], **quiet)
    subprocess.run([program["train"], "--dataset=./data/" + name, "--arch=llama", "--n_layer=1", "--n_head=2", "--n_embd=16",
                    "--block_size=32", "--batch_size=2", "--gradient_accumulation_steps=1", "--max_iters=2", "--eval_iters=1",
                    "--out_dir=out-" + name], **quiet)
    subprocess.run([program["export"], "--format=hf", "--out_dir=out-" + name, "hf-" + name], **quiet)
    reference = Tokenizer.from_file(name + "/tokenizer.json")
    wanted = [reference.encode(text).ids for text in texts]
    good = [[AutoTokenizer.from_pretrained(folder + name)(text)["input_ids"] for text in texts] == wanted
            for folder in ("./out-", "./hf-")]
    print(f"{name}: AutoTokenizer of out_dir and of the export: ids {'identical' if all(good) else 'DIFFERENT'}", flush=True)
    return all(good)


def main():
    options = options_of(__doc__, build=".", megabytes=10, vocab_size=8192, seed=1, work="")
    os.environ["RAYON_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory(prefix="record-tokenizers-", dir=options.work or None) as work:
        os.chdir(work)
        texts = documents(options)
        print(f"tokenizers {tokenizers.__version__}, one thread each")
        print("| split | tokens | MB | documents | ids | ids equal | gpt-train MB/s | tokenizers MB/s |\n|-|-|-|-|-|-|-|-|")
        good = all([compare(options, name, texts) for name in SPLITS])
        good = all([through_transformers(options, name, texts[::100]) for name in SPLITS]) and good
        os.chdir("/")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
