#!/usr/bin/env python3
"""bench/gpu-check rehearsed on the emulated programs: its rows run, its JSON is whole, what fails is a FAIL, usage is checked.

Times and rates of a rehearsal mean nothing; what only a card has is a SKIP with its reason.
Prints "checks: P passed, F failed, S skipped".
"""
import json
import os
import subprocess
import sys
import tempfile

from cuda_common import BUILD, check, finish, leave_without_programs

PROGRAM = os.path.join(os.environ.get("top_srcdir", "."), "bench", "gpu-check")
IMAGE_BYTES = 4 << 20  # of uploads under way: a part of the context, which the plan has beside the arena
ONLY = "parity float32,graphs,memcheck,racecheck,initcheck,synccheck,story,MFU 124M,ops,roofs"


def gpu_check(work, *arguments, **environment):
    done = subprocess.run([sys.executable, PROGRAM, *arguments], cwd=work, check=False, capture_output=True, text=True,
                          env=dict(os.environ, XDG_CACHE_HOME=os.path.join(work, "cache"), **environment), timeout=900)
    path = os.path.join(work, "gpu-check.json")
    found = None
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        os.remove(path)
    return done, found


def whole(work, emulated):
    done, found = gpu_check(work, emulated, "--only=" + ONLY)
    check(done.returncode == 0, done.stdout[-800:] + done.stderr[-400:])
    rows = {row["name"]: row["result"] for row in found["rows"]}
    wanted = {"parity float32": "PASS", "graphs": "PASS", "story 11.4GiB": "PASS", "story 9.7GiB": "PASS", "MFU 124M": "PASS",
              "ops": "PASS", "roofs": "SKIP", "memcheck": "SKIP", "racecheck": "SKIP", "initcheck": "SKIP", "synccheck": "SKIP"}
    check(rows == wanted, f"rows are {rows}")
    story = found["facts"]["story 11.4GiB"]
    check(story["planned"] == story["asked"] == story["used"] - IMAGE_BYTES > 0, f"planned, asked for and in use differ: {story}")
    check(any(one["op"] == "gemm" and one["seconds"] > 0 for one in found["facts"]["ops"]), f"{found['facts']['ops']}")
    block = done.stdout.split("```")[1]
    check(all(name in block for name in wanted), "the block to paste lacks rows")


def bad(work, emulated):
    done, found = gpu_check(work, emulated, "--only=MFU 124M", GT_CUDA_ON_CPU_FAIL="cudaGraphLaunch:1")
    debug = "graphs" not in done.stdout and found["rows"][0]["result"] == "PASS"  # a debug build replays nothing
    check(debug or (done.returncode == 1 and found["rows"][0]["result"] == "FAIL"), done.stdout[-600:])
    done, found = gpu_check(work, emulated, "--only=MFU", "--minutes=0")
    check(done.returncode == 0 and all("no time left" in row["detail"] for row in found["rows"]), done.stdout[-600:])
    for arguments in (("--minutes=x",), ("--quickly",), ("--only",)):
        done, found = gpu_check(work, *arguments)
        check(done.returncode == 2 and "Usage:" in done.stderr and found is None, f"{arguments}: {done.returncode}")


def main():
    leave_without_programs("gpu_check")
    with tempfile.TemporaryDirectory(prefix="gpt-train-gpu-check-") as work:
        for part in (whole, bad):
            part(work, "--emulated=" + os.path.abspath(BUILD))
    return finish()


if __name__ == "__main__":
    sys.exit(main())
