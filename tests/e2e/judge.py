#!/usr/bin/env python3
"""Evaluation of a model: perplexity and bits per byte of a token file, multiple-choice questions.

The reference is a GPT-2 in plain Python and float64 that reads the weights saved by gpt-train.  The script also tests
damaged and mislabelled files.
"""

import array
import math
import os
import random
import re
import struct

from checks import GPT_PREPARE, GPT_TRAIN, check_named as check, end, error_lines, ran, read, read_json, run, tensors_read, write

T, C, L, H = 8, 12, 2, 2
TOLERANCE = 1e-5


# ---- the reference ----
def read_weights(path):
    weights = {}
    for name, (_, shape, raw) in tensors_read(path).items():
        values = array.array("f", raw)
        rows = [list(values[i * shape[1]:(i + 1) * shape[1]]) for i in range(shape[0])] if len(shape) == 2 else list(values)
        weights[name.replace("transformer.", "")] = rows
    return weights


def layernorm(x, w, name):
    mean = sum(x) / len(x)
    scale = 1 / math.sqrt(sum((v - mean) ** 2 for v in x) / len(x) + 1e-5)
    return [(v - mean) * scale * g + b for v, g, b in zip(x, w[name + ".weight"], w[name + ".bias"])]


def linear(x, w, name):
    columns = zip(*w[name + ".weight"])
    return [sum(a * b for a, b in zip(x, column)) + bias for column, bias in zip(columns, w[name + ".bias"])]


def softmax(x):
    top = max(x)
    powers = [math.exp(v - top) for v in x]
    return [p / sum(powers) for p in powers]


def attention(qkv):
    size, out = C // H, []
    for t in range(len(qkv)):
        row = []
        for h in range(H):
            part = slice(h * size, (h + 1) * size)
            q = qkv[t][:C][part]
            keys = [qkv[s][C:2 * C][part] for s in range(t + 1)]
            share = softmax([sum(a * b for a, b in zip(q, k)) / math.sqrt(size) for k in keys])
            row += [sum(p * qkv[s][2 * C:][part][i] for s, p in enumerate(share)) for i in range(size)]
        out.append(row)
    return out


def losses(w, ids):
    """Returns the loss of each token of `ids` except the first, in nats."""
    x = [[a + b for a, b in zip(w["wte.weight"][i], w["wpe.weight"][t])] for t, i in enumerate(ids[:-1])]
    for layer in range(L):
        h = f"h.{layer}."
        mixed = attention([linear(layernorm(r, w, h + "ln_1"), w, h + "attn.c_attn") for r in x])
        x = [[a + b for a, b in zip(r, linear(m, w, h + "attn.c_proj"))] for r, m in zip(x, mixed)]
        up = [linear(layernorm(r, w, h + "ln_2"), w, h + "mlp.c_fc") for r in x]
        up = [[0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in r] for r in up]
        x = [[a + b for a, b in zip(r, linear(u, w, h + "mlp.c_proj"))] for r, u in zip(x, up)]
    found = []
    for row, target in zip(x, ids[1:]):
        row = layernorm(row, w, "ln_f")
        share = softmax([sum(a * b for a, b in zip(row, e)) for e in w["wte.weight"]])
        found.append(-math.log(share[target]))
    return found


def walk(w, ids, time=T):
    """Returns the sum over all tokens except the first: windows of `time`, the last of which overlaps its neighbour."""
    total, at = 0.0, 0
    while at + time < len(ids):
        total += sum(losses(w, ids[at:at + time + 1]))
        at += time
    rest = len(ids) - 1 - at
    return total + (sum(losses(w, ids[-time - 1:])[-rest:]) if rest else 0.0)


# ---- tests ----
def judged(text):
    match = re.search(r": (\d+) tokens, loss ([\d.]+), perplexity ([\d.e+]+)"
                      r"(?:, (\d+) bytes, bits per byte ([\d.]+))?$", text.strip())
    return match and [float(value) if value else None for value in match.groups()]


def judge(*arguments):
    return ran(GPT_TRAIN, "--init_from=resume", "--out_dir=run", "--threads=1", *arguments)


def write_ids(path, ids):
    write(path, array.array("H", ids).tobytes())


