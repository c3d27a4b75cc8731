#!/usr/bin/env python3
"""./quickstart, the first command, in a small copy of the project without .git, with the programs of this build.

  transcript  its parts come in order, and it ends with a model, a sample and what to try next
  text        it trains on stories of whole sentences, for as long as --hours says
  resumed     a second start says that all was done; one after a kill resumes the run
  missing     without a compiler and without root it prints the commands that install one, and stops with status 1; it uses
              sudo only in a terminal, and only after a yes
  weekend     `./quickstart weekend` names the first shard that is missing and the command that downloads it; with all
              shards it trains, judges and exports; a shard that is cut short is named before the first step
  check       the progress of `./quickstart check`: tests done, failures at once, the time left
"""
import array
import os
import pty
import re
import shutil
import struct
import subprocess
import time

from checks import BUILD, SOURCE, check, end, patience, ran, read, read_json, write

COPIED = ("quickstart", "config", "README.md", "NEWS", "doc", "tests/budgets")
ITERATIONS = 4
PARTS = ("== Looking around", "== Building", "== Preparing the text", "train has [0-9,]+ tokens", "== The plan",
         r"Memory +\S+ \S+ needed", "== Training", "step 0: train loss", "iter [0-9]+: loss", "Done: 5 updates", "== A sample", "== Done",
         "the model read short stories", "training loss +6.9[0-9] -> [1-9][0-9.]+", "validation loss +6.9[0-9] -> [1-9][0-9.]+", "Try next:", "gpt-sample --out_dir=", "quickstart check")
# As in a user's shell: neither configured from outside, nor below another make.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if name not in ("CONFIGURE_FLAGS", "QUICKSTART_BUILD", "CI", "MAKEFLAGS", "MFLAGS", "MAKELEVEL")}


