#!/usr/bin/env python3
"""Runs the long sweeps in parts, those with the oldest last pass first, and keeps a stamp of each pass.

Usage: check_long.py run|table TARGET...     (TARGET: the fuzzer's targets; the environment is that of `make check`)
`run` takes the parts of tests/long-parts, or those whose names begin with a word of $PARTS, until all are done or
$MINUTES are over; a part that is running then is finished.  A pass writes a line into tests/long-stamps: part, date,
commit (followed by "+" if files differed), seconds, and the test's own count of checks.  `table` prints these.  A
fuzzing target runs for FUZZ_SECONDS (60) or for FUZZ_RUNS inputs, the soak for SOAK_MINUTES (15).  Ends with the line
"N passed, N failed, N skipped", counted in parts; the exit status is 1 if one failed.
"""
import datetime
import os
import re
import subprocess
import sys
import time

SOURCE = os.environ["top_srcdir"]
BUILD = os.environ["top_builddir"]
STAMPS = os.path.join(SOURCE, "tests", "long-stamps")
LOGS = os.path.join(BUILD, "check-long")


def lines_of(path):
    """Returns the lines that are neither empty nor comments, as lists of words."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [line.split() for line in file if line.strip() and not line.startswith("#")]


def all_parts(targets):
    """Returns the command of each part by its name."""
    parts = {}
    for name, count, script, *words in lines_of(os.path.join(SOURCE, "tests", "long-parts")):
        if count == "*":
            parts.update({f"{name}-{target}": [script, *words, target] for target in targets})
        elif count == "-" or int(count) == 1:
            parts[name] = [script, *words]
        else:
            parts.update({f"{name}.{k}/{count}": [script, *words, f"--part={k}/{count}"] for k in range(1, int(count) + 1)})
    return parts


def commit():
    """Returns the tested commit, followed by "+" if the tree differs from it; "-" outside of a repository."""
    def git(*words):
        return subprocess.run(["git", "-C", SOURCE, *words], capture_output=True, text=True, check=False)
    head = git("rev-parse", "--short=10", "HEAD")
    if head.returncode != 0:
        return "-"
    changed = git("status", "--porcelain", "--", ".", ":!tests/long-stamps").stdout.strip()
    return head.stdout.strip() + ("+" if changed else "")


def stamp(part, seconds, checks):
    """Records the pass, replacing the part's last one."""
    stamps = {name: rest for name, *rest in lines_of(STAMPS)}
    stamps[part] = [datetime.date.today().isoformat(), commit(), f"{seconds:.0f}", checks]
    with open(STAMPS + ".new", "w", encoding="utf-8") as file:
        file.write("# When each part of `make check-long` last passed: part, date, commit, seconds, checks\n")
        file.writelines(f"{name:24} {' '.join(stamps[name])}\n" for name in sorted(stamps))
    os.replace(STAMPS + ".new", STAMPS)


def run(part, command):
    """Returns "passed", "failed" or "skipped"."""
    script = os.path.join(SOURCE if command[0].endswith((".py", ".sh")) else BUILD, command[0])
    log = os.path.join(LOGS, re.sub(r"\W", "-", part) + ".log")
    environment = dict(os.environ, CHECK_LONG="1", TEST_LIMIT_S="604800")
    if not environment.get("FUZZ_RUNS"):
        environment.setdefault("FUZZ_SECONDS", "60")
    start = time.monotonic()
    with open(log, "w", encoding="utf-8") as file:
        done = subprocess.run(["sh", os.path.join(SOURCE, "tests", "tools", "run_test.sh"), script, *command[1:]],
                              stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=environment, check=False)
    seconds = time.monotonic() - start
    with open(log, encoding="utf-8", errors="replace") as file:
        counts = re.findall(r"^checks: (\d+) passed", file.read(), re.MULTILINE)
    result = {0: "passed", 77: "skipped"}.get(done.returncode, "failed")
    print(f"{result:8} {part:24} {seconds:7.0f} s  {counts[-1] if counts else '-'} checks", flush=True)
    if result == "passed":
        stamp(part, seconds, counts[-1] if counts else "-")
    elif result == "failed":
        print(f"         its log is {log}", flush=True)
    return result


def table(parts):
    stamps = {name: rest for name, *rest in lines_of(STAMPS)}
    print(f"{'part':24} {'passed on':11} {'commit':12} {'seconds':>8} {'checks':>8}")
    for part in parts:
        date, where, seconds, checks = stamps.get(part, ["never", "-", "-", "-"])
        print(f"{part:24} {date:11} {where:12} {seconds:>8} {checks:>8}")


def main():
    parts = all_parts(sys.argv[2:])
    if sys.argv[1] == "table":
        table(parts)
        return 0
    words = os.environ.get("PARTS", "").split()
    wanted = [part for part in parts if not words or any(part.startswith(word) for word in words)]
    if not wanted:
        sys.exit(f"PARTS={' '.join(words)}: no part has such a name; make check-long-table lists them")
    dates = {name: date for name, date, *_ in lines_of(STAMPS)}
    wanted.sort(key=lambda part: dates.get(part, ""))
    end = time.monotonic() + 60 * float(os.environ.get("MINUTES", "inf"))
    os.makedirs(LOGS, exist_ok=True)
    results = []
    for part in wanted:
        if time.monotonic() >= end:
            print(f"{len(wanted) - len(results)} parts are left for another time")
            break
        results.append(run(part, parts[part]))
    print(", ".join(f"{results.count(result)} {result}" for result in ("passed", "failed", "skipped")))
    return 1 if "failed" in results else 0


if __name__ == "__main__":
    sys.exit(main())
