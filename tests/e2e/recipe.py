#!/usr/bin/env python3
"""The parts of config/weekend.py, on a tiny model that reads that file.

  file     it plans within a 12 GB card, and the model has its documented size
  cooldown the rate is constant, then falls to 0; a run that is stopped in the cooldown and resumed has the bytes of one that was not
  export   the folded table gives the run's own losses; config.json names Qwen3, and the run's own folder does not
  rates    a group's rate of its own moves that group alone
  hours    ten updates set max_iters, which a resume keeps; other hours measure again; a typed max_iters counts where hours is not typed
  refused  keys that contradict each other: one line, exit status 2
"""

import os
import re

from checks import GPT_EXPORT, GPT_TRAIN, SOURCE, check, end, error_lines, files, make_tokens, metrics, read_json, run, tensors_read

WEEKEND = os.path.join(SOURCE, "config", "weekend.py")
TINY = ["--dataset=./data", "--n_layer=2", "--n_head=2", "--n_embd=48", "--head_dim=32", "--n_inner=80", "--block_size=32",
        "--batch_size=4", "--vocab_size=96", "--gradient_accumulation_steps=2", "--eval_iters=4", "--eval_interval=20",
        "--max_iters=60", "--lr_decay_iters=60", "--cooldown_iters=42", "--log_interval=1", "--threads=1"]


def train(out, *arguments, status=0):
    return run(GPT_TRAIN, WEEKEND, *TINY, f"--out_dir={out}", *arguments, status=status)


def loss_of(folder):
    found = re.search(r"loss ([\d.]+)", run(GPT_TRAIN, "--eval_data=./data", f"--init_from=./{folder}", "--out_dir=none",
                                            "--threads=1").stdout)
    return float(found.group(1))


def file():
    card = ["--device_profile=rtx3060-12g", "--plan=json"]
    plan = run(GPT_TRAIN, WEEKEND, "--dataset=./data", *card).stdout
    check('"fits": true' in plan, "config/weekend.py fits a 12 GB card")
    parameters = 12 * (768 * 2304 + 768 * 768 + 3 * 768 * 2048 + 2 * 768 + 256) + 768 + 2 * 50304 * 768
    check(f"{parameters / 1e6:.2f}M" in run(GPT_TRAIN, WEEKEND, "--dataset=./data", *card[:1], "--plan").stdout,
          f"the plan names {parameters} parameters")


def cooldown():
    train("whole", "--dtype=float32")
    train("parts", "--dtype=float32", "--max_iters=39")
    train("parts", "--dtype=float32", "--init_from=resume")
    check(files("parts", ".safetensors") == files("whole", ".safetensors"), "stopped in the cooldown and resumed: the same bytes")
    rates = [line["lr"] for line in metrics("whole")]
    check(rates[18] == rates[0] > rates[19] > rates[60] == 0.0, f"constant, then down to 0: {rates[17:21]}, {rates[60]}")


def export():
    run(GPT_EXPORT, "--out_dir=whole", "--format=hf", "folded")
    ours, theirs = loss_of("whole"), loss_of("folded")
    check(abs(ours - theirs) <= 1e-5, f"the folded table's loss is {theirs}, not {ours}")
    check(read_json("folded/config.json")["model_type"] == "qwen3", "the export is a Qwen3")
    check(read_json("whole/config.json")["model_type"] == "gpt_train", "the run's own folder is not")
    rows = tensors_read("folded/model.safetensors")["model.embed_tokens.weight"]
    check(rows[1] == [96, 48] or tuple(rows[1]) == (96, 48), "the table has its shape")


def rates():
    groups = {"embedding_learning_rate": ("embed_tokens",), "head_learning_rate": ("lm_head",),
              "scalar_learning_rate": ("norm",), "muon_learning_rate": ("_proj",)}
    short = ["--max_iters=0", "--dtype=float32", "--init=gpt2"]
    train("base", *short)
    base = tensors_read("base/model.safetensors")
    for key, names in groups.items():
        train(key, *short, f"--{key}=0.0004")
        moved = {name for name, value in tensors_read(f"{key}/model.safetensors").items() if value != base[name]}
        expected = {name for name in base if any(word in name for word in names) and ("norm" in name) == ("norm" in names)}
        check(moved == expected, f"{key} moves {sorted(moved ^ expected)[:4]} too, or not")


def hours():
    said = train("timed", "--hours=0.0004").stdout
    found = re.search(r"hours=0.0004 at ([\d.]+) ms an update: max_iters=(\d+)", said)
    check(found is not None, f"the run says its length: {said[-300:]}")
    if found is None:
        return
    last, seconds = int(found.group(2)), float(found.group(1)) / 1e3
    check(abs((last + 1) * seconds - 1.44) <= 0.1 * 1.44 or last == 11, f"{last} updates of {seconds} s take 1.44 s")
    check(read_json("timed/trainer_state.json")["iter"] == last + 1, f"the run ends after iteration {last}")
    check(metrics("timed")[-1]["lr"] == 0.0, "the rate ends at 0 there")
    again = train("timed", "--hours=0.0004", "--init_from=resume")
    check(f"--max_iters={last + 1} or more continues" in again.stdout + again.stderr, "a resume keeps the length")
    check("max_iters=60 (--max_iters=60) has no effect because of hours=0.0004" in again.stderr, f"both typed: {again.stderr}")
    lengths = [line["max_iters"] for line in metrics("timed", "max_iters")]
    check(lengths[0] == -1, f"metrics.jsonl has no length before it is known: {lengths}")
    resume = ["--dataset=./data", "--out_dir=timed", "--init_from=resume", "--threads=1"]
    more = run(GPT_TRAIN, *resume, "--hours=0.0008").stdout
    found = re.search(r"hours=0.0008 at \S+ \S+ an update: max_iters=(\d+)", more)
    check(found is not None and read_json("timed/trainer_state.json")["iter"] == int(found.group(1)) + 1, f"other hours: {more[-300:]}")
    more = read_json("timed/trainer_state.json")["iter"] + 5
    said = run(GPT_TRAIN, *resume, f"--max_iters={more}").stderr
    check("hours=0.0008" in said and f"has no effect because of max_iters={more}" in said, f"typed max_iters after hours: {said}")
    check(read_json("timed/trainer_state.json")["iter"] == more + 1, "a typed max_iters makes a run with hours longer")
    check(metrics("timed")[-1]["lr"] == 0.0, "its rate does not rise again")


def refused():
    for words, text in ((("--lr_schedule=linear", "--decay_lr=False"), "contradicts"),
                        (("--cooldown_iters=99",), "is larger than"),
                        (("--tie_embeddings=True",), "needs position='rope' and tie_embeddings=False"),
                        (("--adam_epsilon=0",), "out of range")):
        lines = error_lines(train("none", *words, status=2))
        check(len(lines) == 1 and text in lines[0], f"one line with '{text}', not {lines}")


end(file, cooldown, export, rates, hours, refused, begin=lambda: make_tokens("data"))
