#!/usr/bin/env python3
"""Conversations: what gpt-prepare writes, the loss that counts, gpt-sample's answers, what is refused.

  rows      rows and masks hold each conversation once, in its template, cut where it is too long; two templates
  kills     killed and run again, gpt-prepare writes the same files
  loss      losses of training and evaluation are those of a model in double that is written here from the formulas, over
            the assistant's tokens alone, with a document mask, and for any micro-batch; a mask off by one is not
  resume    a stopped run continues to the byte; another mask is noticed
  answers   a model that was trained on 20 answers gives all 20 and stops; the export has the template
  refused   bad conversations, vocabularies and sizes
  targets   rows without a target are left out; data without any is refused; an update without any changes nothing
  fields    what changes the meaning and no template writes is refused; answers of weight 0 do not count
  forms     other programs' forms: the command in the message converts them; a forgotten --chat is named
Needs GPT_PREPARE, GPT_TRAIN, GPT_SAMPLE, GPT_EXPORT.  Prints "checks: P passed, F failed, S skipped".
"""

import json
import math
import os
import random
import shutil
import signal
import struct
import subprocess
import time

from checks import (GPT_EXPORT, GPT_PREPARE, GPT_SAMPLE, GPT_TRAIN, check_named as check, end, files, metrics, patience, read, read_json,
                    skip, tensors_read, write)

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


