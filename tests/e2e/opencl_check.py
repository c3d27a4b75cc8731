#!/usr/bin/env python3
"""bench/opencl-check on device 0: its rows run, its JSON is complete, failures give FAIL, usage is checked.

Times are not checked.  opencl.py sets where drivers cache compiled kernels.  Prints "checks: P passed, F failed, S
skipped".
"""
import json
import os
import subprocess
import sys
import tempfile

from checks import check, finish, skip
from opencl import fake_build

BUILD = os.environ.get("top_builddir", ".")
PROGRAM = os.path.join(os.environ.get("top_srcdir", "."), "bench", "opencl-check")
ONLY = "matrix,opcheck float32,gemm,parity float32,step opencl float32,step cuda float32,step PyTorch"


def opencl_check(work, *arguments, **environment):
    path = os.path.join(work, "found.json")
    done = subprocess.run([sys.executable, "-B", PROGRAM, f"--json={path}", *arguments], check=False, capture_output=True,
                          text=True, env={**os.environ, "XDG_CACHE_HOME": os.path.join(work, "cache"), **environment},
                          timeout=1200)
    found = None
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        os.remove(path)
    return done, found


def whole(work, build, name):
    done, found = opencl_check(work, build, f"--device={name}", "--quick", "--cases=2", "--only=" + ONLY)
    check(done.returncode == 0, f"exit status {done.returncode}: {done.stdout[-800:]} {done.stderr[-400:]}")
    if found is None:
        return
    rows = {row["name"]: row for row in found["rows"]}
    check(list(found["devices"]) == [name], f"devices: {found['devices']}")
    for row in ("matrix units", "opcheck float32", "parity float32", "step opencl float32"):
        check(rows[row]["result"] == "PASS", f"{row}: {rows[row]}")
        check(f"{row} " in done.stdout and rows[row]["detail"] in done.stdout, f"{row} is not in the table: {done.stdout}")
    for row in ("gemm on vector units", "step cuda float32", "step PyTorch"):
        check(rows[row]["result"] in ("PASS", "SKIP") and rows[row]["detail"], f"{row}: {rows[row]}")
    check("tune" not in rows and "parity bfloat16" not in rows, f"rows that were not asked for: {sorted(rows)}")
    step = rows["step opencl float32"]
    ops = dict(step["split"])
    check(step["step_ms"] > 0 and "gemm" in ops and abs(sum(ops.values()) - 100) < 2, f"the split of a step: {step}")
    check(rows["opcheck float32"]["cases"] > 20, f"cases: {rows['opcheck float32']}")


def bad(work, build, name):
    done, found = opencl_check(work, build, f"--device={name}", "--quick", "--only=parity float32",
                               GPT_TRAIN_OPENCL_LIBRARY=os.path.join(work, "absent.so"))
    check(done.returncode == 77 and "SKIP" in done.stdout, f"no loader: {done.returncode} {done.stdout[-300:]}")
    library = fake_build(work)
    if library is None:
        skip("opencl_fake", "no compiler that links with libOpenCL.so.1")
    else:
        done, found = opencl_check(work, build, f"--device={name}", "--only=parity float32",
                                   GPT_TRAIN_OPENCL_LIBRARY=library, OPENCL_FAKE="refuse")
        rows = {row["name"]: row for row in found["rows"]} if found else {}
        check(done.returncode == 1 and rows.get("parity float32", {}).get("result") == "FAIL",
              f"a driver that refuses memory: {done.returncode} {done.stdout[-600:]}")
        check("clCreateBuffer" in rows.get("parity float32", {}).get("detail", ""), f"the reason: {rows}")
    for arguments in (("--quickly",), ("--only",), ("--cases=x",), ("--colour=red",)):
        done, found = opencl_check(work, build, *arguments)
        check(done.returncode == 2 and "Usage:" in done.stderr and found is None, f"{arguments}: {done.returncode}")
    for arguments in ((), ("--build=/nonexistent",)):
        done, found = opencl_check(work, *arguments)
        check(done.returncode == 2 and "Traceback" not in done.stderr, f"{arguments}: {done.returncode} {done.stderr[-300:]}")


def main():
    listing = subprocess.run([os.path.join(BUILD, "gpt-train"), "--list_devices"], check=False, capture_output=True, text=True)
    line = next((line for line in listing.stdout.splitlines() if line.startswith("opencl:0 ")), None)
    if line is None:
        if "opencl" not in listing.stdout:
            skip("opencl", "this build has no opencl backend")
        else:
            skip("opencl_device", "no OpenCL device here (Debian: pocl-opencl-icd)")
        print("checks: 0 passed, 0 failed, 1 skipped")
        return 77
    name = line.split(None, 1)[1].split(", ")[0]
    with tempfile.TemporaryDirectory() as work:
        for part in (whole, bad):
            part(work, "--build=" + os.path.abspath(BUILD), name)
    return finish()


if __name__ == "__main__":
    sys.exit(main())
