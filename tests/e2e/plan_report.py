#!/usr/bin/env python3
"""The plan's report, as text, JSON and SVG.

  schema    every field of `--plan=json` stands in doc/plan.md's tables with its type, and the other way round
  choices   a budget that is too small: what is short, three choices, and the keys of each one, given by hand, fit
  front     `--plan=json-pareto`: at most 24 plans, none both larger and slower than another; the plain JSON has none
  svg       parses as XML, a legend entry for each category that is drawn, a rectangle inside the picture for each tensor,
            refused or not
Exit status 3 goes with every plan that does not fit.  Prints "checks: P passed, F failed, S skipped".
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

GPT_TRAIN = os.environ["GPT_TRAIN"]
DOC = os.path.join(os.environ["top_srcdir"], "doc", "plan.md")
MIB = 1 << 20
MODEL = ["--n_layer=4", "--n_head=4", "--n_embd=128", "--block_size=64", "--batch_size=30", "--vocab_size=65",
         "--gradient_accumulation_steps=2", "--dataset=./none"]
CATEGORIES = ["parameters", "master", "moments", "gradients", "activations", "logits", "temporaries", "workspace", "cache", "data"]
HEADROOM = 64 * MIB
NAMESPACE = "{http://www.w3.org/2000/svg}"

passed = failed = 0


def check(good, text):
    global passed, failed
    if good:
        passed += 1
    else:
        failed += 1
        print("FAIL", text)


def plan(form, *arguments):
    """Exit status, standard output, standard error."""
    done = subprocess.run([GPT_TRAIN] + MODEL + list(arguments) + ["--plan=" + form], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False, text=True)
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
    """Path -> set of types, from the table of doc/plan.md: | `path` | type, ... | meaning |.  `*` stands for any name,
    `[]` for every element; `(or null)` and the like are types of their own."""
    fields = {}
    with open(DOC, encoding="utf-8") as file:
        text = file.read()
    part = text.split("## `--plan=json`", 1)[1].split("\n## ", 1)[0]
    for line in part.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) < 3 or not cells[0].startswith("`"):
            continue
        types = {word for word in re.split(r"[,\s]+|or", cells[1]) if word}
        for path in re.findall(r"`([^`]+)`", cells[0]):
            fields[path] = types
    return fields


def produced(value, path, out):
    """Path -> values; the names below an object of categories become `*`."""
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
    """The flags that ask for a choice, or None where no flags can: mixes of levels are the search's own."""
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
    check(all(len(line) <= 100 for line in text.splitlines()), f"{name}: a line is too long")
    check(" short" in text and "(modelled)" in text, f"{name}: {text}")
    check(("NOT EQUIVALENT" in text) == (not all(equivalent)), f"{name}: {text}")
    for choice in report["choices"]:
        check(choice["changes"].split(", ")[0] in text, f"{name}: {choice['changes']} is not in the text")
    if not fits:
        check(error.count("gpt-train: error: ") == 1 and " short" in error, f"{name}: {error!r}")
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
    drawn = {r.get("class") for r in root.iter(NAMESPACE + "rect") if r.get("class")}
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
    for word in ("train", "evaluate", "forward", "backward", "MiB", "peak", "modelled", "budget"):
        check(word in words, f"{name}: {word} is nowhere")
    check("http" not in text.replace("http://www.w3.org/2000/svg", ""), f"{name}: refers to something outside")


def main():
    os.chdir(tempfile.mkdtemp(prefix="gpt-train-plan-"))  # holds no data: a plan needs none
    plain_status, plain = plan_json("json")
    check(plain_status == 0 and plain["choices"] == [] and "pareto" not in plain, "plain: choices or a front")
    reports = [plain, choices(84, True), choices(84, False, ("--micro_batch=30", "--recompute=none")), choices(75, False),
               front()]
    _, generating = plan_json("json", "--sample_tokens=5")
    schema([report for report in reports + [generating] if report])
    base = {"parameters", "moments", "gradients", "activations", "temporaries"}
    svg(("--memory_budget=84MiB",), base)
    svg(("--memory_budget=2GiB", "--sample_tokens=5"), base | {"cache", "logits"})
    svg(("--memory_budget=70MiB",), base, 3)
    os.rmdir(os.getcwd())
    print(f"checks: {passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
