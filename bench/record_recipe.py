#!/usr/bin/env python3
"""For published figures, not in CI: the weekend recipe against GPT-2 with AdamW, at the size of two processors.

    bench/record_recipe.py --build=BUILD [--work=FOLDER] [--threads=N] [--dtype=float32] STAGE...

Both arms have 4 layers, 192 channels, a vocabulary of 4,096 and 8,192 tokens per update, and read the same text: Debian's
linux-doc-6.1 and debian-handbook without their markup.  The stages, each of which needs those before it:

  corpus  downloads the two packages with apt-get, strips the markup, and trains the vocabulary
  rates   6 M tokens of one seed at three rates per arm (more, until the best is not at the edge)
  final   36 M tokens of two seeds per arm at the best rates
  parts   9 M tokens of one seed: the recipe, and the recipe without each of its parts
  report  prints the tables of all runs that are finished

A run is resumed where it was stopped, and a finished one is kept, so that the stages may span days.  Losses are of the
whole validation split.  The report also has the tokens from which on the recipe's own curve stays below AdamW's final
loss, by the evaluations of 164,000 tokens that each run makes every 200 updates.  A schedule that ended there would do
better, since it would have cooled down.
"""
import glob
import html.parser
import json
import os
import re
import statistics
import subprocess
import sys

from common import TOP, options_of, program, run

MODEL = ["--n_layer=4", "--n_embd=192", "--n_head=3", "--block_size=256", "--batch_size=32",
         "--gradient_accumulation_steps=1", "--dropout=0", "--sampler=epoch", "--eval_interval=200", "--eval_iters=20",
         "--log_interval=20", "--always_save_checkpoint=True"]
