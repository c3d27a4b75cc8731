"""Checks of how the files of src/ and backends/ hang together, for check_style.py.

A unit is a source and its header: src/plan/plan_search.c and .h are src/plan/plan_search.  A unit leads to those whose
headers it includes, and to those whose functions it calls.
"""

import re

EXPORT = re.compile(r"^(?!static|typedef|#|/\*| \*|\}|extern|struct \w+ \{|enum \w+ \{|union)[a-z][\w \*]*?\b(\w+)\(", re.M)
# Exported for tests, which make a call fail or look at what happened.
FOR_TESTS = {
    "hostmem_fail_at", "log_count",
}
# Units that lead to each other, each with its reason.  doc/ARCHITECTURE.md says no more than this.
CIRCLES = {}  # {the units of a circle: the reason why it stays}
CALL = re.compile(r"\b(\w+)\(")
DEFINITION = re.compile(r"^(?!static\b|typedef|#)[a-z][\w \*]*?\b(\w+)\([^;{}]*\)\s*\n\{", re.M)
STRINGS = re.compile(r'"(?:\\.|[^"\\\n])*"')


def unit_of(path):
    return re.sub(r"\.\w+$", "", path)


def definitions_of(texts):
    """{function: sources that define it}, of the functions that a header declares."""
    declared = {name for path, text in texts.items() if path.endswith(".h") for name in EXPORT.findall(text)}
    found = {}
    for path, text in texts.items():
        for name in DEFINITION.findall(text) if path.endswith(".c") else ():
            if name in declared:
                found.setdefault(name, []).append(path)
    return found


def are_near(path, other):
    """Backends have functions of the same name, and do not see each other."""
    return not other.startswith("backends/") or path.split("/")[:2] == other.split("/")[:2]


def leads_of(texts):
    """{unit: units that it includes or calls}, of src/ and backends/."""
    found, defined = {unit_of(path): set() for path in texts}, definitions_of(texts)
    for path, text in texts.items():
        leads = found[unit_of(path)]
        targets = re.findall(r'^#include "([^"]+\.h)"', text, re.M)
        leads.update(unit_of(name if name.startswith("backends/") else "src/" + name) for name in targets)
        own = set(EXPORT.findall(text)) if path.endswith(".h") else set()
        for name in set(CALL.findall(STRINGS.sub("", text))) - own:
            sources = defined.get(name, ())
            if path not in sources:
                leads.update(unit_of(source) for source in sources if are_near(path, source))
    return {unit: {other for other in leads if other in found and other != unit} for unit, leads in found.items()}


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


def circles(texts):
    """Units that include or call each other; `texts` have no comments."""
    for units in components(leads_of(texts)):
        if tuple(units) not in CIRCLES:
            yield units[0] + ".h", 1, "these include or call each other: " + ", ".join(units)


def misplaced(texts):
    """Functions that another file's header declares."""
    defined = definitions_of(texts)
    for path, text in texts.items():
        if path.endswith(".h"):
            for name in sorted(set(EXPORT.findall(text))):
                sources = [source for source in defined.get(name, ()) if are_near(path, source)]
                if sources and unit_of(path) not in map(unit_of, sources):
                    yield path, 1, "declares %s(), which is in %s" % (name, sources[0])


def unused_exports(texts):
    """Functions of a header that no file of src/ or backends/ calls, or that none defines."""
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
