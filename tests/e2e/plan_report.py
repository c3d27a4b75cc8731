#!/usr/bin/env python3
"""The plan's report, as text, JSON and SVG.

  schema    every field of `--plan=json` is in doc/plan.md's list with its type, and the other way round
  choices   a budget that is too small: the missing bytes, three choices, and the keys of each one, given by hand, fit
  front     `--plan=json-pareto`: at most 24 plans, none both larger and slower than another; the plain JSON has none
  refusals  one line, with a sufficient memory_budget, which then works; a tensor too large for any device
  pins      a refusal says what is enough without each key that was set, and it is
  pipe      closed by its reader: no complaint
  times     never rise with the budget
  svg       parses as XML, a legend entry for each category in the picture, a rectangle inside the picture for each
            tensor, refused or not
  compare   two plans side by side: the numbers of each one's own JSON; a file that does not parse is one line
  needless  a setting that saves memory which the run has: the plan names it and its price
  README    its picture, its example plan and its largest models match the program's output
Exit status 3 goes with every plan that does not fit.
"""

import argparse
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

from checks import GPT_TRAIN, LONG, SOURCE, check, end, ran, read, write, write_json

DOC = os.path.join(SOURCE, "doc", "plan.md")
MIB = 1 << 20
MODEL = ["--n_layer=4", "--n_head=4", "--n_embd=128", "--block_size=64", "--batch_size=30", "--vocab_size=65",
         "--gradient_accumulation_steps=2", "--dataset=./none"]
DATA = tempfile.TemporaryDirectory(prefix="gpt-train-")
CATEGORIES = ["parameters", "master", "moments", "gradients", "activations", "logits", "temporaries", "workspace", "cache", "data"]
HEADROOM = 64 * MIB
NAMESPACE = "{http://www.w3.org/2000/svg}"


def plan(form, *arguments):
    """Returns exit status, standard output, standard error."""
    done = ran(GPT_TRAIN, *MODEL, *list(arguments), "--plan=" + form)
    return done.returncode, done.stdout, done.stderr


def plan_json(form, *arguments):
    status, text, error = plan(form, *arguments)
    try:
        return status, json.loads(text)
    except ValueError:
        check(False, f"{form} {arguments}: status {status}, no JSON: {text[:200]!r} {error[:200]!r}")
        return status, None


# ---- the schema ----

TYPES = {
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
}


def documented():
    """Returns path -> set of types, from the list of doc/plan.md: - `path`, ... (type, ...): meaning.  `*` matches any
    name, `[]` every element, CHOICE each of three objects."""
    fields = {}
    part = read(DOC).decode().split("## `--plan=json`", 1)[1].split("\n## ", 1)[0]
    for names, types in re.findall(r"^- (`.*?`) \((.*?)\)", part, re.M):
        for path in re.findall(r"`([^`]+)`", names):
            for choice in ("search.chosen", "choices[]", "pareto[]"):
                fields[path.replace("CHOICE", choice)] = set(types.split(", "))
    return fields


def produced(value, path, out):
    """Returns path -> values; the names below an object of categories become `*`."""
    if path:
        out.setdefault(path, []).append(value)
    if isinstance(value, dict):
        for name, member in value.items():
            if name in CATEGORIES:
                name = "*"
            produced(member, f"{path}.{name}" if path else name, out)
    elif isinstance(value, list):
        for member in value:
            produced(member, path + "[]", out)


def schema(reports):
    fields, found = documented(), {}
    check(len(fields) > 50, f"schema: doc/plan.md documents {len(fields)} fields")
    for report in reports:
        produced(report, "", found)
    for path, values in sorted(found.items()):
        if path not in fields:
            check(False, f"schema: {path} is produced and not documented")
            continue
        unknown = fields[path] - set(TYPES)
        check(not unknown, f"schema: {path}: unknown types {unknown}")
        bad = [v for v in values if not any(TYPES[t](v) for t in fields[path] - unknown)]
        check(not bad, f"schema: {path} is {bad[:1]}, documented as {sorted(fields[path])}")
    for path in sorted(fields):
        check(path in found, f"schema: {path} is documented and never produced")


