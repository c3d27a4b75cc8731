#!/usr/bin/env python3
"""tokenizer.json of Llama 3, Qwen2 and SmolLM, made here, against a plain encoder that is written from their definition:
hand-written splits over unicodedata's categories, merges one by one.

  ids       of odd texts: splits, ignore_merges, added tokens, NFC, merges as pairs and as texts
  prepare   BOS and end-of-text around documents; a text that gpt-prepare cuts into parts has the ids of the whole
  model     a folder as it is downloaded goes on training on a text, in the Hub's cache too; gpt-sample encodes and decodes;
            the files that gpt-train and gpt-export write say the same as the one that was read; other tokens are refused
  unknown   bytes without a token, as SmolLM2's vocabulary has 21: left out or the unknown token, counted and warned about
  normal    added tokens that are found in normalized text
  marks     the BPE of characters of Llama 2, Mistral, Gemma and Phi 3: marks for spaces, tokens for bytes, added tokens that
            eat white space; parts of a text have the ids of the whole; exports, and what GGUF has of it
  refusals  what would change ids and is not supported, by name
"""
import array
import functools
import json
import os
import random
import re
import shutil
import struct
import unicodedata

from checks import (BUILD, GPT_EXPORT, GPT_PREPARE, GPT_SAMPLE, GPT_TRAIN, byte_letters, check, end, error_lines, merged, read,
                    read_json, run, write, write_json)
from gguf_file import Gguf

TOOL = os.environ.get("TOKENIZER_TOOL", os.path.join(BUILD, "tests", "tools", "tokenizer_tool"))
HAS_NFC = b"#define HAVE_ICU 1" in read(os.path.join(BUILD, "config.h"))
SPACES = set(map(chr, [*range(9, 14), 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000]))
ENDINGS = ("s", "t", "re", "ve", "m", "ll", "d")
REGEX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = "|".join([r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                  r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                  r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"])
TEKKEN = O200K.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace("{1,3}", "")
BYTE_STEP = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}


# ---- the plain encoder ----
def kind(character):
    """Returns "S", "L", "N", or "O" for everything else."""
    category = unicodedata.category(character)[0]
    return "S" if character in SPACES else category if category in "LN" else "O"


def run_end(text, at, wanted, most=1 << 30):
    begin = at
    while at < len(text) and at - begin < most and kind(text[at]) == wanted:
        at += 1
    return at


def spaces_end(text, at):
    """The end of a piece of white space: its last character goes to what follows."""
    last = run_end(text, at, "S")
    return last if last == len(text) or last == at + 1 else last - 1


def ending_end(text, at, fold):
    if text[at] == "'":
        for ending in ENDINGS:
            if fold(text[at + 1:at + 1 + len(ending)]) == ending:
                return at + 1 + len(ending)
    return at


def gpt2_end(text, at):
    found = ending_end(text, at, str)
    for wanted in "LNO":
        begin = at + (text[at] == " ")
        if found == at and run_end(text, begin, wanted) > begin:
            found = run_end(text, begin, wanted)
    return found if found > at else spaces_end(text, at)


def family_end(text, at, digits):
    found = ending_end(text, at, str.casefold)
    if found > at:
        return found
    begin = at + (kind(text[at]) in "OS" and text[at] not in "\r\n")
    if run_end(text, begin, "L") > begin:
        return run_end(text, begin, "L")
    if kind(text[at]) == "N":
        return run_end(text, at, "N", digits)
    begin = at + (text[at] == " ")
    found = run_end(text, begin, "O")
    if found > begin:
        while found < len(text) and text[found] in "\r\n":
            found += 1
        return found
    newlines = [place for place in range(at, run_end(text, at, "S")) if text[place] in "\r\n"]
    return newlines[-1] + 1 if newlines else spaces_end(text, at)


def cased_end(text, at, least, endings):
    """The end of [upper]* and [lower]+ behind at most one sign, of [upper]+ and [lower]* if `least` is 1; `at` if there is none."""
    def run_of(place, letters):
        while place < len(text) and unicodedata.category(text[place]) in letters:
            place += 1
        return place
    signed = kind(text[at]) in "OS" and text[at] not in "\r\n"
    for begin in ([at + 1] if signed else []) + [at]:
        for middle in range(run_of(begin, UPPER), begin - 1 + least, -1):
            end = run_of(middle, LOWER)
            if end > middle - least:
                return max((ending_end(text, end, str.casefold) if endings and end < len(text) else end), end)
    return at


def o200k_end(text, at, endings=True, digits=3):
    for least in (0, 1):
        if cased_end(text, at, least, endings) > at:
            return cased_end(text, at, least, endings)
    found = family_end(text, at, digits) if kind(text[at]) != "L" else at + 1
    signs = at + (text[at] == " ")
    if run_end(text, signs, "O") > signs:
        found = run_end(text, signs, "O")
        while found < len(text) and text[found] in "\r\n/":
            found += 1
    return found


def pieces_of(text, piece_end):
    at, pieces = 0, []
    while at < len(text):
        after = piece_end(text, at)
        pieces.append(text[at:after])
        at = after
    return pieces


def smollm_pieces(text):
    """Cuts at the digits first, then each part as GPT-2's."""
    pieces, part = [], ""
    for character in text:
        if kind(character) == "N":
            pieces += pieces_of(part, gpt2_end) + [character]
            part = ""
        else:
            part += character
    return pieces + pieces_of(part, gpt2_end)


UPPER, LOWER = {"Lu", "Lt", "Lm", "Lo", "Mn", "Mc", "Me"}, {"Ll", "Lm", "Lo", "Mn", "Mc", "Me"}
SPLITS = {"o200k": lambda text: pieces_of(text, o200k_end), "smollm": smollm_pieces, "llama3": lambda text: pieces_of(text, lambda t, at: family_end(t, at, 3)),
          "tekken": lambda text: pieces_of(text, lambda t, at: o200k_end(t, at, False, 1)),
          "qwen2": lambda text: pieces_of(text, lambda t, at: family_end(t, at, 1))}


class Plain:
    """A tokenizer.json as its fields say."""

    def __init__(self, name, root):
        self.split, self.cache = SPLITS[name], {}
        self.nfc, self.ignores = root["normalizer"] == {"type": "NFC"}, root["model"].get("ignore_merges", False)
        self.vocab = root["model"]["vocab"]
        pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in root["model"]["merges"]]
        self.ranks = {tuple(pair): rank for rank, pair in enumerate(pairs)}
        self.literals = {token["content"]: token["id"] for token in root["added_tokens"] if not token["special"]}
        self.specials = {token["content"]: token["id"] for token in root["added_tokens"]}

    def piece(self, text):
        if text not in self.cache:
            parts = [ALPHABET[byte] for byte in text.encode()]
            if self.ignores and "".join(parts) in self.vocab:
                parts = ["".join(parts)]
            self.cache[text] = [self.vocab[part] for part in merged(parts, self.ranks)]
        return self.cache[text]

    def ordinary(self, text):
        text = unicodedata.normalize("NFC", text) if self.nfc else text
        return [number for piece in self.split(text) for number in self.piece(piece)]

    def encode(self, text):
        ids, begin, at = [], 0, 0
        while at < len(text):
            found = max((word for word in self.literals if text.startswith(word, at)), key=len, default="")
            if found:
                ids += self.ordinary(text[begin:at]) + [self.literals[found]]
                begin = at + len(found)
            at = at + len(found) if found else at + 1
        return ids + self.ordinary(text[begin:])


