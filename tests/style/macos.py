#!/usr/bin/env python3
"""Compiles and links the programs for macOS by Zig's C compiler, which brings Apple's headers and list of functions.

All of src/, backends/cpu (without the kernels for x86) and backends/opencl is compiled; the headers of libraries are this
machine's.  What the linker does not find in libSystem must belong to one of LIBRARIES: a call that only Linux has is found
here.  OpenMP is left out, as Apple's compiler leaves it out.  Nothing is run.

`make check` takes arm64, CHECK_LONG=1 x86-64 too.  Zig is `zig` in PATH, $ZIG, or PyPI's package ziglang.
"""
import glob
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

SOURCE = os.environ["top_srcdir"]
BUILD = os.environ["top_builddir"]
# The names of each library that a program is linked with.
LIBRARIES = {
    "jansson": r"json_\w+",
    "PCRE2": r"pcre2_\w+_8",
    "libarchive": r"archive_\w+",
    "ICU": r"(u_|unorm2_)\w+_\d+",
    "OpenBLAS": r"cblas_sgemm|openblas_set_num_threads",
    "iconv": r"iconv(_open|_close)?",
}
HEADERS = ["jansson.h", "pcre2.h", "archive.h", "archive_entry.h", "unicode/unorm2.h", "unicode/ustring.h", "cblas.h", "CL/cl.h"]
HEADER_FILE = re.compile(r"/((?:unicode|CL)/[^/]+|(?:jansson|pcre2|archive|cblas|openblas)[^/]*\.h)$")
FLAGS = ["-std=c11", "-O0", "-fno-sanitize=all", "-DHAVE_CONFIG_H", "-D_DEFAULT_SOURCE", "-D_POSIX_C_SOURCE=200809L",
         "-D_DARWIN_C_SOURCE"]


def zig_command():
    """Returns the command, or None where there is no Zig."""
    found = os.environ.get("ZIG") or shutil.which("zig")
    if not found and importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang"]
    return [found] if found else None


def headers_copy(folder):
    """Copies the headers of libraries that this machine has, without the C library's beside them."""
    text = "".join(f'#if __has_include("{name}")\n#include "{name}"\n#endif\n' for name in HEADERS)
    text = "#define PCRE2_CODE_UNIT_WIDTH 8\n#define CL_TARGET_OPENCL_VERSION 120\n" + text
    command = shlex.split(os.environ["CC"]) + shlex.split(os.environ["STYLE_CPPFLAGS"]) + ["-M", "-xc", "-"]
    found = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    for path in found.split():
        match = HEADER_FILE.search(path)
        if match:
            os.makedirs(os.path.dirname(os.path.join(folder, match[1])), exist_ok=True)
            with open(path, encoding="utf-8") as file:  # OpenBLAS's was made for Linux
                text = re.sub(r"#define OPENBLAS_OS_LINUX 1\n", "", file.read())
            with open(os.path.join(folder, match[1]), "w", encoding="utf-8") as file:
                file.write(text)


def config_copy(folder):
    """Copies config.h without what a Mac cannot have; returns it."""
    with open(os.path.join(BUILD, "config.h"), encoding="utf-8") as file:
        text = re.sub(r"#define HAVE_(X86|CUDA).*\n", "", file.read())
    with open(os.path.join(folder, "config.h"), "w", encoding="utf-8") as file:
        file.write(text)
    return text


def sources_list(scratch, backends):
    """Returns the sources of one program that contains all programs: each main function gets a name of its own."""
    paths = sorted(glob.glob(f"{SOURCE}/src/*/*.c") + sum((glob.glob(f"{SOURCE}/backends/{name}/*.c") for name in backends), []))
    paths += [f"{BUILD}/src/answer/errors_page.c"]
    paths += [f"{BUILD}/backends/opencl/opencl_sources.c"] if "opencl" in backends else []
    sources = [path for path in paths if not path.endswith("_amx.c")]
    for index, path in enumerate(sources):
        if re.search(r"/cli/gpt_(?!train)\w+\.c$", path):
            sources[index] = os.path.join(scratch, os.path.basename(path))
            with open(sources[index], "w", encoding="utf-8") as file:
                file.write(f'#define main main_{index}\nint main_{index}(int, char **);\n#include "{path}"\n')
    return sources


def check(zig, target, scratch):
    """Returns true if the programs can be made for one kind of Mac."""
    sources = sources_list(scratch, ["cpu", "opencl"] if "#define HAVE_OPENCL 1" in config_copy(scratch) else ["cpu"])
    processor = ["-mcpu=x86_64_v2"] if target.startswith("x86_64") else []  # Zig forbids CRC-32 to older ones
    command = [*zig, "cc", "-target", target, *processor, *FLAGS, f"-I{scratch}", f"-I{SOURCE}/src", f"-I{SOURCE}", "-o", "program"]
    done = subprocess.run(command + sources, cwd=scratch, stderr=subprocess.PIPE, text=True, check=False)
    names = set(re.findall(r"undefined symbol: _(\w+)", done.stderr))
    if not names:  # the libraries' are always missing
        print(f"FAIL {target}:\n{done.stderr}")
        return False
    of = {library: {name for name in names if re.fullmatch(pattern, name)} for library, pattern in LIBRARIES.items()}
    strangers = sorted(names.difference(*of.values()))
    print(f"{target}: {len(sources)} files; names of libraries: " + ", ".join(f"{library} {len(of[library])}" for library in of))
    if strangers:
        print(f"FAIL {target} has no {', '.join(strangers)}")
    return not strangers


def main():
    zig = zig_command()
    if zig is None:
        print("SKIP macos: no Zig (PyPI: ziglang)\nchecks: 0 passed, 0 failed, 1 skipped")
        sys.exit(77)
    targets = ["aarch64-macos"] + ["x86_64-macos"] * (os.environ.get("CHECK_LONG") == "1")
    with tempfile.TemporaryDirectory() as scratch:
        headers_copy(scratch)
        failed = sum(not check(zig, target, scratch) for target in targets)
    print(f"checks: {len(targets) - failed} passed, {failed} failed, 0 skipped")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