def sums(report):
    size = report["bytes"]
    check(size["total"] == sum(size[k] for k in ("arena", "host", "context", "headroom")), f"sums: {size}")
    check(sum(report["categories"].values()) + report["unused"] == size["arena"], "sums: categories and unused")
    check(sum(report["segments"]) == size["arena"], "sums: segments")
    check(list(report["categories"]) == CATEGORIES, f"sums: {list(report['categories'])}")


# ---- choices ----

def level_flags(choice):
    """Returns the flags that request a choice, or None when no flags can: only the search makes mixes of levels."""
    levels = {part["level"] for part in choice["recompute"]}
    if len(levels) != 1:
        return None
    return [f"--micro_batch={choice['micro_batch']}", f"--recompute={levels.pop()}", f"--loss_chunk={choice['loss_chunk']}",
            f"--block_size={choice['block_size']}", f"--n_layer={choice['n_layer']}", f"--n_head={choice['n_head']}",
            f"--n_embd={choice['n_embd']}", f"--eval_batch_size={choice['evaluate_batch']}"]


def choices(budget_mib, fits, pins=()):
    budget = [f"--memory_budget={budget_mib}MiB", *pins]
    status, report = plan_json("json", *budget)
    if report is None:
        return None
    name = f"choices at {budget_mib} MiB {' '.join(pins)}"
    sums(report)
    check(status == (0 if fits else 3), f"{name}: exit status {status}")
    check(report["bytes"]["fits"] == fits == report["search"]["fits"], f"{name}: {report['bytes']}")
    limit = report["search"]["arena_budget"]
    check(limit == report["bytes"]["free"] - report["bytes"]["context"] - HEADROOM, f"{name}: budget {limit}")
    check(len(report["choices"]) == 3, f"{name}: {len(report['choices'])} choices")
    equivalent = [choice["equivalent"] for choice in report["choices"]]
    check(equivalent == sorted(equivalent, reverse=True), f"{name}: order {equivalent}")
    tried = 0
    for choice in report["choices"]:
        check(choice["arena"] <= limit, f"{name}: {choice}")
        same = choice["block_size"] == 64 and choice["n_layer"] == 4 and choice["n_embd"] == 128
        check(same == choice["equivalent"], f"{name}: {choice}")
        flags = level_flags(choice)
        if flags:
            again_status, again = plan_json("json", f"--memory_budget={budget_mib}MiB", *flags)
            tried += 1
            check(again_status == 0 and again and again["bytes"]["arena"] == choice["arena"],
                  f"{name}: {choice['changes']} by hand: {again_status}, {again and again['bytes']}, not {choice['arena']}")
    status, text, error = plan("text", *budget)
    check(status == (0 if fits else 3), f"{name}: text ends with {status}")
    check(all(len(line) <= 80 for line in text.splitlines()), f"{name}: a line is too long")
    check(" short" in text and "(estimated, " in text, f"{name}: {text}")
    check(("fit but change results" in text) == (not all(equivalent)), f"{name}: {text}")
    for choice in report["choices"]:
        check(choice["changes"].split(", ")[0] in " ".join(text.split()), f"{name}: {choice['changes']} is not in the text")
    if not fits:
        check(error.count("gpt-train: error") == 1 and "needs at least" in error, f"{name}: {error!r}")
    print(f"{name}: {[choice['changes'] for choice in report['choices']]}, {tried} by hand")
    return report


def front():
    status, report = plan_json("json-pareto", "--memory_budget=84MiB")
    if report is None:
        return None
    points = report["pareto"]
    check(status == 0 and 4 <= len(points) <= 24, f"front: {len(points)} points")
    for before, after in zip(points, points[1:]):
        check(before["arena"] < after["arena"] and before["seconds_modelled"] > after["seconds_modelled"],
              f"front: {before} and {after}")
    check(min(point["arena"] for point in points) < report["bytes"]["arena"] < points[-1]["arena"], "front: its ends")
    return report


# ---- refusals and times ----

