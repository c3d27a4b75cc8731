#!/usr/bin/env python3
"""Conversations: what gpt-prepare writes, the loss that counts, gpt-sample's answers, what is refused.

  rows      rows and masks hold each conversation once, in its template, cut where it is too long; two templates
  kills     killed and run again, gpt-prepare writes the same files
  loss      losses of training and evaluation are the same for any micro-batch; with a mask that is off by one they are
            others (parity_torch.py has what they are: over the assistant's tokens alone, within a document)
  resume    a stopped run continues to the byte; another mask is noticed
  answers   a model that was trained on 20 answers gives all 20 and stops; the export has the template
  tuned     adapters on that export teach it to answer in another form: of 20 answers none before, all after
  refused   bad conversations, vocabularies and sizes
  targets   rows without a target are left out; data without any is refused; an update without any changes nothing
  fields    what changes the meaning and no template writes is refused; answers of weight 0 do not count
  forms     other programs' forms become the same conversations; mixed ones, and a forgotten --chat, are named
  sources   a JSON list, CSV, several files and a folder hold the same; what is wrong with them is named by line
  parquet   a converter's rows are read; its failure, its death and half a row are errors; without one, what to install
  families  what every family writes is what a reference of its own writes here; so are the masks; TRL's copies of the
            models' templates are recognised, and others refused
  talk      commands, a history that leaves the context from its beginning, further end tokens, bytes that are not UTF-8
Needs GPT_PREPARE, GPT_TRAIN, GPT_SAMPLE, GPT_EXPORT.  Prints "checks: P passed, F failed, S skipped".
"""

import importlib.util
import json
import math
import os
import pty
import random
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import time

from checks import (BUILD, GPT_EXPORT, GPT_PREPARE, GPT_SAMPLE, GPT_TRAIN, byte_letters, check_named as check, end, files,
                    metrics, patience, read, read_json, skip, write)

END = "<|endoftext|>"
TEMPLATES = {"chatml": ("", "<|im_start|>{}\n", "<|im_end|>", "\n"),
             "llama3": ("<|begin_of_text|>", "<|start_header_id|>{}<|end_header_id|>\n\n", "<|eot_id|>", "")}
BLOCK = 48
QUESTIONS = {f"what is {a}?": f"{a} is a {b}." for a, b in zip(
    "red blue green black white gray pink brown gold silver cyan lime navy teal olive plum coral ivory khaki beige".split(),
    "apple river stone cloud tiger piano garden window rocket castle mirror forest candle bridge anchor basket feather hammer "
    "island jacket".split())}


def run(program, *words, stdin=None):
    return subprocess.run([program, *words], check=False, capture_output=True, text=True, input=stdin, timeout=patience(300))


def message(role, content):
    return {"role": role, "content": content}


def write_lines(path, conversations):
    return write(path, "".join(json.dumps({"messages": messages}) + "\n" for messages in conversations))


def rendered(kind, messages):
    """Returns the conversation's text, with \\1 and \\2 around what counts."""
    begin, before, stop, tail = TEMPLATES[kind]
    text = begin
    for each in messages:
        body = each["content"] + stop
        text += before.format(each["role"]) + (f"\1{body}\2" if each["role"] == "assistant" else body) + tail
    return text


