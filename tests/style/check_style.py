#!/usr/bin/env python3
"""The style rules that a machine can check.

Usage: check_style.py [--root=DIR] [--only=CHECK[,CHECK...]]
The folder is --root, else $top_srcdir, else the one above this script.  Each check prints its findings as FILE:LINE:
what, then one line PASS, FAIL or SKIP; the last line is "checks: P passed, F failed, S skipped".  Exit status: 0
nothing found, 1 something found, 2 bad usage.

  includes      a file of src/ includes its own folder and lower ranks only; backends see base/, ops/op.h and ops.def,
                backend/, dist/, backends/gelu.h and themselves; no vendor header in src/; OpenMP and intrinsics in backends/cpu only
  headers       every header (every sixth in `make check`) compiles alone, twice in a row, and its guard is
                GPT_TRAIN_..._H
  clang         every source of src/ (every sixth in `make check`) is clean under clang's warnings as well
  functions     host functions have at most 70 lines, functions of backends/ and tests/ at most 120
  format        clang-format finds nothing to change
  comments      each file of C, C++, CUDA or OpenCL opens with a comment that describes it
  structure     units of src/ and backends/ do not include or call each other in a circle, but for those that structure.py
                lists; a function is declared in the header of its file's name, and has a caller there
  unfinished    no to-do note without the number of its issue
  paths         no path of one machine
  names         files, functions and other names of the sources that documents name in backquotes exist, in the file that they
                say; a word in capitals stands for any name
"""

import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import structure  # pylint: disable=wrong-import-position

RANKS = {
    "base": 0,
    "config": 1, "data": 1, "dist": 1, "model": 1, "ops": 1,
    "backend": 2, "report": 2,
    "plan": 3, "io": 3,
    "exec": 4,
    "session": 5,
    "sample": 6,
    "train": 7,
    "answer": 8, "judge": 8,
    "cli": 9,
}
# An op has a rule of differentiation, which emits into a graph of ops.
OPS_AND_GRAPHS = {"model", "ops"}
BACKENDS_SEE_FOLDERS = ("base", "backend", "dist")
BACKENDS_SEE_FILES = ("ops/op.h", "ops/ops.def", "backends/delta.h", "backends/gelu.h", "tests/opcheck/emulated_units.clh")
# Headers of vendors and libraries, and the only files that may include them.
VENDOR = [
    (re.compile(r"^jansson\.h$"), re.compile(r"^(src/base/json\.[ch]|tests/.*)$")),
    (re.compile(r"^pcre2\.h$"), re.compile(r"^(src/data/bpe_split|src/io/peft|tests/fuzz/pattern_once)\.c$")),
    (re.compile(r"^unicode/.*$"), re.compile(r"^src/data/bpe_split\.c$")),
    (re.compile(r"^archive(_entry)?\.h$"), re.compile(r"^(src/data/input\.c|tests/.*)$")),
    (re.compile(r"^(omp|cblas|immintrin|x86intrin|arm_neon|blis|mkl.*)\.h$"), re.compile(r"^backends/cpu/")),
    (re.compile(r"^(cuda.*|cublas.*|cudnn.*|nvrtc.*|nccl.*|curand.*)$"), re.compile(r"^(backends/cuda|tests/cuda_on_cpu)/")),
    (re.compile(r"^(CL/.*|clblast.*|OpenCL/.*)$"), re.compile(r"^(backends/opencl/|tests/e2e/opencl_fake\.c$|tests/reliability/opencl_faults\.c$)")),
    (re.compile(r"^mpi.*\.h$"), re.compile(r"^src/dist/comm_mpi\.c$|^tests/reliability/faulty_ranks\.c$")),
]
# Headers that need a vendor's header to compile: (pattern, the vendor's header).
HEADERS_NEED = [(re.compile(r"^backends/opencl/"), "CL/cl.h")]
# Headers that compile as C++ for the emulator, and as C against the stand-ins for a toolkit's headers.
CUDA_FOLDERS = ("backends/cuda", "tests/cuda_on_cpu")
SOURCES = (".c", ".h", ".cl", ".clh", ".cu", ".cpp")
COLUMNS_MAX = 100
LINES_MAX_HOST = 70
LINES_MAX_OTHER = 120
WARNINGS = ("-Wall -Wextra -Wconversion -Wno-sign-conversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes "
            "-Wno-missing-field-initializers -Werror").split()
