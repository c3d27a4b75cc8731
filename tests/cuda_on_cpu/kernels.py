"""Rebuilds the cuda backend's kernels for the emulator, with sanitizers, and runs programs on them.

The build's settings come from build.env, which make writes into tests/cuda_on_cpu of the build folder.  All output goes
into a scratch folder.  Kernels are compiled in parallel, one process per processor.
"""

import concurrent.futures
import os
import re
import shlex
import subprocess
import sys

TOP = os.path.abspath(os.environ.get("top_srcdir") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
BUILD = os.path.abspath(os.environ.get("top_builddir") or os.getcwd())
# Exit status of a sanitizer's report; opcheck's own failures exit with 1, the emulator's with 70.
SANITIZER_STATUS = 66
ASAN = "-fsanitize=address,undefined -fno-sanitize-recover=all"
TSAN = "-fsanitize=thread"
PLAIN = ""


def build_read():
    """Returns the variables of build.env as a dictionary, or None when this build makes no emulated programs."""
    values = {}
    path = os.path.join(BUILD, "tests/cuda_on_cpu/build.env")
    if not os.path.isfile(path):
        return None
    with open(path, encoding="utf-8") as file:
        for line in file:
            match = re.match(r"(\w+)='(.*)'$", line.rstrip("\n"))
            values[match.group(1)] = match.group(2)
    return values if values.get("have_cxx") == "yes" else None


def is_instrumented(build):
    return "-fsanitize" in build["kernel_flags"] + build["link_flags"]


def run(command, **options):
    """Runs the command in the build folder; returns (exit status, output)."""
    done = subprocess.run(command, cwd=BUILD, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False, **options)
    return done.returncode, done.stdout


def accepts(build, flags, scratch):
    """Returns true when the compiler makes programs with these flags."""
    source, program = os.path.join(scratch, "try.cpp"), os.path.join(scratch, "try")
    with open(source, "w", encoding="utf-8") as file:
        file.write("int main() { return 0; }\n")
    return run(shlex.split(build["cxx"]) + shlex.split(flags) + [source, "-o", program])[0] == 0 and \
        run([program])[0] == 0


def compile_command(build, source, target, flags, first=None):
    """`first` is a folder that is searched for headers before the project's."""
    search = ["-I" + first] if first else []
    return (shlex.split(build["cxx"]) + search + shlex.split(build["kernel_flags"]) +
            ["-O1", "-g" if flags else "-g0", "-w"] + shlex.split(flags) + ["-x", "c++", "-c", source, "-o", target])


def compile_all(build, sources, folder, flags, first=None):
    """Compiles `sources` into object files in `folder`; ends the test when one does not compile."""
    os.makedirs(folder, exist_ok=True)
    targets = [os.path.join(folder, os.path.basename(source).rsplit(".", 1)[0] + ".o") for source in sources]
    commands = [compile_command(build, s, t, flags, first) for s, t in zip(sources, targets)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for source, (status, output) in zip(sources, pool.map(run, commands)):
            if status != 0:
                raise RuntimeError("%s does not compile:\n%s" % (source, output))
    return targets


def link(build, objects, program, flags):
    """Links opcheck with these objects in place of the archive members with the same names."""
    command = (shlex.split(build["cxx"]) + shlex.split(build["link_flags"]) + shlex.split(flags) + ["-o", program] +
               shlex.split(build["opcheck"]) + objects + shlex.split(build["libs"]))
    status, output = run(command)
    if status != 0:
        raise RuntimeError("opcheck does not link:\n%s" % output)


def environment(order):
    values = dict(os.environ)
    values["GT_CUDA_ON_CPU_ORDER"] = order
    # The first report decides; leaks at exit do not matter here.
    values["ASAN_OPTIONS"] = "exitcode=%d:detect_leaks=0:abort_on_error=0" % SANITIZER_STATUS
    values["UBSAN_OPTIONS"] = "print_stacktrace=1:halt_on_error=1:exitcode=%d" % SANITIZER_STATUS
    values["TSAN_OPTIONS"] = "exitcode=%d:halt_on_error=1:report_signal_unsafe=0" % SANITIZER_STATUS
    return values


def drive(program, order, arguments, limit_s=300):
    """Runs a test program; returns (exit status, output)."""
    try:
        return run([program] + arguments, env=environment(order), timeout=limit_s)
    except subprocess.TimeoutExpired:
        return 124, "longer than %d s\n" % limit_s


def verdict(status, output):
    """Describes a failed run in a few words."""
    report = re.search(r"(?:SUMMARY: |WARNING: )?(AddressSanitizer|ThreadSanitizer): ([\w-]+(?: [\w-]+)?)", output)
    if report:
        return "%s: %s" % (report.group(1), report.group(2))
    undefined = re.search(r"runtime error: (.*)", output)
    if undefined:
        return "UndefinedBehaviorSanitizer: " + undefined.group(1)[:60]
    mistake = re.search(r"emulator: .*thread \([\d,]+\): (.*)", output)
    if mistake:
        return "emulator: " + mistake.group(1)[:70]
    if status == 124:
        return "never ends"
    return "signal %d" % -status if status < 0 else "wrong numbers"


def skip(name, reason):
    """Ends the test as skipped."""
    print("SKIP %s: %s" % (name, reason))
    print("checks: 0 passed, 0 failed, 1 skipped")
    sys.exit(77)