ALPHABET = byte_letters()


# ---- the fixtures ----
def words(count, seed):
    source = random.Random(seed)
    parts = ["the", " the", "The", " other", "mother", "'s", "'LL", " 12", "345", "6789", ".", ", ", "!!", ".\n", "\n", "\n\n",
             " \n ", "  ", "\r\n", "\t", "x=1;", "\u00e9t\u00e9", "e\u0301", " \u65e5\u672c", "\u3002", "\U0001f600", "'\u017fx", "'REx"]
    return "".join(source.choice(parts) for _ in range(count))


def merges_learned(lists, count):
    merges = []
    for _ in range(count):
        pairs = {}
        for pair in (pair for parts in lists for pair in zip(parts, parts[1:])):
            pairs[pair] = pairs.get(pair, 0) + 1
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(list(best))
        for parts in lists:
            for at in range(len(parts) - 1, 0, -1):
                if at < len(parts) and (parts[at - 1], parts[at]) == best:
                    parts[at - 1:at + 1] = ["".join(best)]
    return merges


@functools.cache
def merges_of(text, count):
    """Learns merges from windows of the text, so that they cross the borders of every split."""
    return merges_learned([[ALPHABET[byte] for byte in text[at:at + 9].encode()] for at in range(0, len(text), 9)], count)


