#!/usr/bin/env python3
"""What a run records in metrics.jsonl, and what is made of it.

  lines    a run and its resume write start lines, tokens, times and samples
  page     gpt-train --report and gpt-report: one page without scripts or links, in which hostile names and samples are
           text; NaN, half a line, lines of other programs and of older releases; many records in few points
  drawn    the page of a hand-written record: the numbers of its table, and each point of its charts by the numbers at the axes
  events   TensorBoard's file holds every number, with the right checksums
  card     gpt-export --format=hf writes a model card, and leaves an existing one alone
  terminal the line of progress fits the terminal
  errors   --explain prints what doc/errors.md says; every identifier in the sources is known
"""
import fcntl
import glob
import html.parser
import json
import math
import os
import pty
import re
import resource
import shutil
import struct
import termios

from checks import (GPT_EXPORT, GPT_PREPARE, GPT_REPORT, GPT_TRAIN, LONG, SOURCE, check, crc32c, end, is_instrumented, make_text,
                    metrics, ran, read, run, write)

TINY = ["--dataset=./data", "--n_layer=1", "--n_head=2", "--n_embd=16", "--block_size=16", "--batch_size=2", "--threads=1",
        "--gradient_accumulation_steps=2", "--eval_iters=1", "--eval_interval=4", "--sample_tokens=40", "--dtype=float32"]
HOSTILE = '<script>alert("1")</script>\u202e&amp;'
RECORDS = 10_000_000 if LONG else 300_000


def begin():
    run(GPT_PREPARE, "--tokenizer=chars", "--out-dir=data", make_text("text.txt"))
    run(GPT_TRAIN, *TINY, "--out_dir=run", "--max_iters=9", "--report")


def lines():
    before = read("run/metrics.jsonl")
    run(GPT_TRAIN, *TINY, "--out_dir=run", "--init_from=resume", "--max_iters=13", "--learning_rate=0.001")
    after = read("run/metrics.jsonl").splitlines(keepends=True)
    check(b"".join(after).startswith(before), "a resume changed earlier lines")
    starts = [json.loads(line) for line in after if b'"start"' in line]
    check([line["start"] for line in starts] == ["run", "keys", "plan", "forecast"] * 2, f"start lines: {starts}")
    check([line["iter"] for line in starts] == [0] * 4 + [9] * 4, f"their iterations: {starts}")
    check(starts[1]["keys"]["n_embd"] == "16" and starts[5]["keys"]["learning_rate"] == "0.001" and "seed" not in starts[5]["keys"],
          f"keys: {starts[1]} {starts[5]}")
    plan = starts[2]
    check(0 < sum(plan["categories"].values()) <= plan["planned_bytes"] == metrics("run")[0]["planned_bytes"], f"plan: {plan}")
    check(starts[3]["steps"] == 10 and starts[3]["step_s"] > 0, f"forecast: {starts[3]}")
    steps = metrics("run")
    check([step["tokens"] for step in steps] == [64 * (step["iter"] + 1) for step in steps], "tokens of steps")
    evaluations = metrics("run", "val_loss")
    check([line["tokens"] for line in evaluations] == [64 * line["iter"] for line in evaluations], "tokens of evaluations")
    check(all(len(line["sample"]) == 40 for line in evaluations), f"samples: {evaluations}")
    times = [json.loads(line)["time"] for line in after if b'"time"' in line]
    check(times == sorted(times) and times[0] > 1.7e9, "times")


# ---- the page ----

