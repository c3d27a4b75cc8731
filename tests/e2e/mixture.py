#!/usr/bin/env python3
"""Several data sets in one run: shares, evaluations, resume, conversations beside plain text, what is refused.

  shares     a run whose weights do not move: the loss of each update is that of its data sets, weighted by the shares
  judged     losses of each data set are those of a run of eval_only over it alone, and the mean is weighted by the shares
  resumed    a killed run ends with the bytes of one that was not
  digested   a change of any data set is noticed by a resume
  chat       an update of a plain and a chat sample has the mean over the targets that count in both
  answered   --plan, gpt-sample and gpt-export know such a run
  refused    bad lists, missing folders, data of another tokenizer
  spellings  one folder with two names; a file for a folder; ~
  of_another_kind  token files that are none
Needs GPT_PREPARE, GPT_TRAIN, GPT_SAMPLE, GPT_EXPORT.
"""

import json
import os
import re
import struct
import subprocess

from checks import (GPT_EXPORT, GPT_PREPARE, GPT_SAMPLE, GPT_TRAIN, check_named as check, end, error_lines, files, make_text,
                    metrics, ran, read, skip, write)

TINY = ["--n_layer=1", "--n_head=2", "--n_embd=16", "--block_size=16", "--gradient_accumulation_steps=1", "--threads=1",
        "--dtype=float32", "--eval_iters=2", "--log_interval=1", "--warmup_iters=0"]
STILL = ["--learning_rate=1e-30", "--min_lr=0", "--weight_decay=0"]


def train(out, data, *words, status=0):
    done = ran(GPT_TRAIN, f"--dataset={data}", f"--out_dir={out}", *TINY, *words)
    check(f"gpt-train {out} {data}", done.returncode == status, done.stderr)
    return done


