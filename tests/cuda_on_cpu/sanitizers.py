#!/usr/bin/env python3
"""The kernels under AddressSanitizer with UndefinedBehaviorSanitizer, and under ThreadSanitizer as a race checker.

Usage: sanitizers.py [--all] [--only=asan|tsan] [KERNEL-FILE...]; without --all or CHECK_LONG=1 one kernel family
The kernels are compiled with the sanitizer and linked with opcheck; a report fails.  AddressSanitizer's runs give every
operand memory of its own, so that it sees each access beyond one.  ThreadSanitizer sees each CUDA thread as a thread,
ordered by barriers only, so it reports races within a block and between blocks in the one order that is run.  Since
gcc 13 and LLVM 14 ThreadSanitizer distinguishes only 255 threads and misses some races of launches with more.  The test is
skipped in a build that is already instrumented.
"""

import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import kernels  # pylint: disable=wrong-import-position

CUDA = "--backend=cuda"
# The runs of opcheck.
BOUNDED = {
    "asan": [[CUDA, "--dtype=bfloat16", "--op=embed_backward", "--separate", "--case=%d" % case] for case in (9, 40)],
    "tsan": [[CUDA, "--dtype=bfloat16", "--cases=2", "--op=layernorm_backward"]],
}
FEW = {"asan": ("embed",), "tsan": ("layernorm",)}  # kernel files of the short run: attention's take half a minute to compile
with open(os.path.join(kernels.TOP, "src/ops/ops.def"), encoding="ascii") as ops:
    OPS = re.findall(r"^OP\(\w+, (\w+)", ops.read(), re.M)
FLOAT32_ONLY = ("loss_sum", "clip_factor")
ALL = {
    "asan": [[CUDA, "--dtype=" + ("float32" if op in FLOAT32_ONLY else "bfloat16"), "--op=" + op, "--separate", "--case=%d" % case]
             for op in OPS for case in (2, 7)],
    "tsan": [[CUDA, "--dtype=bfloat16", "--cases=3"]],
}


class Totals:
    passed = 0
    failed = 0

    def report(self, name, good, text=""):
        print("%s %s" % ("PASS" if good else "FAIL", name), flush=True)
        if not good:
            print(text[-6000:])
        self.passed += good
        self.failed += not good


def check_kernels(build, totals, name, flags, scratch, sources, runs):
    objects = kernels.compile_all(build, sources, os.path.join(scratch, "objects"), flags)
    program = os.path.join(scratch, "opcheck")
    kernels.link(build, objects, program, flags)
    for arguments in runs:
        status, output = kernels.drive(program, "asc", arguments, 1800)
        totals.report("sanitizers-%s %s" % (name, " ".join(arguments[1:])), status == 0, output + kernels.verdict(status, output))


def main(arguments):
    build = kernels.build_read()
    if build is None:
        kernels.skip("cuda_sanitizers", "no C++17 compiler, so there are no emulated programs")
    if kernels.is_instrumented(build):
        kernels.skip("cuda_sanitizers", "this build is instrumented as a whole")
    everything = "--all" in arguments or os.environ.get("CHECK_LONG", "0") != "0"
    files = [a for a in arguments if not a.startswith("--")]
    sources = [os.path.join(kernels.TOP, k) for k in build["kernels"].split() if not files or os.path.basename(k) in files]
    totals = Totals()
    skipped = 0
    for name, flags in (("asan", kernels.ASAN), ("tsan", kernels.TSAN)):
        if any(a.startswith("--only=") and a != "--only=" + name for a in arguments):
            continue
        with tempfile.TemporaryDirectory(prefix="gpt-train-kernels-") as scratch:
            if not kernels.accepts(build, flags, scratch):
                print("SKIP cuda_sanitizers: %s makes no programs with %s" % (build["cxx"], flags))
                skipped += 1
                continue
            some = sources if everything else [s for s in sources if os.path.basename(s).startswith(FEW[name])]
            check_kernels(build, totals, name, flags, scratch, some, (ALL if everything else BOUNDED)[name])
    print("checks: %d passed, %d failed, %d skipped" % (totals.passed, totals.failed, skipped))
    return 1 if totals.failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except RuntimeError as error:
        print("FAIL %s\nchecks: 0 passed, 1 failed, 0 skipped" % error)
        sys.exit(1)
