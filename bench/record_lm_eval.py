#!/usr/bin/env python3
"""For published figures, not in CI: lm-evaluation-harness and gpt-train judge the same model on the same questions.

    bench/record_lm_eval.py --build=BUILD [--work=FOLDER] [--questions=200]

PYTHON needs lm_eval (published figures: 0.4.13), torch and transformers.  A Llama of 0.2M parameters learns made-up
activities and is exported by gpt-export.  The questions have HellaSwag's fields; the harness reads them through its own
task `hellaswag` (its preprocessing, prompt and metrics), and gpt-train as a file in llm.c's format.

  accuracy       the answer with the largest log-likelihood: `acc` there
  accuracy norm  the largest log-likelihood per token here, as in llm.c; per character in `acc_norm` there.  The harness's
                 log-likelihoods, divided by tokens, must give our number
"""
import json
import os
import random
import re
import struct
import sys

os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

# pylint: disable=wrong-import-position
from lm_eval import simple_evaluate
from lm_eval.api.task import ConfigurableTask
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks.hellaswag.utils import process_docs

from common import options_of, program, run

ACTIVITIES = {"Baking bread": ("dough", "oven", "flour"), "Washing a car": ("hose", "sponge", "bucket"),
              "Playing chess": ("pawn", "queen", "clock"), "Painting a wall": ("brush", "ladder", "roller"),
              "Riding a horse": ("saddle", "reins", "fence"), "Mowing the lawn": ("mower", "grass", "rake"),
              "Sailing": ("rope", "mast", "rudder"), "Fixing a bike": ("chain", "pump", "wrench")}
PEOPLE = ("man", "woman", "boy", "girl", "child", "team")
DOES = ("takes the {}", "puts the {} down", "looks at the {}", "shows the {} to the camera", "goes to the {} and stops")


def question(dice):
    label = dice.choice(list(ACTIVITIES))
    others = dice.sample([other for other in ACTIVITIES if other != label], 3)
    things = [dice.choice(ACTIVITIES[each]) for each in (label, *others)]
    endings = [dice.choice(DOES).format(thing) + dice.choice((".", " again.", " [substeps] for a while.")) for thing in things]
    right = endings[0]
    dice.shuffle(endings)
    person = dice.choice(PEOPLE)
    first = f"A {person} is seen with a {dice.choice(ACTIVITIES[label])}."
    return {"activity_label": label, "ctx_a": first, "ctx_b": f"the {person}", "endings": endings, "label": str(endings.index(right))}


def model_make(options):
    """Trains a model on right answers, half of whose labels are wrong so that it errs; returns the exported folder."""
    dice, text, out = random.Random(1), options.work + "/text.txt", options.work + "/out"
    with open(text, "w", encoding="utf-8") as file:
        for doc in process_docs(Docs(question(dice) for _ in range(6000))):
            label, rest = doc["query"].split(": ", 1)
            file.write(f"{label if dice.random() < 0.5 else dice.choice(list(ACTIVITIES))}: {rest} {doc['choices'][doc['gold']]}\n")
    run([program(options.build, "gpt-prepare"), "--tokenizer=train", "--vocab-size=512", "--restart",
         f"--out-dir={options.work}/data", text])
    run([program(options.build, "gpt-train"), f"--dataset={options.work}/data", f"--out_dir={out}", "--arch=llama", "--n_layer=3",
         "--n_head=4", "--n_kv_head=2", "--n_embd=64", "--block_size=96", "--batch_size=16", "--gradient_accumulation_steps=1",
         "--max_iters=300", "--learning_rate=3e-3", "--warmup_iters=20", "--lr_decay_iters=300", "--eval_interval=300", "--eval_iters=4",
         "--dtype=float32"])
    run([program(options.build, "gpt-export"), f"--out_dir={out}", "--format=hf", "--force", options.work + "/hf"])
    return options.work + "/hf"


class Docs(list):
    """The part of datasets.Dataset that process_docs() needs."""

    def map(self, function):
        return [{**doc, **function(doc)} for doc in self]


def questions_write(path, docs, encode):
    """Writes questions in the format of llm.c's write_evalfile()."""
    body, longest = b"", 0
    for i, doc in enumerate(docs):
        context = encode(doc["query"])
        answers = [encode(doc["query"] + " " + choice)[len(context):] for choice in doc["choices"]]
        words = [i, doc["gold"], len(answers)]
        for tokens in (context, *answers):
            words += [len(tokens), *tokens]
        size = 2 * (len(words) + 2)
        longest = max(longest, size)
        body += struct.pack(f"<{len(words) + 2}H", 65535, size, *words)
    with open(path, "wb") as file:
        file.write(struct.pack("<256i", 20240522, 1, len(docs), longest, *[0] * 252) + body)


def harness(options, lm, given):
    """Returns the harness's acc and acc_norm, and how often the largest log-likelihood per token is right."""
    data = options.work + "/questions.jsonl"
    with open(data, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(each) + "\n" for each in given)
    task = ConfigurableTask(config={
        "task": "hellaswag_made", "dataset_path": "json", "dataset_kwargs": {"data_files": {"validation": data}},
        "validation_split": "validation", "output_type": "multiple_choice", "process_docs": process_docs,
        "doc_to_text": "{{query}}", "doc_to_target": "{{label}}", "doc_to_choice": "choices",
        "metric_list": [{"metric": name, "aggregation": "mean", "higher_is_better": True} for name in ("acc", "acc_norm")]})
    found = simple_evaluate(lm, tasks=[task], log_samples=True, bootstrap_iters=0)
    right = 0
    for sample in found["samples"]["hellaswag_made"]:
        means = [float(one[0][0]) / len(lm.tok_encode(" " + choice))
                 for one, choice in zip(sample["resps"], sample["doc"]["choices"])]
        right += means.index(max(means)) == sample["doc"]["gold"]
    values = found["results"]["hellaswag_made"]
    return values["acc,none"], values["acc_norm,none"], right


def main():
    options = options_of(__doc__, build=".", work="record-lm-eval", questions=200)
    options.work = os.path.abspath(options.work)
    os.makedirs(options.work, exist_ok=True)
    lm = HFLM(pretrained=model_make(options), dtype="float32", device="cpu", batch_size=1)
    dice = random.Random(2)
    given = [question(dice) for _ in range(options.questions)]
    questions_write(options.work + "/questions.bin", process_docs(Docs(given)), lm.tok_encode)
    said, _ = run([program(options.build, "gpt-train"), "--init_from=resume", f"--out_dir={options.work}/out", "--dtype=float32",
                   f"--hellaswag={options.work}/questions.bin"])
    norm, plain = map(int, re.search(r"accuracy norm (\d+)/\d+ = [\d.]+, accuracy (\d+)/", said).groups())
    acc, acc_norm, by_token = harness(options, lm, given)
    count = options.questions
    print(f"| | lm-evaluation-harness | gpt-train |\n|-|-|-|\n| accuracy | {acc:.4f} | {plain}/{count} = {plain / count:.4f} |\n"
          f"| per token | {by_token}/{count} | {norm}/{count} |\n| per character | {acc_norm:.4f} | |")
    same = round(acc * options.questions) == plain and by_token == norm
    print("ok" if same else "FAIL: the numbers differ")
    return 0 if same and options.questions / 4 < plain < options.questions else 1


if __name__ == "__main__":
    sys.exit(main())
