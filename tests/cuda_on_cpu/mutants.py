#!/usr/bin/env python3
"""Plants mistakes into copies of the kernels, one at a time, and wants each of them caught; prints by what.

Usage: mutants.py [--all] [--list] [NAME-PART...]
Every barrier removed, every wait for asynchronous copies one group too short, and the mistakes of SPECIAL: fragments and
operands swapped, masks off by one, tails unguarded.  A mutant is caught by opcheck in one of three orders of threads, else
by check_attention or check_rows (wrong numbers, or the emulator's words), else under AddressSanitizer, where those two
have every operand in memory of its own, else by ThreadSanitizer.  Without --all only those of
BOUNDED are tried, and no sanitizers; `make check-cuda-mutants` tries all.  SPARED are barriers without which nothing can go
wrong in the emulator or on a card, with the reason.
"""

import os
import re
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import kernels  # pylint: disable=wrong-import-position

ORDERS = ("asc", "desc", "random:1")
FOLDER = "backends/cuda/kernels/"

# What runs the kernels of a file: ops, and the kernel files to compile when the file is a header.
OPS = {
    "adamw.cu": ("adamw",),
    "adamw_lean.cu": ("adamw_lean",),
    "attention_cached.cu": ("attention_cached",),
    "attention_plain.h": ("attention_forward", "attention_backward"),
    "attention_plain_backward.cu": ("attention_backward",),
    "attention_plain_forward.cu": ("attention_forward",),
    "attention_tile.h": ("attention_forward", "attention_backward"),
    "attention_tile_backward.cu": ("attention_backward",),
    "attention_tile_forward.cu": ("attention_forward",),
    "bias.cu": ("bias_backward",),
    "blend.cu": ("blend",),
    "cross_entropy.cu": ("cross_entropy", "loss_sum"),
    "dropout.cu": ("dropout",),
    "embed.cu": ("embed_forward", "embed_backward"),
    "fill_copy.cu": ("fill", "copy"),
    "gelu.cu": ("gelu_forward", "gelu_backward"),
    "gemm.cu": ("gemm",),
    "layernorm.cu": ("layernorm_forward", "layernorm_backward"),
    "muon.cu": ("muon_momentum", "muon_normalize", "muon_step"),
    "norm.cu": ("sum_of_squares", "clip_factor"),
    "parts.cu": ("bias_backward", "layernorm_backward", "embed_backward", "sum_of_squares"),
    "residual.cu": ("residual",),
    "cuda_reduce.h": ("cross_entropy", "loss_sum", "sum_of_squares", "clip_factor"),
}
USERS = {
    "attention_plain.h": ("attention_plain_forward.cu", "attention_plain_backward.cu"),
    "attention_tile.h": ("attention_tile_forward.cu", "attention_tile_backward.cu"),
    "cuda_reduce.h": ("cross_entropy.cu", "norm.cu"),
}
# 16-bit kernels are reached by these only.
HALF_ONLY = ("attention_tile.h", "attention_tile_backward.cu", "attention_tile_forward.cu")

