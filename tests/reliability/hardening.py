#!/usr/bin/env python3
"""Checks how the programs were linked, and what they must not do.

  flags    position independent, relocations read-only and bound at start, no executable stack, stack protector; if
           configure found them: checked calls of the C library
  imports  no system(), popen(), sockets or unbounded copies among the functions that our programs call; execv() and
           fork() only where a restart or a trial of a driver needs them, posix_spawnp() only for the reader of Parquet
  traced   data sets, also from archives; new, resumed and judged runs; runs from a Hugging Face folder; a sample;
           exports; all under strace: no socket, no other program started, and no code loaded except the libraries that
           the linker named, so that none comes from a folder of data, runs or caches; the same for the emulated cuda
           backend, and with CHECK_LONG=1 the first two for an OpenCL driver, which loads code by nature
  links    a symbolic link to a file elsewhere at each name that a resumed run writes, its lock among them: the file is
           unchanged

Needs GPT_TRAIN, GPT_PREPARE, GPT_SAMPLE and GPT_EXPORT.  A build with a sanitizer is skipped by name: it has other
flags.
"""
import bz2
import gzip
import lzma
import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile

import tiny

import cuda_common
from checks import BUILD, GPT_EXPORT, GPT_PREPARE, GPT_SAMPLE, check, end, has_backend, opencl_device, ran, read, skip, write

PROGRAMS = [tiny.GPT_TRAIN, GPT_PREPARE, GPT_SAMPLE, GPT_EXPORT]
PT_DYNAMIC, PT_GNU_STACK, PT_GNU_RELRO = 2, 0x6474E551, 0x6474E552
DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_BIND_NOW, DT_FLAGS, DT_FLAGS_1 = 5, 6, 10, 24, 30, 0x6FFFFFFB
HAVE_CUDA = has_backend("cuda")
FORBIDDEN = {"system", "popen", "wordexp", "vfork", "posix_spawn", "posix_spawnp", "execl", "execle", "execlp", "execve", "execveat",
             "execvp", "execvpe", "fexecve", "dlmopen", "socket", "socketpair", "connect", "bind", "listen", "accept", "accept4",
             "getaddrinfo", "gethostbyname", "gets", "strcpy", "stpcpy", "strcat", "sprintf", "vsprintf", "mktemp", "tmpnam",
             "tempnam"}
# Programs that compute or link with BLAS restart themselves (cli/restart.c); a fork without exec tries an OpenCL
# driver, and backends dlopen the loader or NVML.  gpt-prepare starts what reads Parquet.
NEEDED = {name: {"execv", "fork", "dlopen"} for name in ("gpt-train", "gpt-sample", "gpt-export")} | {"gpt-prepare": {"posix_spawnp"}}
POSITION = ["--tokenizer=bytes", "--val-split=position"]


class Elf:
    """A 64-bit ELF file: program headers, the dynamic section, names of the functions it imports."""

    def __init__(self, path):
        self.data = read(path)
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
        """Returns the file offset of an address."""
        header = next(h for h in self.headers if h[0] == 1 and h[3] <= address < h[3] + h[5])
        return address - header[3] + header[2]

    def imports(self):
        """Returns the names of the dynamic symbols without a section; the string table follows the symbols."""
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
    imports, found = elf.imports(), configured()
    check("__stack_chk_fail" in imports, f"{name}: a stack protector")
    checked = {word for word in imports if word.startswith("__") and word.endswith("_chk")}
    check(len(checked) > 3 or "FORTIFY" not in found, f"{name}: few checked calls: {checked}")
    if HAVE_CUDA:
        skip("hardening_imports", "CUDA's libraries are in the programs, with what they import")
        return
    forbidden = (FORBIDDEN | {f"__{word}_chk" for word in FORBIDDEN} | {"execv", "fork", "dlopen"}) - NEEDED.get(name, set())
    check(len(imports) > 20 and not imports & forbidden, f"{name}: imports {sorted(imports & forbidden)}")


