#!/usr/bin/env python3
"""Plants mistakes into copies of the kernels, one at a time, checks that each is caught, and prints by which test.

Usage: mutants.py [--all] [--list] [--jobs=N] [NAME-PART...]
The mutants: every barrier removed, every wait for asynchronous copies removed or made one group too short, every commit
removed, and the mistakes of mutants_planted.py: fragments and operands swapped, masks off by one, tails unguarded,
indices truncated to 32 bits.  Only the kernel files that contain the mistake are compiled; they are linked with
opcheck, and with check_attention or check_rows, which allocate every operand separately.  A mutant is caught by opcheck
on its ops (wrong numbers, or an error of the emulator), else by the other program, else by opcheck in other orders of
threads, else by the other program under AddressSanitizer, else by ThreadSanitizer.  Every run that catches something is
repeated without the mistake, and must then pass.  Without --all only the mutants of BOUNDED are tried; `make
check-cuda-mutants` tries all and prints the table of doc/cuda.md.  SPARED lists, with the reason, the changes that
cannot do harm in the emulator or on a card.
"""

import concurrent.futures
import os
import re
import shutil
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import kernels  # pylint: disable=wrong-import-position
from mutants_planted import PLANTED  # pylint: disable=wrong-import-position

OTHER_ORDERS = ("desc", "random:1")
FOLDER = "backends/cuda/kernels/"
LIMIT_S = 240

# The ops that run the kernels of a file.
OPS = {
    "adamw.cu": ("adamw", "adamw_lean"),
    "attention_cached.cu": ("attention_cached",),
    "attention_plain_backward.cu": ("attention_backward",),
    "attention_plain_forward.cu": ("attention_forward", "attention_cached"),
    "attention_tile_backward.cu": ("attention_backward",),
    "attention_tile_forward.cu": ("attention_forward", "attention_cached"),
    "cross_entropy.cu": ("cross_entropy", "loss_sum"),
    "elementwise.cu": ("fill", "copy", "residual", "blend", "gradient_round", "sum_parts", "dropout"),
    "embed.cu": ("embed_forward", "embed_backward"),
    "gelu.cu": ("gelu_forward", "gelu_backward", "swiglu_forward", "swiglu_backward"),
    "gemm.cu": ("gemm",),
    "gemm_half.cu": ("gemm",),
    "layernorm.cu": ("layernorm_forward", "layernorm_backward", "rmsnorm_forward", "rmsnorm_backward"),
    "muon.cu": ("muon_momentum", "muon_normalize", "muon_step"),
    "norm.cu": ("sum_of_squares", "clip_factor"),
    "rope.cu": ("rope_forward", "rope_backward"),
    "rows_sum.cu": ("bias_backward", "layernorm_backward", "rope_backward"),
}
# The kernel files that are compiled for a header, unless the mutant names them.
USERS = {
    "attention_place.h": ("attention_plain_forward.cu", "attention_tile_backward.cu"),
    "attention_plain.h": ("attention_plain_forward.cu", "attention_plain_backward.cu"),
    "attention_tile.h": ("attention_tile_forward.cu", "attention_tile_backward.cu"),
    "cuda_device.h": ("cross_entropy.cu", "norm.cu"),
}
# Ops with cases in only one dtype, and kernels that only 16-bit operands reach; all others use fp32 and bf16.
ONE_DTYPE = {"adamw_lean": "bfloat16", "gradient_round": "bfloat16", "muon_momentum": "bfloat16", "loss_sum": "float32",
             "clip_factor": "float32"}
# Every seventh case of attention, which is slow: 7 is prime to the periods of opcheck's cases, so that every kind of
# case occurs.  All cases of the other ops.
CASES_SLOW = {"attention_forward": "--cases=22", "attention_backward": "--cases=22", "attention_cached": "--cases=15"}
CASES_ALL = "--cases=1000"
# Ops with other launch shapes that --tune may choose, and how many; their cases run in all.
VARIANTS = {"attention_forward": 1, "attention_backward": 2, "cross_entropy": 1}
# With so few multiprocessors attention_backward computes all gradients at once.
DEVICES = "86x2:12g:Emulated card"
# The selection of `make check`: cheap to compile and quick to catch, one of every kind that a single order reveals.
BOUNDED = ("norm.cu", "cross_entropy.cu:target-beside", "layernorm.cu:one-row-more", "embed.cu:tail-column", "rows_sum.cu",
           "cuda_floats.h:part-")
SPARED = {
    "cuda_device.h:nan-lost-in-maximum": "who takes the maximum of logits takes their sum too, which has the NaN",
}


class Mutant:
    def __init__(self, file, name, text, users):
        self.file, self.name, self.text = file, name, text
        self.users = users or USERS.get(file, (file,))

    def label(self):
        return "%s:%s" % (self.file, self.name)

    def driver(self):
        return "check_attention" if self.users[0].startswith("attention") else "check_rows"