# (name, file, what is there, what becomes of it); the first is a regular expression that must occur.
SPECIAL = (
    ("mask-one-too-many", "attention_tile_forward.cu", r"(\+ e % 2) > row \+ e / 2 \* 8\)", r"\1 > row + e / 2 * 8 + 1)"),
    ("mask-one-too-few", "attention_tile_forward.cu", r"(\+ e % 2) > row \+ e / 2 \* 8\)", r"\1 >= row + e / 2 * 8)"),
    ("no-mask", "attention_tile_forward.cu", r"if \(key \+ TILE_ROWS - 1 > first\)", "if (false)"),
    ("no-rescale", "attention_tile_forward.cu", r"result\[n\]\[2 \* r\] \*= shrink;", ";"),
    ("keys-of-before", "attention_tile_forward.cu", r"keys\.first = key \+ TILE_ROWS;", "keys.first = key;"),
    ("operands-swapped", "attention_tile.h", r"a, b\[0\], b\[1\]\)", "a, b[1], b[0])"),
    ("tiles-swapped", "attention_tile.h",
     r"(<T, WIDE>\(d\[n\], a, )b\[0\], b\[1\]\);\s*(tile_multiply<T, WIDE>\(d\[n \+ 1\], a, )b\[2\], b\[3\]\)",
     r"\1b[2], b[3]); \2b[0], b[1])"),
    ("fragments-swapped", "attention_tile.h",
     r"(pack_pair<T>\(weight\[k\]\[2\], weight\[k\]\[3\]\)),\s*(pack_pair<T>\(weight\[k \+ 1\]\[0\], weight\[k \+ 1\]\[1\]\))",
     r"\2, \1"),
    ("not-transposed", "attention_tile.h", r"ldmatrix_x4_trans\(", "ldmatrix_x4("),
    ("tail-load-unguarded", "attention_tile.h", r"source\.first \+ row < source\.end && column", "column"),
    ("tail-load-one-more", "attention_tile.h", r"source\.first \+ row < source\.end && column",
     "source.first + row <= source.end && column"),
    ("tail-store-unguarded", "attention_tile.h", r"first \+ at < end && column < head_size", "column < head_size"),
    ("tail-store-one-more", "attention_tile.h", r"first \+ at < end && column < head_size",
     "first + at <= end && column < head_size"),
    ("head-tail-store", "attention_tile.h", r"first \+ at < end && column < head_size", "first + at < end"),
    ("mask-one-too-many", "attention_tile_backward.cu", r"row > other \+ column : other \+ column > row",
     "row > other + column + 1 : other + column > row + 1"),
    ("no-scale", "attention_tile_backward.cu", r"\{attention\.scale, attention\.scale\}", "{1.0f, 1.0f}"),
    ("statistics-of-one-more", "attention_tile_backward.cu", r"row < attention\.time\);", "row <= attention.time);"),
    ("dropout-of-another-row", "attention_tile.h", r"16 \* m >> tile_lane", "8 * m >> tile_lane"),
    ("dropout-of-even-queries", "attention_tile.h", r"c % 4 \* 8 \+ 2 \* t \+ c / 4", "c % 4 * 8 + 2 * t"),
    ("narrow-half-twice", "attention_tile.h", r"mma_m16n8k8_f16\(d, high, b1\)", "mma_m16n8k8_f16(d, high, b0)"),
    ("no-log2", "attention_tile_backward.cu", r"row_lse \* LOG2_E", "row_lse"),
    ("no-delta", "attention_tile_backward.cu", r" - row_delta\)", ")"),
    ("first-head-for-all", "attention_tile_backward.cu", r"step / place\.tiles", "0"),
    ("loaded-twice", "attention_tile_backward.cu", r"attention\.stages == 1 && step", "step"),
    ("parts-of-nobody", "attention_cached.cu", r"part < parts", "part < cached.splits"),
    ("sum-forgotten", "attention_cached.cu", r"partial\[size \+ 1\] = sum\.sum", "partial[size + 1] = 1.0f"),
    ("mask-one-too-few", "attention_plain_backward.cu", r"key > query \? 0\.0f", "key >= query ? 0.0f"),
    ("mean-of-squares", "layernorm.cu", r"x\[k\] - mean : 0\.0f", "x[k] : 0.0f"),
    ("deviation-of-the-tail", "layernorm.cu", r"k < span\.count \? x\[k\] - mean : 0\.0f", "x[k] - mean"),
    ("one-row-more", "layernorm.cu", r"n < args\.rows; n \+= stride", "n <= args.rows; n += stride"),
    ("tail-column", "embed.cu", r"if \(column < args\.channels\)", "if (column <= args.channels)"),
    ("target-beside", "cross_entropy.cu", r"c \+ k == target", "c + k == target + 1"),
    ("padding-kept", "cross_entropy.cu", r"c \+ k < args\.vocab \? ", "true ? "),
)
# The cut of `make check`: cheap to compile and quick to catch, of every kind that one order shows.
BOUNDED = ("norm.cu", "cross_entropy.cu:target-beside", "layernorm.cu:one-row-more", "embed.cu:tail-column", "bias.cu")
SPARED = {}


class Mutant:
    def __init__(self, file, name, text):
        self.file, self.name, self.text = file, name, text

    def label(self):
        return "%s:%s" % (self.file, self.name)


def path_of(file):
    return ("backends/cuda/" if file.startswith("cuda_") else FOLDER) + file


def read_source(file):
    with open(os.path.join(kernels.TOP, path_of(file)), encoding="utf-8") as handle:
        return handle.read()


def generated(file, text):
    """Each barrier removed, each wait one too short or removed."""
    for match in re.finditer(r"__sync(threads|warp)\(\);", text):
        line = text.count("\n", 0, match.start()) + 1
        yield Mutant(file, "%d-no-sync%s" % (line, match.group(1)), text[:match.start()] + ";" + text[match.end():])
    for match in re.finditer(r"cp_async_wait<(\d)>\(\);", text):
        line = text.count("\n", 0, match.start()) + 1
        short = "cp_async_wait<%d>();" % (int(match.group(1)) + 1)
        yield Mutant(file, "%d-short-wait" % line, text[:match.start()] + short + text[match.end():])