def configured():
    """Returns the flags that configure found to work."""
    return "".join(line for line in read(os.path.join(BUILD, "Makefile")).decode().splitlines() if line.startswith("HARDENING_"))


def libraries(program):
    """Returns the code files that the dynamic linker loads for a program: the program, its libraries, the linker."""
    listed = subprocess.run([program], env=dict(tiny.ENVIRONMENT, LD_TRACE_LOADED_OBJECTS="1"), capture_output=True, text=True,
                            timeout=tiny.LIMIT_SECONDS, check=True).stdout
    return {os.path.realpath(path) for path in [program, *re.findall(r"(/\S+) \(0x", listed)]}


def traced(name, command, code=True, **environment):
    """`code` is true when the command must load only its libraries' code."""
    log = os.path.abspath("net.log")
    done = subprocess.run(["strace", "-f", "-qq", "-y", "-o", log, "-e", "trace=%network,execve,execveat,mmap", *command],
                          env=dict(tiny.ENVIRONMENT, **environment), capture_output=True, text=True, timeout=tiny.LIMIT_SECONDS, check=False)
    check(done.returncode == 0, f"{name} under strace: {done.stderr[-300:]}")
    calls = [line for line in read(log).decode(errors="replace").splitlines() if re.match(r"\d+ +\w+\(", line)]
    maps = [line for line in calls if re.match(r"\d+ +mmap\(", line)]
    sockets = [line for line in calls if line not in maps and "exec" not in line.split("(")[0]]
    started = {re.search(r'"([^"]*)"', line).group(1) for line in calls if "exec" in line.split("(")[0]}
    loaded = {os.path.realpath(path) for line in maps if "PROT_EXEC" in line for path in re.findall(r"\d<(/[^>]*)>", line)}
    check(sockets == [], f"{name}: {sockets[:3]}")
    check(started <= {command[0], "/proc/self/exe"}, f"{name} starts {started}")
    others = loaded - libraries(command[0]) if code else set()
    check(loaded and not others, f"{name} loads {others}")


def traced_all():
    run = [word for word in tiny.RUN if not word.startswith(("--vocab_size", "--max_iters"))]
    train = [tiny.GPT_TRAIN, *run, "--max_iters=2"]
    traced("gpt-prepare", [GPT_PREPARE, "--tokenizer=bytes", "--out-dir=data", "text.txt"])
    traced("gpt-train", [*train, "--out_dir=out"])
    traced("ranks", [*train, "--out_dir=ranks", "--ranks=2", "--parts=4"])
    traced("a resume", [tiny.GPT_TRAIN, *run, "--out_dir=out", "--init_from=resume", "--max_iters=4"])
    traced("gpt-sample", [GPT_SAMPLE, "--out_dir=out", "--num_samples=1", "--max_new_tokens=8", "--start=All"])
    traced("gpt-export", [GPT_EXPORT, "--out_dir=out", "--format=hf", "hf"])
    traced("from a Hugging Face folder", [tiny.GPT_TRAIN, "--dataset=./data", "--out_dir=tuned", "--init_from=./hf", "--max_iters=1",
                                          "--batch_size=2", "--gradient_accumulation_steps=1", "--block_size=16", "--eval_iters=1",
                                          "--threads=1"])
    traced("a gguf file", [GPT_EXPORT, "--out_dir=out", "--format=gguf", "model.gguf"])
    traced("a judged model", [tiny.GPT_TRAIN, "--init_from=resume", "--out_dir=out", "--eval_data=data/val.bin", "--threads=1"])
    for name in archives():
        traced(f"gpt-prepare {name}", [GPT_PREPARE, *POSITION, f"--out-dir=from-{name}", name])
    if os.path.exists(cuda_common.GPT_TRAIN_CUDA):
        traced("the emulated cuda backend", [cuda_common.GPT_TRAIN_CUDA, *train[1:], "--backend=cuda",
                                             "--out_dir=cuda"], GPT_TRAIN_BACKEND="")
    else:
        skip("hardening_cuda", "no C++17 compiler, so that the cuda backend cannot be emulated")
    if not tiny.LONG:
        return  # drivers compile for minutes
    if opencl_device():
        run = [*train, "--backend=opencl", "--out_dir=opencl"]
        environment = {"GPT_TRAIN_BACKEND": "", "POCL_CACHE_DIR": os.path.join(BUILD, "tests", "pocl-cache")}
        # A driver may start its own compilers: the first run fills the cache for the traced one.
        subprocess.run(run, env={**tiny.ENVIRONMENT, **environment}, capture_output=True, check=False)
        tiny.clear("opencl")
        traced("opencl", run, code=False, **environment)