class Page(html.parser.HTMLParser):
    """Collects tags, attributes and text."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], ""
        self.feed(read(path).decode())

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


def page_check(path):
    page = Page(path)
    tags = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "div", "table", "tr", "th", "td", "i", "figure",
            "figcaption", "svg", "line", "text", "path", "circle", "rect", "g", "pre"}
    check(set(page.tags) <= tags, f"{path}: tags {set(page.tags) - tags}")
    check(not [name for name, _ in page.attributes if name.startswith("on") or name in ("href", "src")], f"{path}: attributes")
    check(("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes, f"{path}: no policy")
    check("nan" not in page.text and "inf" not in page.text, f"{path}: a number that is not finite: {page.text}")
    return page


def step_line(at, loss="1.5", more=""):
    return f'{{"iter":{at},"loss":{loss},"lr":0.001,"grad_norm":1,"time_ms":5,"tokens_per_s":1000{more}}}\n'


def page():
    finished = page_check("run/report.html")
    check(("http-equiv", "refresh") not in finished.attributes and finished.tags.count("figure") == 7, "the run's own report")
    check(metrics("run", "val_loss")[0]["sample"] in finished.text, "no sample")
    hostile = HOSTILE.replace("/", "_")
    bad = [step_line(0), step_line(1, "null"), "[1]\n", "rubbish\n", "x" * 5000 + "\n", '{"iter":"2"}\n',
           json.dumps({"iter": 4, "train_loss": 2, "val_loss": None, "sample": HOSTILE}) + "\n",
           json.dumps({"iter": 4, "start": "keys", "keys": {HOSTILE: HOSTILE}}) + "\n", step_line(5), step_line(6)[:-9]]
    write(os.path.join(hostile, "metrics.jsonl"), "".join(bad))
    run(GPT_REPORT, hostile)
    found = page_check("report.html")
    check(found.text.count(HOSTILE) == 3, f"hostile texts: {found.text}")
    check("left out: 4 unreadable lines, half a line at the end" in found.text, f"bad lines: {found.text}")
    check("1 not finite" in found.text, "a NaN is not marked")
    run(GPT_REPORT, "--output=both.html", hostile, "run", "run/metrics.jsonl")
    both = page_check("both.html")
    check("What is configured differently" in both.text and both.text.count("16") > 0, "a comparison")
    for number, values in enumerate((["1e300", "-1e300"], ["1e29", "-1e29", "3"], ["1e-300"], ["1", "1.0000000000000002"], ["0"])):
        write(f"odd-{number}/metrics.jsonl", "".join(step_line(2 ** 63 - 9 + at, value, ',"tokens":1e300,"time":-1e29')
                                                    for at, value in enumerate(values)))
        run(GPT_REPORT, "--output=odd.html", f"odd-{number}", f"odd-{number}")
        check(page_check("odd.html").tags.count("figure") == 5 + (number > 0), f"numbers {values}")
    write("empty/metrics.jsonl", "")
    for words, said in ((["absent"], "no such file"), (["empty"], "no record"), ([], "1 to 16 runs"), (["--output=data", "run"], "is a folder"),
                        (["--format=csv", "run"], "html or tensorboard"), (["--output=", "run"], "expected a path")):
        check(said in run(GPT_REPORT, *words, status=2).stderr, f"{words}: not '{said}'")
    with open("long.jsonl", "w", encoding="ascii") as file:
        for at in range(RECORDS):
            file.write(step_line(at, "2.5" if at % 1000 else "7.5"))
    run(GPT_REPORT, "--output=long.html", "long.jsonl")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    stride = 2 ** math.ceil(math.log2(RECORDS / 512))
    check(f"{stride} records per point" in page_check("long.html").text, f"not {stride} records per point")
    check(os.path.getsize("long.html") < 250_000 and (is_instrumented(GPT_REPORT) or used.ru_maxrss < 100_000),
          f"size {os.path.getsize('long.html')}, {used.ru_maxrss} KiB")


# ---- what the page draws ----

STEPS, AGAIN, EVERY = 1100, 600, 200  # records, the one before which the run starts again, and those with an evaluation
STRIDE = 4                            # the least power of two that leaves 512 points or fewer
MIB = 1 << 20


def hand_written():
    """Writes a record; returns its steps and its evaluations."""
    lines, steps, evaluations = [], [], []
    for at in range(STEPS):
        begin = 1000 if at < AGAIN else 10 ** 6 - AGAIN / 2
        if at in (0, AGAIN):
            lines += [{"iter": at, "time": begin + at / 2, "start": "run", "version": "0.3.0"},
                      {"iter": at, "start": "plan", "categories": {"parameters": 100 * MIB, "moments": 200 * MIB, "gradients": 0, "logits": 20 * MIB}},
                      {"iter": at, "start": "forecast", "step_s": 0.25, "uncertainty": 0.2, "tokens_per_s": 3600}]
        steps.append({"iter": at, "time": begin + (at + (at >= AGAIN)) / 2, "loss": 8 - at * 37 % 101 / 50 - at / 400, "lr": 1e-3 * (at + 1) / STEPS,
                      "grad_norm": 1 + at % 7, "time_ms": 9000 if at == AGAIN else 400 if at > AGAIN else 700, "tokens": 64 * (at + 1),
                      "tokens_per_s": 2000 + at % 13 * 100, "planned_bytes": 330 * MIB, "allocated_bytes": 320 * MIB})
        lines.append(steps[-1])
        if at % EVERY == 0:
            evaluations.append({"iter": at, "time": steps[-1]["time"], "tokens": 64 * at, "train_loss": 7 - at / 250,
                                "val_loss": 6 - at / 300 + 2 * (at == 1000)})
            lines.append(evaluations[-1])
    write("hand/metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    for line in steps + evaluations:
        line["seconds"] = line["iter"] / 2  # two starts, end to end
    return steps, evaluations


def mean(values):
    return sum(values) / len(values)


def points(records, axis, field, stride):
    """Returns (x, mean, least, greatest) of each point."""
    groups = [records[at:at + stride] for at in range(0, len(records), stride)]
    return [(mean([line[axis] for line in group]), *(of([line[field] for line in group]) for of in (mean, min, max))) for group in groups]


def scale(figure, pattern, unit):
    """Returns the function from a value to its place that the first and the last number at an axis define."""
    ticks = [(float(place), float(value) * unit) for place, value in re.findall(pattern, figure)]
    (first, low), (last, high) = ticks[0], ticks[-1]
    check(all(abs(first + (value - low) * (last - first) / (high - low) - place) < 0.02 for place, value in ticks), f"numbers at an axis: {ticks}")
    return lambda value: first + (value - low) * (last - first) / (high - low)


def near(found, wanted):
    return len(found) == len(wanted) > 0 and all(abs(float(a) - b) < 0.12 for a, b in zip(found, wanted))


def chart_check(figure, title, curves, forecast):
    """`curves`: the points of each."""
    unit = {"iterations": 1, "thousand tokens": 1000, "minutes": 60}[re.search(r">([a-z ]+)</text>\n<g", figure).group(1)]
    x_of = scale(figure, r'<text x="([0-9.]+)" y="241.00"[^>]*>([-0-9.e+]+)<', unit)
    y_of = scale(figure, r'y1="([0-9.]+)" x2="460.00"[^>]*>\n<text[^>]*>([-0-9.e+]+)<', 1)
    drawn = [point for curve in curves for point in curve]
    values = [point[1] for point in drawn] + ([] if title.startswith("Loss") else [0]) + ([forecast] if forecast else [])
    xs = [point[0] for point in drawn]
    check(near((x_of(min(xs)), x_of(max(xs)), y_of(max(values)), y_of(min(values))), (62, 460, 8, 222)), f"{title}: the ends of its axes")
    paths = [re.findall(r"[0-9.]+", path) for path in re.findall(r'<path (?:opacity|stroke-width)[^>]* d="([^"]*)"', figure)]
    check(len(paths) == 2 * len(curves), f"{title}: {len(paths)} paths")
    for curve, extremes, means in zip(curves, paths[::2], paths[1::2]):
        wanted = [(x_of(x), y_of(y), y_of(max(low, min(values))), y_of(min(high, max(values)))) for x, y, low, high in curve]
        check(near(means, [number for x, y, _, _ in wanted for number in (x, y)]), f"{title}: means")
        check(extremes == [] if len(curve) < 100 else near(extremes, [number for x, _, *ends in wanted for number in (x, *ends)]), f"{title}: extremes")
    dots = re.findall(r"<title>([-0-9.e+]+)</title>", figure)
    check(dots == ([f"{y:.4g}" for _, y, _, _ in curves[1]] if len(curves) > 1 else []), f"{title}: numbers of dots {dots}")
    dashed = re.findall(r'stroke-dasharray="6 4" d="M62.0 ([0-9.]+)H460.0"', figure)
    check(near(dashed, [y_of(forecast)]) if forecast else dashed == [], f"{title}: forecast {dashed}")


def drawn():
    steps, evaluations = hand_written()
    run(GPT_REPORT, "--output=hand.html", "hand")
    text = read("hand.html").decode()
    figures = re.findall(r"<figure><figcaption>([^<]*)</figcaption>\n(<svg.*?</svg>)", text, re.S)
    charts = [("Loss by iteration", "iter", "loss"), ("Loss by tokens seen", "tokens", "loss"), ("Loss by running time", "seconds", "loss"),
              ("Learning rate", "iter", "lr"), ("Norm of the gradient", "iter", "grad_norm"),
              ("Tokens per second (dashed: forecast)", "iter", "tokens_per_s")]
    check([title for title, _ in figures] == [title for title, _, _ in charts] + ["hand"], f"charts: {[title for title, _ in figures]}")
    for (title, figure), (_, axis, field) in zip(figures, charts):
        curves = [points(steps, axis, field, STRIDE)] + ([points(evaluations, axis, "val_loss", 1)] if field == "loss" else [])
        chart_check(figure, title, curves, 3600 if field == "tokens_per_s" else None)
    memory = figures[-1][1]
    check(re.findall(r'<rect x="([0-9.]+)" y="22" width="([0-9.]+)"', memory) == [("0.00", "150.00"), ("150.00", "300.00"), ("450.00", "30.00")] and
          re.findall(r">([^<]+)</text>", memory) == ["320.0 MiB at the peak of an update", "parameters", "100.0 MiB", "31.2 %", "moments",
                                                     "200.0 MiB", "62.5 %", "logits", "20.0 MiB", "6.2 %"], f"memory: {memory}")
    row = re.search(r'<table class="runs">.*?hand(<td>.*?)\n', text, re.S).group(1).split("<td>")[1:]
    check(row == ["1099", "70400", "9 min 10 s", "3.0000", "4.6667", "3.3333", "800", "400 ms", "250 ms \u00b120 %", "330.0 MiB / 320.0 MiB",
                  "4 records per point; 2 starts"], f"the table: {row}")


# ---- TensorBoard ----

def masked_crc32c(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def fields(data):
    """Yields (number, value) of a protocol buffer; value: an integer or bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        size = {0: 0, 1: 8, 5: 4}.get(key & 7)
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = varint() if key & 7 == 2 else size
        yield key >> 3, data[at:at + size]
        at += size


