"""What the Python scripts of this folder share: counting, and the closing line that the summary reads."""
import os
import shlex
import subprocess
import sys

LONG = os.environ.get("CHECK_LONG", "") not in ("", "0")
counts = {"passed": 0, "failed": 0, "skipped": 0}


def check(good, text):
    """`good` is written so that a NaN is not good; `text` says what is wrong when it is not."""
    counts["passed" if good else "failed"] += 1
    if not good:
        print("FAIL", text, file=sys.stderr)


def check_named(name, good, what=""):
    check(good, f"{name}: {what}" if what else name)


def skip(name, reason):
    counts["skipped"] += 1
    print(f"SKIP {name}: {reason}")


def some(cases, count=1):
    """The first cases in `make check`; all of them with CHECK_LONG=1."""
    return cases if LONG else cases[:count]


def patience(seconds):
    """How long to wait for what takes so long in an ordinary build: longer in one with a sanitizer (BUDGET_FACTOR)."""
    return seconds * max(1.0, float(os.environ.get("BUDGET_FACTOR") or 1))


def has_backend(name):
    """Whether this build has it: cuda, opencl."""
    with open(os.path.join(os.environ.get("top_builddir", "."), "config.h"), encoding="utf-8") as file:
        return f"#define HAVE_{name.upper()} 1" in file.read()


def is_instrumented(program, marks=(b"__asan_init", b"__tsan_init")):
    """Whether it is of a build with a sanitizer whose runtime must be loaded first, or with the one that has this mark."""
    with open(program, "rb") as file:
        image = file.read()
    return any(mark in image for mark in marks)


def preloadable(name, program, source):
    """A library made of `source`, in the working folder, for `program` to be started with; None and a skip where that fails."""
    library = os.path.abspath(os.path.basename(source).replace(".c", ".so"))
    command = shlex.split(os.environ.get("CC", "cc")) + ["-O0", "-shared", "-fPIC", "-o", library, source]
    if is_instrumented(program) or subprocess.run(command, check=False, capture_output=True).returncode != 0:
        skip(name, "no compiler, or a build with a sanitizer, which does not like to be preloaded")
        return None
    return library


def part(cases):
    """Those of the cases that "--part=K/N" on the command line leaves: every N-th from the K-th on; all of them without it."""
    for argument in sys.argv[1:]:
        if argument.startswith("--part="):
            number, count = map(int, argument[len("--part="):].split("/"))
            if not 1 <= number <= count:
                sys.exit(f"{argument}: expected K/N with K from 1 to N")
            print(f"part {number} of {count}", flush=True)
            return list(cases)[number - 1::count]
    return list(cases)


def finish():
    """Prints "checks: P passed, F failed, S skipped".  Returns the exit status: 1 where a check failed or nothing was done, 77
    where all was skipped."""
    print("checks: {passed} passed, {failed} failed, {skipped} skipped".format(**counts))
    if counts["failed"] == 0 and counts["passed"] == 0 and counts["skipped"] > 0:
        return 77
    return 0 if counts["failed"] == 0 and counts["passed"] > 0 else 1