def begin():
    """Makes "same0" and "same1", of one token each; "old" and "mine", of text; "chat", of one row of conversation."""
    for token in (0, 1):
        for split in ("train", "val"):
            write(f"data/same{token}/{split}.bin", struct.pack("<H", token) * 400)
    text = read(make_text("old.txt")).decode()
    write("mine.txt", text[::-1])
    ran(GPT_PREPARE, "--tokenizer=train", "--vocab-size=300", "--out-dir=data/old", "old.txt")
    ran(GPT_PREPARE, "--tokenizer=data/old", "--out-dir=data/mine", "mine.txt")
    ran(GPT_PREPARE, "--tokenizer=chars", "--out-dir=data/other", "mine.txt")
    ran(GPT_PREPARE, "--chat=chatml", "--tokenizer=train", "--vocab-size=300", "--block-size=16", "--val-fraction=0", "--out-dir=data/chat",
        write("chat.jsonl", json.dumps({"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "abc"}]})))
    ran(GPT_PREPARE, "--tokenizer=data/chat", "--out-dir=data/plain", "old.txt")


def loss(out):
    return [line["loss"] for line in metrics(out)]


def shares():
    words = [*STILL, "--batch_size=10", "--max_iters=9", "--vocab_size=8"]
    for name in ("same0", "same1"):
        train("of-" + name, name, *words)
    alone = [loss("of-" + name)[0] for name in ("same0", "same1")]
    check("the data sets' losses differ", abs(alone[0] - alone[1]) > 1e-3, str(alone))
    for list_, share in (("same0:0.7,same1:0.3", 0.7), ("same0:1,same1:4", 0.2)):
        for micro in (0, 3):
            train("mixed", list_, *words, f"--micro_batch={micro}")
            wanted = share * alone[0] + (1 - share) * alone[1]
            check(f"{list_}, micro-batch {micro}", all(abs(each - wanted) <= 1e-5 for each in loss("mixed")), f"{loss('mixed')}, {wanted}")
    train("mixed", "same0:0.75,same1:0.25", *words)
    each = [round((value - alone[1]) / (alone[0] - alone[1]) * 10) for value in loss("mixed")]
    check("shares between samples even out", set(each) == {7, 8} and sum(each) in (75, 74, 76), str(each))


def judged():
    done = train("judged", "old:0.6,mine:0.4", "--batch_size=4", "--max_iters=5", "--eval_interval=5", "--learning_rate=1e-2")
    check("the shares are said", "dataset old: 60 % of the samples" in done.stdout, done.stdout)
    lines = {line["dataset"]: line["dataset_val_loss"] for line in metrics("judged", "dataset_val_loss") if line["iter"] == 5}
    check("metrics.jsonl", set(lines) == {"old", "mine"} and all(f"dataset {name}: val loss {loss:.4f}" in done.stdout.split("step 5:")[1]
                                                                 for name, loss in lines.items()), f"{lines} {done.stdout}")

    def losses(data):
        said = train("judged", data, "--init_from=resume", "--eval_only=True", "--batch_size=4").stdout
        return [float(value) for value in re.search(r"step 6: train loss ([\d.]+), val loss ([\d.]+)", said).groups()], said

    both, said = losses("old:0.6,mine:0.4")
    old, mine = losses("old")[0], losses("mine")[0]
    check("each data set as in eval_only", f"dataset old: val loss {old[1]:.4f}\ndataset mine: val loss {mine[1]:.4f}" in said
          and old[1] != mine[1], f"{old} {mine} {said}")
    for name, of_both, of_old, of_mine in zip(("train", "val"), both, old, mine):
        check(f"the mixed {name} loss", abs(of_both - 0.6 * of_old - 0.4 * of_mine) <= 1.1e-4, f"{both}, {old}, {mine}")


def resumed():
    for sampler in ("random", "epoch"):
        words = ["--batch_size=3", "--eval_interval=4", f"--sampler={sampler}", "--always_save_checkpoint=True", "--max_iters=12"]
        list_ = "old:0.6,mine:0.4"
        train("straight-" + sampler, list_, *words)
        out = "killed-" + sampler
        process = subprocess.Popen([GPT_TRAIN, f"--dataset={list_}", f"--out_dir={out}", *TINY, *words], stdout=subprocess.PIPE, text=True)
        for line in process.stdout:
            if line.startswith("saving checkpoint") and "iter 8" in line:
                process.kill()
        process.wait()
        train(out, list_, *words, "--init_from=resume", "--strict_resume=True")
        check(f"{sampler}: resumed to the byte", files(out, "model.safetensors") == files("straight-" + sampler, "model.safetensors")
              and read(out + "/model.safetensors") != b"")
        a, b = ([(line["iter"], line["dataset"], line["dataset_val_loss"]) for line in metrics(name, "dataset_val_loss")]
                for name in (out, "straight-" + sampler))
        check(f"{sampler}: the lines of each data set once", a == b and len(a) == 8, f"{a} {b}")


def digested():
    """A resume notices a change of any data set of a mixture: of its tokens, its mask, its place, its share."""
    def resume(list_, out, status):
        done = train(out, list_, "--init_from=resume", "--strict_resume=True", "--batch_size=2", "--max_iters=2", status=status)
        return done.stderr

    chars = os.path.getsize("data/old/train.bin") // 2
    write("data/old2/train.bin", read("data/old/train.bin")[2 * (chars // 2):] + read("data/old/train.bin")[:2 * (chars // 2)])
    write("data/old2/val.bin", read("data/old/val.bin"))
    write("data/old2/gpt_tokenizer.json", read("data/old/gpt_tokenizer.json"))
    for list_, out in (("old:0.5,old2:0.5", "digest"), ("chat:0.5,plain:0.5", "digest-chat")):
        train(out, list_, "--batch_size=2", "--max_iters=1")
    changes = [("old:0.5,old2:0.5", "digest", path, 2) for path in ("old/train.bin", "old/val.bin", "old2/train.bin", "old2/val.bin")]
    changes += [("chat:0.5,plain:0.5", "digest-chat", "chat/train.mask", 0), ("chat:0.5,plain:0.5", "digest-chat", "plain/train.bin", 2)]
    for list_, out, path, width in changes:
        before = read("data/" + path)
        if width:
            at = len(before) // 4 * 2
            write("data/" + path, before[at:] + before[:at])
        else:
            write("data/" + path, before[:16] + bytes(byte ^ 255 for byte in before[16:]))
        said = resume(list_, out, 2)
        check(f"{path} is noticed", "the data have changed" in said, said)
        write("data/" + path, before)
    for list_ in ("old2:0.5,old:0.5", "old:0.4,old2:0.6", "old:1", "old2:0.5,mine:0.5"):
        said = resume(list_, "digest", 2)
        check(f"{list_} is noticed", "the data have changed" in said, said)
    for list_, out in (("old:0.5,old2:0.5", "digest"), ("./data/old:3,old2:3", "digest"), ("chat:0.5,plain:0.5", "digest-chat")):
        resume(list_, out, 0)


def chat():
    mask, = struct.unpack("<Q", read("data/chat/train.mask")[16:24].ljust(8, b"\0"))
    counted = bin(mask >> 1 & 0xffff).count("1")
    words = [*STILL, "--max_iters=0"]
    for name in ("plain", "chat"):
        train("alone-" + name, name, "--batch_size=1", *words)
    wanted = (16 * loss("alone-plain")[0] + counted * loss("alone-chat")[0]) / (16 + counted)
    for micro in (0, 1):
        train("both", "plain:1,chat:1", "--batch_size=2", f"--micro_batch={micro}", *words)
        check(f"plain and chat, micro-batch {micro}", 0 < counted < 16 and abs(loss("both")[0] - wanted) <= 1e-5,
              f"{loss('both')[0]}, {wanted}, {counted}")


def answered():
    done = ran(GPT_TRAIN, "--dataset=old:0.6,plain:0.4", "--plan", *TINY)
    check("--plan refuses what training refuses", done.returncode == 2, done.stderr)
    done = ran(GPT_TRAIN, "--dataset=chat:0.6,plain:0.4", "--plan", *TINY)
    check("--plan", done.returncode == 0 and "fits" in done.stdout, done.stdout + done.stderr)
    done = ran(GPT_SAMPLE, "--out_dir=both", "--max_new_tokens=4", "--num_samples=1")
    check("gpt-sample", done.returncode == 0, done.stderr)
    done = ran(GPT_EXPORT, "--out_dir=both", "--format=hf", "exported")
    check("gpt-export", done.returncode == 0 and "plain:1,chat:1" in read("exported/README.md").decode(), done.stderr)


def refused():
    for list_, said in (("old:0.5,chat:0.5", "tokenizer"), ("old:0.5,nowhere:0.5", "data/nowhere"), ("old:0.5,mine:-1", "NAME:SHARE"),
                        ("old,mine", "NAME:SHARE"), ("old:1,old:1", "named twice"), ("plain:1,other:1", "tokenizer")):
        done = train("none", list_, status=2)
        check(list_, len(error_lines(done)) == 1 and said in error_lines(done)[0], done.stderr)


def spellings():
    """A data set is a folder, however it is spelled; a file and "~" get the obvious answer."""
    os.symlink("data/old", "linked")
    os.makedirs("data/hard")
    for split in ("train", "val"):
        os.link(f"data/old/{split}.bin", f"data/hard/{split}.bin")
    for other in ("./data/old", "data/old/", os.path.abspath("data/old"), "./linked", "data/mine/../old"):
        done = train("none", f"old:1,{other}:1", status=2)
        check(other, len(error_lines(done)) == 1 and f"old and {other} are one folder, named twice" in done.stderr, done.stderr)
    done = train("none", "old:1,hard:1", "--vocab_size=512", status=2)
    check("hard", "data/old/train.bin and data/hard/train.bin are one file" in done.stderr, done.stderr)
    write("train.bin", read("data/old/train.bin"))
    for given, wanted in (("data/old/train.bin", "old"), ("old/val.bin", "old"), ("./data/old/train.bin", "./data/old"), ("train.bin", "./"),
                          (os.path.abspath("data/old/train.bin"), os.path.abspath("data/old"))):
        done = train("none", given, status=2)
        check(given, done.stderr.endswith(f"{given} is a file; name its folder: --dataset={wanted}\n"), done.stderr)
    done = train("none", "old.txt", status=2)
    check("a text", done.stderr.endswith("gpt-prepare old.txt\n"), done.stderr)
    os.environ["HOME"] = home = os.path.abspath("home")
    os.makedirs(home)
    ran(GPT_PREPARE, "--tokenizer=~/../data/old", "--out-dir=~/prepared", "old.txt")
    check("gpt-prepare writes to ~", os.path.exists("home/prepared/train.bin") and not os.path.exists("~"))
    train("~/run", "~/prepared:1,old:1", "--max_iters=0", "--batch_size=2")
    check("gpt-train reads from ~ and writes to it", os.path.exists("home/run/model.safetensors") and not os.path.exists("~"))
    train("~/next", "~/prepared", "--init_from=~/run", "--max_iters=0", "--batch_size=2")
    done = ran(GPT_EXPORT, "--out_dir=~/next", "--format=hf", "exported-from-home")
    check("gpt-export reads from ~", done.returncode == 0, done.stderr)
    write("config.py", "out_dir = '~/of-a-file'\n")
    train("~/of-a-file", "~/prepared", "config.py", "--max_iters=0", "--batch_size=2")
    check("a file's ~", os.path.exists(home + "/of-a-file"))


def of_another_kind():
    """32-bit ids are refused in every place of token files, and the command of the error converts them."""
    ids = [sum(map(ord, f"{i}")) % 33 + i % 7 for i in range(3000)]
    for name, form in (("narrow", "H"), ("wide", "i")):
        for split in ("train", "val"):
            write(f"data/{name}/{split}.bin", struct.pack(f"<3000{form}", *ids))
    words = ["--max_iters=0", "--batch_size=2", "--vocab_size=64"]
    train("narrow", "narrow", *words)
    for data, more in (("wide", ()), ("narrow:1,wide:1", ()), ("narrow", ("--init_from=narrow", "--eval_data=data/wide/val.bin"))):
        done = train("none", data, *words, *more, status=2)
        check(f"{data} {more}", len(error_lines(done)) == 1 and "32-bit whole numbers" in error_lines(done)[0], done.stderr)
    if subprocess.run(["python3", "-c", "import numpy"], check=False, capture_output=True).returncode != 0:
        skip("token_kind_numpy", "no NumPy for python3")
        return
    for split in ("train", "val"):
        done = ran(GPT_TRAIN, "--dataset=wide", "--out_dir=none", *TINY, *words)
        check(split, f"data/wide/{split}.bin" in done.stderr, done.stderr)
        subprocess.run("python3 -c" + done.stderr.split("python3 -c")[1], shell=True, check=False)
    train("wide", "wide", *words)
    check("the converted ids are the same", loss("wide") == loss("narrow"), f"{loss('wide')} {loss('narrow')}")


end(shares, judged, resumed, digested, chat, answered, refused, spellings, of_another_kind, begin=begin)