def events():
    write("odd/metrics.jsonl", step_line(7, "null", ',"time":1795633200.125') + "rubbish\n" + step_line(8, "-1e-3"))
    run(GPT_REPORT, "--format=tensorboard", "--output=logs", "run", "odd")
    for number, name in enumerate(("run", "odd"), 1):
        data, at, found = read(glob.glob(f"logs/{number}-{name}/*tfevents*")[0]), 0, []
        while at < len(data):
            size, size_sum = struct.unpack_from("<QI", data, at)
            record = data[at + 12:at + 12 + size]
            check((size_sum, struct.unpack_from("<I", data, at + 12 + size)[0]) == (masked_crc32c(data[at:at + 8]), masked_crc32c(record)), "a checksum")
            found.append(dict(fields(record)))
            at += size + 16
        check(found.pop(0)[3] == b"brain.Event:2", "no version")
        records = [json.loads(line) for line in read(f"{name}/metrics.jsonl").splitlines() if line.startswith(b"{") and b'"start"' not in line]
        check(len(found) == len(records) > 0, f"{name}: {len(found)} events of {len(records)} records")
        for event, record in zip(found, records):
            values = {dict(fields(value))[1].decode(): struct.unpack("<f", dict(fields(value))[2])[0] for _, value in fields(event[5])}
            wanted = {key: math.nan if value is None else struct.unpack("<f", struct.pack("<f", value))[0] for key, value in record.items()
                      if key not in ("iter", "time", "sample")}
            check(str(values) == str(wanted), f"{name}: {values} instead of {wanted}")
            check((event[2], struct.unpack("<d", event[1])[0]) == (record["iter"], record.get("time", 0)), f"{name}: step or time")


