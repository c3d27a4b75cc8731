"""Checks of how the files of src/ and backends/ hang together, for check_style.py.

A unit is a source and its header: src/plan/plan_search.c and .h, and an internal header of theirs, are src/plan/plan_search.
"""

import re

EXPORT = re.compile(r"^(?!static|typedef|#|/\*| \*|\}|extern|struct \w+ \{|enum \w+ \{|union)[a-z][\w \*]*?\b(\w+)\(", re.M)
# Exported for tests, which make a call fail or look at what happened.
FOR_TESTS = {
    "hostmem_fail_at", "log_count",
}
# Units that include each other, each with its reason.
CIRCLES = {
    ("backends/cuda/cuda_gemm_cache", "backends/cuda/cuda_tuning"):
        "tuning names the products that the cache keeps, and the cache asks it what it found",
    ("src/data/tokenizer", "src/data/tokenizer_encoder"): "a tokenizer encodes one text through an encoder of its own",
}


def unit_of(path):
    return re.sub(r"(_internal)?\.\w+$", "", path)


def includes_of(paths, text_of):
    """{unit: units that it includes}, of src/ and backends/."""
    found = {}
    for path in paths:
        targets = re.findall(r'^#include "([^"]+)"', text_of(path), re.M)
        targets = [name if name.startswith("backends/") else "src/" + name for name in targets]
        found.setdefault(unit_of(path), set()).update(unit_of(name) for name in targets if name.endswith(".h"))
    return {unit: {other for other in others if other in found and other != unit} for unit, others in found.items()}


def components(graph):
    """The strongly connected components of more than one unit (Tarjan 1972, without recursion)."""
    order, low, stack, found = {}, {}, [], []
    for start in sorted(graph):
        work = [(start, iter(sorted(graph[start])))] if start not in order else []
        if work:
            order[start] = low[start] = len(order)
            stack.append(start)
        while work:
            unit, rest = work[-1]
            for other in rest:
                if other not in order:
                    order[other] = low[other] = len(order)
                    stack.append(other)
                    work.append((other, iter(sorted(graph[other]))))
                    break
                if other in stack:
                    low[unit] = min(low[unit], order[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[unit])
                if low[unit] == order[unit]:
                    at = stack.index(unit)
                    found.append(sorted(stack[at:]))
                    del stack[at:]
    return [units for units in found if len(units) > 1]


def circles(paths, text_of):
    for units in components(includes_of(paths, text_of)):
        if tuple(units) not in CIRCLES:
            yield units[0] + ".h", 1, "these include each other: " + ", ".join(units)


def unused_exports(paths, text_of, without_comments):
    """Functions of a header that no file of src/ or backends/ calls, or that none defines."""
    texts = {path: without_comments(text_of(path)) for path in paths}
    words = {}
    for path, text in texts.items():
        for word in re.findall(r"\b\w+\b", text):
            words.setdefault(word, []).append(path)
    for path, text in texts.items():
        if not path.endswith(".h"):
            continue
        for name in sorted(set(EXPORT.findall(text))):
            # Once in the header and once where it is defined.
            if len(words.get(name, ())) <= 2 and name not in FOR_TESTS:
                yield path, 1, "nothing in src/ or backends/ calls %s()" % name