class Tokens:
    """A split of a data set: ids, which of them count, the tokens of a row, the text of each id."""

    def __init__(self, folder, split):
        data, mask = (read(os.path.join(folder, f"{split}.{ending}")) for ending in ("bin", "mask"))
        self.ids = struct.unpack(f"<{len(data) // 2}H", data)
        self.row = struct.unpack("<Q", mask[8:16])[0]
        self.counts = [mask[16 + i // 8] >> i % 8 & 1 for i in range(len(self.ids))]
        made, alphabet = read_json(os.path.join(folder, "gpt_tokenizer.json")), {letter: byte for byte, letter in enumerate(byte_letters())}
        self.text = [each.encode() if i in made["special"] else bytes(alphabet[c] for c in each)
                     for i, each in enumerate(made["vocabulary"])]

    def row_count(self):
        return len(range(0, len(self.ids) - 1, self.row))

    def conversations(self):
        """Returns the texts between the ends of text, with \\1 and \\2 around what counts; the rows must be whole."""
        found = []
        for at in range(0, len(self.ids) - 1, self.row):
            text, counted = b"", 0
            for i in range(at, at + self.row):
                text += b"\1" if self.counts[i] > counted else b"\2" if self.counts[i] < counted else b""
                counted = self.counts[i]
                text += self.text[self.ids[i]]
            text += b"\2" if counted else b""
            found += [each.decode(errors="ignore") for each in text.split(END.encode()) if each]
        return found


def prepare(folder, *words):
    return run(GPT_PREPARE, "--tokenizer=train", "--vocab-size=320", f"--out-dir={folder}", *words)


# ---- data ----

def some_conversations(rng, count):
    def one():
        words = rng.choices(["größe", "日本", "a", "hello", "<|im_end|>", "\n", "what?", " "], k=rng.randint(1, 6))
        return " ".join(words).strip() or "x"  # white space at its beginning would join that before an answer in one token
    return [[message("system", "be brief")] * rng.randint(0, 1)
            + [message(role, one()) for _ in range(rng.randint(1, 3)) for role in ("user", "assistant")] for _ in range(count)]


def begin():
    """Makes data sets: one of each template, "small" with rows of 24 tokens, and "shifted", whose mask is off by one."""
    for kind in TEMPLATES:
        done = prepare(kind, f"--chat={kind}", "--block-size=64", "--val-fraction=0.3",
                       write_lines("given.jsonl", some_conversations(random.Random(5), 200)))
        write("said." + kind, done.stderr)
    prepare("small", "--chat=chatml", "--block-size=24", "--val-fraction=0.3",
            write_lines("small.jsonl", [[message("user", q[-3:]), message("assistant", a[:6])] for q, a in QUESTIONS.items()]))
    data = read("small/train.mask")
    bits = int.from_bytes(data[16:], "little") << 1
    shutil.copytree("small", "shifted")
    write("shifted/train.mask", data[:16] + (bits & (1 << 8 * len(data[16:])) - 1).to_bytes(len(data[16:]), "little"))


def rows():
    given = some_conversations(random.Random(5), 200)
    for kind in TEMPLATES:
        parts = [Tokens(kind, split) for split in ("train", "val")]
        found = sorted(text for part in parts for text in part.conversations())
        wanted = [rendered(kind, messages) for messages in given]
        whole = [text for text in found if text in wanted]
        cut = [text for text in found if text not in wanted]
        said = read_json(os.path.join(kind, "manifest.json"))
        check(f"{kind}: rows are whole", all(len(part.ids) % 64 == 1 and part.row == 64 for part in parts))
        left_out = said["documents"]["without_target_left_out"]
        check(f"{kind}: each conversation once", len(found) + left_out == len(given) and sorted(whole) == sorted(w for w in wanted if w in whole))
        check(f"{kind}: the others are cut", all(any(w.startswith(text[:-1].rstrip("\2")) for w in wanted) for text in cut))
        check(f"{kind}: cuts are counted", said["documents"]["cut_conversations"] == len(cut) > 0 and f"{len(cut)} conversation" in read("said." + kind).decode(),
              str(len(cut)))
        check(f"{kind}: few rows", sum(len(part.ids) for part in parts) < 1.15 * 64 * math.ceil(
            sum(len([i for i in part.ids if part.text[i] != END.encode()]) + len(part.conversations()) for part in parts) / 64))
        check(f"{kind}: the manifest lists the mask", said["train"]["mask"]["size_bytes"] == len(read(os.path.join(kind, "train.mask"))))


def kills():
    lines = write_lines("many.jsonl", some_conversations(random.Random(6), 20000))
    words = [GPT_PREPARE, "--chat=chatml", "--tokenizer=chatml", "--block-size=256", "--save-every=1", lines]
    subprocess.run([*words, "--out-dir=whole", "--threads=1"], check=True, capture_output=True)
    for _ in range(5):  # on a busy machine it may end before it is killed
        shutil.rmtree("killed", ignore_errors=True)
        with subprocess.Popen([*words, "--out-dir=killed"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            while process.poll() is None and not os.path.exists("killed/.gpt-prepare.state"):
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
        if os.path.exists("killed/.gpt-prepare.state"):
            break
    done = run(*words, "--out-dir=killed")
    check("a killed run continues", done.returncode == 0 and "continuing" in done.stderr, done.stderr)
    check("and writes the same files", files("killed") == files("whole"))
    done = run(*words[:-2], lines, "--out-dir=seldom")
    check("and so does one that saves seldom", os.path.getsize(lines) > 4 << 20 and files("seldom") == files("whole"), done.stderr)
    shutil.rmtree("whole")


# ---- the loss ----

def train(out, data, *words):
    done = run(GPT_TRAIN, f"--dataset=./{data}", f"--out_dir={out}", "--n_layer=2", "--n_head=2", "--bias=True",
               "--document_mask=True", "--dtype=float32", "--eval_iters=0", "--threads=1", *words)
    check(f"gpt-train {out}", done.returncode == 0, done.stderr)
    return metrics(out)


def small(**rest):
    """Returns the keys of a model with rows of 24 tokens that sees all rows of data set "small" in an update."""
    keys = {"n_embd": 16, "block_size": 24, "sampler": "epoch", "gradient_accumulation_steps": 1, "learning_rate": 0.01,
            "decay_lr": False, "warmup_iters": 0, "log_interval": 1, "eval_interval": 100, **rest}
    return [f"--{name}={value}" for name, value in keys.items()]


def loss():
    count = Tokens("small", "train").row_count()
    train("begun", "small", *small(batch_size=count, max_iters=4, eval_interval=5))
    words = ["--init_from=begun", *small(batch_size=count, max_iters=0)]
    found = {}
    for micro in (0, 1, count - 1):
        lines = train(f"micro{micro}", "small", *words, f"--micro_batch={micro}")
        found[micro] = lines[0]["loss"], metrics(f"micro{micro}", "val_loss")[0]["val_loss"]
        check(f"micro-batch {micro}", all(abs(a - b) <= 1e-5 * b for a, b in zip(found[micro], found[0])), f"{found[micro]}, {found[0]}")
    wanted, wanted_val = found[0]
    train("drawn", "small", *words, "--eval_iters=9")
    value = metrics("drawn", "val_loss")[0]["val_loss"]
    check("as many rows as there are are each of them", abs(value - wanted_val) <= 1e-5 * wanted_val, f"{value}, {wanted_val}")
    lines = train("off", "shifted", *words)
    check("a mask that is off by one shows", abs(lines[0]["loss"] - wanted) > 1e-3 * wanted, f"{lines[0]['loss']}, {wanted}")


def resume():
    words = small(batch_size=3, eval_interval=4, always_save_checkpoint=True, sampler="random")
    train("straight", "small", *words, "--max_iters=8")
    train("stopped", "small", *words, "--max_iters=4")
    train("stopped", "small", *words, "--max_iters=8", "--init_from=resume")
    check("resumed to the byte", files("stopped", "model.safetensors") == files("straight", "model.safetensors")
          and read("stopped/model.safetensors") != b"")
    done = run(GPT_TRAIN, "--init_from=resume", "--out_dir=stopped", "--dataset=./shifted", "--strict_resume=True", "--max_iters=9")
    check("another mask is noticed", done.returncode == 2 and "the data have changed" in done.stderr, done.stderr)


# ---- answers ----

def asked(out):
    """Returns the model's answers to all questions, each in a conversation of its own."""
    return run(GPT_SAMPLE, f"--out_dir={out}", "--chat=True", "--temperature=0", stdin="\n/reset\n".join(QUESTIONS) + "\n").stdout.splitlines()


def answers():
    given = [[message("user", q), message("assistant", a)] for q, a in QUESTIONS.items()] * 20
    done = prepare("patterns", "--chat=chatml", f"--block-size={BLOCK}", "--val-fraction=0", write_lines("patterns.jsonl", given))
    check("patterns prepared", done.returncode == 0 and "document_mask=True" in done.stdout, done.stderr)
    lines = train("model", "patterns", "--n_embd=32", f"--block_size={BLOCK}", "--batch_size=8", "--gradient_accumulation_steps=1",
                  "--max_iters=300", "--lr_decay_iters=300", "--learning_rate=1e-2", "--min_lr=1e-4", "--warmup_iters=20",
                  "--eval_interval=400", "--eval_iters=1")
    check("the patterns are learned", lines[-1]["loss"] < 0.1, str(lines[-1]))
    chat = ["--out_dir=model", "--chat=True", "--temperature=0"]
    said = asked("model")
    right = sum(a == b for a, b in zip(said, QUESTIONS.values()))
    check("20 of 20 answers", right == 20, f"{right}: {said}")
    done = run(GPT_SAMPLE, *chat, stdin="what is red?\n" * 4)
    check("a conversation that fills the context loses its oldest turns", "the oldest turn leaves it" in done.stderr and done.stdout.splitlines()[0]
          == QUESTIONS["what is red?"], done.stderr + done.stdout)
    done = run(GPT_SAMPLE, *chat, "--max_new_tokens=3", stdin="what is red?\n")
    check("max_new_tokens ends an answer", done.returncode == 0 and QUESTIONS["what is red?"].startswith(done.stdout.rstrip("\n")), done.stdout)
    done = run(GPT_SAMPLE, *chat, stdin="what is red?" * 50 + "\n")
    check("a message beyond the context", done.returncode == 0 and "block_size is 48" in done.stderr, done.stderr)
    done = run(GPT_EXPORT, "--out_dir=model", "--format=hf", "exported")
    said = read_json("exported/tokenizer_config.json")
    check("the export ends where an answer does", said["eos_token"] == "<|im_end|>" and read_json("exported/config.json")["eos_token_id"]
          == read_json("exported/tokenizer.json")["added_tokens"][1]["id"], str(said))
    try:
        import jinja2
        one = given[0] + [message("user", "and?")]
        text = jinja2.Template(said["chat_template"], keep_trailing_newline=True).render(messages=one, add_generation_prompt=True)
        check("its template is the data's", text == rendered("chatml", one).replace("\1", "").replace("\2", "") + "<|im_start|>assistant\n", text)
    except ImportError:
        skip("chat_template", "no jinja2 (Debian: python3-jinja2)")
    done = run(GPT_EXPORT, "--out_dir=model", "--format=gguf", "model.gguf")
    check("GGUF has it", said["chat_template"].encode() in read("model.gguf") and b"tokenizer.chat_template" in read("model.gguf"), done.stderr)
    done = run(GPT_EXPORT, "--out_dir=model", "--format=gguf", "--dtype=q8_0", "q8_0.gguf")
    check("20 of 20 answers from the q8_0 file", asked("q8_0.gguf") == list(QUESTIONS.values()), done.stderr)
    chat, plain = said["eos_token"], END
    ends = {text: read_json("exported/tokenizer.json")["model"]["vocab"].get(text) for text in (chat, plain)}
    for token in read_json("exported/tokenizer.json")["added_tokens"]:
        ends[token["content"]] = token["id"]
    shutil.copytree("exported", "base")  # the same vocabulary and weights, but no template
    write("base/tokenizer_config.json", json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": plain}))
    write("base/config.json", json.dumps({**read_json("base/config.json"), "eos_token_id": ends[plain]}))
    done = run(GPT_PREPARE, "--tokenizer=exported", "--val-fraction=0", "--out-dir=plain", write("plain.txt", "plain text of some length, " * 40))
    check("plain text prepared", done.returncode == 0, done.stderr)
    for data, model, wanted in (("plain", "base", plain), ("plain", "exported", chat), ("patterns", "base", chat), (None, "base", plain)):
        out = f"on-{model}-{data}" if data else model
        for words in (["--init_from=./" + model, "--max_iters=1"], ["--init_from=resume", "--max_iters=2"]) if data else ():
            done = run(GPT_TRAIN, f"--out_dir={out}", f"--dataset=./{data}", *words, f"--block_size={BLOCK}", "--batch_size=2",
                       "--gradient_accumulation_steps=1", "--eval_interval=100", "--eval_iters=1", "--warmup_iters=0")
            check(f"{data} on {model}", done.returncode == 0 and "damaged" not in done.stderr, done.stderr)
        done = [run(GPT_EXPORT, f"--out_dir={out}", f"--format={form}", "--evaluate=0", to) for form, to in (("hf", "hf-" + out), ("gguf", out + ".gguf"))]
        config, words, end = (read_json(f"hf-{out}/{name}.json") for name in ("config", "tokenizer_config", "generation_config"))
        key = b"tokenizer.ggml.eos_token_id" + struct.pack("<II", 4, ends[wanted])
        check(f"{out}: ends with {wanted}", config["eos_token_id"] == ends[wanted] and words["eos_token"] == wanted and
              end["eos_token_id"] == ([ends[chat], ends[plain]] if wanted == chat else ends[plain]) and key in read(out + ".gguf"),
              f"{config} {words} {end} {done[0].stderr}")
        check(f"{out}: a template", ("chat_template" in words) == (b"tokenizer.chat_template" in read(out + ".gguf")) == (wanted == chat), str(words))


# ---- refusals ----

def refused():
    good = [message("user", "a"), message("assistant", "b")]
    bad = {"has no \"role\"": [{"content": "a"}, good[1]],
           "has the role \"tool\"": [message("tool", "a"), good[1]],
           "has the role \"wizard\"": [message("wizard", "a"), good[1]],
           "has no text as content": [message("user", 7), good[1]],
           "is an empty answer": [good[0], message("assistant", "")],
           "is the second answer in a row": [*good, good[1]],
           "the conversation is empty": [],
           "no message is from the assistant": [good[0]]}
    for what, messages in bad.items():
        done = prepare("bad", "--chat=chatml", write_lines("bad.jsonl", [good, messages]))
        check(f"a message {what}", done.returncode == 2 and "line 2: " in done.stderr and what in done.stderr, done.stderr)
    done = prepare("bad", "--chat=chatml", write("bad.jsonl", '{"messages": "a"}\n'))
    for record, what in (('{"Question": "a", "Answer": "b"}', "it has Question, Answer"),
                         ('{"data": [{"prompt": "a", "completion": "b"}]}', 'its field "data" is a list of records')):
        done_other = prepare("bad", "--chat=chatml", write("other.jsonl", record + "\n"))
        check(f"a record of which {what}", done_other.returncode == 2 and what in done_other.stderr, done_other.stderr)
    check("messages that are no list", done.returncode == 2 and "line 1: no conversation in this record" in done.stderr, done.stderr)
    done = prepare("skips", "--chat=chatml", "--bad-lines=skip", "--val-fraction=0", write_lines("bad.jsonl", [good, *bad.values()]))
    check("bad lines are left out and counted", done.returncode == 0 and f"{len(bad)} bad lines left out" in done.stderr, done.stderr)
    for words, what in ((["--tokenizer=bytes", "--chat=chatml"], "has no token <|im_start|>"),
                        (["--tokenizer=chatml", "--chat=llama3"], "has no token <|begin_of_text|>"),
                        (["--tokenizer=train", "--chat=chatml", "--block-size=12"], "must be a multiple of 8"),
                        (["--tokenizer=train", "--block-size=16"], "needs --chat"),
                        (["--tokenizer=train", "--chat=chatml", "--shard-tokens=9"], "does not go with")):
        done = run(GPT_PREPARE, *words, "--out-dir=bad", "bad.jsonl")
        check(" ".join(words), done.returncode == 2 and what in done.stderr and not os.path.exists("bad"), done.stderr)
    for data, words, what in (("small", ["--block_size=16"], "give --block_size=24"),
                              ("plain", ["--block_size=16", "--document_mask=True"], "an end-of-text token"),
                              ("cut", ["--block_size=24"], "not a mask of")):
        if data == "plain":
            run(GPT_PREPARE, "--out-dir=plain", write("plain.txt", "abcdefgh" * 100))
        if data == "cut":
            shutil.copytree("small", "cut")
            write("cut/train.mask", read("small/train.mask")[:-1])
        done = run(GPT_TRAIN, f"--dataset=./{data}", "--out_dir=none", "--n_layer=1", "--n_head=1", "--n_embd=8", *words)
        check(f"gpt-train on {data}", done.returncode == 2 and what in done.stderr, done.stderr)


# ---- rows without a target ----

def tiny(data, *words):
    return run(GPT_TRAIN, f"--dataset=./{data}", "--out_dir=" + data + "-out", "--n_layer=1", "--n_head=2", "--n_embd=16", "--block_size=24",
               "--batch_size=1", "--gradient_accumulation_steps=1", "--eval_iters=1", "--threads=1", "--learning_rate=0.1", "--warmup_iters=0",
               "--weight_decay=1", "--decay_lr=False", "--log_interval=1", *words)


def mask_write(folder, split, counts):
    """Replaces a mask: counts(i) says whether token i counts."""
    data, tokens = read(f"{folder}/{split}.mask"), len(read(f"{folder}/{split}.bin")) // 2
    bits = sum(1 << i for i in range(tokens) if counts(i))
    write(f"{folder}/{split}.mask", data[:16] + bits.to_bytes(len(data[16:]), "little"))


def targets():
    short, long = [message("user", "a"), message("assistant", "b")], [message("user", "word " * 60), message("assistant", "yes")]
    quiet = [message("user", "a"), {**message("assistant", "b"), "weight": 0}]
    words = ["--chat=chatml", "--block-size=64", "--val-fraction=0"]
    done = prepare("none", *words, write_lines("none.jsonl", [long] * 5))
    needs = int(done.stderr.split("begins within --block-size=")[-1].split(",")[0]) if "begins within" in done.stderr else 0
    check("data without a target", done.returncode == 2 and "--block-size=64 is too small" in done.stderr and needs > 64
          and not os.path.exists("none"), done.stderr)
    done = prepare("some", "--chat=chatml", f"--block-size={needs}", "--val-fraction=0", "none.jsonl")
    check("the size that it names is enough", done.returncode == 0 and "\n1 token of the assistant" not in done.stdout, done.stderr)
    done = prepare("none", "--chat=chatml", f"--block-size={needs - 8}", "--val-fraction=0", "none.jsonl")
    check("and the one below is not", done.returncode == 2, done.stderr)
    done = prepare("none", *words, write_lines("quiet.jsonl", [quiet] * 3))
    check("answers of weight 0 alone", done.returncode == 2 and "no conversation has an answer that counts" in done.stderr, done.stderr)
    done = prepare("some", *words, write_lines("some.jsonl", [short, long, quiet, long]))
    tokens = Tokens("some", "train")
    check("conversations without a target are left out", "3 conversations left out" in done.stderr and "1 document, " in done.stdout
          and tokens.conversations() == [rendered("chatml", short)], done.stderr + done.stdout)
    said = read_json("some/manifest.json")["documents"]
    check("and counted", said["without_target_left_out"] == 3 and said["cut_conversations"] == 0, str(said))
    # Data as older releases wrote it, and masks that are made by hand.
    for split in ("train", "val"):
        shutil.copytree("small", "old-" + split)
        mask_write("old-" + split, split, lambda i: i == 0)  # the first token is no target
        done = tiny("old-" + split, "--max_iters=1")
        check(f"gpt-train on {split} without a target", done.returncode == 2 and f"no token of ./old-{split}/{split}.bin counts" in done.stderr,
              done.stderr)
    shutil.copytree("small", "sparse")
    mask_write("sparse", "train", lambda i: i == 5)
    mask_write("sparse", "val", lambda i: i == 5)
    done = tiny("sparse", "--max_iters=40", "--eval_interval=20")
    check("updates without a target are left out, with one warning", done.returncode == 0 and done.stderr.count("no target of its samples counts") == 1
          and "loss 0.0000" not in done.stdout and "validation loss 0.0000" not in done.stdout, done.stderr + done.stdout)
    rows_ = Tokens("sparse", "train").row_count()
    check("the others are made", 0 < len(metrics("sparse-out")) < 41 and rows_ > 1, f"{len(metrics('sparse-out'))} of 41, {rows_} rows")
    done = tiny("sparse", "--max_iters=60", "--eval_interval=20", "--init_from=resume")
    done = tiny("small", "--out_dir=straight-sparse", "--dataset=./sparse", "--max_iters=60", "--eval_interval=20")
    check("a resumed run skips the same ones", read("straight-sparse/model.safetensors") == read("sparse-out/model.safetensors") != b"", done.stderr)
    # All but the first update of a run that has no target after it: the weights stay as they were after the first.
    first = next(line["iter"] for line in metrics("sparse-out"))
    done = tiny("sparse", "--out_dir=first", f"--max_iters={first}", "--eval_interval=1000")
    gap = min((i for i in range(first, 60) if i + 1 not in {line["iter"] for line in metrics("sparse-out")}), default=None)
    done = tiny("sparse", "--out_dir=later", f"--max_iters={gap}", "--eval_interval=1000")
    done2 = tiny("sparse", "--out_dir=later1", f"--max_iters={gap + 1}", "--eval_interval=1000")
    check("an update without a target changes no weight", read("later/model.safetensors") == read("later1/model.safetensors") != b"",
          done.stderr + done2.stderr)


def answers_with_the_end_of_text():
    """Mistral's end of text ends answers too: all of a conversation is one document.  Its template leaves out a system message before an answer."""
    turns = [message("system", "be brief")] + [message(role, text) for text in ("one", "two") for role in ("user", "assistant")]
    prepare("with-end", "--chat=mistral", "--block-size=64", "--val-fraction=0", write_lines("turns.jsonl", [turns]))
    write("mistral/tokenizer.json", read("with-end/tokenizer.json").replace(END.encode(), b"<unk>"))
    done = run(GPT_PREPARE, "--tokenizer=mistral", "--chat=mistral", "--block-size=64", "--val-fraction=0", "--out-dir=turns", "turns.jsonl")
    check("a message that is left out", done.stderr.count("the template mistral writes only where the user speaks last") == 1, done.stderr)
    losses = []
    for masked in (True, False):
        done = tiny("turns", "--block_size=64", "--max_iters=0", f"--document_mask={masked}")
        check("the model sees all turns", "  <s>[INST] one[/INST][[ one</s>]][INST] two[/INST][[ two</s>]]" in done.stdout, done.stdout)
        losses.append(metrics("turns-out")[0]["loss"])
    check("and each of them those before it", losses[0] == losses[1], str(losses))


# ---- fields and forms ----

def own_validation():
    """doc/data.md: validation data of one's own."""
    given = some_conversations(random.Random(6), 60)
    for name, part in (("mine", given[:40]), ("theirs", given[40:])):
        prepare(name, "--chat=chatml", "--block-size=64", "--val-fraction=0", write_lines(name + ".jsonl", part))
    # One vocabulary for both: that of the first.
    done = run(GPT_PREPARE, "--tokenizer=mine", "--chat=chatml", "--block-size=64", "--val-fraction=0", "--out-dir=theirs", "--restart", "theirs.jsonl")
    check("prepared with the same vocabulary", done.returncode == 0, done.stderr)
    for ending in ("bin", "mask"):
        shutil.copy(f"theirs/train.{ending}", f"mine/val.{ending}")
    done = tiny("mine", "--block_size=64", "--max_iters=0")
    check("the manifest does not list it", done.returncode == 2 and "delete manifest.json if you meant to change it" in done.stderr, done.stderr)
    os.remove("mine/manifest.json")
    own = tiny("theirs", "--block_size=64", "--max_iters=0", "--eval_iters=0")
    done = tiny("mine", "--block_size=64", "--max_iters=0", "--eval_iters=0")
    losses = [re.search(r"step 0: train loss ([0-9.]+), val loss ([0-9.]+)", each.stdout).groups() for each in (own, done)]
    check("it is evaluated", losses[1][1] == losses[0][0] != losses[1][0] and "has no val.bin" not in done.stderr, f"{losses} {done.stderr}")


def fields():
    answer, ask = message("assistant", "fine"), message("user", "how are you?")
    bad = {"tools": {"tools": [{"type": "function"}], "messages": [ask, answer]}, "functions": {"functions": [{}], "messages": [ask, answer]},
           "system": {"system": 7, "messages": [ask, answer]}, "images": {"images": ["a.png"], "messages": [ask, answer]},
           **{key: {"messages": [ask, {**answer, key: value}]} for key, value in (
               ("tool_calls", [{"id": 1}]), ("function_call", {"name": "f"}), ("name", "Bob"), ("reasoning_content", "hm"), ("thinking", "hm"), ("train", False), ("training", 0), ("loss_weight", 0.0),
               ("mask", True))},
           "weight": {"messages": [ask, {**answer, "weight": 0.5}]}, "image_url": {"messages": [
               message("user", [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "x"}}]), answer]},
           "train_detail": {"messages": [ask, {**answer, "train_detail": [{}]}]},
           "label": {"messages": [ask, answer], "label": False}, "kto_tag": {"messages": [ask, answer], "kto_tag": False},
           **{role: {"messages": [ask, message(role, "x"), answer]} for role in ("tool", "function", "narrator")}}
    for key, line in bad.items():
        good = json.dumps({"messages": [ask, answer], "id": 7, "source": "x", "tools": [], "weight": 1})
        done = prepare("bad", "--chat=chatml", write("bad.jsonl", good + "\n" + json.dumps(line) + "\n"))
        check(f"{key} is refused", done.returncode == 2 and "bad.jsonl: line 2: " in done.stderr and f'"{key}"' in done.stderr
              and not os.path.exists("bad"), done.stderr)
    for line, said in (({"messages": [ask, {**answer, "name": "Bob"}]}, "jq -c 'del(.messages[].name)' leaves it out"),
                       ({"messages": [ask, answer], "chat_template_kwargs": {"a": 1}}, "jq -c 'del(.chat_template_kwargs)' leaves it out")):
        done = prepare("bad", "--chat=chatml", write("bad.jsonl", json.dumps(line) + "\n"))
        check(said, done.returncode == 2 and said in done.stderr, done.stderr)
    done = prepare("bad", "--chat=chatml", write("bad.jsonl", json.dumps({"input": {"messages": [ask]}, "preferred_output": [answer]})))
    check("a pair of answers without its question is refused", done.returncode == 2 and '"preferred_output"' in done.stderr, done.stderr)
    done = prepare("skips", "--chat=chatml", "--bad-lines=skip", "--val-fraction=0", "--block-size=64",
                   write("bad.jsonl", good + "\n" + "".join(json.dumps(line) + "\n" for line in bad.values())))
    check("such lines are skipped and counted", done.returncode == 0 and f"{len(bad)} bad lines left out" in done.stderr
          and Tokens("skips", "train").conversations() == [rendered("chatml", [ask, answer])], done.stderr)
    weighed = [ask, {**message("assistant", "BAD"), "weight": 0}, {**ask, "weight": 0}, {**message("assistant", "good"), "weight": 1}]
    done = prepare("weighed", "--chat=chatml", "--val-fraction=0", "--block-size=64", write_lines("weighed.jsonl", [weighed]))
    wanted = rendered("chatml", weighed).replace("\1BAD<|im_end|>\2", "BAD<|im_end|>")
    check("an answer of weight 0 does not count", Tokens("weighed", "train").conversations() == [wanted], done.stderr)


def forms():
    one = [message("user", "say hi"), message("assistant", "it's hi")]
    turns = [{"from": "human", "value": "say hi"}, {"from": "gpt", "value": "it's hi", "weight": 1}]
    brief = [message("system", "be brief"), *one]
    pair, again = {"input": "say hi", "output": "it's hi"}, [message("user", "b"), message("assistant", "c")]
    lines = {"messages (messages)": ({"messages": one}, one),
             "messages (messages)\n": ({"messages": json.dumps(one)}, one),
             "messages (dialogue)": ({"dialogue": [{"role": "Human", "text": "say hi"}, {"role": "Chatbot", "value": "it's hi"}]}, one),
             "messages (contents)": ({"system_message": "be brief", "contents": [
                 {"role": "user", "parts": [{"text": "say"}, {"text": " hi"}]}, {"role": "model", "parts": [{"text": "it's hi"}]}]}, brief),
             "messages (talk)": ({"talk": [message("developer", "be brief"), *one]}, brief),
             "questions and answers (conversation); not used: id": ({"conversation": [pair, {"input": "b", "output": "c"}], "id": "1"}, one + again),
             "question and chosen (question, chosen); not used: rejected": (
                 {"system": "be brief", "question": "say hi", "chosen": "it's hi", "rejected": "no"}, brief),
             "Alpaca (instruction, input, output)\n": ({"instruction": "", **pair}, one),
             "Dolly (instruction, context, response)\n": ({"instruction": "say hi", "context": " \n", "response": "it's hi"}, one),
             "messages (chat); not used: id, at\n": ({"chat": [{**one[0], "id": "1", "at": 7}, {**one[1], "id": "2"}]}, one),
             "ShareGPT (conversations, with": ({"id": "1", "conversations": turns}, one),
             "ShareGPT (dialog, with": ({"dialog": turns, "system": "be brief"}, brief),
             "Alpaca (instruction, input, output)": ({"instruction": "say", "input": "hi", "output": "it's hi"}, [message("user", "say\n\nhi"), one[1]]),
             "Alpaca (instruction, input,": ({"instruction": "say hi", "output": "it's hi", "history": [["a", "b"]]},
                                             [message("user", "a"), message("assistant", "b"), *one]),
             "Dolly (instruction, context, response)": ({"instruction": "say hi", "context": "", "response": "it's hi", "category": "x"}, one),
             "prompt and completion (prompt, completion)": ({"prompt": "say hi", "completion": "it's hi"}, one),
             "prompt and completion (lists of messages)": ({"prompt": one[:1], "completion": one[1:]}, one),
             "prompt and chosen (lists of messages); not used: rejected": ({"prompt": one[:1], "chosen": one[1:], "rejected": one[1:]}, one),
             "messages (chosen); not used: prompt, rejected": ({"prompt": "say hi", "chosen": one, "rejected": one}, one),
             "question and answer (question, context, answer); not used: reasoning\n": (
                 {"question": "say", "context": "hi", "answer": "it's hi", "reasoning": "hm", "note": ""}, [message("user", "say\n\nhi"), one[1]])}
    words = ["--chat", "--val-fraction=0", "--block-size=64"]
    for name, (line, wanted) in lines.items():
        given = write("form.jsonl", json.dumps(line) + "\n\n")
        done = prepare("form", *words, given)
        check(f"{name}: read", done.returncode == 0 and f"form.jsonl: conversations in the form {name}" in done.stderr
              and Tokens("form", "train").conversations() == [rendered("chatml", wanted)], done.stderr)
        done = prepare("form", *words, write("mixed.jsonl", json.dumps(line) + "\n" + json.dumps({"query": "a", "response": "b"}) + "\n"))
        check(f"{name}: another form after it", done.returncode == 2 and "mixed.jsonl: line 2: this record has the form query and response" in done.stderr
              and "the first one " + name.split(";")[0].strip() in done.stderr and "separately" in done.stderr, done.stderr)
        if name.startswith("messages"):
            done = prepare("form", *words, "--system=be brief", given)
            check(f"{name}: --system", Tokens("form", "train").conversations() == [rendered("chatml", brief)], done.stderr)
    done = prepare("form", *words, "--bad-lines=skip", "mixed.jsonl")
    check("with --bad-lines=skip it is counted", done.returncode == 0 and "1 bad line left out" in done.stderr, done.stderr)
    done = prepare("form", *words, write("text.jsonl", (json.dumps({"text": "plain words"}) + "\n")))
    check("text counts as a whole", done.returncode == 0 and "the form text (text)" in done.stderr
          and done.stderr.count("text.jsonl: line 1: this text has no answer in the template chatml, so that all of it is learnt") == 1
          and Tokens("form", "train").conversations() == ["\1plain words", "\2"], done.stderr)  # with the end of text
    for name in ("train-00000-of-00001", "testimony"):
        write(f"hub/data/{name}.jsonl", json.dumps({"messages": one}) + "\n")
    write("hub/dataset_infos.json", json.dumps({"default": {"features": {}}}))
    done = prepare("form", *words, "hub")
    check("what is about the data is no data", done.returncode == 0 and "held out" not in done.stderr, done.stderr)
    write("hub/data/test-00000-of-00001.jsonl", json.dumps({"messages": one}) + "\n")
    done = prepare("form", *words, "hub")
    check("a split for tests that is trained on", done.stderr.count("hub/data/test-00000-of-00001.jsonl: by its name this is held out") == 1, done.stderr)
    done = prepare("form", *words, "hub/data/train-00000-of-00001.jsonl", "hub/data/test-00000-of-00001.jsonl")
    check("as named", "held out" not in done.stderr, done.stderr)
    one_message = "this record is one message; a conversation is a record with all of its messages in a list"
    for line, reason in (({"text": "hi", "role": "prompter", "parent_id": None}, one_message), (message("user", "hi"), one_message),
                         ({"from": "human", "value": "hi"}, one_message), ({"question": "a", "answer": 7}, 'the field "answer" is not a text'),
                         ({"instruction": "a", "input": "", "output": None}, 'the field "output" is not a text'),
                         ({"Question": "a", "Response": "b"}, "jq -c '{prompt: .A, completion: .B}' makes pairs of its fields A and B"),
                         ({"question": ["a", "b"], "answer": ["c", "d"]}, '"question" and "answer" are columns; write a record for each row'),
                         ({"question": {"0": "a"}, "answer": {"0": "b"}}, '"question" and "answer" are columns'),
                         ({"12": {"question": "a", "answer": "b"}}, 'its field "12" is a record, and jq -c \'.[]\' writes one a line'),
                         ({"messages": str(one)}, 'its field "messages" is a list as Python prints it: write it with json.dumps')):
        done = prepare("form", *words, write("no.jsonl", json.dumps(line) + "\n"))
        check(f"{list(line)}: what to write instead", done.returncode == 2 and "no.jsonl: line 1: " in done.stderr and reason in done.stderr, done.stderr)
    said = [message("user", "a"), message("assistant", "b"), message("user", "c"), message("assistant", "d")]
    for name, text in (("a line each", "".join(json.dumps(each) + "\n" for each in (one, said, one))), ("a list of lists", json.dumps([one, said, one])),
                       ("ShareGPT", "".join(json.dumps([{"from": {"user": "human"}.get(each["role"], "gpt"), "value": each["content"]} for each in turns]) + "\n"
                                            for turns in (one, said, one)))):
        done = prepare("form", *words, write("bare.jsonl", text))
        check(f"conversations that are lists, {name}", sorted(Tokens("form", "train").conversations()) == sorted(
            rendered("chatml", each) for each in (one, said, one)), done.stderr)
    whole = rendered("chatml", said)
    plain = whole.replace("\1", "").replace("\2", "")
    for on, wanted in (("assistant", whole), ("completion", whole.replace("\1b<|im_end|>\2", "b<|im_end|>")), ("all", "\1" + plain + "\2")):
        for given in ({"messages": said}, {"text": plain}):
            done = prepare("form", *words, "--train-on=" + on, write("said.jsonl", json.dumps(given) + "\n"))
            found = Tokens("form", "train").conversations()
            check(f"--train-on={on}, {list(given)}", "".join(found) == wanted and (len(found) == 2) == (on == "all" and "text" in given), done.stderr)
    # A forgotten --chat: the flags that the message names work.
    spelled = ({"messages": one}, {"turns": turns}, {"instruction": "a", "output": "b"})
    for tokenizer, flags in (("bytes", "--chat --tokenizer=train"), ("train", "--chat"), ("chatml", "--chat"), ("llama3", "--chat")):
        for given in spelled if tokenizer == "train" else spelled[:1]:
            path = write("plain.jsonl", json.dumps(given) + "\n")
            done = run(GPT_PREPARE, "--tokenizer=" + tokenizer, "--out-dir=form", path)
            check(f"{tokenizer}, {list(given)}: a forgotten --chat", done.returncode == 2 and done.stderr.endswith(f": give {flags}\n")
                  and len(done.stderr.splitlines()) == 1, done.stderr)
            done = run(GPT_PREPARE, "--tokenizer=" + tokenizer, "--out-dir=form", "--val-fraction=0", "--block-size=64", *flags.split(), path)
            check("and its flags", done.returncode == 0, done.stderr)
            shutil.rmtree("form", ignore_errors=True)
    for words, what in ((["--tokenizer=chatml", "--chat=llama3"], "but those of --chat=chatml"),
                        (["--tokenizer=llama3", "--chat", "chatml"], "but those of --chat=llama3"),
                        (["--tokenizer=bytes", "--chat"], "the vocabulary comes with no chat template"),
                        (["--tokenizer=bytes", "--chat=chatml"], "no token <|im_start|>, <|im_end|>; "),
                        (["--tokenizer=train", "--system=a"], "--system: needs --chat"),
                        (["--tokenizer=train", "--train-on=all"], "--train-on: needs --chat"),
                        (["--tokenizer=train", "--chat=chatmm"], "expected none, chatml, ")):
        done = run(GPT_PREPARE, *words, "--out-dir=form", "plain.jsonl")
        check(f"{words}: {what}", done.returncode == 2 and what in done.stderr, done.stderr)


# ---- files ----

def csv_of(rows):
    return "\r\n".join(",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows) + "\r\n"


def sources():
    rng, words = random.Random(8), ["--chat", "--val-fraction=0", "--block-size=64"]
    pairs = [(f'say "{i}", please\nnow', f"{i};\n" * rng.randint(1, 3)) for i in range(40)]
    records = [{"question": q, "answer": a} for q, a in pairs]
    wanted = sorted(rendered("chatml", [message("user", q), message("assistant", a)]) for q, a in pairs)
    half = len(records) // 2
    os.makedirs("folder/deep")
    for name, text in (("a.jsonl", "".join(json.dumps(r) + "\n" for r in records[:half])), ("deep/b.json", json.dumps(records[half:])),
                       ("README.md", "# not a record\n"), ("deep/c.png", "\x89PNG")):
        write("folder/" + name, text)
    given = {"lines": [write("r.jsonl", "\n".join(map(json.dumps, records)))], "a list": [write("r.json", json.dumps(records))],
             "a tall list": [write("tall.json", "\ufeff" + json.dumps(records, indent=2) + "\n")],
             "a list in UTF-16": [write("wide.json", json.dumps(records, ensure_ascii=False, indent=1).encode("utf-16"))],
             "CSV": [write("r.csv", csv_of([("question", "answer"), *pairs]))],
             "CSV with semicolons": [write("semi.csv", csv_of([("question", "answer"), *pairs]).replace('","', '";"'))],
             "two files": [write("1.jsonl", "\n".join(map(json.dumps, records[:half]))), write("2.json", json.dumps(records[half:]))],
             "a folder": ["folder"]}
    for name, paths in given.items():
        done = prepare("source", *words, *paths)
        check(name, done.returncode == 0 and sorted(Tokens("source", "train").conversations()) == wanted
              and "40 documents, 0 empty ones left out" in done.stdout + done.stderr, done.stderr + done.stdout)
    done = run(GPT_PREPARE, "--tokenizer=source", *words, "--out-dir=piped", "-", stdin=json.dumps(records))
    check("a list on standard input", done.returncode == 0 and sorted(Tokens("piped", "train").conversations()) == wanted, done.stderr)
    tall = json.dumps(records[:3], indent=1)
    third = tall[:tall.rindex("{")].count("\n") + 1
    bad = {"cut.json": (tall[:-9], f"line {third}: the list is not closed"), "comma.json": (tall.replace("},", "}", 1), "line 6: expected a comma"),
           "wrong.json": (tall.replace('"answer": "2', '"answer": 7, "x": "2'), f"line {third}: the field \"answer\" is not a text"),
           "broken.json": (tall.replace('"answer": "2', '"answer" "2'), f"line {third}: column "),
           "short.csv": ("question,answer\na,b\n\"c\nd\"\n", "line 3: a different number of fields"),
           "open.csv": ("question,answer\na,b\nc,\"d\n", "line 3: a quote opens here"),
           "twice.csv": ("question,question\na,b\n", "line 1: two columns have one name"),
           "none.csv": ("a,b\n1,2\n", "line 2: no conversation in this record")}
    for name, (text, what) in bad.items():
        done = prepare("source", *words, write(name, text))
        check(f"{name}: {what}", done.returncode == 2 and f"{name}: {what}" in done.stderr, done.stderr)
    for name in ("wrong.json", "short.csv"):
        done = prepare("source", *words, "--bad-lines=skip", name)
        check(f"{name}: skipped", done.returncode == 0 and "1 bad line left out" in done.stderr, done.stderr)


def program(name, text):
    os.makedirs("bin", exist_ok=True)
    path = write(f"bin/{name}", text)
    os.chmod(path, 0o755)


def parquet():
    words = ["--tokenizer=chatml", "--chat", "--val-fraction=0", "--block-size=64", "--out-dir=rows", "it's.parquet"]
    record = json.dumps({"question": "say hi", "answer": "it's hi"})
    write("it's.parquet", b"PAR1 of another program, PAR1")

    def convert(text, path="bin:/usr/bin:/bin"):
        program("duckdb", "#!/bin/sh\n" + text)
        shutil.rmtree("rows", ignore_errors=True)
        return subprocess.run([GPT_PREPARE, *words], check=False, capture_output=True, text=True, env={**os.environ, "PATH": path}, timeout=patience(60))

    done = convert(f'printf "%s\\n" "$@" >arguments\necho {json.dumps(record)}\n')
    check("rows of a converter", done.returncode == 0 and Tokens("rows", "train").conversations() ==
          [rendered("chatml", [message("user", "say hi"), message("assistant", "it's hi")])], done.stderr)
    check("the query that it gets", "SELECT * FROM read_parquet('it''s.parquet')" in read("arguments").decode().splitlines(), read("arguments").decode())
    said = read_json("rows/manifest.json")["inputs"][0]
    check("the manifest has the file, not the rows", said["size_bytes"] == os.path.getsize("it's.parquet"), str(said))
    for what, text, status in (("could not read this file: Error: no such column", f"echo {json.dumps(record)}; echo 'Error: no such column' >&2; exit 1", 2),
                               ("signal 9 ended duckdb", f"echo {json.dumps(record)}; kill -9 $$", 1),
                               ("stopped in the middle of a row", f"printf %s {json.dumps(record[:20])}", 1)):
        done = convert(text)
        check(what, done.returncode == status and f"it's.parquet: " in done.stderr and what in done.stderr and not os.path.exists("rows"), done.stderr)
    done = convert("yes '" + record.replace("'", "") + "' | head -40000; exit 3")
    check("many rows before a failure", done.returncode == 2 and not os.path.exists("rows"), done.stderr)
    os.remove("bin/duckdb")
    program("python3", "#!/bin/sh\nexit 9\n")
    empty = {**os.environ, "PATH": os.path.abspath("bin")}
    done = subprocess.run([GPT_PREPARE, *words], check=False, capture_output=True, text=True, env=empty, timeout=patience(60))
    check("a Python without the modules", done.returncode == 2 and done.stderr.splitlines()[-1].endswith("has none of them: pip install pyarrow"), done.stderr)
    os.remove("bin/python3")
    done = subprocess.run([GPT_PREPARE, *words], check=False, capture_output=True, text=True, env=empty, timeout=patience(60))
    check("no Python", done.returncode == 2 and done.stderr.splitlines()[-1].endswith("then pip install pyarrow"), done.stderr)
    os.symlink(sys.executable, "bin/python3")
    for name in ("polars", "json"):
        write(f"{name}.py", f"open('executed', 'w')\nraise ImportError('{name}')\n".encode())
    subprocess.run([GPT_PREPARE, *words], check=False, capture_output=True, text=True, env=empty, timeout=patience(60))
    check("modules in the working folder are not executed", not os.path.exists("executed"), "polars.py or json.py was")
    for name in ("bin/python3", "polars.py", "json.py"):
        os.remove(name)
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        skip("chat_parquet", "no pyarrow")
        return
    one = [message("user", "größe?"), message("assistant", "it's hi")]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{"messages": one}] * 3000), "real.parquet")
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    done = prepare("rows", "--chat", "--val-fraction=0", "--block-size=64", "real.parquet")
    check("a real file", done.returncode == 0 and Tokens("rows", "train").conversations() == [rendered("chatml", one)] * 3000, done.stderr)
    write("real.parquet", read("real.parquet")[:-100])
    done = prepare("rows2", "--chat", "real.parquet")
    check("a damaged file", done.returncode == 2 and "could not read this file: " in done.stderr, done.stderr)


def answered(out, form):
    """Returns how many questions get their answer in this form."""
    return sum(text == form(answer) for text, answer in zip(asked(out), QUESTIONS.values()))


def tuned():
    """Adapters teach the model that answers() left in `exported` shorter answers."""
    def form(answer):
        return answer.split(" is ")[1]

    short = [[message("user", q), message("assistant", form(a))] for q, a in QUESTIONS.items()]
    done = run(GPT_PREPARE, "--tokenizer=./exported", "--chat", "--out-dir=forms", "--val-fraction=0", f"--block-size={BLOCK}",
               write_lines("forms.jsonl", short * 20))
    check("another form prepared", done.returncode == 0, done.stderr)
    before = answered("model", form)
    done = run(GPT_TRAIN, "--init_from=./exported", "--dataset=./forms", "--out_dir=tuned", "--lora_rank=8", "--epochs=6", "--learning_rate=1e-2",
               "--dtype=float32", "--threads=1", "--sample_tokens=0")
    check("gpt-train tuned", done.returncode == 0, done.stderr)
    after = answered("tuned", form)
    print(f"short answers: {before} before, {after} after, of {len(QUESTIONS)}")
    check("adapters teach a form", before == 0 and after == len(QUESTIONS), f"{before} before, {after} after")


# ---- the models' own templates ----

# TRL's copies of models' templates, and the words of --chat.
KNOWN = {"llama3": "meta-llama3", "llama3_1": "llama3.1", "llama3_2": "llama3.2", "qwen2_5": "qwen2.5", "qwen3": "qwen3", "phi3": "phi3",
         "qwen3_instruct_2507": "qwen3-instruct", "qwen3_5_think": "qwen3.5", "qwen3_5_nothink": "qwen3.5-nothink", "gemma": "gemma", "gemma3": "gemma3"}


def trl_folder():
    """Returns the folder of TRL's copies of models' templates, or None."""
    found = importlib.util.find_spec("trl")
    folders = [os.path.join(place, "chat_templates") for place in (found.submodule_search_locations if found else ())]
    return next((folder for folder in folders if os.path.isdir(folder)), None)


def model_make(folder, vocabulary, jinja, place="tokenizer_config.json"):
    """Makes a folder with the vocabulary of a data set and a chat template."""
    write(f"{folder}/tokenizer.json", read(f"{vocabulary}/tokenizer.json"))
    text = jinja if place.endswith(".jinja") else json.dumps({"chat_template": jinja})
    write(f"{folder}/{place}", text)


def own_texts(words, folder):
    """Our texts in Jinja, and the models' own, write what gpt-prepare writes: tools, calls, results, reasoning, white space."""
    try:
        import jinja2.sandbox
    except ImportError:
        skip("chat_own_texts", "no jinja2 (Debian: python3-jinja2)")
        return None
    world = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    world.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    tool = {"type": "function", "function": {"name": "add", "description": "größe <&> \"x\"", "parameters": {"type": "object", "properties": {}}}}

    def calls(*texts):
        return {"tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {
            "a": [1, 2.5, text], "b": text + "\n<&>", "c": True, "d": None, "e": 1e22, "f": {}}}} for text in texts]}
    plain = [[message("user", " a "), message("assistant", " b ")], [message("system", " s\n"), message("user", "a"), message("assistant", "b"), message("user", "c"),
             message("assistant", "<think>\nx\n</think>\n\nd")], [message("system", ""), message("user", "a"), message("assistant", "\nb")]]
    once = [message("user", "a"), {"role": "assistant", "content": "", **calls("é")}, message("tool", " 3 \"x\"\n"), message("assistant", "d")]
    tooled = [[message("system", "s"), *once], once, [message("system", " "), *once], [message("user", "a"), {"role": "assistant", "content": "b", **calls("x", "y")}, message("tool", "1"), message("tool", "2"),
                                                      message("assistant", "c"), message("user", "d"), message("assistant", "e")]]
    thought = [[message("user", "a"), {**message("assistant", "b"), "reasoning_content": "x"}, message("user", "c"), {**message("assistant", "d"), "reasoning_content": "y\n"}],
               [message("user", "a"), {**message("assistant", "b"), "reasoning_content": "x", **calls("y")}, message("tool", "1"), message("assistant", "c")],
               [message("user", "a"), message("assistant", "b"), message("user", " <tool_response>c</tool_response>\n"), message("assistant", "d")]]
    smol = [[message("system", text), *plain[0]] for text in ("/no_think", "/no_think s", "s /think", "t /system_override", " /system_override/no_think ")]
    for kind, given in (("qwen2.5", plain + tooled), ("qwen3", plain + tooled + thought), ("qwen3-instruct", plain + tooled), ("qwen3-thinking", plain + tooled + thought),
                        ("qwen3.5", plain + tooled + thought), ("qwen3.5-nothink", plain + tooled + thought), ("smollm3", plain + smol), ("llama3.1", plain + tooled[:2]), ("llama3.2", plain + tooled[:2])):
        lines = write("own.jsonl", "".join(json.dumps({"messages": each, **({"tools": [tool, tool]} if each in tooled else {})}) + "\n" for each in given))
        done = run(GPT_PREPARE, "--tokenizer=train", "--vocab-size=330", f"--chat={kind}", *words, f"--out-dir=own-{kind}", lines)
        check(f"{kind} prepared", done.returncode == 0, done.stderr)
        done = run(GPT_TRAIN, f"--dataset=./own-{kind}", f"--out_dir=own-{kind}-out", "--n_layer=1", "--n_head=1", "--n_embd=8", "--block_size=2048", "--max_iters=0",
                   "--batch_size=1", "--gradient_accumulation_steps=1", "--eval_iters=1", "--always_save_checkpoint=True")
        check(f"{kind} trained", done.returncode == 0, done.stderr)
        texts = {"our text": read_json(f"own-{kind}-out/tokenizer_config.json")["chat_template"],
                 **{name: read(path).decode() for name, word in KNOWN.items() if word == kind for path in [f"{folder}/{name}.jinja"] if os.path.exists(path)}}
        for name, jinja in texts.items():
            wanted = sorted(world.from_string(jinja).render(messages=each, bos_token="<|begin_of_text|>", date_string="26 Jul 2024",
                                                            **({"tools": [tool, tool]} if each in tooled else {})) for each in given)
            found = sorted(text.replace("\1", "").replace("\2", "") for text in Tokens(f"own-{kind}", "train").conversations())
            check(f"{kind}: {name} in Jinja", found == wanted, next((f"{a!r}, wanted {b!r}" for a, b in zip(found, wanted) if a != b), f"{len(found)} {len(wanted)}"))
    return world


