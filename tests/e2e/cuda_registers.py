#!/usr/bin/env python3
"""Registers, spills and static shared memory of the cuda backend's hot kernels, from `nvcc -Xptxas -v`.

A kernel that spills keeps registers in memory, which costs more than anything that is tuned here; none may.  Without
options the tiles of attention are compiled for sm_86, the cards that are tuned for; GT_CUDA_LONG=1, or `--all`, compiles all
hot kernels for sm_86, sm_89 and sm_90 and prints the table of doc/cuda.md.  No nvcc: skipped by name.  The last line is
"checks: P passed, F failed, S skipped".
"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile

from checks import check, finish, skip

SOURCE = os.environ.get("top_srcdir", ".")
ARCHS = ("86", "89", "90")
HOT = ("attention_tile_forward", "attention_tile_backward")
WARM = ("attention_cached", "attention_plain_forward", "attention_plain_backward", "adamw", "adamw_lean", "cross_entropy",
        "embed", "gelu", "gemm", "layernorm", "bias", "norm", "residual")
REGISTERS_MAX = 255


def demangled(name):
    """"attention_backward_tiles fp16 64 0 1" of a mangled name: the kernel, the dtypes and the constants of its template."""
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


def compiled(nvcc, kernel, arch, folder):
    """[(name, registers, spilled bytes, shared bytes)] of one file; None where it does not compile."""
    out = os.path.join(folder, f"{kernel}-{arch}.o")
    done = subprocess.run(
        [nvcc, f"-gencode=arch=compute_{arch},code=sm_{arch}", "-std=c++17", "-O3", "-Xptxas=-v", f"-I{SOURCE}/src",
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


def main():
    nvcc = os.environ.get("NVCC") or shutil.which("nvcc", path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin")
    if not nvcc:
        skip("cuda_registers", "no nvcc")
        print("checks: 0 passed, 0 failed, 1 skipped")
        return 77
    every = "--all" in sys.argv[1:] or os.environ.get("GT_CUDA_LONG", "") != ""
    wanted = [(kernel, arch) for kernel in (HOT + WARM if every else HOT) for arch in (ARCHS if every else ARCHS[:1])]
    table = {}
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = {pool.submit(compiled, nvcc, kernel, arch, folder): (kernel, arch) for kernel, arch in wanted}
        for job in concurrent.futures.as_completed(jobs):
            kernel, arch = jobs[job]
            rows = job.result()
            check(bool(rows), f"{kernel} for sm_{arch}: does not compile, or has no kernels")
            for name, registers, spilled, shared in rows or []:
                check(spilled == 0, f"{kernel} {name} for sm_{arch}: {spilled} bytes spilled")
                check(registers <= REGISTERS_MAX, f"{kernel} {name} for sm_{arch}: {registers} registers")
                table.setdefault((kernel, name), {})[arch] = (registers, spilled, shared)
    print("file | kernel | " + " | ".join(f"sm_{arch}: registers, spilled, shared bytes" for arch in ARCHS))
    for (kernel, name), by_arch in sorted(table.items()):
        print(f"{kernel} | {name} | " + " | ".join("{} {} {}".format(*by_arch[arch]) if arch in by_arch else "-"
                                                   for arch in ARCHS))
    return finish()


if __name__ == "__main__":
    sys.exit(main())
