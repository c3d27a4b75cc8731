"""Shared code of the Python scripts in this folder: counting checks, and the closing line that the summary reads."""
import os
import shlex
import subprocess
import sys

LONG = os.environ.get("CHECK_LONG", "") not in ("", "0")
counts = {"passed": 0, "failed": 0, "skipped": 0}


def check(good, text):
    """Write `good` so that a NaN makes it false; `text` describes the failure."""
    counts["passed" if good else "failed"] += 1
    if not good:
        print("FAIL", text, file=sys.stderr)


def check_named(name, good, what=""):
    check(good, f"{name}: {what}" if what else name)


def skip(name, reason):
    counts["skipped"] += 1
    print(f"SKIP {name}: {reason}")


def some(cases, count=1):
    """Returns the first cases in `make check`; all of them with CHECK_LONG=1."""
    return cases if LONG else cases[:count]


def patience(seconds):
    """Returns a timeout: `seconds` in an ordinary build, longer in one with a sanitizer (BUDGET_FACTOR)."""
    return seconds * max(1.0, float(os.environ.get("BUDGET_FACTOR") or 1))


def has_backend(name):
    """Returns true when this build has the backend: cuda, opencl."""
    with open(os.path.join(os.environ.get("top_builddir", "."), "config.h"), encoding="utf-8") as file:
        return f"#define HAVE_{name.upper()} 1" in file.read()


def is_instrumented(program, marks=(b"__asan_init", b"__tsan_init")):
    """Returns true when the program contains a mark: by default, of a sanitizer whose runtime must be loaded first."""
    with open(program, "rb") as file:
        image = file.read()
    return any(mark in image for mark in marks)


def preloadable(name, program, source):
    """Compiles `source` into a library in the working folder, to be preloaded into `program`; returns None after a skip
    when that fails."""
    library = os.path.abspath(os.path.basename(source).replace(".c", ".so"))
    command = shlex.split(os.environ.get("CC", "cc")) + ["-O0", "-shared", "-fPIC", "-o", library, source]
    if is_instrumented(program) or subprocess.run(command, check=False, capture_output=True).returncode != 0:
        skip(name, "no compiler, or a build with a sanitizer, which does not like to be preloaded")
        return None
    return library


def part(cases):
    """Returns the cases selected by "--part=K/N" on the command line: every N-th from the K-th on; all of them without
    it."""
    for argument in sys.argv[1:]:
        if argument.startswith("--part="):
            number, count = map(int, argument[len("--part="):].split("/"))
            if not 1 <= number <= count:
                sys.exit(f"{argument}: expected K/N with K from 1 to N")
            print(f"part {number} of {count}", flush=True)
            return list(cases)[number - 1::count]
    return list(cases)


def finish():
    """Prints "checks: P passed, F failed, S skipped".  Returns the exit status: 1 if a check failed or nothing was
    done, 77 if everything was skipped."""
    print("checks: {passed} passed, {failed} failed, {skipped} skipped".format(**counts))
    if counts["failed"] == 0 and counts["passed"] == 0 and counts["skipped"] > 0:
        return 77
    return 0 if counts["failed"] == 0 and counts["passed"] > 0 else 1
