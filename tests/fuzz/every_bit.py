#!/usr/bin/env python3
"""Every bit of the headers and every truncation of every format that is read, through the fuzzing targets.

The seeds of each target are valid files of its format, and some damaged ones that long fuzzing found to reach what these do
not (tests/fuzz/corpus, found-*).  Each is cut at every length, and each bit of its first HEADER bytes and of its last TAIL
is inverted; the target, built with AddressSanitizer and UndefinedBehaviorSanitizer, reads all of them.  A crash, a leak or undefined behaviour fails.  That damage is also *detected* where a format has
checksums is what tests/reliability/check_flips.c shows.

In `make check` every STEP-th of these files, with CHECK_LONG=1 all.  Prints "checks: P passed, F failed, S skipped".
"""
import os
import subprocess
import sys
import tempfile

BUILD = os.environ.get("top_builddir", ".")
SOURCE = os.environ.get("top_srcdir", ".")
LONG = os.environ.get("CHECK_LONG", "") not in ("", "0")
HEADER, TAIL = 4096, 256
WHOLE_CUTS = 8192  # beyond that many bytes only every 61st length
STEP = 1 if LONG else 61
counts = {"passed": 0, "failed": 0, "skipped": 0}


def lengths(size):
    return list(range(min(size, WHOLE_CUTS))) + list(range(WHOLE_CUTS, size, 61))


def flipped(seed):
    places = sorted(set(range(min(len(seed), HEADER))) | set(range(max(0, len(seed) - TAIL), len(seed))))
    for place in places:
        for bit in range(8):
            yield seed[:place] + bytes([seed[place] ^ 1 << bit]) + seed[place + 1:]


def damaged(seed):
    yield seed
    for length in lengths(len(seed)):
        yield seed[:length]
    yield from flipped(seed)


def read_all(target, program, folder):
    """Writes the damaged files, in portions, and lets the target read them; how many."""
    tried = 0
    corpus = os.path.join(SOURCE, "tests", "fuzz", "corpus", target)
    for name in sorted(os.listdir(corpus)):
        with open(os.path.join(corpus, name), "rb") as file:
            seed = file.read()
        portion = os.path.join(folder, f"{target}-{name}")
        os.makedirs(portion)
        for number, text in enumerate(damaged(seed)):
            if number % STEP == 0 or number == 1:
                with open(os.path.join(portion, str(number)), "wb") as file:
                    file.write(text)
                tried += 1
        run = subprocess.run([program, "-runs=0", "-timeout=20", "-rss_limit_mb=2048", "-max_len=16777216",
                              f"-artifact_prefix={folder}/", portion], capture_output=True, text=True, errors="replace",
                             check=False)
        subprocess.run(["rm", "-rf", portion], check=True)
        if run.returncode != 0:
            raise RuntimeError(f"a damaged {name}: {run.stderr[-3000:]}")
    return tried


def main():
    with tempfile.TemporaryDirectory(prefix="gpt-train-bits-") as folder:
        for target in os.environ.get("FUZZ_TARGETS", "").split():
            program = os.path.join(BUILD, "tests", "fuzz", f"fuzz_{target}")
            if not os.path.exists(program):
                counts["skipped"] += 1
                print(f"SKIP fuzz_{target}: no clang with libFuzzer (Debian: clang, libclang-rt-dev)")
                continue
            try:
                print(f"{target}: {read_all(target, program, folder)} damaged files")
                counts["passed"] += 1
            except RuntimeError as error:
                counts["failed"] += 1
                print(f"FAIL {target}: {error}")
    print("checks: {passed} passed, {failed} failed, {skipped} skipped".format(**counts))
    return 1 if counts["failed"] else 0 if counts["passed"] else 77


if __name__ == "__main__":
    sys.exit(main())
