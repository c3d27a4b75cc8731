#!/usr/bin/env python3
"""bench/gpt-check on this machine without a card: the rows of a build pass, and end with the block to paste; programs that
fail give FAIL and exit status 1; nothing stays behind; a bad option is refused.
"""
import os
import subprocess
import sys

from checks import BUILD, GPT_TRAIN, SOURCE, check, end, write

ROWS = {"machine": "PASS", "cuda": "SKIP", "cpu ops float32": "PASS", "cpu ops bfloat16": "PASS", "cpu ops float16": "PASS",
        "cpu memory": "PASS", "cpu resume": "PASS", "cpu speed": "PASS"}


def gpt_check(*arguments):
    os.makedirs("tmp", exist_ok=True)
    done = subprocess.run([sys.executable, os.path.join(SOURCE, "bench", "gpt-check"), *arguments], check=False,
                          capture_output=True, text=True, env={**os.environ, "TMPDIR": os.path.abspath("tmp"), "PATH": "/bin"})
    check(not os.listdir("tmp"), f"left behind: {os.listdir('tmp')}")
    rows = [line.split("  ", 1) for line in done.stdout.rpartition("\n\n```\n")[2].splitlines()]
    return done, {row[0]: row[1].split()[0] for row in rows if len(row) == 2}


def whole():
    """Of opcheck's cases, which opcheck_float32.sh and the like try, one of each op."""
    os.mkdir("quick")
    os.symlink(GPT_TRAIN, "quick/gpt-train")
    os.chmod(write("quick/opcheck", f"#!/bin/sh\nexec {BUILD}/tests/opcheck/opcheck \"$@\" --cases=1\n"), 0o700)
    done, rows = gpt_check("--build=quick")
    check(done.returncode == 0 and rows == ROWS, f"{done.returncode}: {rows} {done.stdout[-800:]} {done.stderr[-400:]}")


def broken():
    os.mkdir("broken")
    os.chmod(write("broken/opcheck", "#!/bin/sh\necho 'FAIL cpu gemm'\nexit 1\n"), 0o700)
    os.chmod(write("broken/gpt-train", f"#!/bin/sh\ncase $1 in --list*|--version) exec {GPT_TRAIN} $1 ;; esac\nexit 3\n"), 0o700)
    done, rows = gpt_check("--build=broken")
    check(done.returncode == 1 and rows == {**ROWS, **{name: "FAIL" for name in ROWS if name.startswith("cpu ")}}, f"{done.returncode}: {rows}")
    check("FAIL cpu gemm" in done.stdout and "exit status 3" in done.stdout, f"no reasons: {done.stdout[-800:]}")


def refused():
    done, _ = gpt_check("--nothing", "--build=" + BUILD)
    check(done.returncode == 2 and "unknown: --nothing" in done.stderr, f"{done.returncode}: {done.stderr[:200]}")


end(whole, broken, refused)