def refused(name, status_expected, *arguments, forms=(["--plan"], [f"--dataset={DATA.name}"])):
    """Returns the one line of a refusal, checked with --plan and in a run, which needs data."""
    lines = []
    write(os.path.join(DATA.name, "train.bin"), bytes(400))
    for form in forms:
        done = ran(GPT_TRAIN, *MODEL, *list(arguments), "--out_dir=refused", *form)
        errors = [line for line in done.stderr.splitlines() if line.startswith("gpt-train: error")]
        check(done.returncode == status_expected and len(errors) == 1, f"{name} {form}: {done.returncode}, {done.stderr!r}")
        check("must be between" not in done.stderr and "gpt-train report" not in done.stderr, f"{name} {form}: {done.stderr!r}")
        lines.append(errors[0] if errors else "")
    return lines


def too_large_to_allocate():
    profile = {"schema": 1, "name": "a card of small allocations", "backend": "cuda", "memory_bytes": 12 << 30,
               "usable_bytes": 11 << 30, "largest_allocation_bytes": MIB, "alignment_bytes": 256, "units": 28,
               "dtypes": ["float32"], "bandwidth_bytes_per_s": 360e9, "share": 0, "share_source": "", "source": "none",
               "flops_per_s": {"float32": 12e12, "float16": 0, "bfloat16": 0, "tf32": 0}}
    asked = ("--device_profile=./small.json", "--dtype=float32")
    write_json("small.json", profile)
    for line in refused("a large vocabulary", 3, "--vocab_size=50304", *asked, forms=(["--plan"],)):
        check("largest allocation" in line, f"a large vocabulary: {line!r}")
    write_json("small.json", dict(profile, largest_allocation_bytes=3 * MIB))
    for line in refused("a large evaluation", 3, "--eval_batch_size=10000", "--eval_iters=1000", *asked, forms=(["--plan"],)):
        check("largest allocation" in line, f"a large evaluation: {line!r}")
    status, report = plan_json("json", *asked)
    text = plan("text", *asked)[1]
    check(report["search"]["arena_asked"] is None and "Requested a tensor above the card's largest allocation\n" in text, f"small allocations: {text}")
    os.remove("small.json")
    check(status == 0 and report and report["search"]["chosen"]["micro_batch"] < 30, f"small allocations: {status}, {report}")


def least_budget():
    """The budget that a refusal names works, and the report names it too."""
    for name, arguments in (("free", ()), ("pinned", ("--micro_batch=30", "--recompute=none"))):
        named = [re.search(r"this run needs at least ([0-9.]+ [MG]iB), memory_budget allows 66.0 MiB", line)
                 for line in refused(f"least {name}", 3, "--memory_budget=66MiB", *arguments)]
        if not all(named):
            check(False, f"least {name}: {named}")
            continue
        budget = named[0].group(1).replace(" ", "")
        check(named[1].group(1) == named[0].group(1), f"least {name}: {budget} and {named[1].group(1)}")
        status, text, _ = plan("text", "--memory_budget=66MiB", *arguments)
        check(status == 3 and f"Needed    a memory_budget of at least {budget}\n" in text, f"least {name}: {text}")
        status, _, error = plan("text", f"--memory_budget={budget}", *arguments)
        check(status == 0, f"least {name}: {budget} does not work: {error!r}")


def pinned_keys():
    """A refusal names the keys that were set, and what is enough without each; that is so."""
    arguments = ("--micro_batch=30", "--recompute=none")
    status, text, error = plan("text", "--memory_budget=66MiB", *arguments)
    said = re.search(r" or (\S+) without micro_batch=30, (\S+) without recompute='none', (\S+) without all of\s+these",
                     " ".join(text.split()))
    check(status == 3 and said, f"pinned keys: {text}")
    status, _, error = plan("text", "--memory_budget=66MiB")
    check("would be enough" not in error, f"pinned keys: without any {error!r}")
    for budget, left in zip(said.groups() if said else (), (arguments[1:], arguments[:1], ())):
        status, _, error = plan("text", f"--memory_budget={budget}", *left)
        check(status == 0, f"pinned keys: {budget} with {left} does not work: {error!r}")