def added(first, special, *texts):
    return [{"id": first + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": special} for i, text in enumerate(texts)]


def split_step(number):
    return {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": REGEX % number}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}


def make(name):
    """Returns tokenizer.json with the layout of the model's own."""
    merges = merges_of(words(3000, 5), 150)
    texts = [ALPHABET[byte] for byte in range(256)] + list(dict.fromkeys("".join(merge) for merge in merges))
    vocab = {text: number for number, text in enumerate(texts)}
    count = len(vocab)
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
             "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": merges}
    root = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "post_processor": BYTE_STEP,
            "decoder": BYTE_STEP, "model": model}
    if name == "smollm":
        root["added_tokens"] = added(0, True, "<|endoftext|>", "<|im_start|>", "<|im_end|>")
        model["vocab"] = {**{token["content"]: token["id"] for token in root["added_tokens"]},
                          **{text: number + 3 for text, number in vocab.items()}}
        model["merges"] = [" ".join(merge) for merge in merges]
        root["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]}
    elif name in ("o200k", "tekken"):
        root["added_tokens"] = added(count, True, "<|endoftext|>") + added(count + 1, False, "<|user|>")
        root["pre_tokenizer"] = split_step(r"\p{N}{1,3}")
        root["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = O200K if name == "o200k" else TEKKEN
    elif name == "llama3":
        root["normalizer"] = {"type": "Sequence", "normalizers": []}
        root["added_tokens"] = added(count, True, "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>")
        model["ignore_merges"], model["merges"] = True, [merge for i, merge in enumerate(merges) if i % 4 != 3]
        root["pre_tokenizer"] = split_step(r"\p{N}{1,3}")
        single = [{"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
        root["post_processor"] = {"type": "Sequence", "processors": [BYTE_STEP, {
            "type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": {
                "<|begin_of_text|>": {"id": "<|begin_of_text|>", "ids": [count], "tokens": ["<|begin_of_text|>"]}}}]}
    else:
        root["added_tokens"] = added(count, True, "<|endoftext|>", "<|im_start|>") + added(count + 2, False, "<think>", "</think>")
        root["pre_tokenizer"], root["normalizer"] = split_step(r"\p{N}"), {"type": "NFC"}
    return root


NAMES = ["smollm", "llama3", "o200k", "tekken"] + (["qwen2"] if HAS_NFC else [])


def begin():
    for name in NAMES:
        write_json(name + "/tokenizer.json", make(name))


def plain(name):
    return Plain(name, read_json(name + "/tokenizer.json"))


# ---- the parts ----
def odd_texts():
    source = random.Random(7)
    characters = [chr(code) for code in range(0x20000) if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")]
    marks = [character for character in characters if unicodedata.combining(character)]
    common = [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u0085", "a", "E", "1", "23", "456", "\u0663", "\u00bd", "'", "'s",
              "'\u017f", "'\u017fx", "'RE", "x", "\u2019", "!", ".\n", "\u00e9", "e\u0301", "\u212b", "\u0958", "\u1100\u1161\u11a8", "\u65e5", "\U0001f600",
              "<think>", "<think", "</think>", "<|endoftext|>", "the", " other"]
    # The first and last of each run of one category, and every eighth between them.
    kinds = [unicodedata.category(character) for character in characters]
    edges = [character for at, character in enumerate(characters) if at % 8 == 0 or kinds[at - 1:at + 2] != [kinds[at]] * 3]
    texts = ["".join(edges[at:at + 48]) for at in range(0, len(edges), 48)]
    for _ in range(2500):
        draws = [source.random() for _ in range(source.randrange(1, 30))]
        texts.append("".join(source.choice(common if draw < 0.8 else marks if draw < 0.9 else characters) for draw in draws))
    return texts + ["\u0958" * 50, " " * 300 + "x", "12345678" * 40, "a" + "\u0316\u0301" * 40, "\n \n" * 90 + "."]


def test_ids():
    texts = odd_texts()
    write("texts.rec", b"".join(struct.pack("=I", len(text)) + text for text in map(str.encode, texts)))
    for name in NAMES:
        run(TOOL, "encode", "./" + name, "2", "texts.rec", "ids.rec")
        data, at, oracle, wrong = read("ids.rec"), 0, plain(name), []
        for text in texts:
            count = 4 * struct.unpack_from("=I", data, at)[0]
            ids = array.array("i", data[at + 4:at + 4 + count]).tolist()
            at += 4 + count
            wrong += [text] if ids != oracle.encode(text) else []
        check(not wrong, f"{name}: {len(wrong)} of {len(texts)} texts have other ids: {ascii(wrong[:3])}")
    if not HAS_NFC:
        write_json("qwen2/tokenizer.json", make("qwen2"))
        done = run(TOOL, "encode", "./qwen2", "1", "texts.rec", "ids.rec", status=2)
        check("without ICU" in done.stderr, done.stderr)


def tokens(folder):
    return [number for name in ("train.bin", "val.bin") if os.path.exists(f"{folder}/{name}")
            for number in array.array("H", read(f"{folder}/{name}"))]


def test_prepare():
    documents = ["The other 12.\n", "x <think>e\u0301</think> <|endoftext|>", "12345"]
    write("two.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in documents))
    source = random.Random(3)
    # More than the 256 KiB of a part; nothing but newlines after signs to cut at.
    write("long.txt", "".join(source.choice(["\u65e5\u672c", "the", "12345"]) + source.choice(["\u3002", ".\n", "!!.\n", "x"])
                              for _ in range(45000)))
    for name in NAMES:
        oracle = plain(name)
        bos = [oracle.specials["<|begin_of_text|>"]] if name == "llama3" else []
        eot = [oracle.specials["<|end_of_text|>" if name == "llama3" else "<|endoftext|>"]]
        run(GPT_PREPARE, "--tokenizer=" + name, "--val-fraction=0", "--out-dir=data/two", "two.jsonl")
        check(tokens("data/two") == [number for text in documents for number in bos + oracle.encode(text) + eot], name + ": documents")
        run(GPT_PREPARE, "--tokenizer=" + name, "--out-dir=data/" + name, "long.txt")
        check(tokens("data/" + name) == bos + oracle.encode(read("long.txt").decode()), name + ": a text in parts")


def same_file(name, path):
    """Compares tokenizer.json files; merges are texts in one, perhaps pairs in the other."""
    roots = [read_json(name + "/tokenizer.json"), read_json(path)]
    for root in roots:
        root["model"]["merges"] = [merge if isinstance(merge, str) else " ".join(merge) for merge in root["model"]["merges"]]
    return roots[0] == roots[1]


def key(name, number, value):
    return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", number) + value


def check_exports(name, oracle):
    bos = oracle.specials["<|begin_of_text|>" if name == "llama3" else "<|endoftext|>"]
    eot = oracle.specials["<|end_of_text|>" if name == "llama3" else "<|endoftext|>"]
    check(same_file(name, "out/tokenizer.json"), name + ": out_dir has the tokenizer.json that was read")
    run(GPT_EXPORT, "--format=hf", "--evaluate=0", "hf")
    config, words_of = read_json("hf/config.json"), read_json("hf/tokenizer_config.json")
    check(read_json("hf/generation_config.json")["eos_token_id"] == eot and "chat_template" not in words_of, name + ": where samples end")
    check(same_file(name, "hf/tokenizer.json") and (config["bos_token_id"], config["eos_token_id"]) == (bos, eot) and
          (oracle.specials[words_of["bos_token"]], oracle.specials[words_of["eos_token"]]) == (bos, eot) and
          not os.path.exists("hf/vocab.json"), name + ": exported folder")
    run(GPT_EXPORT, "--format=gguf", "--evaluate=0", "--force", "model.gguf")
    data, pre = read("model.gguf"), {"llama3": "llama-bpe", "o200k": "gpt-4o"}.get(name, name).encode()
    wanted = [key("tokenizer.ggml.pre", 8, struct.pack("<Q", len(pre)) + pre),
              key("tokenizer.ggml.add_bos_token", 7, bytes([name == "llama3"])),
              key("tokenizer.ggml.bos_token_id", 4, struct.pack("<I", bos)), key("tokenizer.ggml.eos_token_id", 4, struct.pack("<I", eot))]
    check(all(each in data for each in wanted), name + ": keys of the GGUF")
    types = data[data.index(b"tokenizer.ggml.token_type") + 25 + 4 + 4 + 8:]
    found = struct.unpack_from(f"<{config['vocab_size']}i", types)
    check(all(found[number] == (4 if text in oracle.literals else 3) for text, number in oracle.specials.items()), name + ": types")
    shutil.rmtree("hf")


def test_model():
    small = ["--n_layer=1", "--n_head=2", "--n_embd=16", "--block_size=32", "--batch_size=2", "--eval_iters=1", "--threads=1",
             "--max_iters=2", "--gradient_accumulation_steps=1", "--eval_interval=1"]
    write("more.txt", words(3000, 9))
    for name in NAMES:
        oracle = plain(name)
        run(GPT_PREPARE, "--tokenizer=" + name, "--out-dir=data/more", "more.txt")
        run(GPT_TRAIN, "--dataset=./data/more", "--arch=" + ("qwen3" if name == "qwen2" else "llama"), "--out_dir=out", *small)
        check_exports(name, oracle)
        for file in ("config.json", "model.safetensors"):
            shutil.copy("out/" + file, name)
        shutil.rmtree("out")
        run(GPT_TRAIN, "--dataset=./data/more", "--init_from=" + name, "--out_dir=out", "--learning_rate=1e-3", *small[3:])
        prompt = "e\u0301 The 12345 <think>" if name != "qwen2" else "\u00e9 The 12345 <think>"
        done = run(GPT_SAMPLE, "--start=" + prompt, "--num_samples=1", "--max_new_tokens=1", "--threads=1")
        check(done.stdout.startswith(prompt), f"{name}: gpt-sample says {done.stdout!r}")
        shutil.rmtree("out")
    snapshot = "hub/models--Own--Tiny-1/snapshots/0abc"
    write("hub/models--Own--Tiny-1/refs/main", "0abc")
    shutil.copytree(NAMES[-1], snapshot)
    at_hub = dict(os.environ, HF_HUB_CACHE="hub")
    run(GPT_PREPARE, "--tokenizer=Own/Tiny-1", "--out-dir=data/hub", "more.txt", env=at_hub)
    check(tokens("data/hub") == tokens("data/more"), "the tokenizer of a model in the cache")
    run(GPT_TRAIN, "--dataset=./data/hub", "--init_from=Own/Tiny-1", "--out_dir=out", *small[3:], env=at_hub)
    for done in (run(GPT_PREPARE, "--tokenizer=Own/Tiny-2", "more.txt", env=at_hub, status=2),
                 run(GPT_TRAIN, "--dataset=./data/hub", "--init_from=Own/Tiny-2", env=at_hub, status=2)):
        check("hf download Own/Tiny-2" in done.stderr and len(error_lines(done)) == 1, done.stderr)
    run(GPT_PREPARE, "--tokenizer=train", "--vocab-size=300", "--out-dir=data/other", "more.txt")
    done = run(GPT_TRAIN, "--dataset=./data/other", "--init_from=llama3", "--out_dir=no", *small[3:], status=2)
    size = len(read_json("llama3/tokenizer.json")["model"]["vocab"]) + 3
    check("a tokenizer of 300 tokens" in done.stderr and f"has {size};" in done.stderr and not os.path.exists("no"), done.stderr)


HOLES = [0x04, 0x06, 0x13, 0x14, 0x16, 0x1D, 0xC0, 0xC1, 0xF1, 0xF2, *range(0xF5, 0x100)]  # of SmolLM2
LOST = re.compile("[\x04\x06\x13\x14\x16\x1d]")


def make_holes(**unknown):
    """The vocabulary of "smollm" without some bytes; `unknown`: the fields of model."""
    root = make("smollm")
    words_ = sorted(root["model"]["vocab"], key=root["model"]["vocab"].get)
    root["model"]["vocab"] = {word: number for number, word in enumerate(w for w in words_ if w not in [ALPHABET[b] for b in HOLES])}
    root["model"].update(unknown)
    return root


def encode(folder, *texts):
    """The ids of texts, from gpt-prepare, and what it says."""
    write("in.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in texts))
    done = run(GPT_PREPARE, "--tokenizer=" + folder, "--val-fraction=0", "--document-separator=none", "--out-dir=data/in", "in.jsonl")
    return tokens("data/in"), done.stderr


def test_unknown():
    write_json("holes/tokenizer.json", make_holes())
    oracle = plain("smollm")
    oracle.vocab, whole = read_json("holes/tokenizer.json")["model"]["vocab"], Plain.piece
    oracle.piece = lambda text: whole(oracle, LOST.sub("", text))  # what is left of a piece is adjacent
    ids, said = encode("holes", "the other 12.\n")
    check(ids == oracle.encode("the other 12.\n") and not said, said)
    texts = ["the", "\x04\x06\x04", "th\x04e mo\x13th\x1der 1\x162"]
    ids, said = encode("holes", *texts)
    check(ids == [number for text in texts for number in oracle.encode(text)], "bytes are left out")
    counts = "0x04 (3), 0x06 (1), 0x13 (1), 0x16 (1), 0x1D (1)"
    check("from in.jsonl: line 2 on: the vocabulary has no token for 7 bytes, which are left out: " + counts in said, said)
    check(read_json("data/in/manifest.json")["documents"]["bytes_without_token"] == 7, "the manifest counts them")
    write("in.txt", b"the\xf5\n\x04")
    done = run(GPT_PREPARE, "--tokenizer=holes", "--val-fraction=0", "--out-dir=data/in", "in.txt")
    check("in.txt: byte 3" in done.stderr and "2 bytes, which are left out: 0x04 (1), 0xF5 (1)" in done.stderr, done.stderr)
    write("in.txt", b"\x04" * 5)
    done = run(GPT_PREPARE, "--tokenizer=holes", "--val-fraction=0", "--out-dir=data/in", "in.txt", status=2)
    check(len(error_lines(done)) == 1, done.stderr)
    for fuse in (False, True):
        write_json("holes/tokenizer.json", make_holes(unk_token="<|endoftext|>", fuse_unk=fuse))
        ids, said = encode("holes", "a\x04\x06b")
        vocab = read_json("holes/tokenizer.json")["model"]["vocab"]
        check(ids == [vocab["a"], *[0] * (2 - fuse), vocab["b"]] and "2 bytes, which became <|endoftext|>" in said, f"{ids}: {said}")
        write_json("again/gpt_tokenizer.json", read_json("data/in/gpt_tokenizer.json"))
        check(encode("again", "a\x04\x06b")[0] == ids, "gpt_tokenizer.json keeps the unknown token")
    write_json("holes/tokenizer.json", make_holes(unk_token="<none>"))
    check(len(encode("holes", "a\x04b")[0]) == 2, "an unknown token that the vocabulary lacks")


def test_unknown_model():
    write_json("holes/tokenizer.json", make_holes())
    write("more.txt", words(3000, 9))
    run(GPT_PREPARE, "--tokenizer=holes", "--out-dir=data/more", "more.txt")
    run(GPT_TRAIN, "--dataset=./data/more", "--out_dir=out", "--n_layer=1", "--n_head=2", "--n_embd=16", "--block_size=32",
        "--batch_size=2", "--eval_iters=1", "--threads=1", "--max_iters=1", "--gradient_accumulation_steps=1")
    sample = (GPT_SAMPLE, "--num_samples=1", "--max_new_tokens=1", "--threads=1")
    done = run(*sample, "--start=the\x04 other")
    check("--start: the vocabulary has no token for 1 byte, which is left out: 0x04 (1)" in done.stderr and
          done.stdout.startswith("the other"), done.stderr + done.stdout)
    check("--start: no byte" in run(*sample, "--start=\x04", status=2).stderr, "a prompt of nothing else")
    done = run(*sample, "--chat=True", input="the\n\x13the\n")
    check(done.stderr.count("this message: the vocabulary has no token for 1 byte, which is left out: 0x13 (1)") == 1, done.stderr)
    run(GPT_EXPORT, "--format=hf", "--evaluate=0", "hf")
    run(GPT_EXPORT, "--format=gguf", "--evaluate=0", "--force", "model.gguf")
    check(same_file("holes", "hf/tokenizer.json") and same_file("holes", "out/tokenizer.json"), "the files keep the vocabulary")
    check(encode("hf", "th\x04e")[0] == encode("holes", "th\x04e")[0], "the exported folder as --tokenizer")
    check(struct.pack("<Q", 3) + b"the" in read("model.gguf"), "the GGUF has the tokens")
    shutil.rmtree("hf")
    shutil.rmtree("out")


def test_normal():
    root = make("llama3")
    if not HAS_NFC:
        return
    root.update(normalizer={"type": "NFC"}, post_processor=None)
    count = len(root["model"]["vocab"])
    root["added_tokens"] = [*added(count, True, "<|end_of_text|>"), *added(count + 1, False, "<tool>", "\u00e9t", "Kx", "ab", "\u65e5x", "bcd")]
    for token in root["added_tokens"][1:6]:
        token["normalized"] = True
    write_json("normal/tokenizer.json", root)
    whole = Plain("llama3", root)
    ids = whole.literals
    # The last one is found first, because it is not normalized; the others in what NFC made of the text between.
    for text, expected in (("e\u0301t", [ids["\u00e9t"]]), ("\u212ax<tool>", [ids["Kx"], ids["<tool>"]]), ("\u65e5x", [ids["\u65e5x"]]), ("abcd", [whole.vocab["a"], ids["bcd"]])):
        check(encode("normal", text)[0] == expected, f"{text!r}: {encode('normal', text)[0]}, expected {expected}")
        write_json("again/gpt_tokenizer.json", read_json("data/in/gpt_tokenizer.json"))
        check(encode("again", text)[0] == expected, f"{text!r} again")


def test_refusals():
    def refused(says, change):
        root = make("llama3")
        change(root)
        write_json("bad/tokenizer.json", root)
        done = run(GPT_PREPARE, "--tokenizer=bad", "--out-dir=data/bad", "two.jsonl", status=2)
        check(len(error_lines(done)) == 1 and says in done.stderr, f"{says}: {done.stderr}")

    write("two.jsonl", '{"text": "x"}\n')
    steps = make("llama3")["pre_tokenizer"]["pretokenizers"]
    other = json.dumps(REGEX % r"\p{N}{1,2}").strip('"')
    refused(other, lambda root: root.update(pre_tokenizer=split_step(r"\p{N}{1,2}")))
    refused('"behavior":"Removed"', lambda root: root["pre_tokenizer"]["pretokenizers"][0].update(behavior="Removed"))
    refused("pre_tokenizer.use_regex", lambda root: root["pre_tokenizer"]["pretokenizers"][1].update(use_regex=True))
    refused('"pre_tokenizer"', lambda root: root["pre_tokenizer"].update(pretokenizers=[*steps, steps[0]]))
    refused('"normalizer": {"type":"NFKC"}', lambda root: root.update(normalizer={"type": "NFKC"}))
    refused('"single_word":true', lambda root: root["added_tokens"][1].update(single_word=True))
    refused('"post_processor"', lambda root: root["post_processor"]["processors"][1]["single"].reverse())
    refused('"post_processor": 3 is the id', lambda root: root["post_processor"]["processors"][1]["special_tokens"][
        "<|begin_of_text|>"].update(ids=[3]))
    refused('"Metaspace" with U+2581', lambda root: root["model"].update(byte_fallback=True))
    refused("byte_fallback needs the tokens <0x00> to <0xFF>, and <0x00> is missing",
            lambda root: (root["model"].update(byte_fallback=True), root.update(pre_tokenizer=None, post_processor=None)))
    refused("this is a WordPiece vocabulary", lambda root: root["model"].update(type="WordPiece"))
    if HAS_NFC:
        refused("NFC leaves", lambda root: (root.update(normalizer={"type": "NFC"}),
                                            root["added_tokens"][0].update(normalized=True, content="e\u0301")))
    for name, content, says in (("tokenizer.model", b"\n\x0e\n\x05<unk>", "save_pretrained('.')"), ("tokenizer.model", b"IQ== 0\nIg== 1\n", "tiktoken's"),
                                ("tokenizer.model", b"a b\n", "SentencePiece"), ("tekken.json", b"{}", "tiktoken's"),
                                ("vocab.txt", b"[PAD]\n", "WordPiece")):
        shutil.rmtree("meta", ignore_errors=True)
        write("meta/" + name, content)
        write("meta/params.json", "{}")
        for given in ("meta/" + name, "meta"):
            done = run(GPT_PREPARE, "--tokenizer=" + given, "two.jsonl", status=2)
            check(len(error_lines(done)) == 1 and says in done.stderr and f"meta/{name}: " in done.stderr and
                  ("hf download OWNER/NAME tokenizer.json" in done.stderr) == (says == "tiktoken's"), f"{given}: {done.stderr}")
    # vocab.json and merges.txt are GPT-2's, unless a file beside them says otherwise, or their merges do.
    model = make("llama3")["model"]
    write_json("pair/vocab.json", model["vocab"])
    own = [merge for merge in model["merges"] if re.fullmatch("Ġ?[a-z]+", "".join(merge))]
    for merges, config, says in ((own, {"tokenizer_class": "GPT2Tokenizer"}, None), (own, {"tokenizer_class": "Qwen2Tokenizer"}, "save_pretrained('.')"),
                                 (own, {"add_bos_token": True}, "save_pretrained('.')"), (model["merges"], {}, "not made with GPT-2's split")):
        write("pair/merges.txt", "".join(" ".join(merge) + "\n" for merge in merges))
        write_json("pair/tokenizer_config.json", config)
        done = run(GPT_PREPARE, "--tokenizer=pair", "--val-fraction=0", "--out-dir=paired", "two.jsonl", status=2 if says else 0)
        check(says is None or says in done.stderr, done.stderr)
    # Digits that are split apart: a large vocabulary without numbers.
    letters = [chr(ord("a") + i) for i in range(26)]
    pairs = [(a, b) for a in letters for b in letters]
    joined = pairs + [(a + b, c) for a, b in pairs for c in letters[:25]]
    for number in ((), (("1", "2"),)):
        merges = [*number, *joined]
        vocab = [token for token, i in sorted(model["vocab"].items(), key=lambda item: item[1]) if len(token) == 1]
        vocab += [a + b for a, b in merges]
        write_json("digits/vocab.json", {token: i for i, token in enumerate(vocab)})
        write("digits/merges.txt", "".join(f"{a} {b}\n" for a, b in merges))
        done = run(GPT_PREPARE, "--tokenizer=digits", "--val-fraction=0", "--out-dir=digital", "two.jsonl", status=0 if number else 2)
        check(number or "has two digits, so that digits are split apart" in done.stderr, done.stderr)
    # What a refusal advises.
    os.makedirs("data/numpy")
    for split, count in (("train", 300), ("val", 100)):
        head = "{'descr': '<u2', 'fortran_order': False, 'shape': (%d,), }" % count
        write(f"data/numpy/my_{split}.npy", b"\x93NUMPY\1\0" + struct.pack("<H", 118) + head.ljust(117).encode() + b"\n" + bytes(range(5)) * (count * 2 // 5))
    run(GPT_TRAIN, "--dataset=numpy", "--out_dir=numpy-out", "--vocab_size=1285", "--n_layer=1", "--n_head=1", "--n_embd=8", "--block_size=8",
        "--batch_size=1", "--gradient_accumulation_steps=1", "--eval_iters=1", "--max_iters=0", "--threads=1")
    os.rename("data/numpy/my_train.npy", "data/numpy/ids.npy")
    done = run(GPT_TRAIN, "--dataset=numpy", status=2)
    check("if ids.npy has token ids, name it train.npy" in done.stderr, done.stderr)
    own = read_json("data/llama3/gpt_tokenizer.json") if os.path.exists("data/llama3") else None
    for change in ({"split": "qwen2"}, {"special": []}, {"pipeline": {}}) if own else ():
        write_json("bad/gpt_tokenizer.json", {**own, **change})
        check(len(error_lines(run(GPT_PREPARE, "--tokenizer=bad", "two.jsonl", status=2))) == 1, f"gpt_tokenizer.json: {change}")


# ---- vocabularies of characters ----
MARK = "\u2581"


class Marks:
    """A tokenizer.json of characters as its fields say: merges one by one over the whole text between added tokens."""

    def __init__(self, root):
        self.root, self.vocab = root, root["model"]["vocab"]
        self.ranks = {tuple(pair): rank for rank, pair in enumerate(root["model"]["merges"])}
        self.literals = {token["content"]: token for token in root["added_tokens"] if not token["special"]}

    def merge(self, text):
        parts = [part for character in text for part in
                 ([character] if character in self.vocab else [f"<0x{byte:02X}>" for byte in character.encode()])]
        return [self.vocab[part] for part in merged(parts, self.ranks)]

    def between(self, text, begins):
        if not text:
            return []
        steps = (self.root["normalizer"] or {"normalizers": []})["normalizers"]
        for step in steps:
            text = step["prepend"] + text if step["type"] == "Prepend" else text.replace(" ", MARK)
        space = self.root["pre_tokenizer"]
        if space is None:
            return self.merge(text)
        text = text.replace(" ", MARK)
        if not text.startswith(MARK) and (space["prepend_scheme"] == "always" or (space["prepend_scheme"] == "first" and begins)):
            text = MARK + text
        pieces = re.split(f"(?={MARK})", text) if space["split"] else [text]
        return [number for piece in pieces for number in self.merge(piece)]

    def encode(self, text):
        ids, begin, at = [], 0, 0
        while at < len(text):
            found = max((word for word in self.literals if text.startswith(word, at)), key=len, default="")
            token, end = self.literals.get(found), at + max(len(found), 1)
            if token:
                ends = at
                while token["lstrip"] and ends > begin and text[ends - 1].isspace():
                    ends -= 1
                ids += self.between(text[begin:ends], begin == 0) + [token["id"]]
                while token["rstrip"] and end < len(text) and text[end].isspace():
                    end += 1
                begin = end
            at = end
        return ids + self.between(text[begin:], begin == 0)


@functools.cache
def marked_merges(pattern):
    """Returns a text with marks, and merges learned from the parts that a pattern finds in it."""
    text = re.sub("[\n\r\u3002]", "", words(2000, 5)).replace(" ", MARK) # these have no token but those of their bytes
    lists = [list(part) for part in re.findall(pattern, text)]
    return text, merges_learned(lists, 120)


def make_marks(name):
    """Returns tokenizer.json; "whole" has tokens that reach over the beginning of a word."""
    text, merges = marked_merges(".{1,9}" if name == "whole" else f"{MARK}*[^{MARK}]+")
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *dict.fromkeys("".join(merge) for merge in merges),
             *sorted(set(text))]
    vocab = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    tokens_ = added(0, True, "<unk>", "<s>", "</s>") + added(len(vocab), False, "\n\n", MARK * 2, "<left>", "<right>")
    tokens_[-2]["lstrip"] = tokens_[-1]["rstrip"] = True
    for token in tokens_[3:]:
        if token["content"] in vocab: # a merge makes it too
            token["id"] = vocab[token["content"]]
    for number, token in enumerate(token for token in tokens_[3:] if token["id"] >= len(vocab)):
        token["id"] = len(vocab) + number
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
    prepend = [{"type": "Prepend", "prepend": MARK}] if name in ("llama2", "whole") else []
    single = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    scheme = {"first": ("first", False), "split": ("always", True)}.get(name)
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens_,
            "normalizer": None if scheme else {"type": "Sequence", "normalizers": prepend + [replace]},
            "pre_tokenizer": {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme[0], "split": scheme[1]} if scheme else None,
            "post_processor": {"type": "TemplateProcessing", "single": single, "pair": single,
                               "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                *([{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if name != "gemma" else [])]},
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, "vocab": vocab, "merges": merges}}


def test_marks():
    source = random.Random(3)
    parts = ["a", "the", " other", " ", "  ", "\n", "\n\n\n", MARK, MARK * 3, "<left>", "<right>", "<s>", "\t", "\u00e9", "\U0001f600", "\u3002", " 12", "<0x0A>"]
    texts = ["".join(source.choice(parts) for _ in range(source.randrange(12))) for _ in range(600)] + odd_texts()[:60]
    write("texts.rec", b"".join(struct.pack("=I", len(text)) + text for text in map(str.encode, texts)))
    for name in ("llama2", "gemma", "first", "split", "whole"):
        root = make_marks(name)
        write_json(name + "/tokenizer.json", root)
        oracle, at, wrong = Marks(root), 0, []
        run(TOOL, "encode", "./" + name, "1", "texts.rec", "ids.rec")
        data = read("ids.rec")
        for text in texts:
            count = 4 * struct.unpack_from("=I", data, at)[0]
            wrong += [text] if array.array("i", data[at + 4:at + 4 + count]).tolist() != oracle.encode(text) else []
            at += 4 + count
        check(not wrong, f"{name}: {len(wrong)} of {len(texts)} texts have other ids: {ascii(wrong[:3])}")
    long = "the other mother 12 " * 40000 # which is cut into parts
    write("long.txt", long)
    run(GPT_PREPARE, "--tokenizer=llama2", "--val-fraction=0", "--document-separator=none", "--out-dir=data/long", "long.txt")
    oracle, found = Marks(make_marks("llama2")), tokens("data/long")
    unit, rest = oracle.encode("the other mother 12 the other"), oracle.encode("the other")
    first = unit[:len(unit) - len(rest)]
    check(found[0] == 1 and found[1:1 + len(unit)] == unit and found[1:1 + len(first) * 39999] == first * 39999, "parts of a text")
    write_json("data/again/gpt_tokenizer.json", read_json("data/long/gpt_tokenizer.json"))
    check(encode("data/again", "the  other\n\n\u00e9")[0][1:] == oracle.encode("the  other\n\n\u00e9"), "gpt_tokenizer.json")
    run(GPT_TRAIN, "--dataset=./data/long", "--arch=llama", "--n_layer=1", "--n_head=2", "--n_embd=16", "--block_size=32", "--batch_size=2",
        "--eval_iters=1", "--threads=1", "--max_iters=1", "--gradient_accumulation_steps=1", "--eval_interval=1", "--out_dir=marks")
    prompt = "\u00e9 The  12 \U0001f600\nx"
    done = run(GPT_SAMPLE, "--out_dir=marks", "--start=" + prompt, "--num_samples=1", "--max_new_tokens=1", "--threads=1")
    check(done.stdout.startswith(prompt), f"gpt-sample says {done.stdout!r}")
    check(read_json("marks/tokenizer.json")["model"]["vocab"] == make_marks("llama2")["model"]["vocab"], "tokenizer.json: the vocabulary")
    check([merge.split(" ") for merge in read_json("marks/tokenizer.json")["model"]["merges"]] == make_marks("llama2")["model"]["merges"], "its merges")
    run(GPT_EXPORT, "--out_dir=marks", "--format=gguf", "--evaluate=0", "marks.gguf")
    keys, vocab = Gguf("marks.gguf").keys, make_marks("llama2")["model"]["vocab"]
    names = ("model", "pre", "add_space_prefix", "unknown_token_id", "bos_token_id", "add_bos_token")
    check([keys["tokenizer.ggml." + name] for name in names] == ["llama", "default", True, 0, 1, True], "GGUF: the kind")
    check("tokenizer.ggml.merges" not in keys and keys["tokenizer.ggml.tokens"][:259] == list(vocab)[:259], "GGUF: tokens")
    kinds, scores = keys["tokenizer.ggml.token_type"], keys["tokenizer.ggml.scores"]
    check(kinds[:3] == [2, 3, 3] and set(kinds[3:259]) == {6} and kinds[-2:] == [4, 4], f"GGUF: types {kinds[:4]} {kinds[-4:]}")
    results = list(dict.fromkeys("".join(merge) for merge in make_marks("llama2")["model"]["merges"]))
    check([scores[vocab[text]] for text in results] == [-1.0 - i for i in range(len(results))], "GGUF: scores of merges")
    rest = [scores[number] for text, number in vocab.items() if number >= 259 and text not in results and kinds[number] == 1]
    check(rest == [-1.0 - len(results) - i for i in range(len(rest))] and not any(scores[:259]), "GGUF: other scores")
    root, pairs = make_marks("llama2"), []
    for text, number in vocab.items():
        if kinds[number] == 1: # as generate_merges() of transformers makes merges of scores
            pairs += [(-scores[number], -at, at - len(text), number, [text[:at], text[at:]]) for at in range(1, len(text))
                      if all(kinds[vocab.get(part, 0)] in (1, 6) for part in (text[:at], text[at:]))]
    root["model"]["merges"] = [pair[-1] for pair in sorted(pairs)]
    for token in root["added_tokens"]: # which the keys do not have
        token["lstrip"] = token["rstrip"] = False
    oracle = Marks(root)
    run(GPT_PREPARE, "--tokenizer=marks.gguf", "--val-fraction=0", "--document-separator=none", "--out-dir=data/gguf",
        write("gguf.txt", long[:400] + "\u00e9 The 12 \U0001f600\nx"))
    check(tokens("data/gguf") == [1] + oracle.encode(long[:400] + "\u00e9 The 12 \U0001f600\nx"), "a GGUF's tokenizer")
    # Phi 3's special tokens eat the white space after them, which llama.cpp knows by the model's name.
    root = make_marks("llama2")
    root["added_tokens"] = [token for token in root["added_tokens"] if token["content"] not in ("<left>", "<right>")]
    root["added_tokens"] += added(len(root["model"]["vocab"]) + 1, True, "<|endoftext|>", "<|end|>")
    for token in root["added_tokens"]:
        token["rstrip"] = token["content"] in ("</s>", "<|end|>")
    write_json("phi/tokenizer.json", root)
    run(GPT_PREPARE, "--tokenizer=./phi", "--val-fraction=0", "--out-dir=data/phi", "gguf.txt")
    run(GPT_TRAIN, "--dataset=./data/phi", "--arch=llama", "--n_layer=1", "--n_head=2", "--n_embd=16", "--block_size=32", "--batch_size=2",
        "--eval_iters=1", "--threads=1", "--max_iters=1", "--gradient_accumulation_steps=1", "--eval_interval=1", "--out_dir=phi-out")
    run(GPT_EXPORT, "--out_dir=phi-out", "--format=gguf", "--evaluate=0", "phi.gguf")
    check(Gguf("phi.gguf").keys["general.name"] == "phi-out (phi3)", "GGUF: the name")
    run(GPT_EXPORT, "--out_dir=phi.gguf", "--format=hf", "--evaluate=0", "phi-back")
    found = {token["content"]: token["rstrip"] for token in read_json("phi-back/tokenizer.json")["added_tokens"] if token["special"]}
    check(found == {token["content"]: token["rstrip"] for token in root["added_tokens"] if token["special"]}, f"GGUF: what eats white space: {found}")


end(test_ids, test_prepare, test_model, test_unknown, test_unknown_model, test_normal, test_marks, test_refusals, begin=begin)
