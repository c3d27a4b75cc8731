#!/usr/bin/env python3
"""Registers, spills, static shared memory and instructions of the cuda backend's kernels, as nvcc compiles them.

A kernel that spills keeps registers in memory, which costs more than any tuning gains; no kernel may spill.  The
kernels of LIMITED, which are short of instructions or have a large share of a step, have limits on their registers, so
that enough warps are resident, and on the instructions of their fast path (cuda_sass.py), where there is an nvdisasm.
No .aligned instruction may follow a branch at which lanes may part, before these are joined.
Without options the two cheapest of them are compiled, each for two architectures, and of attention's backward tiles, which
take nvcc most of a minute, only those of ALONE.  CHECK_LONG=1 compiles those of LONG_TOO as well, `--all` every file for all
architectures, from the same PTX as a build, and prints tables of registers and instructions.  `--arch=75,120` selects other architectures.
No nvcc: skipped by name.  The last line is "checks: P passed, F failed, S skipped".
"""
import concurrent.futures
import glob
import os
import re
import shutil
import sys

import cuda_sass
from checks import LONG, SOURCE, check, end, ran, skip

ARCHS = ("75", "86", "89", "90", "120")
COUNTED = ("86", "89", "90", "120")
# Kernels that are short of registers, compiled without the others of their file.
ALONE = {"attention_tile_backward": [f"attention_backward_tiles<{parameters}>(const struct cuda_attention)" for parameters in (
    "__nv_bfloat16, 128, AT_ONCE, MMA_K16", "__nv_bfloat16, 32, BY_QUERIES, MMA_K16", "__half, 32, BY_QUERIES, MMA_K8",
    "__half, 64, AT_ONCE, MMA_HALF_SUMS")]}
BOUNDED = [("gelu", "86"), ("gelu", "120"), ("cross_entropy", "89"), ("cross_entropy", "90"),
           ("attention_tile_backward alone", "90")]
LONG_TOO = [("attention_tile_forward", "86"), ("attention_tile_backward", "120"), ("gemm_own", "89"), ("adamw", "75"),
            ("layernorm", "120"), *(("attention_tile_backward alone", arch) for arch in ("75", "86", "89", "120"))]