def card():
    run(GPT_EXPORT, "--out_dir=run", "--format=hf", "model")
    text = read("model/README.md").decode()
    state = json.loads(read("run/trainer_state.json"))
    evaluation = [line for line in metrics("run", "val_loss") if line["iter"] <= state["iter"]][-1]
    check(text.startswith("---\nlibrary_name: transformers\n") and text.count("\n---\n") == 1, f"head: {text}")
    check(f"value: {evaluation['val_loss']:.4f}\n" in text and f"value: {math.exp(evaluation['val_loss']):.4f}\n" in text, f"loss: {text}")
    check(f"{state['iter']}, {state['tokens_seen']} tokens" in text and "license:" not in text.split("\n---\n")[0], f"facts: {text}")
    check(b"<svg" in read("model/memory.svg") and "memory.svg" in text, "no picture")
    write("model/README.md", "mine")
    os.remove("model/memory.svg")
    done = run(GPT_EXPORT, "--out_dir=run", "--format=hf", "--force", "model")
    check("README.md is left as it is" in done.stderr, f"it is not said: {done.stderr}")
    check(read("model/README.md") == b"mine" and not os.path.exists("model/memory.svg"), "a card was replaced")
    shutil.copytree("model", "bare", ignore=lambda *_: ["README.md"])
    run(GPT_EXPORT, "--out_dir=bare", "--format=hf", "--dtype=bfloat16", 'odd "name" | <b>')
    check(re.search(r'# odd _name_ _ _b_\n', "# " + 'odd _name_ _ _b_\n') and "| class | GPT2LMHeadModel |" in read('odd "name" | <b>/README.md').decode(),
          "the card of a model without a run")


