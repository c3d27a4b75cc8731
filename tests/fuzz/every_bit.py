#!/usr/bin/env python3
"""Runs the fuzzing targets on every bit flip and every truncation of valid files of every input format.

The seeds of each target are valid files of its format, and some damaged ones that long fuzzing found to reach code that
these do not reach (tests/fuzz/corpus, found-*).  Each seed is truncated at every length, and each of its bits is
inverted.  If a seed is larger than BITS_WHOLE bytes, only bits of the first HEADER and the last TAIL bytes are
inverted; beyond CUTS_WHOLE bytes it is truncated at every 61st length.  The target, built with AddressSanitizer and
UndefinedBehaviorSanitizer, reads all of them, and reports that it did.  A crash, a leak or undefined behaviour fails.
tests/reliability/check_flips.c shows that damage is also *detected* in formats with checksums.

`make check` tries every STEP-th of these files, CHECK_LONG=1 all, --part=K/N every N-th.  Prints "checks: P passed, F
failed, S skipped".
"""
import os
import re
import subprocess
import sys
import tempfile

SOURCE = os.environ.get("top_srcdir", ".")
sys.path.insert(0, os.path.join(SOURCE, "tests", "e2e"))  # for checks.py
from checks import LONG, check, finish, part, skip  # noqa: E402  pylint: disable=wrong-import-position

BUILD = os.environ.get("top_builddir", ".")
BITS_WHOLE, HEADER, TAIL = 32 << 10, 4096, 256
CUTS_WHOLE = 64 << 10
STEP = 1 if LONG else 197
PORTION = 4000  # files on disk at a time


def places(seed):
    """Returns the bytes whose bits are inverted."""
    if len(seed) <= BITS_WHOLE:
        return list(range(len(seed)))
    return list(range(HEADER)) + list(range(len(seed) - TAIL, len(seed)))


def damages(seed):
    """Returns ("cut", length) or ("bit", byte, bit) for each damaged file; the first is the undamaged seed."""
    lengths = [len(seed), *range(min(len(seed), CUTS_WHOLE)), *range(CUTS_WHOLE, len(seed), 61)]
    return [("cut", length) for length in lengths] + [("bit", place, bit) for place in places(seed) for bit in range(8)]


def damaged(seed, damage):
    if damage[0] == "cut":
        return seed[:damage[1]]
    _, place, bit = damage
    return seed[:place] + bytes([seed[place] ^ 1 << bit]) + seed[place + 1:]


def read_portion(target, portion, folder):
    """Writes these damaged files and runs the target on them; returns an error text, or None.  Empty files do not
    count: the target tests empty input by itself."""
    program = os.path.join(BUILD, "tests", "fuzz", f"fuzz_{target}")
    with tempfile.TemporaryDirectory(dir=folder) as inputs:
        written = 0
        for number, (seed, damage) in enumerate(portion):
            text = damaged(seed, damage)
            written += text != b""
            with open(os.path.join(inputs, str(number)), "wb") as file:
                file.write(text)
        run = subprocess.run([program, "-runs=0", "-timeout=20", "-rss_limit_mb=2048", "-max_len=16777216",
                              "-print_final_stats=1", f"-artifact_prefix={folder}/", inputs], capture_output=True, text=True,
                             errors="replace", check=False)
    executed = re.search(r"^stat::number_of_executed_units: *(\d+)$", run.stderr, re.MULTILINE)
    if run.returncode != 0:
        return run.stderr[-3000:]
    if executed is None or int(executed.group(1)) < written:
        return f"{executed and executed.group(1)} inputs were read of {written}: {run.stderr[-1000:]}"
    return None


def seeds(target):
    corpus = os.path.join(SOURCE, "tests", "fuzz", "corpus", target)
    for name in sorted(os.listdir(corpus)):
        with open(os.path.join(corpus, name), "rb") as file:
            yield file.read()


def main():
    targets = []
    for target in os.environ.get("FUZZ_TARGETS", "").split():
        if os.path.exists(os.path.join(BUILD, "tests", "fuzz", f"fuzz_{target}")):
            targets.append(target)
        else:
            skip(f"fuzz_{target}", "no clang with libFuzzer (Debian: clang, libclang-rt-dev)")
    cases = {target: [(seed, damage) for seed in seeds(target) for number, damage in enumerate(damages(seed))
                      if number % STEP == 0] for target in targets}
    with tempfile.TemporaryDirectory(prefix="gpt-train-bits-") as folder:
        for target in targets:
            mine = part(cases[target])
            faults = [fault for at in range(0, len(mine), PORTION)
                      if (fault := read_portion(target, mine[at:at + PORTION], folder)) is not None]
            check(mine and faults == [], f"{target}: {faults[:1]}")
            print(f"{target}: {len(mine)} of {sum(len(damages(seed)) for seed in seeds(target))} damaged files", flush=True)
    status = finish()
    return 77 if not targets else status


if __name__ == "__main__":
    sys.exit(main())