def path_of(file):
    folders = {"bits.h": "src/base/", "gelu.h": "backends/"}
    return folders.get(file, "backends/cuda/" if file.startswith("cuda_") else FOLDER) + file


def read_source(file):
    with open(os.path.join(kernels.TOP, path_of(file)), encoding="utf-8") as handle:
        return handle.read()


def generated(file, text):
    """Removes each barrier; removes each wait or makes it one group too short; removes each commit."""
    changes = (
        (r"__sync(threads|warp)\(\);", r"no-sync\1", r";"),
        (r"cp_async_wait<(\d)>\(\);", r"no-wait", r";"),
        (r"cp_async_wait<(\d)>\(\);", r"short-wait", None),
        (r"cp_async_commit\(\);", r"no-commit", r";"),
    )
    for pattern, name, replacement in changes:
        for match in re.finditer(pattern, text):
            line = text.count("\n", 0, match.start()) + 1
            there = replacement or "cp_async_wait<%d>();" % (int(match.group(1)) + 1)
            yield Mutant(file, "%d-%s" % (line, match.expand(name)), text[:match.start()] + there + text[match.end():], ())


def mutants_all():
    found = []
    for file in sorted(set(OPS) | set(USERS)):
        found += generated(file, read_source(file))
    for file, planted in PLANTED:
        text = read_source(file)
        for name, pattern, replacement, *users in planted:
            changed, count = re.subn(pattern, replacement, text)
            if count == 0 or changed == text:
                raise RuntimeError("%s:%s: the kernel has nothing like %s; write the mutant anew" % (file, name, pattern))
            found.append(Mutant(file, name, changed, users[0] if users else ()))
    return sorted(found, key=lambda mutant: (mutant.file, mutant.name))


def is_selected(mutant, words, everything):
    label = mutant.label()
    if words:
        return any(word in label for word in words)
    return everything or any(label.startswith(word) for word in BOUNDED)


def ops_of(mutant):
    return sorted({op for user in mutant.users for op in OPS[user]})


def opcheck_runs(mutant):
    """Returns opcheck's arguments for each of the mutant's ops and dtypes."""
    half_only = all(user.startswith("attention_tile") for user in mutant.users)
    runs = []
    for op in ops_of(mutant):
        dtypes = () if op == "gemm" else (ONE_DTYPE[op],) if op in ONE_DTYPE else ("bfloat16",) if half_only else ("float32", "bfloat16")
        cases = CASES_SLOW.get(op, CASES_ALL)
        runs += [["--backend=cuda", "--op=" + op, "--dtype=" + dtype, cases] for dtype in dtypes]
        if op == "gemm":
            runs += [["--backend=cuda", "--op=gemm", "--dtype=float16", "--half_sums", "--cases=60"]]
            runs += [] if "gemm_half.cu" in mutant.users else [["--backend=cuda", "--op=gemm", "--dtype=bfloat16", cases]]
        for variant in range(1, VARIANTS.get(op, 0) + 1):
            runs += [["--backend=cuda", "--op=" + op, "--dtype=bfloat16", cases, "--variant=%d" % variant]]
    return runs