def terminal():
    """The line of progress has a bar as long as the terminal's width allows, and its end is never cut."""
    for columns in (50, 56, 70):
        process, screen = pty.fork()
        if process == 0:
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
            os.execve(GPT_TRAIN, [GPT_TRAIN, *TINY, "--out_dir=drawn", "--max_iters=2"], {**os.environ, "TERM": "vt100"})
        shown = b""
        while process:
            try:
                shown += os.read(screen, 4096)
            except OSError:  # the program has ended
                break
        check(os.waitpid(process, 0)[1] == 0, f"{columns} columns: {shown}")
        lines = [line for line in re.findall(r"\r\x1b\[K([^\r\n]+)", shown.decode()) if " %" in line]
        short = [line for line in lines if "[" in line and line.index("]") - line.index("[") - 1 < 24]
        check(len(lines) >= 2 and all(len(line) < columns and line.endswith(" left") for line in lines), f"{columns} columns: {lines}")
        check(short and all(len(line) == columns - 1 for line in short), f"{columns} columns, bars: {lines}")


def errors():
    sources = [read(path).decode() for path in glob.glob(os.path.join(SOURCE, "src", "**", "*.c"), recursive=True)]
    names = dict(re.findall(r'#define (ERROR_\w+) "\\1([a-z-]+)\\2"', read(os.path.join(SOURCE, "src", "base", "log.h")).decode()))
    used = {name for macro, name in names.items() if any(macro + ' "' in text or macro + "\n" in text or macro + " NOT" in text for text in sources)}
    document = dict(re.findall(r"^## ([a-z-]+)\n\n(.*?)\n*(?=\n## |\Z)", read(os.path.join(SOURCE, "doc", "errors.md")).decode(), re.M | re.S))
    check(used == set(document) and len(used) == 10, f"identifiers: {used ^ set(document)}")
    for name, text in document.items():
        said = run(GPT_TRAIN, f"--explain={name}").stdout
        check(said.split() == text.split(), f"{name}: {said!r} is not {text!r}")
    check("known are no-fit, " in run(GPT_TRAIN, "--explain=no", status=2).stderr, "an unknown identifier")
    for name in ("train", "val"):
        write(f"large/{name}.bin", struct.pack("<99H", *range(99)))
    for words, name in ((["--n_layr=1"], "unknown-key"), (["--n_layer=0"], "bad-value"), (["--dataset=./none"], "no-data"),
                        (["--out_dir=none", "--init_from=resume"], "no-checkpoint"), (["--memory_budget=1MiB"], "no-fit"),
                        (["--out_dir=run", "--init_from=resume", "--n_embd=32"], "other-shape"), (["--device=opencl:99"], "no-device"),
                        (["--dataset=./large", "--vocab_size=50"], "bad-token")):
        done = ran(GPT_TRAIN, *TINY, *words)
        check(f"gpt-train: error[{name}]: " in done.stderr, f"{words}: {done.stderr!r}")


if __name__ == "__main__":
    end(lines, page, drawn, events, card, terminal, errors, begin=begin)