# Written in pieces, so that this file passes its own check.
MACHINE_PATH = re.compile(r"(?:^|[^A-Za-z0-9_.])/(?:" + "|".join(("wo" + "rk", "fa" + "rm", "ro" + "ot",
                          "home/[a-z]", "tmp/" + "bash_jobs")) + r")/")
UNFINISHED = re.compile(r"\b(?:" + "TO" + "DO|FIX" + "ME|XX" + r"X)\b(?!.*#\d+)")


def tree_files(root, folders, suffixes):
    """Paths relative to `root`, sorted, of the files below `folders` whose names end in one of `suffixes`."""
    found = []
    for folder in folders:
        for base, names, files in os.walk(os.path.join(root, folder)):
            names[:] = [n for n in names if not n.startswith(".") and n != "__pycache__"]
            found += [os.path.relpath(os.path.join(base, f), root) for f in files if f.endswith(suffixes)]
    return sorted(found)


def read_text(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def without_comments(text):
    """Returns the C text with comments blanked and line numbers kept; strings stay, and comment marks inside them are
    ignored."""
    pattern = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*', re.S)

    def blank(match):
        piece = match.group(0)
        return piece if piece[0] in "\"'" else "".join(c if c == "\n" else " " for c in piece)

    return pattern.sub(blank, text)


def folder_of_path(path):
    return path.split("/")[1]


def include_problem(path, target, quoted):
    """Returns the problem with `path` including `target`, or None."""
    for header, allowed in VENDOR:
        if header.match(target) and not allowed.match(path):
            return "includes <%s>, which only %s may" % (target, allowed.pattern)
    if not quoted or path.startswith("tests/") and not path.startswith("tests/ops/"):
        return None
    if target.startswith(("/", ".")) or "/../" in target:
        return 'includes "%s"; write the path from src/' % target
    parts = path.split("/")
    folder = target.split("/")[0]
    if parts[0] == "tests":
        return 'the oracle includes "%s" of a backend' % target if folder == "backends" else None
    if parts[0] == "backends":
        own = target.startswith("backends/%s/" % parts[1]) or "/" not in target
        if own or folder in BACKENDS_SEE_FOLDERS or target in BACKENDS_SEE_FILES:
            return None
        return 'a backend includes "%s"' % target
    if target == "config.h" and folder_of_path(path) != "config":
        return None
    if "/" not in target:
        return 'includes "%s"; write FOLDER/FILE (and <config.h>)' % target
    if folder not in RANKS:
        return 'includes "%s", which is no folder of src/' % target
    if folder == parts[1] or {folder, parts[1]} == OPS_AND_GRAPHS or RANKS[folder] < RANKS[parts[1]]:
        return None
    return 'rank %d (%s) includes "%s" of rank %d' % (RANKS[parts[1]], parts[1], target, RANKS[folder])


def check_includes(root):
    for path in tree_files(root, ("src", "backends", "tests"), (".c", ".h", ".def", ".cu", ".cpp")):
        if path.startswith("src/") and folder_of_path(path) not in RANKS:
            yield path, 1, "is in a folder of src/ that has no rank"
            continue
        for number, line in enumerate(without_comments(read_text(root, path)).split("\n"), 1):
            match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
            problem = match and include_problem(path, match.group(2), match.group(1) == '"')
            if problem:
                yield path, number, problem


def compile_flags(root):
    return ["-std=c11", "-D_DEFAULT_SOURCE", "-D_POSIX_C_SOURCE=200809L", "-fsyntax-only",
            "-I" + os.path.join(root, "src"), "-I" + root] + shlex.split(os.environ.get("STYLE_CPPFLAGS", ""))


def some(paths):
    """Returns every sixth of many paths in `make check`; all of them with CHECK_LONG=1, as in `make check-style`."""
    return paths if len(paths) < 10 or os.environ.get("CHECK_LONG", "0") != "0" else paths[::6]


def first_complaint(command):
    """Returns None when `command` succeeds silently, else its first line about an error."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode == 0:
        return None
    lines = done.stdout.strip().split("\n")
    return next((line for line in lines if "error" in line), lines[0])


def header_is_there(compiler, header):
    done = subprocess.run(compiler + ["-E", "-x", "c", "-"], input="#include <%s>\n" % header, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, text=True, check=False)
    return done.returncode == 0


def alone_commands(root, path, compiler, unit):
    """Returns the commands that may compile a header alone: C; cuda's headers, against the stand-ins for CUDA's, as C
    or C++."""
    flags = compile_flags(root)
    if not path.startswith(CUDA_FOLDERS):
        return [compiler + flags + ["-Wall", "-Wextra", "-Werror", unit]]
    flags += ["-I" + os.path.join(root, folder) for folder in ("tests/cuda_on_cpu", "tests/cuda_on_cpu/include")]
    flags += ["-DGT_CUDA_EMULATED", "-Wno-unknown-pragmas", "-Werror"]
    commands = [compiler + flags + [unit]]
    compiler = shlex.split(os.environ.get("CXX", "g++"))
    if shutil.which(compiler[0]):
        commands.append(compiler + [flag for flag in flags if flag != "-std=c11"] + ["-std=c++17", "-x", "c++", unit])
    return commands


def check_headers(root):
    compiler = shlex.split(os.environ.get("CC", "cc"))
    lacking = [pattern for pattern, header in HEADERS_NEED if not header_is_there(compiler, header)]
    has_cxx = shutil.which(shlex.split(os.environ.get("CXX", "g++"))[0])
    with tempfile.TemporaryDirectory() as scratch:
        unit = os.path.join(scratch, "alone.c")
        for path in some(tree_files(root, ("src", "backends", "tests"), (".h",))):
            if any(pattern.match(path) for pattern in lacking):
                continue
            guard = re.search(r"^#ifndef (GPT_TRAIN_\w+_H)\n#define (\w+)\n", read_text(root, path), re.M)
            tail = re.sub(r"\W", "_", os.path.basename(path)).upper()
            if not guard or guard.group(1) != guard.group(2) or not guard.group(1).endswith(tail):
                yield path, 1, "has no include guard GPT_TRAIN_FOLDER_%s" % tail
            if path.startswith(CUDA_FOLDERS) and not has_cxx:
                continue
            with open(unit, "w", encoding="utf-8") as file:
                file.write('#include "%s"\n' % os.path.abspath(os.path.join(root, path)) * 2)
                file.write("int alone_unit;\n")
            complaint = None
            for command in alone_commands(root, path, compiler, unit):
                complaint = first_complaint(command)
                if complaint is None:
                    break
            if complaint:
                yield path, 1, "does not compile alone: " + complaint


def check_clang(root):
    if not shutil.which("clang"):
        raise FileNotFoundError("no clang (Debian: clang)")
    with tempfile.TemporaryDirectory() as scratch:
        # A substitute for configure's result.
        with open(os.path.join(scratch, "config.h"), "w", encoding="utf-8") as file:
            file.write('#define PACKAGE_NAME "gpt-train"\n#define PACKAGE_VERSION "0"\n#define PACKAGE_STRING "0"\n'
                       '#define BUILD_BACKENDS "0"\n#define BUILD_LIBRARIES "0"\n'
                       '#define PKGLIB_DIR "/lib"\n#define PKGDATA_DIR "/share"\n#define HAVE_MPI 1\n')
        flags = compile_flags(root) + WARNINGS + ["-DHAVE_CONFIG_H", "-I" + scratch]
        for path in some([path for path in tree_files(root, ("src",), (".c",)) if not path.endswith("comm_mpi.c")]):  # needs mpi.h
            complaint = first_complaint(["clang"] + flags + [os.path.join(root, path)])
            if complaint:
                yield path, 1, complaint


def check_functions(root):
    for path in tree_files(root, ("src", "backends", "tests"), SOURCES):
        limit = LINES_MAX_HOST if path.startswith("src/") else LINES_MAX_OTHER
        start = None
        for number, line in enumerate(read_text(root, path).split("\n"), 1):
            if line.startswith("{"):
                start = number
            elif line.startswith("}") and start is not None:
                if number - start + 1 > limit:
                    yield path, start, "a function of %d lines; the limit here is %d" % (number - start + 1, limit)
                start = None


def check_format(root):
    if not shutil.which("clang-format"):
        raise FileNotFoundError("no clang-format (Debian: clang-format)")
    version = subprocess.run(["clang-format", "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
    if not re.search(r"version 14\.", version):
        raise FileNotFoundError("clang-format is not version 14, whose layout is ours: " + version.strip())
    paths = [os.path.join(root, path) for path in tree_files(root, ("src", "backends", "tests"), SOURCES)]
    done = subprocess.run(["clang-format", "--dry-run", "-Werror", "--style=file", *paths], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    found = re.findall(r"^(.*?):(\d+):\d+: ", done.stdout, re.M) if done.returncode != 0 else []
    for path, line in {path: line for path, line in reversed(found)}.items():
        yield os.path.relpath(path, root), int(line), "clang-format would change this"
    if done.returncode != 0 and not found:
        yield ".clang-format", 1, done.stdout.strip().split("\n")[0]


def check_comments(root):
    for path in tree_files(root, ("src", "backends", "tests"), SOURCES):
        text = read_text(root, path)
        comment = re.match(r"/\*(.*?)\*/", text, re.S)
        lines = len(comment.group(1).strip().split("\n")) if comment else 0
        least = 2 if not path.endswith(".h") and path.startswith(("src/", "backends/")) else 1
        if lines < least:
            yield path, 1, "opens with a comment of %d lines; it says what and how, in %d or more" % (
                lines, least)


def text_files(root):
    """Returns all hand-written files: sources, scripts, build files, documents."""
    suffixes = (".c", ".h", ".def", ".sh", ".py", ".mk", ".m4", ".md", ".1", ".in", ".cu", ".cl", ".clh", ".txt")
    found = tree_files(root, ("src", "backends", "tests", "m4", "doc", "config", "bench", "tools"), suffixes)
    top = ("configure.ac", "Makefile.am", "quickstart", ".ci/run", ".gitignore", "README.md", "CONTRIBUTING.md",
           "NEWS", ".clang-format")
    return found + [name for name in top if os.path.isfile(os.path.join(root, name))]


def check_unfinished(root):
    for path in text_files(root):
        for number, line in enumerate(read_text(root, path).split("\n"), 1):
            if UNFINISHED.search(line):
                yield path, number, "unfinished work without the number of its issue: " + line.strip()[:80]


def check_paths(root):
    for path in text_files(root):
        for number, line in enumerate(read_text(root, path).split("\n"), 1):
            if MACHINE_PATH.search(line):
                yield path, number, "a path of one machine: " + line.strip()[:80]


def check_structure(root):
    paths = tree_files(root, ("src", "backends"), (".c", ".h", ".cu"))
    texts = {path: read_text(root, path) for path in paths}
    code = {path: without_comments(text) for path, text in texts.items()}
    yield from structure.circles(code)
    yield from structure.misplaced(code)
    yield from structure.unused_exports(code)
    for path, text in texts.items():
        for number, line in enumerate(text.split("\n"), 1):
            if len(line) > COLUMNS_MAX and re.match(r"\s*(/\*| \*|//)", line):
                yield path, number, "a comment of %d columns" % len(line)


# In documents: what stands in backquotes; a path, a source file, a name of C; a name with its file behind it.
QUOTED = re.compile(r"`([^`]+)`")
NAMED_PATH = re.compile(r"(?:src|backends|tests|bench|packaging|config|doc|m4)(?:/[\w.*-]+)+/?")
NAMED_SOURCE = re.compile(r"[\w/-]+\.(?:c|h|cu|cl|clh|def|mk|m4|inc)")
NAMED_WORD = re.compile(r"([a-z][a-z0-9]*(?:_[a-z0-9]+)+)(?:\(\))?|([a-z][a-z0-9]*)\(\)")
NAMED_IN = re.compile(r"`(\w+)(?:\(\))?`(?: \(| in | of )`([\w/]+\.[ch])`")
PLACEHOLDER = re.compile(r"(?<![A-Za-z])[A-Z]{4,}")
# What documents name of other projects, and style.md's examples.
NAMED_ELSEWHERE = {"train_gpt2.c", "llmc/dataloader.h", "llmc/mfu.h", "ggml-alloc.c", "simple_memory_arena", "folder_noun_verb",
                   "elapsed_us", "grad_norm_max"}


class Names:
    """The files of the tree, and the words in its sources."""

    def __init__(self, root):
        self.root = root
        self.files = {os.path.relpath(os.path.join(folder, name), root) for top in os.listdir(root)
                      if os.path.isdir(os.path.join(root, top)) and top in ("src", "backends", "tests", "bench", "packaging", "config", "doc", "m4")
                      for folder, _, names in os.walk(os.path.join(root, top)) for name in names}
        sources = [path for path in text_files(root) if not path.endswith(".md")]
        self.words = set(re.findall(r"\w+", "\n".join(read_text(root, path) for path in sources)))
        self.words.update(os.path.splitext(os.path.basename(path))[0] for path in self.files)

    def ending(self, name):
        """Returns the files that the name may mean: a document may leave folders out."""
        return [path for path in self.files if path == name or path.endswith("/" + name)]

    def has_path(self, name):
        found = {name, name + ".c"} & self.files or glob.glob(os.path.join(self.root, name))
        return bool(found)

    def is_in(self, name, source):
        """Returns true when one of the files has the name; a function of the tree, when one begins it."""
        texts = [read_text(self.root, path) for path in self.ending(source)]
        began = re.compile(rf"^\w[^;\n]*\b{name}\(", re.MULTILINE)
        is_function = any(began.search(read_text(self.root, path)) for path in self.files if path.endswith(".c"))
        return any(began.search(text) if is_function else re.search(rf"\b{name}\b", text) for text in texts)

    def problem(self, quoted):
        """Returns what is wrong with a quoted text, or None."""
        if PLACEHOLDER.search(quoted) or quoted in NAMED_ELSEWHERE:
            return None
        word = NAMED_WORD.fullmatch(quoted)
        if NAMED_PATH.fullmatch(quoted):
            return None if self.has_path(quoted) else "no such file"
        if NAMED_SOURCE.fullmatch(quoted):
            return None if self.ending(quoted) else "no such file"
        return "no source has this name" if word and (word[1] or word[2]) not in self.words else None


def check_names(root):
    documents = [path for path in text_files(root) if path.endswith(".md") and os.path.dirname(path) in ("", "doc")]
    names = Names(root)
    for path in documents:
        for number, line in enumerate(read_text(root, path).split("\n"), 1):
            for quoted in QUOTED.findall(line):
                problem = names.problem(quoted)
                if problem:
                    yield path, number, f"{quoted}: {problem}"
            for name, source in NAMED_IN.findall(line):
                if names.ending(source) and not names.is_in(name, source):
                    yield path, number, f"{name}: not in {source}"


CHECKS = {
    "includes": check_includes, "headers": check_headers, "clang": check_clang, "functions": check_functions,
    "format": check_format, "comments": check_comments, "unfinished": check_unfinished, "paths": check_paths,
    "structure": check_structure, "names": check_names,
}


def run_check(name, root):
    """Prints the findings of one check; returns PASS, FAIL or SKIP."""
    try:
        findings = list(CHECKS[name](root))
    except FileNotFoundError as missing:
        print("SKIP style-%s: %s" % (name, missing))
        return "SKIP"
    for path, line, what in findings:
        print("%s:%d: %s [%s]" % (path, line, what, name))
    result = "FAIL" if findings else "PASS"
    print("%s style-%s" % (result, name))
    return result


def main(arguments):
    root = os.environ.get("top_srcdir") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    names = list(CHECKS)
    for argument in arguments:
        if argument.startswith("--root="):
            root = argument[len("--root="):]
        elif argument.startswith("--only=") and set(argument[len("--only="):].split(",")) <= set(CHECKS):
            names = argument[len("--only="):].split(",")
        else:
            print(__doc__, file=sys.stderr)
            return 2
    if not os.path.isdir(os.path.join(root, "src")):
        print("%s has no src/" % root, file=sys.stderr)
        return 2
    results = [run_check(name, root) for name in names]
    print("checks: %d passed, %d failed, %d skipped" % tuple(results.count(r) for r in ("PASS", "FAIL", "SKIP")))
    return 1 if "FAIL" in results else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