def never_slower():
    """GPT-2 on a card: more memory never gives a slower plan."""
    arguments = ["--n_layer=12", "--n_head=12", "--n_embd=768", "--block_size=1024", "--vocab_size=50304", "--batch_size=12",
                 "--gradient_accumulation_steps=40", "--device_profile=rtx3060-12g", "--dtype=bfloat16"]
    before, budgets = None, sorted([3.0 + 0.35 * i for i in range(12)] + [4.415, 4.53])
    for budget in budgets:
        status, report = plan_json("json", *arguments, f"--memory_budget={budget:.3f}GiB")
        seconds = report["forecast"]["seconds_per_step"] if report and status == 0 else None
        check(seconds is not None and (before is None or seconds <= before), f"never slower: {budget}: {seconds}, with less {before}")
        before = seconds


def nobody_reads():
    """A reader that closes early, as `| head` does: the status of SIGPIPE, and no complaint."""
    for arguments in (["--plan"], ["--plan=json"], ["--plan=svg"], ["--help=all"]):
        read, closed = os.pipe()
        os.close(read)
        done = subprocess.run([GPT_TRAIN] + MODEL + arguments, stdout=closed, stderr=subprocess.PIPE, check=False, text=True)
        os.close(closed)
        check(done.returncode == 128 + signal.SIGPIPE and "error" not in done.stderr and "report" not in done.stderr,
              f"nobody reads {arguments}: {done.returncode}, {done.stderr!r}")


# ---- the picture ----

def svg(arguments, categories, status_expected=0):
    status, text, _ = plan("svg", *arguments)
    name = f"svg {' '.join(arguments)}"
    check(status == status_expected, f"{name}: exit status {status}")
    try:
        root = xml.etree.ElementTree.fromstring(text)
    except xml.etree.ElementTree.ParseError as error:
        check(False, f"{name}: {error}")
        return
    check(root.tag == NAMESPACE + "svg" and root.get("viewBox") == "0 0 1600 900", f"{name}: {root.tag} {root.attrib}")
    groups = {group.get("id"): group for group in root.iter(NAMESPACE + "g")}
    check({"tensors", "legend", "front"} <= set(groups), f"{name}: groups {sorted(groups)}")
    drawn = {e.get("class") for kind in ("rect", "path") for e in root.iter(NAMESPACE + kind)
             if e.get("class") and e.get("d") != ""}
    legend = [t.text for t in groups["legend"].iter(NAMESPACE + "text")]
    check(drawn <= set(legend), f"{name}: {drawn - set(legend)} are not in the legend")
    check(categories <= drawn, f"{name}: {categories - drawn} are not drawn")
    for rectangle in root.iter(NAMESPACE + "rect"):
        x, y, width, height = (float(rectangle.get(k, "0")) for k in ("x", "y", "width", "height"))
        if x < 0 or y < 0 or width <= 0 or height <= 0 or x + width > 1600.01 or y + height > 900.01:
            check(False, f"{name}: rectangle {rectangle.attrib}")
            break
    titles = [t.text for r in groups["tensors"].iter(NAMESPACE + "rect") for t in r.iter(NAMESPACE + "title")]
    check(any(re.fullmatch(r"[^\n]+\nfloat32\[[0-9,]+\], (?:activations|temporaries)\n[0-9.]+ [KM]iB \([0-9]+ bytes\)\n"
                           r"train_first, ops [0-9]+ \.\. [0-9]+", title) for title in titles), f"{name}: {titles[:3]}")
    words = " ".join(t.text or "" for t in root.iter(NAMESPACE + "text"))
    for word in ("train", "evaluate", "forward", "backward", "MiB", "peak", "estimated", "available"):
        check(word in words, f"{name}: {word} is nowhere")
    check("http" not in text.replace("http://www.w3.org/2000/svg", ""), f"{name}: refers to something outside")


def compare():
    with open("other.py", "w", encoding="utf-8") as file:
        file.write("n_layer = 8\nn_embd = 64\n")
    status, text, _ = plan("text", "--compare=other.py", "--memory_budget=100MiB")
    rows = {line.split()[0]: line for line in text.splitlines()}
    check(status == 0 and "other.py" in text.splitlines()[0], f"compare: status {status}, {text[:200]!r}")
    _, report = plan_json("json", "--memory_budget=100MiB")
    chosen = str(report["search"]["chosen"]["micro_batch"])
    check(rows["micro_batch"].split()[1:] == 2 * [chosen, "of", "60"], f"compare, as the flags set both: {rows['micro_batch']}")
    with open("other.py", "w", encoding="utf-8") as file:
        file.write("learning_rate = 1e-3\ngradient_clipping == 3\n")
    status, text, error = plan("text", "--compare=other.py")
    check(status == 2 and text == "" and error.count("\n") == 1 and "other.py:2:" in error, f"compare: {status} {error!r}")
    os.remove("other.py")
    status, _, error = plan("json", "--compare=other.py")
    check(status == 2 and error.count("\n") == 1, f"compare as json: {status} {error!r}")