def copy_made(folder):
    """Makes a copy of the project whose build is done: the programs are links, and make has nothing to do."""
    for name in COPIED:
        path = os.path.join(SOURCE, name)
        target = os.path.join(folder, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if os.path.isdir(path):
            shutil.copytree(path, target)
        else:
            shutil.copy(path, target)
    build = os.path.join(folder, "build")
    os.makedirs(build)
    for name in ("gpt-train", "gpt-prepare", "gpt-sample", "gpt-export"):
        os.symlink(os.path.join(BUILD, name), os.path.join(build, name))
    for name, text in (("configure", "exit 1"), ("build/config.status", "exit 1")):
        os.chmod(write(os.path.join(folder, name), "#!/bin/sh\n" + text + "\n"), 0o755)
    write(os.path.join(build, "quickstart-flags"), " \n")
    write(os.path.join(build, "Makefile"), "all:\n")


def quickstart(folder, *words, **environment):
    return subprocess.run([os.path.join(folder, "quickstart"), *words], check=False, capture_output=True,
                          env={**ENVIRONMENT, **environment}, stdin=subprocess.DEVNULL)


def transcript(folder):
    done = quickstart(folder, f"--iterations={ITERATIONS}")
    check(done.returncode == 0, f"status {done.returncode}: {done.stderr[-1000:]}")
    said, at = done.stdout.decode("utf-8", "replace"), 0
    for part in PARTS:
        found = re.compile(part).search(said, at)
        check(found is not None, f"no {part!r} after {said[:at][-200:]!r}")
        at = found.end() if found else at
    check(read(os.path.join(folder, "build", f"first-model-{ITERATIONS}", "model.safetensors")), "a model")


def text_read(folder):
    said = read(os.path.join(folder, "build", "first-text.txt")).decode()
    stories = said.split("\n\n")
    odd = [story for story in stories[:-1]
           if not re.fullmatch(r'["A-Z].*[.]"?', story) or re.search(r'[{}|=]|  | [,.]|[.]"? [a-z]', story)]
    check(len(stories) == 12001 and not stories[-1] and not odd, f"{len(stories)} stories, {odd[:3]}")
    rules = read(os.path.join(folder, "config", "stories.grammar")).decode()
    names, used = re.findall(r"^([a-z]+) = ", rules, re.M), re.findall(r"{([a-z]+)}", rules.split("\nstory = ")[1])
    check(sorted(set(used)) == sorted(set(names) - {"story"}), sorted(set(names) ^ set(used)))
    started = time.monotonic()
    done = quickstart(folder, "--hours=0.0005")
    said = done.stdout.decode("utf-8", "replace")
    updates = re.search(r"hours=0.0005 at \S+ \S+ an update: max_iters=(\d+)", said)
    check(done.returncode == 0 and updates and f"Done: {int(updates[1]) + 1} updates" in said, said[-900:] + done.stderr.decode()[-500:])
    check(time.monotonic() - started < patience(60), "1.8 s of training took more than a minute")


def resumed(folder):
    done = quickstart(folder, f"--iterations={ITERATIONS}")
    check(done.returncode == 0 and b"This was done before" in done.stdout and b"iter " not in done.stdout, done.stdout[-500:])
    os.remove(os.path.join(folder, "build", f"first-model-{ITERATIONS}", "summary"))
    done = quickstart(folder, f"--iterations={ITERATIONS}")
    check(done.returncode == 0 and b"Resuming the run that was interrupted" in done.stdout, done.stdout[-500:])


def missing(folder):
    tools = os.path.join(folder, "tools")
    os.makedirs(tools)
    for name in ("sh", "dirname", "id", "tr", "sed", "mkdir", "cat", "nproc", "grep", "env", "tail"):
        os.symlink(shutil.which(name), os.path.join(tools, name))
    done = quickstart(folder, PATH=tools)
    said = done.stderr.decode()
    check(done.returncode == 1 and b"Missing: compiler make" in done.stdout, f"status {done.returncode}: {done.stdout} {said}")
    check(said.count("sudo apt-get install") == 1 and "libjansson-dev" in said and "dnf install" in said and
          said.endswith("quickstart: run it, then run ./quickstart again\n"), said)
    asks_for_sudo(folder, tools)
    for words in (("--iterations=0",), ("--iterations=x",), ("tests",)):
        done = quickstart(folder, *words)
        check(done.returncode == 2 and done.stderr.count(b"\n") == 1 and words[0].encode() in done.stderr, f"{words}: {done.stderr}")


def asks_for_sudo(folder, tools):
    """The user is not root, and sudo would work: it is run in a terminal alone, after a yes."""
    os.remove(os.path.join(tools, "id"))
    for name, text in (("id", "echo 1000"), ("apt-get", "exit 0"), ("sudo", f'echo "$*" >>{tools}/used; exec "$@"')):
        os.chmod(write(os.path.join(tools, name), f"#!/bin/sh\n{text}\n"), 0o755)
    used = os.path.join(tools, "used")
    done = quickstart(folder, PATH=tools)
    check(done.returncode == 1 and b"sudo apt-get install" in done.stderr and not os.path.exists(used), f"no terminal: {done.stderr}")
    for answer in ("n", "", "y"):
        master, slave = pty.openpty()
        os.write(master, answer.encode() + b"\n")
        done = subprocess.run([os.path.join(folder, "quickstart")], check=False, stdin=slave, stdout=slave, stderr=slave,
                              env={**ENVIRONMENT, "PATH": tools})
        os.close(slave)
        said = b""
        try:
            while piece := os.read(master, 65536):
                said += piece
        except OSError:
            pass
        os.close(master)
        check(b"with sudo apt-get? [y/N]" in said and said.count(b"[y/N]") == 1, f"{answer}: {said}")
        check(os.path.exists(used) == (answer == "y") and (b"This command installs" in said) == (answer != "y"), f"{answer}: {said}")
    check(b"apt-get -q -y" in read(used) and b"libjansson-dev" in read(used), read(used))


def shard_write(path, count, written):
    """Writes a shard of `count` tokens in llm.c's format, of which only `written` follow the header."""
    ids = array.array("H", (i * i % 251 for i in range(written)))
    write(path, struct.pack("<256i", 20240520, 1, count, *[0] * 253) + ids.tobytes())


def weekend(folder):
    shards, out = os.path.join(folder, "data", "fineweb10B"), os.path.join(folder, "out-weekend")
    flags = {"WEEKEND_SHARDS": "2", "WEEKEND_FLAGS": "--n_layer=1 --n_head=1 --n_embd=32 --head_dim=32 --n_inner=64 "
             "--block_size=16 --batch_size=2 --vocab_size=256 --max_iters=12 --lr_decay_iters=12 --cooldown_iters=8 "
             "--eval_iters=2 --threads=1 --device=cpu"}
    os.makedirs(shards)
    configured = os.path.join(folder, "build", "quickstart-flags")
    write(configured, "--with-cuda \n" if shutil.which("nvcc") else " \n")
    shard_write(os.path.join(shards, "fineweb_train_000001.bin"), 500, 500)
    done = quickstart(folder, "weekend", **flags)
    said = done.stdout.decode()
    check(done.returncode == 1 and "fineweb_train_000002.bin" in said and "huggingface.co" in said and "Forecast" in said, said[-900:])
    shard_write(os.path.join(shards, "fineweb_train_000002.bin"), 500, 400)
    shard_write(os.path.join(shards, "fineweb_val_000000.bin"), 300, 300)
    done = quickstart(folder, "weekend", **flags)
    check(done.returncode == 2 and b"fineweb_train_000002.bin" in done.stderr and b"iter 0" not in done.stdout,
          f"{done.returncode} {done.stderr.decode()[-500:]}")
    shard_write(os.path.join(shards, "fineweb_train_000002.bin"), 500, 500)
    done = quickstart(folder, "weekend", "--hours=0.0002", **flags)
    said = done.stdout.decode()
    check(done.returncode == 0 and "hours=0.0002" in said and " tokens, loss " in said, f"{said[-900:]} {done.stderr.decode()[-500:]}")
    check(read_json(out + "-hf/config.json")["model_type"] == "qwen3" and read(out + ".gguf")[:4] == b"GGUF", "both exports")
    write(configured, " \n")


def installed_since(folder):
    """A package was missing when configure ran, and has been installed since: configure runs again, and fails in this
    copy."""
    path = write(os.path.join(folder, "build", "quickstart-missing"), "check\n")
    done = quickstart(folder, f"--iterations={ITERATIONS}")
    check(done.returncode == 1 and b"Configuring in" in done.stdout and b"configure failed" in done.stderr, done.stdout[-500:])
    os.remove(path)


def progress(folder):
    """Runs check_progress() of the script on make's output."""
    script = read(os.path.join(folder, "quickstart")).decode()
    for before, after in (('main "$@"\n', 'processors() { echo 1; }\ncheck_progress\n'), ("-lt 30", "-lt 0"),
                          ("started=$(date +%s)", "started=$(($(date +%s) - 60))")):
        script = script.replace(before, after)
    write(os.path.join(folder, "tests", "budgets"), "unit 99\nunit/a 10\ne2e/c 30\n")
    write(os.path.join(folder, "build", "Makefile"), "check-list:\n\t@for test in unit/a unit/b e2e/c; do echo tests/$$test; done\n")
    path = write(os.path.join(folder, "progress"), script)
    done = ran("sh", path, env=ENVIRONMENT, input="make: noise\nPASS: tests/unit/a\nFAIL: tests/unit/b\nSKIP: tests/e2e/c\n")
    lines = done.stdout.splitlines()
    check(done.returncode == 0 and len(lines) == 4, f"{lines} {done.stderr}")
    check([line for line in lines if line.startswith("FAIL")] == ["FAIL: tests/unit/b"], f"{lines}")
    # One minute has passed; tests/budgets has 10 and 30 seconds for two of the three, and none, which means 0.5, for the last.
    check(re.fullmatch(r"1 of 3 tests done, 0 failed, about 3 min [3-7] s left \(unit\)", lines[0]), f"{lines}")
    check(lines[-1] == "3 of 3 tests done, 1 failed (e2e)", f"{lines}")


def main():
    folder = os.path.abspath("gpt-train")
    for part in (copy_made, transcript, text_read, resumed, weekend, installed_since, missing, progress):
        part(folder)


end(main)