def families():
    small = [[message("user", "a"), message("assistant", "b")], [message("system", "s"), message("user", " a "), message("assistant", " b "),
                                                                  message("user", "c"), message("assistant", "<think>\nx\n</think>\n\nd")]]
    words = ["--val-fraction=0", "--block-size=512"]
    lines = write_lines("two.jsonl", small)
    # The template of a folder is its model's, wherever it stands; what the folder's data say goes with the vocabulary.
    for kind, other in (("chatml", "llama3"), ("llama3", "chatml")):
        jinja = "".join(("{% for message in messages %}{{ '", TEMPLATES[kind][1].format("' + message['role'] + '").replace("\n", "\\n"),
                         "' + message['content'] + '", TEMPLATES[kind][2], TEMPLATES[kind][3].replace("\n", "\\n"), "' }}{% endfor %}"))
        for place in ("tokenizer_config.json", "chat_template.jinja", "chat_template.json"):
            model_make(f"own-{kind}-{place}", kind, jinja, place)
            done = run(GPT_PREPARE, f"--tokenizer=own-{kind}-{place}", "--chat", *words, f"--out-dir=by-{kind}", lines)
            check(f"{kind} in {place}", done.returncode == 0 and f"chat template: {kind}, recognised by parts of the model's own" in done.stderr
                  and sorted(Tokens(f"by-{kind}", "train").conversations()) == sorted(rendered(kind, each) for each in small), done.stderr)
            check("its text stays", read_json(f"by-{kind}/gpt_tokenizer.json")["chat_template"] == jinja)
    model_make("strange", "chatml", "{{ messages | length }}")
    done = run(GPT_PREPARE, "--tokenizer=strange", "--chat", *words, "--out-dir=strange-data", lines)
    check("an unknown template is refused with how to choose", done.returncode == 2 and "not one that is known here; --chat=chatml" in done.stderr
          and len(done.stderr.splitlines()) == 1, done.stderr)
    done = run(GPT_PREPARE, "--tokenizer=strange", "--chat=chatml", *words, "--out-dir=strange-data", lines)
    said = read_json("strange-data/gpt_tokenizer.json")
    check("and the choice is kept", done.returncode == 0 and said["chat"] == "chatml" and "chat_template" not in said, done.stderr)
    # Without --chat, a model's template stays, known or not.
    done = run(GPT_PREPARE, "--tokenizer=strange", "--val-fraction=0", "--out-dir=strange-text", write("words.txt", "some words " * 50))
    check("a text keeps the template of its vocabulary", read_json("strange-text/gpt_tokenizer.json").get("chat_template") == "{{ messages | length }}",
          done.stderr)
    folder = trl_folder()
    world = own_texts(["--val-fraction=0", "--block-size=2048"], folder)
    if folder is None or world is None:
        skip("chat_families", "no TRL, which has copies of models' templates")
        return
    for name, word in KNOWN.items():
        if not os.path.exists(f"{folder}/{name}.jinja"):
            continue
        jinja = read(f"{folder}/{name}.jinja").decode()
        given = small[:1] if word == "gemma" else small
        lines = write_lines("two.jsonl", given)
        done = run(GPT_PREPARE, "--tokenizer=train", "--vocab-size=300", f"--chat={word}", *words, f"--out-dir=v-{name}", lines)
        model_make(f"m-{name}", f"v-{name}", jinja)
        done = run(GPT_PREPARE, f"--tokenizer=m-{name}", "--chat", *words, f"--out-dir=d-{name}", lines)
        bos = {"llama3": "<|begin_of_text|>", "gemma": "<bos>"}.get(name.split("_")[0].rstrip("3") + ("3" if "llama3" in name else ""), "")
        wanted = [world.from_string(jinja).render(messages=each, bos_token=bos, eos_token=END, date_string="26 Jul 2024") for each in given]
        found = ["".join(text.split("\1")).replace("\2", "") for text in Tokens(f"d-{name}", "train").conversations()]
        check(f"{name}: {word}, the model's own", done.returncode == 0 and f"chat template: {word}, the model's own" in done.stderr
              and sorted(found) == sorted(text.removesuffix(END) for text in wanted), f"{done.stderr} {found} {wanted}")
    strangers = [name for name in sorted(os.listdir(folder)) if name.startswith(("cohere", "deepseek", "gptoss", "glm", "gemma4"))]
    for name in strangers:
        model_make("stranger", "chatml", read(f"{folder}/{name}").decode())
        done = run(GPT_PREPARE, "--tokenizer=stranger", "--chat", *words, "--out-dir=stranger-data", lines)
        check(f"{name} is refused", done.returncode == 2 and "not one that is known here" in done.stderr, done.stderr)