def letters():
    """Returns GPT-2's alphabet: the byte that each character stands for."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return {**{chr(byte): byte for byte in plain}, **{chr(256 + i): byte for i, byte in enumerate(sorted(set(range(256)) - set(plain)))}}


class Tokens:
    """A split of a data set: ids, which of them count, the tokens of a row, the text of each id."""

    def __init__(self, folder, split):
        data, mask = (read(os.path.join(folder, f"{split}.{ending}")) for ending in ("bin", "mask"))
        self.ids = struct.unpack(f"<{len(data) // 2}H", data)
        self.row = struct.unpack("<Q", mask[8:16])[0]
        self.counts = [mask[16 + i // 8] >> i % 8 & 1 for i in range(len(self.ids))]
        made, alphabet = read_json(os.path.join(folder, "gpt_tokenizer.json")), letters()
        self.text = [each.encode() if i in made["special"] else bytes(alphabet[c] for c in each)
                     for i, each in enumerate(made["vocabulary"])]

    def rows(self):
        """Returns each row's ids and the flags of its targets."""
        starts = range(0, len(self.ids) - 1, self.row)
        return [(self.ids[at:at + self.row], self.ids[at + 1:at + self.row + 1], self.counts[at + 1:at + self.row + 1]) for at in starts]

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
        return " ".join(words)
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
    lines = write_lines("many.jsonl", some_conversations(random.Random(6), 60000))
    words = [GPT_PREPARE, "--chat=chatml", "--tokenizer=chatml", "--block-size=256", "--save-every=1", lines]
    subprocess.run([*words, "--out-dir=whole", "--threads=1"], check=True, capture_output=True)
    with subprocess.Popen([*words, "--out-dir=killed"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and not os.path.exists("killed/.gpt-prepare.state"):
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
    done = run(*words, "--out-dir=killed")
    check("a killed run continues", done.returncode == 0 and "continuing" in done.stderr, done.stderr)
    check("and writes the same files", files("killed") == files("whole"))
    done = run(*words[:-2], lines, "--out-dir=seldom")
    check("and so does one that saves seldom", os.path.getsize(lines) > 4 << 20 and files("seldom") == files("whole"), done.stderr)
    shutil.rmtree("whole")


# ---- the loss ----

def product(x, weight, bias):
    """[T, in] x [in, out] + bias"""
    return [[sum(a * b for a, b in zip(row, column)) + c for column, c in zip(weight, bias)] for row in x]


class Twin:
    """GPT-2 in double.  Attention and positions stay inside a document."""

    def __init__(self, folder, heads, layers):
        raw = {name.removeprefix("transformer."): (shape, struct.unpack(f"<{len(data) // 4}f", data))
               for name, (_, shape, data) in tensors_read(os.path.join(folder, "model.safetensors")).items()}
        self.heads, self.layers = heads, layers
        self.vector = {name: values for name, (shape, values) in raw.items() if len(shape) == 1}
        self.rows = {name: [values[i * shape[1]:(i + 1) * shape[1]] for i in range(shape[0])]
                     for name, (shape, values) in raw.items() if len(shape) == 2}
        self.columns = {name: list(zip(*rows)) for name, rows in self.rows.items()}

    def linear(self, x, name):
        return product(x, self.columns[name + ".weight"], self.vector[name + ".bias"])

    def norm(self, x, name):
        out = []
        for row in x:
            mean = sum(row) / len(row)
            scale = (sum((v - mean) ** 2 for v in row) / len(row) + 1e-5) ** -0.5
            out.append([(v - mean) * scale * g + b for v, g, b in zip(row, self.vector[name + ".weight"], self.vector[name + ".bias"])])
        return out

    def attention(self, qkv, first):
        width = len(qkv[0]) // 3
        size, out = width // self.heads, []
        for t, row in enumerate(qkv):
            mixed = []
            for h in range(0, width, size):
                scores = [sum(a * b for a, b in zip(row[h:h + size], qkv[s][width + h:width + h + size])) / math.sqrt(size)
                          for s in range(first[t], t + 1)]
                most = max(scores)
                shares = [math.exp(score - most) for score in scores]
                mixed += [sum(share * qkv[first[t] + s][2 * width + h + c] for s, share in enumerate(shares)) / sum(shares)
                          for c in range(size)]
            out.append(mixed)
        return out

    def losses(self, ids, targets, last):
        """Returns the loss of each row; `last` is the id that ends a document."""
        first = [0]
        for t in range(1, len(ids)):
            first.append(t if ids[t - 1] == last else first[-1])
        x = [[a + b for a, b in zip(self.rows["wte.weight"][i], self.rows["wpe.weight"][t - first[t]])] for t, i in enumerate(ids)]
        for layer in range(self.layers):
            at = f"h.{layer}."
            y = self.linear(self.attention(self.linear(self.norm(x, at + "ln_1"), at + "attn.c_attn"), first), at + "attn.c_proj")
            x = [[a + b for a, b in zip(*pair)] for pair in zip(x, y)]
            y = self.linear(self.norm(x, at + "ln_2"), at + "mlp.c_fc")
            y = self.linear([[v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in row] for row in y], at + "mlp.c_proj")
            x = [[a + b for a, b in zip(*pair)] for pair in zip(x, y)]
        found = []
        for row, target in zip(self.norm(x, "ln_f"), targets):
            logits = [sum(a * b for a, b in zip(row, word)) for word in self.rows["wte.weight"]]
            most = max(logits)
            found.append(most + math.log(sum(math.exp(v - most) for v in logits)) - logits[target])
        return found

    def mean(self, tokens):
        """Returns the mean loss over the targets that count."""
        last, total, count = tokens.text.index(END.encode()), 0.0, 0
        for ids, targets, counts in tokens.rows():
            for loss, counted in zip(self.losses(ids, targets, last), counts):
                total += loss * counted
                count += counted
        return total / count


def train(out, data, *words):
    done = run(GPT_TRAIN, f"--dataset=./{data}", f"--out_dir={out}", "--n_layer=2", "--n_head=2", "--bias=True",
               "--document_mask=True", "--dtype=float32", "--eval_iters=0", "--threads=2", *words)
    check(f"gpt-train {out}", done.returncode == 0, done.stderr)
    return metrics(out)


def small(**rest):
    """Returns the keys of a model with rows of 24 tokens that sees all rows of data set "small" in an update."""
    keys = {"n_embd": 16, "block_size": 24, "sampler": "epoch", "gradient_accumulation_steps": 1, "learning_rate": 0.01,
            "decay_lr": False, "warmup_iters": 0, "log_interval": 1, "eval_interval": 100, **rest}
    return [f"--{name}={value}" for name, value in keys.items()]


def loss():
    whole = Tokens("small", "train")
    count = len(whole.rows())
    train("begun", "small", *small(batch_size=count, max_iters=4, eval_interval=5))
    words = ["--init_from=begun", *small(batch_size=count, max_iters=0)]
    twin = Twin("begun", 2, 2)
    wanted, wanted_val = twin.mean(whole), twin.mean(Tokens("small", "val"))
    for micro in (0, 1, count - 1):
        lines = train(f"micro{micro}", "small", *words, f"--micro_batch={micro}")
        check(f"training, micro-batch {micro}", abs(lines[0]["loss"] - wanted) <= 1e-5 * wanted, f"{lines[0]['loss']}, {wanted}")
        value = metrics(f"micro{micro}", "val_loss")[0]["val_loss"]
        check(f"evaluation, micro-batch {micro}", abs(value - wanted_val) <= 1e-5 * wanted_val, f"{value}, {wanted_val}")
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

def answers():
    given = [[message("user", q), message("assistant", a)] for q, a in QUESTIONS.items()] * 20
    done = prepare("patterns", "--chat=chatml", f"--block-size={BLOCK}", "--val-fraction=0", write_lines("patterns.jsonl", given))
    check("patterns prepared", done.returncode == 0 and "document_mask=True" in done.stdout, done.stderr)
    lines = train("model", "patterns", "--n_embd=32", f"--block_size={BLOCK}", "--batch_size=8", "--gradient_accumulation_steps=1",
                  "--max_iters=300", "--lr_decay_iters=300", "--learning_rate=1e-2", "--min_lr=1e-4", "--warmup_iters=20",
                  "--eval_interval=400", "--eval_iters=1")
    check("the patterns are learned", lines[-1]["loss"] < 0.1, str(lines[-1]))
    chat = ["--out_dir=model", "--chat=True", "--temperature=0"]
    said = [run(GPT_SAMPLE, *chat, stdin=question + "\n").stdout for question in QUESTIONS]
    right = sum(a == b + "\n" for a, b in zip(said, QUESTIONS.values()))
    check("20 of 20 answers", right == 20, f"{right}: {said}")
    done = run(GPT_SAMPLE, *chat, stdin="what is red?\n" * 4)
    check("a conversation that fills the context begins anew", "begins anew" in done.stderr and done.stdout.splitlines()[0]
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
        done = [run(GPT_EXPORT, f"--out_dir={out}", "--format=hf", "hf-" + out), run(GPT_EXPORT, f"--out_dir={out}", "--format=gguf", out + ".gguf")]
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
           "has no text as \"content\"": [message("user", 7), good[1]],
           "is an empty answer": [good[0], message("assistant", "")],
           "no message is the assistant's": [good[0]]}
    for what, messages in bad.items():
        done = prepare("bad", "--chat=chatml", write_lines("bad.jsonl", [good, messages]))
        check(f"a message {what}", done.returncode == 2 and "line 2: " in done.stderr and what in done.stderr, done.stderr)
    done = prepare("bad", "--chat=chatml", write("bad.jsonl", '{"messages": "a"}\n'))
    check("messages that are no list", done.returncode == 2 and "expected a list, found a string" in done.stderr, done.stderr)
    done = prepare("skips", "--chat=chatml", "--bad-lines=skip", "--val-fraction=0", write_lines("bad.jsonl", [good, *bad.values()]))
    check("bad lines are left out and counted", done.returncode == 0 and "5 bad lines left out" in done.stderr, done.stderr)
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
    rows_ = len(Tokens("sparse", "train").rows())
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


# ---- fields and forms ----

def fields():
    answer, ask = message("assistant", "fine"), message("user", "how are you?")
    bad = {"tools": {"tools": [{"type": "function"}], "messages": [ask, answer]}, "functions": {"functions": [{}], "messages": [ask, answer]},
           "system": {"system": "be brief", "messages": [ask, answer]}, "images": {"images": ["a.png"], "messages": [ask, answer]},
           **{key: {"messages": [ask, {**answer, key: value}]} for key, value in (
               ("tool_calls", [{"id": 1}]), ("function_call", {"name": "f"}), ("name", "Bob"), ("reasoning_content", "hm"), ("thinking", "hm"))},
           "weight": {"messages": [ask, {**answer, "weight": 0.5}]}, "image_url": {"messages": [
               message("user", [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "x"}}]), answer]},
           **{role: {"messages": [ask, message(role, "x"), answer]} for role in ("tool", "function", "developer")}}
    for key, line in bad.items():
        good = json.dumps({"messages": [ask, answer], "id": 7, "source": "x", "tools": [], "weight": 1})
        done = prepare("bad", "--chat=chatml", write("bad.jsonl", good + "\n" + json.dumps(line) + "\n"))
        check(f"{key} is refused", done.returncode == 2 and "bad.jsonl: line 2: " in done.stderr and f'"{key}"' in done.stderr
              and not os.path.exists("bad"), done.stderr)
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
    lines = {"ShareGPT": ({"id": "1", "conversations": turns}, one),
             "ShareGPT with a system": ({"system": "be brief", "conversations": turns}, [message("system", "be brief"), *one]),
             "another key": ({"dialog": turns}, one),
             "Alpaca": ({"instruction": "say hi", "input": "", "output": "it's hi"}, one),
             "Alpaca with input": ({"instruction": "say", "input": "hi", "output": "it's hi"}, [message("user", "say\n\nhi"), one[1]]),
             "Dolly": ({"instruction": "say hi", "context": "", "response": "it's hi", "category": "x"}, one),
             "prompt and completion": ({"prompt": "say hi", "completion": "it's hi"}, one),
             "lists of them": ({"prompt": one[:1], "completion": one[1:]}, one),
             "question and answer": ({"question": "say hi", "answer": "it's hi"}, one)}
    words = ["--val-fraction=0", "--block-size=64", "--vocab-size=320"]
    for name, (line, wanted) in lines.items():
        given = write("a file.jsonl", json.dumps(line) + "\n\n")
        for more in (["--chat=chatml"], []):
            done = run(GPT_PREPARE, "--tokenizer=train", "--out-dir=form", *words[:3 if more else 1], *more, given)
            check(f"{name} {more}: one line names the command", done.returncode == 2 and len(done.stderr.splitlines()) == 1
                  and "python3 -c '" in done.stderr and "--format=text" not in done.stderr
                  and ("--chat=chatml messages.jsonl" in done.stderr) == (not more), done.stderr)
            command = "python3 -c '" + done.stderr.split("python3 -c '")[-1].split("; then give")[0]
            subprocess.run(command, shell=True, check=False, timeout=patience(60))
            done = prepare("form", "--chat=chatml", *words[:2], "messages.jsonl")
            check(f"{name} {more}: and it works", done.returncode == 0 and Tokens("form", "train").conversations() == [rendered("chatml", wanted)],
                  command + done.stderr)
            os.remove("messages.jsonl")
            shutil.rmtree("form", ignore_errors=True)
    tools = write("tools.jsonl", json.dumps({"conversations": turns, "tools": [1]}) + "\n")
    done = run(GPT_PREPARE, "--tokenizer=train", "--chat=chatml", tools)
    subprocess.run("python3 -c '" + done.stderr.split("python3 -c '")[-1].split("; then give")[0], shell=True, check=False)
    done = prepare("form", "--chat=chatml", "messages.jsonl")
    check("tools of a converted file are still refused", done.returncode == 2 and '"tools"' in done.stderr, done.stderr)
    # A forgotten --chat: the flags that the message names work.
    for tokenizer, flags in (("bytes", "--chat=chatml --tokenizer=train"), ("train", "--chat=chatml"), ("chatml", "--chat=chatml"),
                             ("llama3", "--chat=llama3")):
        for key in ("messages", "turns"):
            given = write("plain.jsonl", json.dumps({key: one}) + "\n")
            wanted = flags + ("" if key == "messages" else " --field=turns")
            done = run(GPT_PREPARE, "--tokenizer=" + tokenizer, "--out-dir=form", given)
            check(f"{tokenizer}, {key}: a forgotten --chat", done.returncode == 2 and done.stderr.endswith(f"give {wanted}\n"), done.stderr)
            done = run(GPT_PREPARE, "--tokenizer=" + tokenizer, "--out-dir=form", "--val-fraction=0", "--block-size=64", *wanted.split(), given)
            check("and its flags", done.returncode == 0, done.stderr)
            shutil.rmtree("form", ignore_errors=True)
    for words, what in ((["--tokenizer=chatml", "--chat=llama3"], "but those of --chat=chatml"),
                        (["--tokenizer=llama3", "--chat=chatml"], "but those of --chat=llama3"),
                        (["--tokenizer=bytes", "--chat=chatml"], "no token <|im_start|>, <|im_end|>; ")):
        done = run(GPT_PREPARE, *words, "--out-dir=form", "plain.jsonl")
        check(f"{words}: {what}", done.returncode == 2 and what in done.stderr, done.stderr)


end(rows, kills, loss, resume, answers, refused, targets, fields, forms, begin=begin)
