#!/usr/bin/env python3
"""Reads the architectures that a CUDA build has code for from its ELF file, without the toolkit's cuobjdump.

nvcc puts the machine code of each architecture, and PTX, into the section .nv_fatbin: containers of a 16-byte header
(magic 0xBA55ED50, version, header bytes, bytes of what follows), each followed by entries whose header has a kind (1
PTX, 2 machine code), its own size, that of its data and, at byte 28, the architecture.  In a build configured
--with-cuda the script reads gpt-train: every kernel file must have code for each of CUDA_ARCHS, and PTX of
CUDA_PTX_ARCH, or none; and cuBLASLt must not be linked.  The last line is "checks: ...".
"""
import os
import struct

from checks import GPT_TRAIN, check, end, read, skip

MAGIC = 0xBA55ED50
PTX, ELF = 1, 2


def section(path, name):
    """Returns the bytes of a section of a 64-bit little-endian ELF file; b"" if there is none."""
    data = read(path)
    if data[:4] != b"\x7fELF" or data[4] != 2 or data[5] != 1:
        return b""
    at, size, count, names = struct.unpack_from("<Q", data, 0x28)[0], *struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", data, at + i * size) for i in range(count)]
    text = headers[names]
    for header in headers:
        start = text[4] + header[0]
        if data[start:data.index(b"\0", start)].decode("ascii", "replace") == name:
            return data[header[4]:header[4] + header[5]]
    return b""


def containers(data):
    """Returns the set of (kind, architecture) of each container."""
    found, at = [], 0
    while at + 16 <= len(data):
        magic, _, header_bytes, size = struct.unpack_from("<IHHQ", data, at)
        if magic != MAGIC:
            at += 8  # containers are aligned
            continue
        entries, inside, end = set(), at + header_bytes, at + header_bytes + size
        while inside + 32 <= end:
            kind, _, entry_bytes, data_bytes = struct.unpack_from("<HHIQ", data, inside)
            if kind not in (PTX, ELF) or entry_bytes < 32:
                break
            entries.add((kind, struct.unpack_from("<I", data, inside + 28)[0]))
            inside += entry_bytes + data_bytes
        found.append(entries)
        at = end
    return found


def of_this_build(program, archs, ptx):
    found = containers(section(program, ".nv_fatbin"))
    with_code = [entries for entries in found if entries]
    check(len(with_code) >= 10, f"{len(with_code)} kernel files have code in {program}")
    wanted = {(ELF, arch) for arch in archs} | {(PTX, int(arch)) for arch in ptx}
    for number, entries in enumerate(with_code):
        check(entries == wanted, f"kernel file {number}: {sorted(entries)}, not {sorted(wanted)}")
    names = section(program, ".dynstr")
    check(b"libc.so" in names and b"cublas" not in names, f"{program} has cuBLASLt linked, which every start pays for")
    print(f"{program}: {len(with_code)} kernel files for {' '.join(map(str, archs))} and PTX of {' '.join(ptx) or 'none'}")


def main():
    archs = [int(arch) for arch in os.environ.get("CUDA_ARCHS", "").split()]
    if archs:
        of_this_build(GPT_TRAIN, archs, os.environ["CUDA_PTX_ARCH"].split())
    else:
        skip("cuda_fatbin", "no build --with-cuda")


end(main)
