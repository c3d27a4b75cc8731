#!/usr/bin/env python3
"""Runs the suite again with the cpu kernels of a narrower instruction set, which a wide processor would leave untested.

Usage: narrow_sets.py SET [--part=K/N] [TEST...]     (SET: avx2 or generic; the environment is that of `make check`)
No test may compare what the processor decides: workspaces, the op at the peak, the last bits of a sum.  The tests are
those of `make check`, or the named ones, except the suites that run no cpu kernels.  A test that fails prints its output.
Prints "checks: P passed, F failed, S skipped", counted in tests.
"""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "e2e"))

from checks import BUILD, SOURCE, check, counts, finish, part, skip  # noqa: E402

WITHOUT_KERNELS = ("tests/style/", "tests/fuzz/", "tests/cuda_on_cpu/", "tests/tools/")


def suite():
    """Returns the tests of `make check` in which cpu kernels may run."""
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    listed = subprocess.run(["make", "-s", "--no-print-directory", "-C", BUILD, "check-list"], env=environment, check=True,
                            capture_output=True, text=True).stdout.split()
    return [test for test in listed if not test.startswith(WITHOUT_KERNELS)]


def has_set(environment):
    """Returns true when build and processor have the instruction set."""
    opcheck = os.path.join(BUILD, "tests", "opcheck", "opcheck")
    return subprocess.run([opcheck, "--backend=cpu", "--support", "--op=fill"], env=environment, check=False,
                          capture_output=True).returncode == 0


def run(test, environment):
    path = os.path.join(SOURCE if test.endswith((".py", ".sh")) else BUILD, test)
    done = subprocess.run(["sh", os.path.join(SOURCE, "tests", "tools", "run_test.sh"), path], env=environment, check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode == 77:
        counts["skipped"] += 1
        return
    check(done.returncode == 0, f"{test} with {environment['GPT_TRAIN_CPU_ISA']}:\n{done.stdout}")


def main():
    name, *tests = [argument for argument in sys.argv[1:] if not argument.startswith("--part=")]
    environment = {**os.environ, "GPT_TRAIN_CPU_ISA": name, "CHECK_LONG": "", "TEST_LIMIT_S": "1800"}
    if not has_set(environment):
        skip(f"narrow_sets_{name}", f"the processor or the build has no {name}")
        sys.exit(finish())
    for test in part(tests or suite()):
        run(test, environment)
    sys.exit(finish())


main()