def texts(w, vocabulary):
    random.seed(1337)
    for count in (T + 1, 2 * T + 1, 5 * T + 4, 100):
        ids = [random.randrange(len(vocabulary)) for _ in range(count)]
        write_ids("data/some.bin", ids)
        done = judge("--eval_data=data/some.bin")
        found = judged(done.stdout)
        loss = walk(w, ids) / (count - 1)
        size = sum(len(chr(vocabulary[i]).encode()) for i in ids[1:])
        bits = loss * (count - 1) / math.log(2) / size
        good = found and found[0] == count - 1 and abs(found[1] - loss) < TOLERANCE and found[3] == size and \
            abs(found[2] / math.exp(loss) - 1) < TOLERANCE and abs(found[4] - bits) < TOLERANCE
        check(f"perplexity of {count} tokens", good, f"{found} {loss} {bits} {done.stderr}")
    done = judge("--eval_data=data/some.bin", "--eval_block_size=3", "--eval_batch_size=7")
    found, loss = judged(done.stdout), walk(w, ids, 3) / (len(ids) - 1)
    check("less context", found and abs(found[1] - loss) < TOLERANCE, f"{found} {loss} {done.stderr}")
    done = judge("--eval_data=data/some.bin", f"--eval_tokens={2 * T}")
    found, loss = judged(done.stdout), walk(w, ids[:2 * T + 1]) / (2 * T)
    size = sum(len(chr(vocabulary[i]).encode()) for i in ids[1:2 * T + 1])
    check("the first tokens", found and found[0] == 2 * T and abs(found[1] - loss) < TOLERANCE and found[3] == size,
          f"{found} {loss} {done.stderr}")
    val = array.array("H", read("data/val.bin"))
    done = judge("--eval_data=data")
    found, loss = judged(done.stdout), walk(w, list(val)) / (len(val) - 1)
    check("a folder's val split", found and found[0] == len(val) - 1 and abs(found[1] - loss) < TOLERANCE,
          f"{found} {loss} {done.stderr}")
    os.makedirs("bare")
    os.rename("data/some.bin", "bare/some.bin")
    os.rename("run/gpt_tokenizer.json", "kept.json")
    done = judge("--eval_data=bare/some.bin")
    found = judged(done.stdout)
    check("no tokenizer, no bytes", found and found[3] is None and "gpt_tokenizer.json" in done.stderr, done.stdout)
    os.rename("kept.json", "run/gpt_tokenizer.json")


def pack_question(index, right, context, answers):
    body = [right, len(answers), len(context), *context]
    for answer in answers:
        body += [len(answer), *answer]
    return struct.pack(f"<{len(body) + 3}H", 65535, 2 * (len(body) + 3), index, *body)


def write_questions(path, questions, count=None):
    parts = [pack_question(i, *question) for i, question in enumerate(questions)]
    header = [20240522, 1, len(parts) if count is None else count, max(map(len, parts))]
    write(path, struct.pack("<256i", *(header + [0] * 252)) + b"".join(parts))


def make_questions(vocab):
    random.seed(7)
    made = []
    for _ in range(40):
        context = [random.randrange(vocab) for _ in range(random.randint(1, 4))]
        answers = [[random.randrange(vocab) for _ in range(random.randint(1, T + 1 - len(context)))] for _ in range(4)]
        made.append((random.randrange(4), context, answers))
    return made


def questions(w, vocab):
    made = make_questions(vocab)
    by_mean = by_sum = 0
    for right, context, answers in made:
        sums = [sum(losses(w, context + answer)[len(context) - 1:]) for answer in answers]
        means = [total / len(answer) for total, answer in zip(sums, answers)]
        by_mean += means.index(min(means)) == right
        by_sum += sums.index(min(sums)) == right
    write_questions("questions.bin", made)
    expected = f"questions.bin: accuracy norm {by_mean}/40 = {by_mean / 40:.6f}, accuracy {by_sum}/40 = {by_sum / 40:.6f}\n"
    for extra in ([], ["--eval_batch_size=3"]):
        done = judge("--hellaswag=questions.bin", *extra)
        check(f"questions {extra}", done.stdout == expected, f"{done.stdout} {expected} {done.stderr}")
    check("the two ways to choose differ here", by_mean != by_sum, f"{by_mean} {by_sum}")


def refused(name, *words, arguments=("--hellaswag=bad.bin",)):
    done = judge(*arguments)
    lines = error_lines(done)
    good = done.returncode == 2 and len(lines) == 1 and all(word in lines[0] for word in words) and done.stdout == ""
    check(f"refused: {name}", good, f"{done.returncode} {done.stdout} {done.stderr[-500:]}")