def archives():
    """Makes archives of the text that this build and Python can read and write."""
    with tarfile.open("text.tar", "w") as archive:
        archive.add("text.txt")
    for suffix, module in (("gz", gzip), ("xz", lzma), ("bz2", bz2)):
        write(f"text.txt.{suffix}", module.compress(read("text.txt")))
    if shutil.which("zstd"):
        subprocess.run(["zstd", "-q", "text.txt"], check=True)
    names = [name for name in sorted(os.listdir(".")) if name.startswith("text.t") and name != "text.txt"]
    prepared = [name for name in names if subprocess.run([GPT_PREPARE, *POSITION, f"--out-dir=tried-{name}", name],
                                                         capture_output=True, check=False).returncode == 0]
    if len(prepared) < 4:
        skip("hardening_archives", "a build without libarchive")
    return prepared


def links():
    """Puts links at the names that a resumed run writes next and at its lock, and leaves those that it reads."""
    run = [tiny.GPT_TRAIN, *(word for word in tiny.RUN if not word.startswith("--vocab_size"))]
    again = [*run, "--init_from=resume", "--max_iters=8"]
    for out, command in (("first", run), ("second", run), ("second", again)):
        done = subprocess.run([*command, f"--out_dir={out}"], env=tiny.ENVIRONMENT, capture_output=True, check=False)
        check(done.returncode == 0, f"{out}: the run without links")
    written = sorted(set(os.listdir("second")) - set(os.listdir("first")))
    check(len(written) >= 2, f"a resumed run writes {written}")
    os.remove("first/lock")
    for name in [*written, "lock"]:
        tiny.clear("linked")
        shutil.copytree("first", "linked")
        victim = write("victim", "42\n")  # as in a lock
        os.symlink(os.path.abspath(victim), os.path.join("linked", name))
        done = ran(*again, "--out_dir=linked", env=tiny.ENVIRONMENT)
        check(read("victim") == b"42\n", f"a link at {name}: the file behind it changed")
        check(done.returncode == 0 or (1 <= done.returncode <= 3 and "gpt-train: error" in done.stderr),
              f"a link at {name}: status {done.returncode}: {done.stderr[-300:]}")


def main():
    image = read(tiny.GPT_TRAIN)
    if b"__asan_init" in image or b"__tsan_init" in image or b"__ubsan_handle" in image:
        skip("hardening", "a build with a sanitizer")
        return
    if image[4] != 2 or sys.platform != "linux":
        skip("hardening_flags", "not a 64-bit ELF")
    else:
        for path in PROGRAMS:
            flags(path)
    tiny.ENVIRONMENT["XDG_CACHE_HOME"] = os.environ["XDG_CACHE_HOME"]
    write("text.txt", "All that is gold does not glitter.\n" * 200)
    if tiny.has_strace("hardening_traced"):
        traced_all()
    else:
        subprocess.run([GPT_PREPARE, "--tokenizer=bytes", "--out-dir=data", "text.txt"], capture_output=True, check=True)
    links()


end(main)
