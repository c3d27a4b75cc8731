#!/usr/bin/env python3
"""The page "Will it fit?" (packaging/page), made here and asked without a browser (fit_page.js).

  same      random configurations and cards: the page's JSON and exit status are those of gpt-train --plan=json, but for the
            time, and the number of candidates, which the last bits of times decide
  message   the story of doc/memory.md: PyTorch's message is explained, and the plan keeps to what it leaves
  refused   a configuration's errors name line and column; a text without a message, an unknown card
  long      100,000 pasted lines, good and bad, are answered or refused in seconds
  apart     one file that refers to no other, whose policy permits no request
With CHECK_LONG=1 it makes emscripten's C library the first time, and tries 200 configurations instead of 3.  It needs
emscripten and node; FIT_PAGE=FILE tests a page that exists, without emscripten.
"""
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

from checks import GPT_TRAIN, LONG, SOURCE, check, finish, read, skip, write

CACHE = os.path.expanduser("~/.cache/gpt-train-page")
NOW = 1700000000
MESSAGE = read(os.path.join(SOURCE, "tests", "e2e", "fit_page.txt")).decode()
WIDTHS = [(2, 64), (4, 256), (6, 384), (12, 768), (16, 1024), (20, 1280), (25, 1600)]


def configuration_draw(rng):
    """Returns a configuration as text."""
    heads, width = rng.choice(WIDTHS)
    keys = {"n_layer": rng.randint(1, 36), "n_head": heads, "n_embd": width, "batch_size": rng.choice([1, 2, 7, 12, 32, 64, 100]),
            "block_size": rng.choice([64, 200, 512, 1024, 2048]), "gradient_accumulation_steps": rng.choice([1, 2, 5, 8, 40]),
            "max_iters": rng.choice([100, 5000, 600000]), "eval_interval": rng.choice([50, 2000])}
    some = {"arch": ["gpt2", "llama", "qwen3"], "dtype": ["float32", "bfloat16", "float16"], "vocab_size": [65, 8000, 32000],
            "dropout": [0.0, 0.2], "bias": [True, False], "optimizer": ["adamw", "muon"], "eval_only": [True],
            "micro_batch": [1, 4], "recompute": ["full", "mlp", "none"], "loss_chunk": [256], "memory_budget": ["3GiB", "6GB"],
            "init_from": ["gpt2", "gpt2-medium"], "offload": ["states", "auto"], "host_budget": ["64GiB"], "hours": [4.0],
            "allow_lean_states": [True], "eval_iters": [1, 200], "learning_rate": [3e-4]}
    for name, values in some.items():
        if rng.random() < 0.15:
            keys[name] = rng.choice(values)
    if "init_from" in keys:
        for name in ("n_layer", "n_head", "n_embd", "vocab_size", "arch", "bias"):
            keys.pop(name, None)
    return "".join("%s = %r\n" % item for item in keys.items())


def ask(page, questions, folder):
    path = os.path.join(folder, "questions.json")
    write(path, json.dumps([dict({"message": "", "card": "rtx3060-12g", "now": NOW}, **question) for question in questions]))
    script = os.path.join(SOURCE, "tests", "e2e", "fit_page.js")
    done = subprocess.run(["node", script, page, path], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def same(page, cards, count, folder, seed):
    rng = random.Random(seed)
    print("same: seed %d" % seed, flush=True)  # also for a test that is ended
    questions = [{"configuration": configuration_draw(rng), "card": rng.choice(cards)} for _ in range(count)]
    differ, answered = [], 0
    for question, answer in zip(questions, ask(page, questions, folder)[1:]):
        write(os.path.join(folder, "config.py"), question["configuration"])
        done = subprocess.run([GPT_TRAIN, "config.py", "--dataset=none", "--plan=json", "--device_profile=" + question["card"]],
                              cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, check=False)
        parts = answer["out"].split("\f")
        ours, theirs = (re.sub(r'"(end_time|candidates)": \d+', "", text) for text in (parts[2] if len(parts) == 4 else "", done.stdout))
        if ours != theirs or (answer["status"] != done.returncode and done.returncode != 3):
            differ.append("%s %s\n%s%s" % (question["card"], question["configuration"], answer["log"], done.stderr))
        answered += ours != ""
    check(not differ, "same: %d of %d plans differ with seed %d; the first: %s" % (len(differ), count, seed, differ[:1]))
    if LONG:  # of three, both programs may refuse two
        check(answered > count // 2, "same: %d of %d configurations were planned" % (answered, count))


def main():
    made = os.environ.get("FIT_PAGE", "")
    if made == "" and (shutil.which("emcc") is None or shutil.which("node") is None or not os.path.exists("/usr/share/emscripten/.emscripten")):
        skip("fit_page", "Debian's emscripten is not installed")
        return finish()
    if made == "" and not LONG and not os.path.exists(CACHE + "/sysroot/lib/wasm64-emscripten/libc.a"):
        skip("fit_page", "emscripten's C library for the page has not been made (packaging/page makes it)")
        return finish()
    with tempfile.TemporaryDirectory() as folder:
        page = made or os.path.join(folder, "fit.html")
        if made == "":
            subprocess.run([os.path.join(SOURCE, "packaging", "page"), page], check=True, stdout=sys.stderr)
        text = read(page).decode()
        check("default-src 'none'" in text and not re.search(r'(src|href)="|@import|url\(|https?://(?!www\.w3\.org/2000/svg)', text),
              "apart: the page refers to nothing else")
        cards = [line.split("\t")[0] for line in ask(page, [], folder)[0]["cards"].splitlines()]
        same(page, cards, 200 if LONG else 3, folder, random.SystemRandom().randrange(1 << 30))
        story = "batch_size = 64\nblock_size = 1024\ngradient_accumulation_steps = 8\n"
        lines = "bias=True\n" * 100000
        answers = ask(page, [{"configuration": story, "message": MESSAGE}, {"configuration": story, "message": MESSAGE, "card": ""},
                             {"configuration": story + "n_head =\nn_lyer = 3\n"}, {"configuration": story, "message": "out of luck"},
                             {"configuration": story, "card": "nothing"}, {"configuration": lines}, {"configuration": "x\n" * 100000},
                             {"configuration": story, "message": "a line\n" * 100000}], folder)[1:]
        for answer in answers[:2]:
            parts = answer["out"].split("\f")
            check("the logits" in parts[0] and json.loads(parts[2])["bytes"]["fits"] and parts[3].startswith("<?xml"), "message: %r" % parts[0])
        check(answers[2]["status"] == 2 and "config.py:4:9: " in answers[2]["log"] and "config.py:5:1: " in answers[2]["log"],
              "refused: %s" % answers[2]["log"])
        check(answers[3]["status"] == 2 and "no out-of-memory message" in answers[3]["log"], "refused: %s" % answers[3]["log"])
        check(answers[4]["status"] == 2 and "nothing" in answers[4]["log"], "refused: %s" % answers[4]["log"])
        check([answer["status"] for answer in answers[5:]] == [0, 2, 2], "long: %s" % [answer["log"][:80] for answer in answers[5:]])
        check(max(answer["ms"] for answer in answers) < 10000, "long: %s" % [answer["ms"] for answer in answers])
    return finish()


if __name__ == "__main__":
    sys.exit(main())