def needless():
    _, text, _ = plan("text", "--memory_budget=2GiB", "--recompute=full", "--micro_batch=5")
    line = " ".join(text.split("Unneeded", 1)[-1].split("\n\n")[0].split())
    check("micro_batch=5, recompute='full'" in line and re.search(r"[1-9][0-9.]* % less time", line), f"needless: {line!r}")
    for settings in (("--memory_budget=2GiB",), ("--memory_budget=75MiB", "--recompute=full")):
        check("Unneeded" not in plan("text", *settings)[1], f"unneeded with {settings}")


def readme():
    """Compares all but the date and the time of day."""
    command = [GPT_TRAIN, os.path.join(SOURCE, "config", "gpt2_124m.py"), "--batch_size=64", "--device_profile=rtx3060-12g"]
    sys.path.insert(0, os.path.join(SOURCE, "doc"))
    picture = importlib.import_module("pictures").memory(os.path.dirname(GPT_TRAIN))
    check(read(os.path.join(SOURCE, "doc", "memory-124m.svg")).decode() == picture,
          "doc/memory-124m.svg is not what the program draws: make it again (doc/pictures.py), and look at it")
    text = subprocess.run([*command, "--gradient_accumulation_steps=8", "--max_iters=19073", "--plan"], check=True,
                          capture_output=True, text=True).stdout
    page = read(os.path.join(SOURCE, "README.md")).decode()
    for line in text.splitlines():
        line = re.sub(r"until .*? \(", "until", line)
        check(line in re.sub(r"until .*? \(", "until", page), f"README's plan lacks {line!r}")


def models():
    """README's largest models have the plans that it states: all cells with CHECK_LONG=1, else one of each card."""
    sys.path.insert(0, os.path.join(SOURCE, "bench"))
    table = importlib.import_module("memory_table")
    options = argparse.Namespace(build=os.path.dirname(GPT_TRAIN))
    rows = re.findall(r"^\| \d+ GB \(RTX (\d+).*?\) \| (.*) \|$", read(os.path.join(SOURCE, "README.md")).decode(), re.M)
    check(len(rows) == len(table.OFFLOAD_CARDS), f"README's cards: {rows}")
    for at, (card, (number, row)) in enumerate(zip(table.OFFLOAD_CARDS, rows)):
        check(number in card, f"{card} is not RTX {number}")
        cells = list(zip(row.split(" | "), table.WAYS.values()))
        for cell, (names, keys) in cells if LONG else cells[at % len(cells):][:1]:
            model = next(name for name in names if name.split("/")[-1] == cell.split(":")[0])
            made = table.model_cell(table.model_command(options, card, model, keys), model)
            check(made == cell, f"{card}: README says {cell}, the plan {made}")


def main():
    plain_status, plain = plan_json("json")
    check(plain_status == 0 and plain["choices"] == [] and "pareto" not in plain, "plain: choices or a front")
    reports = [plain, choices(84, True), choices(84, False, ("--micro_batch=30", "--recompute=none")), choices(75, False),
               front()]
    _, generating = plan_json("json", "--sample_tokens=5")
    _, ranks = plan_json("json", "--ranks=2", "--link=10GbE")
    schema([report for report in reports + [generating, ranks] if report])
    base = {"parameters", "moments", "gradients", "activations", "temporaries"}
    too_large_to_allocate()
    least_budget()
    pinned_keys()
    never_slower()
    nobody_reads()
    svg(("--memory_budget=84MiB",), base)
    svg(("--memory_budget=2GiB", "--sample_tokens=5"), base | {"cache", "logits"})
    compare()
    needless()
    readme()
    models()
    svg(("--memory_budget=70MiB",), base, 3)
    check(os.listdir(".") == [], f"a plan left {os.listdir('.')}")


end(main)