REGISTERS_MAX = 255
# Kernel, in bf16 with whole rows; the most registers; elements, or 1 for a step (of attention: 32 or 64 other rows with
# head size 64, in the backward without the copies of the next rows; of our own products: 32 of K); what a loop of
# the fast path goes through, has besides, and does not have; the most instructions for each.
STORE, LOAD, COPY = r"STG\.E\.128", r"LDG\.E\.128", r"LDGSTS.*128"
LIMITED = (
    ("gelu_forward 0 1", 40, 8, STORE, "MUFU", None, 24.5),
    ("gelu_forward 1 1", 40, 8, STORE, "MUFU", None, 13),
    ("gelu_backward 0 1", 40, 8, STORE, "MUFU", None, 27.5),
    ("gelu_backward 1 1", 40, 8, STORE, "MUFU", None, 19.5),
    ("cross_entropy 1", 128, 8, LOAD, "MUFU", "STG", 7.5),
    ("cross_entropy 1", 128, 8, STORE, "MUFU", None, 6.5),
    ("layernorm_forward 1 4 0", 80, 32, None, None, None, 60),
    ("layernorm_forward 1 4 1", 80, 32, None, None, None, 68),
    ("layernorm_backward 1 4 0", 128, 32, None, None, None, 92),
    ("layernorm_backward 1 4 1", 128, 32, None, None, None, 100),
    ("attention_forward_tiles bf16 64 1 4", 168, 1, COPY, "HMMA", None, 425),
    ("attention_backward_tiles bf16 32 0 1", 128, 1, "MUFU", "HMMA", None, 190),
    ("attention_forward_tiles fp16 64 2 4", 168, 1, COPY, "HMMA", None, 660),
    ("attention_backward_tiles fp16 64 2 2", 255, 1, "MUFU", "HMMA", None, 700),
    ("attention_backward_tiles bf16 64 0 1", 255, 1, "MUFU", "HMMA", None, 240),
    ("attention_backward_tiles bf16 64 1 1", 255, 1, "MUFU", "HMMA", None, 310),
    ("attention_backward_tiles bf16 64 2 1", 255, 1, "MUFU", "HMMA", None, 430),
    ("attention_backward_tiles bf16 128 2 1", 255, 1, "MUFU", "HMMA", None, 460),
    ("gemm_own fp16 1 128 0 0 0", 255, 1, "HMMA", "LDGSTS", None, 450),
    ("gemm_own fp16 1 128 0 0 1", 255, 1, "LDGSTS", "HMMA", None, 455),
    ("gemm_own fp16 1 256 0 0 1", 255, 1, "LDGSTS", "HMMA", None, 455),
    ("gemm_own bf16 0 128 0 0 0", 255, 1, "HMMA", "LDGSTS", None, 210),
    ("gemm_own bf16 0 128 0 0 1", 255, 1, "LDGSTS", "HMMA", None, 210),
    ("gemm_own bf16 0 256 0 0 1", 255, 1, "LDGSTS", "HMMA", None, 210),
    ("gemm_own fp16 1 128 0 1 0", 255, 1, "HMMA", "LDGSTS", None, 450),
    ("gemm_own fp16 1 128 0 1 1", 255, 1, "LDGSTS", "HMMA", None, 455),
    ("gemm_own fp16 1 256 0 1 1", 255, 1, "LDGSTS", "HMMA", None, 455),
    ("gemm_own bf16 0 128 0 1 0", 255, 1, "HMMA", "LDGSTS", None, 210),
    ("gemm_own bf16 0 128 0 1 1", 255, 1, "LDGSTS", "HMMA", None, 210),
    ("gemm_own bf16 0 256 0 1 1", 255, 1, "LDGSTS", "HMMA", None, 210),
    ("gemm_own fp16 1 128 1 0 0", 255, 1, "HMMA", "LDGSTS", None, 450),
    ("gemm_own fp16 1 128 1 0 1", 255, 1, "LDGSTS", "HMMA", None, 455),
    ("gemm_own fp16 1 256 1 0 1", 255, 1, "LDGSTS", "HMMA", None, 455),
    ("gemm_own bf16 0 128 1 0 0", 255, 1, "HMMA", "LDGSTS", None, 210),
    ("gemm_own bf16 0 128 1 0 1", 255, 1, "LDGSTS", "HMMA", None, 210),
    ("gemm_own bf16 0 256 1 0 1", 255, 1, "LDGSTS", "HMMA", None, 210),
)
def demangled(name):
    """Demangles to "attention_backward_tiles fp16 64 0 1": the kernel, the dtypes and the constants of its template."""
    own, at = name, 2
    while at < len(name):
        match = re.compile(r"N?(\d+)").match(name, at)
        if not match:
            break
        at = match.end() + int(match.group(1))
        own = name[match.end():at]
        if not own.startswith("_"):
            break  # else the file's own namespace
    rest = name[at:]
    kinds = ["bf16" if "bfloat" in word else "fp16" for word in re.findall(r"__nv_bfloat16|__half", rest)]
    return " ".join([own, *kinds[:2], *re.findall(r"L(?:[ibj]|\d+[a-z_]+)(\d+)E", rest)])


def source_of(kernel, arch):
    """Returns the path of a file of kernels, or of one that is made with those of ALONE and nothing of the host side."""
    path = f"{SOURCE}/backends/cuda/kernels/{kernel.split()[0]}.cu"
    if " " not in kernel:
        return path
    with open(path, encoding="utf-8") as whole, open(f"{kernel}-{arch}.cu", "w", encoding="utf-8") as alone:
        alone.write(whole.read().partition("/* ---- host side ---- */")[0])
        alone.writelines(f"template __global__ void {instance};\n" for instance in ALONE[kernel.split()[0]])
    return alone.name


def compiled(nvcc, nvdisasm, kernel, arch):
    """Returns ([(name, registers, spilled bytes, shared bytes)], {name: Code}) of one file; None when it does not
    compile."""
    out, virtual = f"{kernel}-{arch}.cubin", "80" if int(arch) >= 80 else arch
    done = ran(nvcc, f"-gencode=arch=compute_{virtual},code=sm_{arch}", "-std=c++17", "-O3", "-Xptxas=-v", f"-I{SOURCE}/src",
               f"-I{SOURCE}", "-cubin", source_of(kernel, arch), "-o", out)
    if done.returncode != 0:
        print(done.stderr[-600:], file=sys.stderr)
        return None
    rows, name, spilled = [], "", 0
    for line in done.stderr.splitlines():
        entry = re.search(r"Compiling entry function '(\w+)'", line)
        spill = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line)
        used = re.search(r"Used (\d+) registers", line)
        if entry:
            name, spilled = entry.group(1), 0
        elif spill:
            spilled += int(spill.group(1)) + int(spill.group(2))
        elif used and name:
            shared = re.search(r"(\d+) bytes smem", line)
            rows.append((demangled(name), int(used.group(1)), spilled, int(shared.group(1)) if shared else 0))
            name = ""
    codes = cuda_sass.functions(nvdisasm, out) if nvdisasm and arch in COUNTED else {}
    return rows, {demangled(mangled): code for mangled, code in codes.items()}


