#!/usr/bin/env python3
"""bench/opencl-check on device 0: its rows run, its JSON is complete, failures give FAIL, usage is checked.

Times are not checked.  Prints "checks: P passed, F failed, S
skipped".
"""
import os
import subprocess
import sys

from checks import BUILD, SOURCE, check, end, opencl_device, opencl_library, read_json

PROGRAM = os.path.join(SOURCE, "bench", "opencl-check")
ONLY = "matrix,opcheck float32,gemm,parity float32,step opencl float32,step cuda float32,step PyTorch"


def opencl_check(*arguments, **environment):
    done = subprocess.run([sys.executable, "-B", PROGRAM, "--json=found.json", *arguments], check=False, capture_output=True,
                          text=True, env={**os.environ, **environment}, timeout=1200)
    found = None
    if os.path.exists("found.json"):
        found = read_json("found.json")
        os.remove("found.json")
    return done, found


def whole(build, name):
    done, found = opencl_check(build, f"--device={name}", "--quick", "--cases=2", "--only=" + ONLY)
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


def bad(build, name):
    done, found = opencl_check(build, f"--device={name}", "--quick", "--only=parity float32",
                               GPT_TRAIN_OPENCL_LIBRARY="/nonexistent.so")
    check(done.returncode == 77 and "SKIP" in done.stdout, f"no loader: {done.returncode} {done.stdout[-300:]}")
    library = opencl_library("tests/e2e/opencl_fake.c")
    if library is not None:
        done, found = opencl_check(build, f"--device={name}", "--only=parity float32",
                                   GPT_TRAIN_OPENCL_LIBRARY=library, OPENCL_FAKE="refuse")
        rows = {row["name"]: row for row in found["rows"]} if found else {}
        check(done.returncode == 1 and rows.get("parity float32", {}).get("result") == "FAIL",
              f"a driver that refuses memory: {done.returncode} {done.stdout[-600:]}")
        check("clCreateBuffer" in rows.get("parity float32", {}).get("detail", ""), f"the reason: {rows}")
    for arguments in (("--quickly",), ("--only",), ("--cases=x",), ("--colour=red",)):
        done, found = opencl_check(build, *arguments)
        check(done.returncode == 2 and "Usage:" in done.stderr and found is None, f"{arguments}: {done.returncode}")
    for arguments in ((), ("--build=/nonexistent",)):
        done, found = opencl_check(*arguments)
        check(done.returncode == 2 and "Traceback" not in done.stderr, f"{arguments}: {done.returncode} {done.stderr[-300:]}")


def main():
    line = opencl_device()
    if line is not None:
        for part in (whole, bad):
            part("--build=" + BUILD, line.split(None, 1)[1].split(", ")[0])


end(main)
