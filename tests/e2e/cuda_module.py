#!/usr/bin/env python3
"""The cuda backend as a module, gpt-train-cuda.so, with the emulated card: runs, a resume and opcheck give the bits of the
backend that is compiled in.  A module that is absent, of another version, of other sources, or that any user may change is
not loaded, and the program says why; nor is one in the current folder."""
import os
import shlex
import shutil
import subprocess

from checks import check, read, write
from cuda_common import FOLDER, checkpoint, end_emulated, losses, train

PROGRAM = os.path.join(FOLDER, "gpt-train-module")
FILE = "gpt-train-cuda.so"
MODULES = os.path.join(FOLDER, "module")


def module(out, *arguments, folder=MODULES):
    return train(out, *arguments, program=PROGRAM, GPT_TRAIN_MODULE_DIR=folder)


def same_bits():
    straight, ours = train("straight", "--max_iters=3", "--device=cuda"), module("ours", "--max_iters=3", "--device=cuda")
    check(straight.status == ours.status == 0, ours.said())
    check(losses("straight") == losses("ours") and checkpoint("straight") == checkpoint("ours"), "a run: other bits")
    module("cut", "--max_iters=1", "--device=cuda")
    cut = module("cut", "--max_iters=3", "--device=cuda", "--init_from=resume")
    check(cut.status == 0 and checkpoint("cut") == checkpoint("straight"), "a resumed run: other bits: " + cut.said())
    printed = [subprocess.run([os.path.join(FOLDER, name), "--backend=cuda", "--dtype=float16", "--cases=2"], check=False,
                              capture_output=True, text=True, env={**os.environ, "GPT_TRAIN_MODULE_DIR": MODULES})
               for name in ("opcheck-cuda", "opcheck-module")]
    check(printed[0].stdout == printed[1].stdout and printed[1].returncode == 0, "opcheck: " + printed[1].stdout[-300:])


def refused(folder, why):
    """A folder whose module is not loaded, and why."""
    listed = module("none", "--list_devices", folder=folder)
    check(listed.status == 0 and "cuda:   none; " in listed.out and why in listed.out, f"{folder}: {listed.out} {listed.err}")
    typed = module("none", "--max_iters=1", "--device=cuda", folder=folder)
    check(typed.status == 1 and len(typed.errors) == 1 and why in typed.errors[0], typed.said())


def compiled(folder, text):
    """Makes a module of C source."""
    os.mkdir(folder)
    write(os.path.join(folder, "module.c"), text.encode())
    subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-shared", "-fPIC", "-o", os.path.join(folder, FILE),
                    os.path.join(folder, "module.c")], check=True)


def copied(folder):
    os.mkdir(folder)
    return shutil.copy(os.path.join(MODULES, FILE), folder)


def bad_modules():
    os.mkdir("empty")
    refused("empty", f"empty/{FILE} is not there (package gpt-train-cuda)")
    quiet = module("auto", "--max_iters=0", folder="empty")
    check(quiet.status == 0 and "cuda" not in quiet.err, "auto without the module: " + quiet.said())
    compiled("other", 'struct { unsigned long abi; const char *version; } gpt_train_module = {1, "0.1.0"};')
    refused("other", "is from another build of gpt-train than this one")
    loud = module("auto", "--max_iters=0", folder="other")
    check(loud.status == 0 and "not using cuda: " in loud.err, "auto with another version's module: " + loud.said())
    compiled("foreign", "int nothing;")
    refused("foreign", "is not a module of gpt-train")
    path = copied("text")
    write(path, b"no shared object")
    refused("text", "file too short")
    path = copied("version")
    version = module("none", "--version").out.split()[2].encode()
    changed = read(path).replace(b"\0" + version + b"\0", b"\0" + b"9" + version[1:] + b"\0")
    check(changed != read(path), "no version in the module")
    write(path, changed)
    refused("version", "is from another build of gpt-train")
    os.chmod(copied("file"), 0o777)
    refused("file", "any user may change it")
    copied("folder")
    os.chmod("folder", 0o777)
    refused("folder", "any user may change it")


def other_folders():
    shutil.copy(os.path.join(MODULES, FILE), ".")
    here = train("none", "--list_devices", program=PROGRAM)
    check("cuda:   none; " in here.out and "not there" in here.out, "the current folder: " + here.out)


def names():
    """The module needs no function of the program that module_symbols.list lacks: it loads; and the list has no more."""
    undefined = subprocess.run(["nm", "-D", "--undefined-only", "--format=just-symbols", os.path.join(MODULES, FILE)],
                               check=True, capture_output=True, text=True).stdout.split()
    listed = [line.strip(" \t;") for line in read(os.path.join(os.environ["top_srcdir"], "src/backend/module_symbols.list"))
              .decode().splitlines() if line.startswith("\t")]
    check(set(listed) <= set(undefined), f"names that no module needs: {sorted(set(listed) - set(undefined))}")
    exported = subprocess.run(["nm", "-D", "--defined-only", "--format=just-symbols", os.path.join(MODULES, FILE)], check=True,
                              capture_output=True, text=True).stdout.split()
    check(exported == ["gpt_train_module"], f"exported: {exported[:5]}")


end_emulated("cuda_module", same_bits, bad_modules, other_folders, names)