def limits_check(rows, codes, arch, counts):
    """Checks the limits of one compiled file, and adds to {name: {arch: instructions}}."""
    for kernel, registers_most, elements, through, also, without, most in LIMITED:
        registers = dict((row[0], row[1]) for row in rows).get(kernel)
        if registers is None or arch not in COUNTED:
            continue
        check(registers <= registers_most, f"{kernel} for sm_{arch}: {registers} registers, at most {registers_most}")
        if kernel in codes:
            code = codes[kernel]
            each = (code.shortest(through, also, without) if through else len(code.ops)) / elements
            check(0 < each <= most, f"{kernel} for sm_{arch}: {each} instructions, at most {most} ({through})")
            text = "all / 32" if not through else "step" if elements == 1 else "element, " + (
                "first pass" if without else "writing")
            counts.setdefault((kernel, text, most), {})[arch] = each


def counts_print(counts):
    print("\n| kernel | of | " + " | ".join(f"sm_{arch}" for arch in COUNTED) + " | at most |")
    print("|---" * (len(COUNTED) + 3) + "|")
    for (kernel, text, most), by_arch in sorted(counts.items()):
        cells = [f"{by_arch[arch]:.1f}".replace(".0", "") if arch in by_arch else "-" for arch in COUNTED]
        print(f"| {kernel} | {text} | " + " | ".join(cells) + f" | {most} |")


def span(values):
    return str(min(values)) if min(values) == max(values) else f"{min(values)} to {max(values)}"


def kernels_print(table, archs):
    """Prints a line per kernel: its variants (an empty one takes a handful of registers) and their extremes."""
    print("\n| file | kernel | variants | " + " | ".join(f"registers, sm_{arch}" for arch in archs) +
          " | spilled bytes | static shared bytes |")
    print("|---" * (len(archs) + 5) + "|")
    groups = {}
    for (file, name), by_arch in sorted(table.items()):
        groups.setdefault((file, name.split()[0]), []).append(by_arch)
    for (file, kernel), variants in groups.items():
        cells = []
        for arch in archs:
            full = [row[arch][0] for row in variants if arch in row and row[arch][0] > 12] or [0]
            cells.append(span(full))
        every = [cell for row in variants for cell in row.values()]
        print(f"| `{file}` | {kernel} | {len(variants)} | " + " | ".join(cells) +
              f" | {sum(cell[1] for cell in every)} | {max(cell[2] for cell in every)} |")


def main():
    nvcc = os.environ.get("NVCC") or shutil.which("nvcc", path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin")
    if not nvcc:
        skip("cuda_registers", "no nvcc")
        return
    nvdisasm = cuda_sass.disassembler(nvcc, os.environ.get("PYTHON_TORCH", "no"))
    if not nvdisasm:
        skip("cuda_instructions", "no nvdisasm")
    named = [argument[len("--arch="):].split(",") for argument in sys.argv[1:] if argument.startswith("--arch=")]
    archs = named[0] if named else ARCHS
    files = sorted(os.path.basename(path)[:-3] for path in glob.glob(f"{SOURCE}/backends/cuda/kernels/*.cu"))
    check({kernel.split()[0] for kernel, _ in BOUNDED} <= set(files), f"{SOURCE}/backends/cuda/kernels has {files}")
    every = [(kernel, arch) for kernel in files for arch in archs] if named or "--all" in sys.argv[1:] else BOUNDED + LONG_TOO * LONG
    table, counts = {}, {}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {pool.submit(compiled, nvcc, nvdisasm, kernel, arch): (kernel, arch) for kernel, arch in every}
        for job in concurrent.futures.as_completed(jobs):
            kernel, arch = jobs[job]
            rows, codes = job.result() or ([], {})
            check(bool(rows), f"{kernel} for sm_{arch}: does not compile, or has no kernels")
            for name, registers, spilled, shared in rows:
                check(spilled == 0, f"{kernel} {name} for sm_{arch}: {spilled} bytes spilled")
                check(registers <= REGISTERS_MAX, f"{kernel} {name} for sm_{arch}: {registers} registers")
                table.setdefault((kernel, name), {})[arch] = (registers, spilled, shared)
            limits_check(rows, codes, arch, counts)
            for name, code in codes.items():
                count, reached, apart = code.aligned()
                # The loops of delta with barriers end where all threads read that they do, which nvcc cannot know.
                check(reached == count and (apart == 0 or kernel == "delta"), f"{kernel} {name} for sm_{arch}: of {count} .aligned instructions {reached} "
                      f"are reached, {apart} where lanes may have parted")
    kernels_print(table, archs)
    counts_print(counts)


end(main)