PER_UPDATE = 8192
MILLION = {tokens: tokens * 1000000 // PER_UPDATE for tokens in (6, 9, 36)}
ADAMW_RATE = 1e-3
RECIPE = os.path.join(TOP, "config", "afternoon.py")
SCALES = (0.5, 1, 2)
WITHOUT = {
    "Muon (AdamW at the rates of AdamW's arm)": ["--optimizer=adamw"],
    "Muon's momentum warm-up": ["--muon_momentum_warmup=0"],
    "norms of q and k": ["--qk_norm=none"],
    "the embedding's norm": ["--embed_norm=False"],
    "initial zeros": ["--init=gpt2"],
    "untied head": ["--tie_embeddings=True", "--embed_norm=False", "--init=gpt2"],
    "the long cooldown (cosine)": ["--lr_schedule=cosine"],
    "gated MLP (GELU of equal size)": ["--mlp=gelu", "--n_inner=768"],
}


class Text(html.parser.HTMLParser):
    """Collects the text of a page's body, but for scripts, styles, navigation and footers."""

    SKIPPED = {"script", "style", "head", "nav", "footer"}
    BLOCKS = {"p", "div", "pre", "li", "tr", "h1", "h2", "h3", "h4", "h5", "dt", "dd", "br", "section"}

    def __init__(self):
        super().__init__()
        self.words, self.inside = [], 0

    def handle_starttag(self, tag, attrs):
        self.inside += tag in self.SKIPPED
        if tag in self.BLOCKS:
            self.words.append("\n")

    def handle_endtag(self, tag):
        self.inside -= tag in self.SKIPPED and self.inside > 0

    def handle_data(self, data):
        if not self.inside:
            self.words.append(data)


def text_of(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        page = Text()
        page.feed(file.read())
    return re.sub(r"\n\s*\n+", "\n\n", re.sub(r"[ \t]+\n", "\n", "".join(page.words))).strip()


def corpus(options):
    """Writes the text, a document per page, and tokens; prints their sizes."""
    if not os.path.isdir("data"):
        for package, pages in (("linux-doc-6.1", "usr/share/doc/linux-doc-6.1/html/**/*.html"),
                               ("debian-handbook", "usr/share/doc/debian-handbook/html/en-US/*.html")):
            run(["apt-get", "download", package], os.getcwd())
            run(["dpkg-deb", "-x", glob.glob(f"{package}_*.deb")[0], package])
            with open(f"{package}.jsonl", "w", encoding="utf-8") as file:
                for path in sorted(glob.glob(f"{package}/{pages}", recursive=True)):
                    if "_sources" not in path and os.path.basename(path) not in ("genindex.html", "search.html"):
                        file.write(json.dumps({"text": text_of(path)}) + "\n")
        run([program(options.build, "gpt-prepare"), "--tokenizer=train", "--vocab-size=4096", "--dedup", "--val-fraction=0.03",
             "--out-dir=data", "linux-doc-6.1.jsonl", "debian-handbook.jsonl"])
    size = sum(len(json.loads(line)["text"].encode()) for name in ("linux-doc-6.1", "debian-handbook")
               for line in open(f"{name}.jsonl", encoding="utf-8"))
    train, val = (os.path.getsize(f"data/{name}.bin") // 2 for name in ("train", "val"))
    print(f"{size / 1e6:.1f} MB of text; {train / 1e6:.2f} M tokens per epoch and {val / 1e6:.2f} M to validate")


def adamw(rate):
    return ["--vocab_size=4096", "--bias=False", "--weight_decay=0.1", "--beta2=0.95", "--grad_clip=1",
            f"--learning_rate={rate:g}", f"--min_lr={rate / 10:g}", "--warmup_iters=100"]


def recipe(scale):
    """Returns the recipe's arguments with all its learning rates scaled."""
    with open(RECIPE, encoding="utf-8") as file:
        rates = re.findall(r"^(\w*learning_rate) = ([\d.]+)$", file.read(), re.M)
    return [RECIPE, "--vocab_size=4096", "--hours=0", *(f"--{name}={float(value) * scale:g}" for name, value in rates)]


def cooldown(updates):
    return [f"--cooldown_iters={updates * 7 // 10}"]


class Course:
    """A run of some updates and then an evaluation of the whole validation split."""

    def __init__(self, options, name, updates, seed, arguments):
        self.out, self.updates = f"runs/{name}-{updates}-{seed}", updates
        self.command = [program(options.build, "gpt-train"), *arguments, *MODEL, "--dataset=./data", f"--out_dir={self.out}",
                        f"--max_iters={updates - 1}", f"--lr_decay_iters={updates}", f"--seed={seed}",
                        f"--dtype={options.dtype}", f"--threads={options.threads}"]
        self.result = f"{self.out}/result.json"

    def finish(self):
        """Returns the validation loss, training or reading it."""
        if not os.path.exists(self.result):
            resumed = ["--init_from=resume"] if os.path.exists(f"{self.out}/trainer_state.json") else []
            os.makedirs(self.out, exist_ok=True)
            with open(f"{self.out}/log", "a", encoding="utf-8") as log:
                subprocess.run([*self.command, *resumed], check=True, stdout=log, stderr=log)
            text, _ = run([self.command[0], "--init_from=resume", f"--out_dir={self.out}", "--eval_data=data/val.bin", *self.command[-2:]])
            with open(self.result, "w", encoding="utf-8") as file:
                json.dump({"loss": float(re.search(r"loss ([0-9.]+|nan|inf)", text).group(1))}, file)
            print(f"{self.out}: {self.loss():.4f}", flush=True)
        return self.loss()

    def loss(self):
        if not os.path.exists(self.result):
            return None
        with open(self.result, encoding="utf-8") as file:
            return json.load(file)["loss"]

    def reached(self, loss):
        """Returns the tokens from which on all evaluations are at most `loss`, or None."""
        if loss is None or self.loss() is None:
            return None
        with open(f"{self.out}/metrics.jsonl", encoding="utf-8") as file:
            points = [(line["iter"], line["val_loss"]) for line in map(json.loads, file) if "val_loss" in line]
        above = [point for point in points if point[1] > loss]
        after = [iteration for iteration, _ in points if not above or iteration > above[-1][0]]
        return after[0] * PER_UPDATE if after else None

    def hours(self):
        """Returns the time of all updates, by the median of those that were logged."""
        with open(f"{self.out}/metrics.jsonl", encoding="utf-8") as file:
            times = [step["time_ms"] for step in map(json.loads, file) if "time_ms" in step]
        return statistics.median(times) * self.updates / 3.6e6


def rate_courses(options, scales=SCALES):
    six = MILLION[6]
    return {("adamw", scale): Course(options, f"adamw-{scale:g}", six, 1, adamw(ADAMW_RATE * scale)) for scale in scales} | {
        ("recipe", scale): Course(options, f"recipe-{scale:g}", six, 1, recipe(scale) + cooldown(six)) for scale in scales}


def best(options, arm, train=False):
    """Returns an arm's best scale: with train, of as many as it takes until the best has a neighbour on both sides."""
    scales = list(SCALES)
    while True:
        courses = rate_courses(options, scales)
        losses = {scale: courses[arm, scale].finish() if train else courses[arm, scale].loss() for scale in scales}
        if None in losses.values():
            sys.exit(f"the rates of {arm} are not known yet; run the stage rates first")
        least = min(losses, key=losses.get)
        more = {min(scales): least / 2, max(scales): least * 2}.get(least)
        if more is None or not train and rate_courses(options, [more])[arm, more].loss() is None:
            return least
        scales.append(more)


def final_courses(options):
    """Returns the courses of 36 M tokens."""
    rates, updates = {arm: best(options, arm) for arm in ("adamw", "recipe")}, MILLION[36]
    arms = {"adamw": adamw(ADAMW_RATE * rates["adamw"]), "recipe": recipe(rates["recipe"]) + cooldown(updates)}
    return {(arm, seed): Course(options, arm, updates, seed, arms[arm]) for seed in (1, 2) for arm in arms}


def part_courses(options):
    nine, scale = MILLION[9], best(options, "recipe")
    rate = ADAMW_RATE * best(options, "adamw")
    whole = recipe(scale) + cooldown(nine)
    found = {"nothing": Course(options, "parts-whole", nine, 1, whole),
             "nothing, seed 2": Course(options, "parts-whole", nine, 2, whole),
             "everything: GPT-2 and AdamW": Course(options, "parts-gpt2", nine, 1, adamw(rate))}
    for number, (name, keys) in enumerate(WITHOUT.items()):
        own = ["--learning_rate=%g" % rate] if "optimizer=adamw" in keys[0] else []
        found[name] = Course(options, f"parts-{number}", nine, 1, whole + keys + own)
    return found


def show(loss):
    return "running" if loss is None else f"{loss:.4f}"


def report(options):
    print("| arm | rate, of the base | loss after 6 M tokens |\n|---|---|---|")
    for (arm, scale), course in rate_courses(options, (0.25, *SCALES, 4, 8)).items():
        if course.loss() is not None:
            print(f"| {arm} | {scale:g} | {show(course.loss())} |")
    finals = final_courses(options)
    print("\n| arm, seed | loss after 36 M tokens | hours | M tokens to AdamW's final loss |\n|---|---|---|---|")
    for (arm, seed), course in finals.items():
        reached = course.reached(finals["adamw", seed].loss()) if arm == "recipe" else None
        hours = f"{course.hours():.2f}" if course.loss() is not None else ""
        print(f"| {arm}, {seed} | {show(course.loss())} | {hours} | {'' if reached is None else f'{reached / 1e6:.1f}'} |")
    parts = part_courses(options)
    print("\n| the recipe without | loss after 9 M tokens | difference |\n|---|---|---|")
    base = parts["nothing"].loss()
    for name, course in parts.items():
        if course.loss() is not None and base is not None:
            print(f"| {name} | {show(course.loss())} | {course.loss() - base:+.4f} |")


def main():
    options = options_of(__doc__, "stages...", build=".", work="recipe", threads=0, dtype="float32")
    os.makedirs(options.work, exist_ok=True)
    os.chdir(options.work)
    for stage in options.stages:
        if stage == "corpus":
            corpus(options)
        elif stage == "rates":
            for arm in ("adamw", "recipe"):
                print(f"{arm}: best at {best(options, arm, train=True):g} of its rate", flush=True)
        elif stage in ("final", "parts"):
            for course in (final_courses if stage == "final" else part_courses)(options).values():
                course.finish()
        elif stage == "report":
            report(options)
        else:
            sys.exit(f"{stage}: no such stage: corpus, rates, final, parts, report")


if __name__ == "__main__":
    main()