def mutants_all():
    found = []
    for file in OPS:
        text = read_source(file)
        found += generated(file, text)
        for name, where, pattern, replacement in SPECIAL:
            if where != file:
                continue
            changed, count = re.subn(pattern, replacement, text)
            if count == 0:
                raise RuntimeError("%s:%s: the kernel has nothing like %s; write the mutant anew" % (file, name, pattern))
            found.append(Mutant(file, name, changed))
    return found


def is_selected(mutant, words, everything):
    label = mutant.label()
    if words:
        return any(word in label for word in words)
    return everything or any(label.startswith(word) for word in BOUNDED)


def build_mutant(build, mutant, scratch, flags):
    """The drivers with the mutant's kernels, in the scratch folder."""
    root = os.path.join(scratch, "source")
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(os.path.join(kernels.TOP, "backends/cuda"), os.path.join(root, "backends/cuda"))
    with open(os.path.join(root, path_of(mutant.file)), "w", encoding="utf-8") as file:
        file.write(mutant.text)
    names = USERS.get(mutant.file, (mutant.file,))
    sources = [os.path.join(root, FOLDER, name) for name in names]
    objects = kernels.compile_all(build, sources, os.path.join(scratch, "objects"), flags, root)
    for driver in ("opcheck", driver_of(mutant)):
        kernels.link(build, driver, objects, os.path.join(scratch, driver), flags)


def driver_of(mutant):
    return "check_attention" if mutant.file.startswith("attention") else "check_rows"


def runs_of(mutant, cases):
    """(driver, arguments) of each run of opcheck."""
    dtypes = ("bfloat16",) if mutant.file in HALF_ONLY else ("float32", "bfloat16")
    return [("opcheck", ["--backend=cuda", "--op=" + op, "--dtype=" + dtype, "--cases=%d" % cases])
            for op in OPS[mutant.file] for dtype in dtypes]


def first_failure(scratch, runs, order):
    for driver, arguments in runs:
        status, output = kernels.drive(os.path.join(scratch, driver), order, arguments)
        if status != 0:
            return "%s: %s" % (driver, kernels.verdict(status, output))
    return None


def caught_by(build, mutant, scratch, everything):
    """By what the mutant was caught, or None."""
    build_mutant(build, mutant, scratch, kernels.PLAIN)
    for order in ORDERS:
        how = first_failure(scratch, runs_of(mutant, 60), order)
        if how:
            return "%s (%s)" % (how, order)
    if not everything:
        return None
    own = [(driver_of(mutant), [])]
    how = first_failure(scratch, own, "asc")
    if how:
        return how
    for flags, runs in ((kernels.ASAN, own + runs_of(mutant, 20)), (kernels.TSAN, runs_of(mutant, 12))):
        build_mutant(build, mutant, scratch, flags)
        how = first_failure(scratch, runs, "asc")
        if how:
            return how
    return None


def main(arguments):
    build = kernels.build_read()
    if build is None:
        kernels.skip("cuda_mutants", "no C++17 compiler, so there are no emulated programs")
    if kernels.is_instrumented(build):
        kernels.skip("cuda_mutants", "this build is instrumented as a whole, and too slow for it")
    everything = "--all" in arguments
    words = [a for a in arguments if not a.startswith("--")]
    chosen = [m for m in mutants_all() if is_selected(m, words, everything)]
    if "--list" in arguments:
        print("\n".join(m.label() for m in chosen))
        return 0
    passed = failed = 0
    for mutant in chosen:
        with tempfile.TemporaryDirectory(prefix="gpt-train-mutant-") as scratch:
            spared = SPARED.get(mutant.label())
            how = caught_by(build, mutant, scratch, everything or bool(words))
        good = (how is None) if spared else (how is not None)
        print("%s mutant %s: %s" % ("PASS" if good else "FAIL", mutant.label(),
                                    "spared, " + spared if spared else how or "caught by nothing"), flush=True)
        passed += good
        failed += not good
    print("checks: %d passed, %d failed, 0 skipped" % (passed, failed))
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except RuntimeError as error:
        print("FAIL %s\nchecks: 0 passed, 1 failed, 0 skipped" % error)
        sys.exit(1)