class Bench:
    """Builds and runs mutants, and remembers which runs pass without a mistake."""

    def __init__(self, build, folder):
        self.build, self.folder = build, folder
        self.passing, self.lock = set(), threading.Lock()

    def programs(self, mutant, flags, scratch, drivers):
        """Builds the drivers with the mutant's kernels."""
        root = os.path.join(scratch, "source")
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(os.path.join(kernels.TOP, "backends/cuda"), os.path.join(root, "backends/cuda"))
        os.makedirs(os.path.join(root, "base"))
        with open(os.path.join(root, path_of(mutant.file).replace("src/", "")), "w", encoding="utf-8") as file:
            file.write(mutant.text)
        sources = [os.path.join(root, FOLDER, name) for name in mutant.users]
        objects = kernels.compile_all(self.build, sources, os.path.join(scratch, "objects"), flags, root)
        for driver in drivers:
            kernels.link(self.build, driver, objects, os.path.join(scratch, driver), flags)

    def passes_without(self, mutant, flags, run):
        """Returns true when the run passes without the mistake: a run that fails anyway catches nothing."""
        driver, arguments, order = run
        key = (mutant.users if flags else (), flags, driver, tuple(arguments), order)
        with self.lock:
            if key in self.passing:
                return True
        if flags:
            original = Mutant(mutant.file, mutant.name, read_source(mutant.file), mutant.users)
            with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
                self.programs(original, flags, scratch, (driver,))
                status, _ = kernels.drive(os.path.join(scratch, driver), order, arguments, LIMIT_S)
        else:
            name = "opcheck-cuda" if driver == "opcheck" else driver
            status, _ = kernels.drive(os.path.join(kernels.BUILD, "tests/cuda_on_cpu", name), order, arguments, LIMIT_S)
        if status == 0:
            with self.lock:
                self.passing.add(key)
        return status == 0

    def first_failure(self, mutant, flags, scratch, runs):
        """Returns (driver, finding) of the first run that fails with the mistake and not without it, or None."""
        for driver, arguments, order in runs:
            status, output = kernels.drive(os.path.join(scratch, driver), order, arguments, LIMIT_S)
            if status == 0:
                continue
            if not self.passes_without(mutant, flags, (driver, arguments, order)):
                raise RuntimeError("%s %s, order %s: fails without a mistake too" % (driver, " ".join(arguments), order))
            where = " (%s)" % order if driver == "opcheck" and order != "asc" else ""
            return driver, "%s%s: %s" % (driver, where, kernels.verdict(status, output))
        return None

    def caught_by(self, mutant):
        """Returns (column of the table, finding), or None."""
        driver, checks = mutant.driver(), opcheck_runs(mutant)
        own = [(driver, ["--only=" + op], "asc") for op in ops_of(mutant)]
        in_order = [("opcheck", arguments, "asc") for arguments in checks] + own
        shuffled = [("opcheck", arguments, order) for order in OTHER_ORDERS for arguments in checks]
        few = [("opcheck", [a for a in arguments if not a.startswith("--cases")] + ["--cases=15"], "asc") for arguments in checks]
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            self.programs(mutant, kernels.PLAIN, scratch, ("opcheck", driver))
            found = self.first_failure(mutant, kernels.PLAIN, scratch, in_order + shuffled)
            for name, flags, runs in (("AddressSanitizer", kernels.ASAN, own or few),
                                      ("ThreadSanitizer", kernels.TSAN, few + own)):
                if found is not None:
                    break
                self.programs(mutant, flags, scratch, sorted({run[0] for run in runs}))
                found = self.first_failure(mutant, flags, scratch, runs)
                found = found and (name, found[1])
        return found


def judged(bench, mutant):
    """Returns (mutant, column or None, line)."""
    spared = SPARED.get(mutant.label())
    if spared:
        found = bench.caught_by(mutant)
        line = "spared, %s%s" % (spared, "; but caught by " + found[1] if found else "")
        return mutant, None if found else "spared", line
    found = bench.caught_by(mutant)
    return mutant, found[0] if found else None, found[1] if found else "caught by nothing"


COLUMNS = ("opcheck", "check_attention", "check_rows", "AddressSanitizer", "ThreadSanitizer", "spared")


def table_print(counts):
    """Prints the mutants by file, and by what caught them."""
    print("\n| file | mutants | " + " | ".join(COLUMNS) + " |")
    print("|---" * (len(COLUMNS) + 2) + "|")
    for file in sorted(counts):
        cells = [counts[file].get(column, 0) for column in COLUMNS]
        total = sum(counts[file].values())
        print("| `%s` | %d | %s |" % (file, total, " | ".join(str(cell) for cell in cells)))
    sums = [sum(row.get(column, 0) for row in counts.values()) for column in COLUMNS]
    total = sum(sum(row.values()) for row in counts.values())
    print("| all | %d | %s |\n" % (total, " | ".join(str(cell) for cell in sums)))


def main(arguments):
    build = kernels.build_read()
    if build is None:
        kernels.skip("cuda_mutants", "no C++17 compiler, so there are no emulated programs")
    if kernels.is_instrumented(build):
        kernels.skip("cuda_mutants", "this build is instrumented as a whole, and too slow for it")
    words = [a for a in arguments if not a.startswith("--")]
    chosen = [m for m in mutants_all() if is_selected(m, words, "--all" in arguments)]
    if "--list" in arguments:
        print("\n".join(m.label() for m in chosen))
        return 0
    os.environ["GT_CUDA_ON_CPU_DEVICES"] = DEVICES
    jobs = [int(a[len("--jobs="):]) for a in arguments if a.startswith("--jobs=")] or [os.cpu_count()]
    failed, counts = 0, {}
    with tempfile.TemporaryDirectory(prefix="gpt-train-mutants-") as folder, \
            concurrent.futures.ThreadPoolExecutor(jobs[0]) as pool:
        bench = Bench(build, folder)
        for mutant, column, line in pool.map(lambda m: judged(bench, m), chosen):
            print("%s mutant %s: %s" % ("PASS" if column else "FAIL", mutant.label(), line), flush=True)
            failed += column is None
            row = counts.setdefault(mutant.file, {})
            row[column or "nothing"] = row.get(column or "nothing", 0) + 1
    table_print(counts)
    print("checks: %d passed, %d failed, 0 skipped" % (len(chosen) - failed, failed))
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except RuntimeError as error:
        print("FAIL %s\nchecks: 0 passed, 1 failed, 0 skipped" % error)
        sys.exit(1)