# ---- a conversation ----

def typed_in_terminal(words, pieces):
    """Runs a program on a terminal, on which the pieces are typed, each at a prompt; returns its status and what it shows."""
    process, terminal = pty.fork()
    if process == 0:
        os.environ["TERM"] = "vt100"
        os.execv(words[0], words)
    shown, ends = b"\n", time.monotonic() + patience(60)
    while time.monotonic() < ends:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                shown += os.read(terminal, 4096)
            except OSError:  # the program has ended
                break
        elif pieces and shown.endswith(b"\n> "):  # it waits
            os.write(terminal, pieces.pop(0).encode())
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), shown.decode(errors="replace")


def talk():
    if not os.path.exists("model/model.safetensors"):
        answers()
    chat = [GPT_SAMPLE, "--out_dir=model", "--chat", "--temperature=0"]
    red, blue = "what is red?", "what is blue?"
    done = run(*chat, stdin=f"{red}\n/reset\n{blue}\n/nonsense\n\n")
    check("/reset begins anew", done.stdout.splitlines() == [QUESTIONS[red], QUESTIONS[blue]] and "a new conversation begins" in done.stderr
          and "/nonsense: no such command" in done.stderr, done.stderr + done.stdout)
    fresh = run(*chat, "--start=be brief", stdin=red + "\n").stdout
    done = run(*chat, stdin=f"/system be brief\n{red}\n/system\n/reset\n{red}\n")
    check("/system sets the message, and removes it", done.stdout == fresh + QUESTIONS[red] + "\n" and "the system message is set" in done.stderr
          and "there is no system message now" in done.stderr, done.stderr + done.stdout)
    done = run(*chat, stdin=f"{red}\n" * 3)
    check("the oldest turns leave the context", done.returncode == 0 and done.stderr.count("leaves it") >= 1
          and done.stdout.splitlines()[0] == QUESTIONS[red], done.stderr)
    done = subprocess.run([*chat], input=b"what is \xff red?\n", check=False, capture_output=True, timeout=patience(300))
    check("bytes that are not UTF-8", done.returncode == 0 and done.stdout.decode(), done.stderr.decode())
    prepare("gemma-data", "--chat=gemma", "--block-size=64", "--val-fraction=0", write_lines("gemma.jsonl", [[message("user", "a"), message("assistant", "b")]]))
    run(GPT_TRAIN, "--dataset=./gemma-data", "--out_dir=gemma-model", "--n_layer=1", "--n_head=1", "--n_embd=8", "--block_size=64", "--max_iters=1",
        "--batch_size=1", "--gradient_accumulation_steps=1", "--eval_iters=1", "--warmup_iters=0")
    done = run(GPT_SAMPLE, "--out_dir=gemma-model", "--chat", "--max_new_tokens=2", stdin="/system be brief\na\n")
    check("a template without a system message: /system", done.returncode == 0 and "/system: the template gemma has no place" in done.stderr, done.stderr)
    done = run(GPT_SAMPLE, "--out_dir=gemma-model", "--chat", "--start=be brief", stdin="a\n")
    check("and --start", done.returncode == 2 and "--start: the template gemma has no place" in done.stderr, done.stderr)
    shutil.copytree("model", "ends")
    vocabulary = read_json("ends/gpt_tokenizer.json")["vocabulary"]
    is_a = run(*chat, stdin=red + "\n").stdout  # "red is a apple."
    space = vocabulary.index("\u0120a") if "\u0120a" in vocabulary else vocabulary.index("a")
    for ends in (space, [1, space]):
        write("ends/generation_config.json", json.dumps({"eos_token_id": ends}))
        done = run(GPT_SAMPLE, "--out_dir=ends", "--chat", "--temperature=0", stdin=red + "\n")
        check(f"generation_config.json: {ends} ends an answer", done.returncode == 0 and is_a.startswith(done.stdout.rstrip("\n"))
              and len(done.stdout) < len(is_a), done.stdout + done.stderr)
    write("ends/generation_config.json", "{")
    done = run(GPT_SAMPLE, "--out_dir=ends", "--chat", "--temperature=0", stdin=red + "\n")
    check("a broken one is noted", done.stdout == is_a and "generation_config.json: not read" in done.stderr, done.stderr)
    edited, typed = typed_in_terminal([GPT_SAMPLE, "--out_dir=model", "--chat", "--temperature=0"], ["what is rd?\x02\x02e\n", "\x04"])
    if b"#define HAVE_LIBEDIT 1" in read(os.path.join(BUILD, "config.h")):
        check("lines are edited on a terminal", edited == 0 and QUESTIONS[red] in typed and "without libedit" not in typed, typed)
    else:
        check("a build without libedit says so", "built without libedit" in typed, typed)
    said = read_json("ends/gpt_tokenizer.json")
    write("ends/gpt_tokenizer.json", json.dumps({**{key: value for key, value in said.items() if key != "chat"}, "chat_template": "{{ x }}"}))
    done = run(GPT_SAMPLE, "--out_dir=ends", "--chat", stdin=red + "\n")
    check("an unknown template", done.returncode == 2 and "not one that is known here" in done.stderr, done.stderr)


end(rows, kills, loss, resume, answers, tuned, refused, targets, answers_with_the_end_of_text, own_validation, fields, forms, sources, parquet, families, talk, begin=begin)
