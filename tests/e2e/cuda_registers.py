#!/usr/bin/env python3
"""Registers, spills and static shared memory of the cuda backend's kernels, from `nvcc -Xptxas -v`.

A kernel that spills keeps registers in memory, which costs more than any tuning gains; no kernel may spill.  Without
options attention's backward tiles, the largest, are compiled for sm_86, the tuning target; CHECK_LONG=1, or `--all`,
compiles every kernel file for sm_75, sm_86, sm_89 and sm_90, from the same PTX as a build, and prints the tables of
doc/cuda.md: registers, and for the kernels with a large share of a step the warps per multiprocessor, derived from
registers, shared memory and the limits of CUDA's programming guide ("Technical Specifications per Compute Capability").
`--arch=75,120` selects other architectures.  No nvcc: skipped by name.  The last line is "checks: P passed, F failed, S
skipped".
"""
import concurrent.futures
import glob
import os
import re
import shutil
import subprocess
import sys

from checks import LONG, SOURCE, check, end, skip

ARCHS = ("75", "86", "89", "90")
TUNED = ("86",)
HOT = ("attention_tile_backward", "attention_tile_forward")
REGISTERS_MAX = 255
# Per multiprocessor: warps, blocks, KiB of shared memory, registers.  Since 8.0 a block takes 1 KiB more.
LIMITS = {
    "75": (32, 16, 64, 65536), "86": (48, 16, 100, 65536), "89": (48, 24, 100, 65536), "90": (64, 32, 228, 65536)
}
# The kernels that make up most of a step: threads per block, and dynamic shared memory as a function of the numbers in
# the name (head size first) and the architecture.  The forward's last number is its warps.
LAUNCHES = {
    "attention_forward_tiles": (None, lambda numbers, _: (16 * numbers[-1] + 128) * (numbers[0] + 8) * 2),
    "attention_backward_tiles": (128, lambda numbers, arch: 256 * (numbers[0] + 8) + (2 if int(arch) >= 80 else 1) *
                                 (128 * (numbers[0] + 8) + 256)),
    "attention_forward_plain": (128, lambda numbers, _: 4 * ((64 + 32) * (numbers[0] + 4) + 64 * 40)),
    "layernorm_forward": (256, None),
    "layernorm_backward": (256, None),
    "cross_entropy": (512, None),
    "adamw": (256, None),
    "adamw_lean": (256, None),
    "gelu_forward": (256, None),
    "gelu_backward": (256, None),
    "residual": (256, None),
}


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
    return " ".join([own, *kinds[:2], *re.findall(r"L[ibj](\d+)E", rest)])


def compiled(nvcc, kernel, arch):
    """Returns [(name, registers, spilled bytes, shared bytes)] of one file; None when it does not compile."""
    out, virtual = f"{kernel}-{arch}.o", "80" if int(arch) >= 80 else arch
    done = subprocess.run(
        [nvcc, f"-gencode=arch=compute_{virtual},code=sm_{arch}", "-std=c++17", "-O3", "-Xptxas=-v", f"-I{SOURCE}/src",
         f"-I{SOURCE}", "-c", f"{SOURCE}/backends/cuda/kernels/{kernel}.cu", "-o", out], check=False, capture_output=True,
        text=True)
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
    return rows


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


def warps(arch, registers, shared, threads):
    """Returns the warps of such blocks per multiprocessor; a warp's registers are allocated in units of 256."""
    most, blocks, shared_kib, file = LIMITS[arch]
    own = (registers * 32 + 255) // 256 * 256
    fitting = min(blocks, most // (threads // 32), file // own // (threads // 32))
    per_block = shared + (1024 if int(arch) >= 80 else 0)
    return min(fitting, shared_kib * 1024 // max(per_block, 1)) * (threads // 32)


def occupancy_print(table, archs):
    archs = [arch for arch in archs if arch in LIMITS]
    print("\n| kernel | threads | " + " | ".join(f"warps, sm_{a} (of {LIMITS[a][0]})" for a in archs) + " |")
    print("|---" * (len(archs) + 2) + "|")
    for (_, name), by_arch in sorted(table.items(), key=lambda item: item[0][1]):
        words = name.split()
        if words[0] not in LAUNCHES:
            continue
        threads, dynamic = LAUNCHES[words[0]]
        numbers = [int(word) for word in words[1:] if word.isdigit()]
        threads = threads or 32 * numbers[-1]
        cells = []
        for arch in archs:
            registers, _, static = by_arch.get(arch, (0, 0, 0))
            shared = static + (dynamic(numbers, arch) if dynamic else 0)
            cells.append(str(warps(arch, registers, shared, threads)) if registers > 12 else "-")
        if any(cell != "-" for cell in cells):
            print(f"| {name} | {threads} | " + " | ".join(cells) + " |")


def main():
    nvcc = os.environ.get("NVCC") or shutil.which("nvcc", path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin")
    if not nvcc:
        skip("cuda_registers", "no nvcc")
        return
    every = "--all" in sys.argv[1:] or LONG
    named = [argument[len("--arch="):].split(",") for argument in sys.argv[1:] if argument.startswith("--arch=")]
    archs = named[0] if named else ARCHS if every else TUNED
    files = sorted(os.path.basename(path)[:-3] for path in glob.glob(f"{SOURCE}/backends/cuda/kernels/*.cu"))
    check(set(HOT) <= set(files), f"{SOURCE}/backends/cuda/kernels has {files}")
    table = {}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {pool.submit(compiled, nvcc, kernel, arch): (kernel, arch)
                for kernel in (files if every else HOT[:1]) for arch in archs}
        for job in concurrent.futures.as_completed(jobs):
            kernel, arch = jobs[job]
            rows = job.result()
            check(bool(rows), f"{kernel} for sm_{arch}: does not compile, or has no kernels")
            for name, registers, spilled, shared in rows or []:
                check(spilled == 0, f"{kernel} {name} for sm_{arch}: {spilled} bytes spilled")
                check(registers <= REGISTERS_MAX, f"{kernel} {name} for sm_{arch}: {registers} registers")
                table.setdefault((kernel, name), {})[arch] = (registers, spilled, shared)
    kernels_print(table, archs)
    occupancy_print(table, archs)


end(main)