def bad_files(vocab):
    made = make_questions(vocab)
    write_questions("good.bin", made)
    whole = read("good.bin")

    def change(name, at, form, value, *words):
        data = bytearray(whole)
        data[at:at + struct.calcsize(form)] = struct.pack(form, value)
        write("bad.bin", data)
        refused(name, "bad.bin", *words)

    change("another magic", 0, "<i", 1, "magic 1")
    change("another version", 4, "<i", 2, "version 2")
    change("no questions", 8, "<i", 0, "header[2]")
    change("too many questions", 8, "<i", 41, "question 40")
    change("too few questions", 8, "<i", 39, "question 38")
    change("no start", 1024, "<H", 1, "question 0")
    change("an odd length", 1026, "<H", 21, "question 0")
    change("a length of 0", 1026, "<H", 0, "question 0")
    change("a length beyond the file", 1026, "<H", 65534, "question 0")
    change("another index", 1028, "<H", 3, "question 0")
    change("an answer that is not there", 1030, "<H", 4, "answers")
    change("too many answers", 1032, "<H", 17, "answers")
    change("an empty context", 1034, "<H", 0, "context")
    change("a long context", 1034, "<H", 60000, "context")
    change("a token beyond the vocabulary", 1036, "<H", vocab, f"token {vocab}")
    for length in (0, 100, 1024, 1030, len(whole) - 2):
        write("bad.bin", whole[:length])
        refused(f"the first {length} bytes", "bad.bin")
    write_questions("bad.bin", [(0, [1] * 5, [[1] * (T - 3), [2]])])
    refused("a question longer than the context", "bad.bin", str(T + 2))
    refused("from scratch", "init_from", arguments=("--init_from=scratch", "--eval_data=data"))
    refused("more context than the model has", "eval_block_size", arguments=("--eval_data=data", f"--eval_block_size={T + 1}"))
    write_ids("bad.bin", [vocab] * 20)
    refused("a token file beyond the vocabulary", "bad.bin", arguments=("--eval_data=bad.bin",))
    # Regression: tokens of another tokenizer had a loss and status 0 if their ids were small enough.
    write("few.txt", b"ab\n" * 200)
    run(GPT_PREPARE, "--tokenizer=chars", "--out-dir=few", "few.txt")
    for place in ("few", "few/val.bin"):
        refused(f"tokens of another tokenizer: {place}", "tokenizer of 3 tokens", arguments=(f"--eval_data={place}",))
    done = run(GPT_PREPARE, "--tokenizer=few", "--out-dir=none", "few.txt", status=2)
    check("characters are made from the texts", "all texts that are to have the same characters in one command" in done.stderr, done.stderr)
    write_ids("bad.bin", [1] * T)
    refused("a token file that is too short", "bad.bin", arguments=("--eval_data=bad.bin",))
    done = judge("--hellaswag=nowhere.bin")
    check("a file that is not there", done.returncode == 1 and "nowhere.bin" in done.stderr, done.stderr)


def main():
    dice = random.Random(5)
    write("text.txt", "".join(dice.choice("abcdefgh .,\u00e4\u20ac") for _ in range(2000)))
    done = ran(GPT_PREPARE, "--tokenizer=chars", "--out-dir=data", "text.txt")
    check("the data", done.returncode == 0, done.stderr)
    vocabulary = read_json("data/gpt_tokenizer.json")["vocabulary"]
    done = ran(GPT_TRAIN, "--dataset=./data", "--out_dir=run", f"--n_layer={L}", f"--n_head={H}", f"--n_embd={C}",
               f"--block_size={T}", "--bias=True", "--batch_size=4", "--gradient_accumulation_steps=1",
               "--eval_iters=1", "--max_iters=60", "--learning_rate=0.02", "--warmup_iters=0", "--threads=1",
               "--lr_decay_iters=60")
    check("a run", done.returncode == 0, done.stderr)
    before = sorted(os.listdir("run"))
    w = read_weights("run/model.safetensors")
    texts(w, vocabulary)
    questions(w, len(vocabulary))
    bad_files(len(vocabulary))
    check("nothing was written", sorted(os.listdir("run")) == before)


end(main)
