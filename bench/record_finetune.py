#!/usr/bin/env python3
"""For published figures, not in CI: what 500 conversations teach a small chat model, in minutes.

    bench/record_finetune.py --build=BUILD [--work=FOLDER] [--threads=2]

A model of 0.65 M parameters is trained from nothing on made conversations, in which it is asked to
move things, among other requests, and answers in a sentence.  Adapters then see 500 conversations
whose answers have a fixed form instead:

    user       please put the kettle in the attic.
    assistant  before: ok, the kettle is in the attic now.    after: thing = kettle, place = attic

The commands are those of doc/finetune.md, with the base as an exported folder.  Prints a table: how
many answers are right to the letter before and after, of the 500, of 100 requests with other pairs
of thing and place, and of 100 with things and places that are in none of the 500, and some answers
of `gpt-sample --chat`.  Everything is drawn from one seed.
"""
import json
import os
import random
import sys
import tempfile
import time

from common import options_of, program, run

THINGS = ("kettle lamp chair ladder violin blanket basket clock mirror hammer bottle carpet teapot "
          "pillow bucket umbrella suitcase piano camera candle helmet wallet saddle anchor trumpet "
          "compass lantern barrel ribbon statue magnet napkin shovel goblet").split()
PLACES = ("attic cellar garden kitchen garage library stable chapel harbour office pantry museum "
          "studio orchard tower bakery tavern market forest cabin palace station").split()
SIZES = "big small heavy light old new".split()
REQUESTS = ("please put the {thing} in the {place}.", "the {thing} must go to the {place}, can you do it?",
            "take the {size} {thing} and bring it to the {place}.", "in the {place} we need the {size} {thing}.")
SENTENCE, FORM = "ok, the {thing} is in the {place} now.", "thing = {thing}, place = {place}"
NEW_THINGS, NEW_PLACES = THINGS[-6:], PLACES[-4:]  # only the base sees them
# What else the base learns, so that it answers differently to different requests.
OTHERS = (("describe the {size} {thing}.", "thing = {thing}, size = {size}"),
          ("who is in the {place}?", "nobody is in the {place}."))
COUNT, ASKED = 500, 100


def drawn(rng, things, places):
    return {"thing": rng.choice(things), "place": rng.choice(places), "size": rng.choice(SIZES)}


def conversation(question, answer, words):
    return question.format(**words), answer.format(**words)


def base_data(rng, count):
    pairs = []
    for _ in range(count):
        question, answer = rng.choice(OTHERS) if rng.random() < 0.4 else (rng.choice(REQUESTS), SENTENCE)
        pairs.append(conversation(question, answer, drawn(rng, THINGS, PLACES)))
    return pairs


def requests(rng, count, things, places, without=()):
    """Returns (words, question) of different requests, with pairs of thing and place not in `without`."""
    found = {}
    while len(found) < count:
        words = drawn(rng, things, places)
        if (words["thing"], words["place"]) not in without:
            found[rng.choice(REQUESTS).format(**words)] = words
    return [(words, question) for question, words in found.items()]


def write(path, pairs):
    with open(path, "w", encoding="ascii") as file:
        for question, answer in pairs:
            messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
            file.write(json.dumps({"messages": messages}) + "\n")


class Programs:
    def __init__(self, options):
        self.build, self.threads = options.build, f"--threads={options.threads}"

    def __call__(self, name, *words):
        begun = time.monotonic()
        text, _ = run([program(self.build, name), *words])
        return text, time.monotonic() - begun

    def answers(self, out, questions):
        """Returns the model's answer to each question, in conversations of their own."""
        with open("asked.txt", "w", encoding="ascii") as file:
            file.write("\n/reset\n".join(questions) + "\n")
        words = f"--out_dir={out} --chat --temperature=0 {self.threads} <asked.txt 2>said.txt"
        text, _ = run(["sh", "-c", f"exec '{program(self.build, 'gpt-sample')}' {words}"])
        return text.splitlines()


def right(answers, asked, form):
    if len(answers) != len(asked):
        sys.exit(f"{len(answers)} answers to {len(asked)} questions: {answers[:3]}")
    return sum(answer == form.format(**words) for answer, (words, _) in zip(answers, asked))


def requests_draw(rng):
    """Returns the requests of each row of the table."""
    trained = requests(rng, COUNT, THINGS[:-6], PLACES[:-4])
    seen = {(words["thing"], words["place"]) for words, _ in trained}
    return {"the 500 that were trained": trained,
            "other pairs of a thing and a place": requests(rng, ASKED, THINGS[:-6], PLACES[:-4], seen),
            "things and places of none of the 500": requests(rng, ASKED, NEW_THINGS, NEW_PLACES)}


def train(programs, options):
    """Trains the base on base.jsonl, and adapters on chats.jsonl."""
    programs("gpt-prepare", "--chat=chatml", "--tokenizer=train", "--vocab-size=400", "--block-size=64",
             "--out-dir=data/base", "base.jsonl")
    _, seconds = programs("gpt-train", "--dataset=base", "--out_dir=base", "--n_layer=3", "--n_head=4",
                          "--n_embd=128", "--block_size=64", "--batch_size=32", "--dtype=float32",
                          "--gradient_accumulation_steps=1", "--document_mask=True",
                          "--sampler=epoch", f"--max_iters={options.iterations}",
                          f"--lr_decay_iters={options.iterations}", "--learning_rate=2e-3",
                          "--min_lr=2e-4", "--warmup_iters=50", "--eval_interval=200",
                          "--eval_iters=10", programs.threads)
    print(f"the base: {seconds:.0f} s", flush=True)
    programs("gpt-export", "--out_dir=base", "--format=hf", "model")
    programs("gpt-prepare", "--chat", "--tokenizer=./model", "--block-size=64", "chats.jsonl")
    _, seconds = programs("gpt-train", "--init_from=./model", "--lora_rank=16", "--dataset=chats",
                          f"--epochs={options.epochs}", f"--learning_rate={options.rate}",
                          "--dtype=float32", programs.threads)
    print(f"the adapters: {seconds:.0f} s", flush=True)


def main():
    options = options_of(__doc__, build=".", work="", threads=2, iterations=300, epochs=5, rate=2e-3)
    programs, rng = Programs(options), random.Random(57)
    os.chdir(options.work or tempfile.mkdtemp(prefix="gpt-train-"))
    print(f"in {os.getcwd()}", flush=True)
    write("base.jsonl", base_data(rng, 12000))
    asked = requests_draw(rng)
    write("chats.jsonl", [(question, FORM.format(**words))
                          for words, question in asked["the 500 that were trained"]])
    train(programs, options)
    print("| requests | in a sentence, before | in the form, before | in the form, after |\n|---|---|---|---|")
    said = {}
    for name, each in asked.items():
        questions = [question for _, question in each]
        before, said[name] = (programs.answers(out, questions) for out in ("base", "out"))
        counts = right(before, each, SENTENCE), right(before, each, FORM), right(said[name], each, FORM)
        print(f"| {len(each)}: {name} | {counts[0]} | {counts[1]} | {counts[2]} |", flush=True)
    for name, each in asked.items():
        for (_, question), answer in list(zip(each, said[name]))[:2]:
            print(f"> {question}\n{answer}")


main()
