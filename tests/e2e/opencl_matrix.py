#!/usr/bin/env python3
"""Compiles kernels/gemm_matrix.cl with the compilers for cards, without a card.

  nvptx    clang compiles each variant with inline PTX, and ptxas of a CUDA toolkit assembles it: it accepts the variant
           without spills for the capability that the instruction needs, and refuses it for the one before, so that a
           device is never given unsupported instructions
  amdgcn   a clang that knows gfx11 compiles the variants with WMMA builtins; for gfx10 it refuses them
The compiler's builtins replace the functions of OpenCL's library that the kernel calls.
"""

import os
import re
import shutil

import checks
from checks import check, end, ran, read, skip, some, write

SOURCE = os.path.join(checks.SOURCE, "backends", "opencl", "kernels")
CLANGS = ["clang", *(f"clang-{version}" for version in range(22, 13, -1))]
PTXAS = ["ptxas", "/usr/local/cuda/bin/ptxas"]
DTYPES = {"bfloat16": 1, "float16": 0}
TILES = ((128, 2, 4), (64, 2, 2), (32, 1, 1))  # opencl_gemm.c: tile, warps down and across
LAYOUTS = ((0, 0, 1), (1, 1, 1), (0, 1, 0))  # a transposed, b transposed, wide
SHAPES = some(list(zip(TILES, LAYOUTS)))     # one layout for each tile: the emulated units are tested for all
INNER = 32
LIBRARY = """
#define GT_BUILTIN_LOCAL_ID %s
#define get_local_id(d) ((size_t)GT_BUILTIN_LOCAL_ID)
#define get_local_size(d) ((size_t)(32 * GT_WARPS_DOWN * GT_WARPS_ACROSS))
#define get_global_id(d) ((size_t)%s * get_local_size(d) + get_local_id(d))
#define barrier(flags) %s
#define min(a, b) ((a) < (b) ? (a) : (b))
#define vload_half(i, p) __builtin_load_halff((p) + (i))
#define vstore_half_rte(value, i, p) __builtin_store_halff(value, (p) + (i))
"""
NVPTX = LIBRARY % ("__nvvm_read_ptx_sreg_tid_x()", "__nvvm_read_ptx_sreg_ctaid_x()", "asm volatile(\"bar.sync 0;\" ::: \"memory\")")
AMDGCN = LIBRARY % ("__builtin_amdgcn_workitem_id_x()", "__builtin_amdgcn_workgroup_id_x()",
                    "__builtin_amdgcn_s_barrier()")


def source_write(name, library):
    return write(name, library.encode() + b"".join(read(os.path.join(SOURCE, part)) for part in ("common.clh", "gemm_matrix.cl")))


def compile_to(clang, source, out, target, unit, dtype, tile, layout):
    options = {"GT_UNIT": unit, "GT_UNIT_IS_BF16": DTYPES[dtype], "GT_TILE": tile[0], "GT_WARPS_DOWN": tile[1],
               "GT_WARPS_ACROSS": tile[2], "GT_TURNED_A": layout[0], "GT_TURNED_B": layout[1], "GT_WIDE": layout[2]}
    return ran(clang, "-x", "cl", "-cl-std=CL1.2", "-cl-no-stdinc", "-include", "opencl-c.h", "-I" + checks.SOURCE, "-I" + os.path.join(checks.SOURCE, "src"), "-O2", "-S", "-o", out,
               "-w", *target, *(f"-D{name}={value}" for name, value in options.items()), source)


def products(unit_shape, tile):
    """Returns the number of instructions in a step of INNER."""
    rows, columns, inner = unit_shape
    return tile[0] // tile[1] // rows * (tile[0] // tile[2] // columns) * (INNER // inner)


def nvptx_target(capability):
    return ["-target", "nvptx64-nvidia-nvcl", "-fgnu-keywords", "-Xclang", "-target-cpu", "-Xclang", capability,
            "-Xclang", "-target-feature", "-Xclang", "+ptx70"]


