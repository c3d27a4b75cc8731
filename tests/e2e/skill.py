#!/usr/bin/env python3
"""SKILL.md: its commands run as they stand there, in order, with the exit statuses that it gives.

  lines    each indented line ends with the status of its comment, or 0
  fields   the fields that it names are in the plan and in metrics.jsonl
  page     it is one page, and each status and error word that it names exists
The model that stands for $MODEL is a small one that is trained here.
"""
import json
import os
import re

from checks import BUILD, GPT_PREPARE, GPT_TRAIN, SOURCE, check_named as check, end, metrics, ran, read, write

PAGE = read(os.path.join(SOURCE, "SKILL.md")).decode()
LINES = re.findall(r"^    (.*)$", PAGE, re.MULTILINE)
SMALL = ["--n_layer=2", "--n_head=2", "--n_embd=32", "--block_size=64", "--batch_size=8", "--gradient_accumulation_steps=1", "--max_iters=2", "--eval_iters=1"]
output = {}


def begin():
    """Makes mine.txt, chats.jsonl, and a model with a tokenizer and a template of its own."""
    write("mine.txt", "The quick brown fox jumps over the lazy dog.\n" * 60)
    write("chats.jsonl", "".join(json.dumps({"messages": [{"role": "user", "content": f"what is {i} plus 3?"},
                                                          {"role": "assistant", "content": f"it is {i + 3}."}]}) + "\n" for i in range(150)))
    os.environ["PATH"] = BUILD + os.pathsep + os.environ["PATH"]
    os.environ["MODEL"] = os.path.abspath("model")
    os.environ["HF_HUB_CACHE"] = os.path.abspath("hub")
    for command in ([GPT_PREPARE, "--chat=chatml", "--tokenizer=train", "--vocab-size=320", "--block-size=64", "--out-dir=small", "chats.jsonl"],
                    [GPT_TRAIN, "--dataset=./small", "--arch=llama", *SMALL, "--out_dir=model"]):
        done = ran(*command)
        check("the small model", done.returncode == 0, done.stderr)


def lines():
    check("there are commands", len(LINES) > 10, len(LINES))
    for line in LINES:
        status = re.search(r"# exit status (\d+)$", line)
        done = ran("sh", "-c", line)
        check(line[:70], done.returncode == int(status[1] if status else 0), f"{done.returncode} {done.stderr[-300:]}")
        output[line] = done.stdout


def fields():
    plans = [json.loads(text) for line, text in output.items() if "--plan=json" in line]
    check("plans that fit and not", [plan["bytes"]["fits"] for plan in plans] == [True, False], [plan["bytes"] for plan in plans])
    check("their forecast and choices", all(plan["forecast"]["total_seconds"] > 0 for plan in plans) and len(plans[1]["choices"]) > 0)
    for name in ("loss", "lr", "tokens_per_s", "val_loss"):
        check(f"metrics.jsonl has {name}", metrics("out", name) != [])
    check("and answers", metrics("tuned", "sample") != [])


def page():
    check("one page", len(PAGE.splitlines()) <= 80, len(PAGE.splitlines()))
    done = ran(GPT_TRAIN, "--explain=no-fit")
    check("--explain", done.returncode == 0 and done.stdout != "", done.stderr)
    done = ran(GPT_TRAIN, "--lora_rnak=3")
    check("a bad key", done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr)


if __name__ == "__main__":
    end(lines, fields, page, begin=begin)
