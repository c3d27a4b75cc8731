#!/usr/bin/env python3
"""What the programs were linked with, and what they do not do.

  flags    position independent, relocations read-only and bound at start, no executable stack, stack protector
  imports  no system(), popen() or sockets among the functions that our programs call
  traced   a run, a sample and a data set made under strace: no socket, no program started but the own one, and no code
           loaded but the libraries that the linker named, so that none comes from a folder of data, runs or caches

Needs GPT_TRAIN, GPT_PREPARE and GPT_SAMPLE.  A build with a sanitizer is skipped by name: it has other flags.
Prints "checks: P passed, F failed, S skipped".
"""
import os
import re
import struct
import subprocess
import sys
import tempfile

import tiny

from checks import check, finish, skip

PROGRAMS = [os.environ[name] for name in ("GPT_TRAIN", "GPT_PREPARE", "GPT_SAMPLE")]
PT_DYNAMIC, PT_GNU_STACK, PT_GNU_RELRO = 2, 0x6474E551, 0x6474E552
DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_BIND_NOW, DT_FLAGS, DT_FLAGS_1 = 5, 6, 10, 24, 30, 0x6FFFFFFB
FORBIDDEN = {"system", "popen", "socket", "connect", "bind", "listen", "accept", "getaddrinfo", "gets", "strcpy", "sprintf"}


class Elf:
    """A 64-bit ELF file: program headers, the dynamic section, names of the functions it imports."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        self.order = "<" if self.data[5] == 1 else ">"
        self.kind, = self.unpack("H", 16)
        begin, = self.unpack("Q", 32)
        size, count = self.unpack("HH", 54)
        self.headers = [self.unpack("IIQQQQQQ", begin + i * size) for i in range(count)]
        dynamic = next(header for header in self.headers if header[0] == PT_DYNAMIC)
        pairs = [self.unpack("QQ", dynamic[2] + 16 * i) for i in range(dynamic[5] // 16)]
        self.dynamic = {tag: value for tag, value in pairs if tag != 0}

    def unpack(self, form, at):
        return struct.unpack_from(self.order + form, self.data, at)

    def at(self, address):
        """Where in the file an address is."""
        header = next(h for h in self.headers if h[0] == 1 and h[3] <= address < h[3] + h[5])
        return address - header[3] + header[2]

    def imports(self):
        """Names of the dynamic symbols without a section, to the string table's begin, which follows the symbols."""
        symbols, strings = self.at(self.dynamic[DT_SYMTAB]), self.at(self.dynamic[DT_STRTAB])
        found = set()
        for at in range(symbols, strings, 24):
            name, _, _, section = self.unpack("IBBH", at)
            if section == 0 and name < self.dynamic[DT_STRSZ]:
                end = self.data.index(b"\0", strings + name)
                found.add(self.data[strings + name:end].decode())
        return found


def flags(path):
    elf, name = Elf(path), os.path.basename(path)
    stack = [header for header in elf.headers if header[0] == PT_GNU_STACK]
    check(elf.kind == 3, f"{name}: position independent")
    check(any(header[0] == PT_GNU_RELRO for header in elf.headers), f"{name}: a read-only part of the relocations")
    check(DT_BIND_NOW in elf.dynamic or elf.dynamic.get(DT_FLAGS, 0) & 8 or elf.dynamic.get(DT_FLAGS_1, 0) & 1,
          f"{name}: bound at start")
    check(len(stack) == 1 and stack[0][1] & 1 == 0, f"{name}: a stack that is not executable")
    imports = elf.imports()
    check("__stack_chk_fail" in imports, f"{name}: a stack protector")
    check(len(imports) > 20 and not imports & FORBIDDEN, f"{name}: imports {sorted(imports & FORBIDDEN)}")


def libraries(program):
    """The files of code that the dynamic linker loads for a program: itself, its libraries, the linker."""
    listed = subprocess.run([program], env=dict(tiny.ENVIRONMENT, LD_TRACE_LOADED_OBJECTS="1"), capture_output=True, text=True,
                            timeout=60, check=True).stdout
    return {os.path.realpath(path) for path in [program, *re.findall(r"(/\S+) \(0x", listed)]}


def traced(name, command):
    log = os.path.abspath("net.log")
    done = subprocess.run(["strace", "-f", "-qq", "-y", "-o", log, "-e", "trace=%network,execve,execveat,mmap", *command],
                          env=tiny.ENVIRONMENT, capture_output=True, text=True, timeout=120, check=False)
    check(done.returncode == 0, f"{name} under strace: {done.stderr[-300:]}")
    with open(log, encoding="utf-8", errors="replace") as file:
        calls = [line for line in file if re.match(r"\d+ +\w+\(", line)]
    maps = [line for line in calls if re.match(r"\d+ +mmap\(", line)]
    sockets = [line for line in calls if line not in maps and "exec" not in line.split("(")[0]]
    started = {re.search(r'"([^"]*)"', line).group(1) for line in calls if "exec" in line.split("(")[0]}
    loaded = {os.path.realpath(path) for line in maps if "PROT_EXEC" in line for path in re.findall(r"\d<(/[^>]*)>", line)}
    check(sockets == [], f"{name}: {sockets[:3]}")
    check(started <= {command[0], "/proc/self/exe"}, f"{name} starts {started}")
    others = loaded - libraries(command[0])
    check(loaded and not others, f"{name} loads {others}")


def main():
    with open(tiny.GPT_TRAIN, "rb") as file:
        image = file.read()
    if b"__asan_init" in image or b"__tsan_init" in image or b"__ubsan_handle" in image:
        skip("hardening", "a build with a sanitizer")
        finish()
        return 77
    if image[4] != 2 or sys.platform != "linux":
        skip("hardening_flags", "not a 64-bit ELF")
    else:
        for path in PROGRAMS:
            flags(path)
    if not tiny.has_strace():
        skip("hardening_traced", "no strace that may trace (Debian: strace)")
        return finish()
    with tempfile.TemporaryDirectory(prefix="gpt-train-hardening-") as work:
        os.chdir(work)
        with open("text.txt", "w", encoding="ascii") as file:
            file.write("All that is gold does not glitter.\n" * 200)
        traced("gpt-prepare", [PROGRAMS[1], "--tokenizer=bytes", "--out-dir=data", "text.txt"])
        run = [word for word in tiny.RUN if not word.startswith("--vocab_size")]
        traced("gpt-train", [tiny.GPT_TRAIN, *run, "--out_dir=out"])
        traced("gpt-sample", [PROGRAMS[2], "--out_dir=out", "--num_samples=1", "--max_new_tokens=8", "--start=All"])
        os.chdir("/")
    return finish()


if __name__ == "__main__":
    sys.exit(main())