def text_of(path):
    return read(path).decode("ascii")


def assemble(ptxas, text, capability):
    path = write("assemble.ptx", re.sub(r"\.target sm_\d+", f".target {capability}", text))
    return ran(ptxas, f"-arch={capability}", "-v", "-o", "out.cubin", path)


def nvptx():
    ptxas = next((path for path in PTXAS if shutil.which(path)), None)
    source = source_write("nvptx.cl", NVPTX)
    out = "out.ptx"
    variants = [(1, "sm_80", "sm_75", dtype, (16, 8, 16)) for dtype in DTYPES] + [(2, "sm_75", None, "float16", (16, 8, 8))]
    clang = next((name for name in CLANGS if shutil.which(name) and compile_to(
        name, source, out, nvptx_target("sm_80"), *(1, "float16", TILES[2], LAYOUTS[0])).returncode == 0), None)
    if clang is None or ptxas is None:
        skip("opencl_matrix_nvptx", "no clang that compiles OpenCL for nvptx64, or no ptxas")
        return
    for unit, capability, before, dtype, shape in variants:
        for tile, layout in SHAPES:
            name = f"unit {unit} {dtype} tile {tile[0]} layout {layout}"
            done = compile_to(clang, source, out, nvptx_target("sm_80"), unit, dtype, tile, layout)
            check(done.returncode == 0, f"{name}: {done.stderr[-400:]}")
            text = text_of(out)
            word = "f16" if dtype == "float16" else "bf16"
            mnemonic = f"mma.sync.aligned.m16n8k{shape[2]}.row.col.f32.{word}.{word}.f32"
            check(text.count(mnemonic) == products(shape, tile), f"{name}: {text.count(mnemonic)} x {mnemonic}")
            done = assemble(ptxas, text, capability)
            spilled = re.findall(r"(\d+) bytes spill stores", done.stderr)
            check(done.returncode == 0, f"{name}: ptxas: {done.stderr[-400:]}")
            check(spilled and not any(map(int, spilled)), f"{name}: spilled: {done.stderr[-400:]}")
        if before is not None:
            check(assemble(ptxas, text, before).returncode != 0, f"{dtype}: ptxas accepts unit {unit} for {before}")
    print(f"{clang} and ptxas accept {len(variants) * len(SHAPES)} variants with mma")


def amdgcn_target(processor):
    return ["-target", "amdgcn-amd-amdhsa", f"-mcpu={processor}", "-nogpulib"]


def amdgcn():
    source = source_write("amdgcn.cl", AMDGCN)
    out = "out.s"
    clang = next((name for name in CLANGS if shutil.which(name) and compile_to(
        name, source, out, amdgcn_target("gfx1100"), 3, "float16", TILES[2], LAYOUTS[0]).returncode == 0), None)
    if clang is None:
        skip("opencl_matrix_amdgcn", "no clang that compiles OpenCL for gfx1100")
        return
    for dtype in DTYPES:
        for tile, layout in SHAPES:
            name = f"WMMA {dtype} tile {tile[0]} layout {layout}"
            done = compile_to(clang, source, out, amdgcn_target("gfx1100"), 3, dtype, tile, layout)
            check(done.returncode == 0, f"{name}: {done.stderr[-400:]}")
            word = "v_wmma_f32_16x16x16_" + ("f16" if dtype == "float16" else "bf16")
            found = text_of(out).count(word)
            check(found == products((16, 16, 16), tile), f"{name}: {found} x {word}")
        done = compile_to(clang, source, out, amdgcn_target("gfx1030"), 3, dtype, TILES[2], LAYOUTS[0])
        check(done.returncode != 0, f"WMMA {dtype}: {clang} accepts it for gfx1030")
    print(f"{clang} compiles {len(DTYPES) * len(SHAPES)} variants with WMMA")


end(nvptx, amdgcn)
