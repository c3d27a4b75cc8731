#!/usr/bin/env python3
"""Malicious checkpoint records: each value of trainer_state.json is replaced by others of its kind, very large ones or
others of another type, and the record has no checksum, as in early releases.

A resumed run and an evaluation must end with status 0, 2 or 3, with a line if it is not 0, in little memory; a
checkpoint that a run saved must be resumable.  Values of the configuration may request much work, so for these only the
plan is made.

`make check` tries a sample; CHECK_LONG=1 every one, --part=K/N every N-th.  Prints "checks: P passed, F failed, S
skipped".
"""
import copy
import random
import resource
import shutil
import subprocess

import tiny

from checks import check, end, is_instrumented, write_json

SAMPLE = 60
VALUES = [-1, 0, 1, 7, 2**31 - 2, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**64, 1e308, -0.5, "x", "../x", None, True, [], {}]
MEMORY_BYTES = 4 << 30  # of address space: a run uses 0.5 GB of it
INSTRUMENTED = is_instrumented(tiny.GPT_TRAIN)  # its shadow memory takes terabytes


def limit():
    if not INSTRUMENTED:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def start(*arguments):
    """Returns the finished process; None when it hangs."""
    try:
        return subprocess.run(tiny.command("work", "--init_from=resume", *arguments), env=tiny.ENVIRONMENT, capture_output=True,
                              text=True, timeout=tiny.LIMIT_SECONDS, check=False, preexec_fn=limit)
    except subprocess.TimeoutExpired:
        return None


def places(value, path=()):
    """Yields the paths of the record's values; each file's list of tensor checksums counts as one."""
    if path:
        yield path
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        if key == "tensors":
            yield (*path, key)
        else:
            yield from places(member, (*path, key))


def replaced(record, path, value):
    record = copy.deepcopy(record)
    inner = record
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return record


def judge(record, what, arguments):
    tiny.clear("work")
    shutil.copytree("whole", "work")
    write_json("work/trainer_state.json", record)
    done = start(*arguments)
    if done is None:
        check(False, f"{what}: hangs")
        return
    errors = done.stderr.count("gpt-train: error")
    check(done.returncode in (0, 2, 3) and "internal error" not in done.stderr, f"{what}: {done.returncode} {done.stderr[-500:]}")
    check(done.returncode == 0 or errors > 0, f"{what}: no line: {done.stderr[-300:]}")
    if done.returncode == 0 and "saving checkpoint" in done.stdout:
        again = start(*arguments)
        check(again is not None and again.returncode == 0, f"{what}: what it saved: {again and again.stderr[-300:]}")


def main():
    generator = random.Random(tiny.SEED)
    tiny.make_data()
    half = ["--dtype=float16", "--max_iters=3"]  # with a loss scaler
    done = tiny.run("whole", *half)
    check(done.returncode == 0, f"the run: {done.stderr[-500:]}")
    record = tiny.record_of("whole")
    del record["record_crc32c"]
    record["plan"]["algorithms"] = {"0123456789abcdef": "fedcba9876543210"}
    check(isinstance(record["loss_scaler"], dict), "a loss scaler is stored")
    cases = [(path, value, mode) for path in places(record) for value in VALUES
             for mode in (["--plan"] if path[0] == "configuration" else ["--max_iters=6", "--eval_only=True"])]
    picked = tiny.part(cases if tiny.LONG else generator.sample(cases, SAMPLE))
    judge(record, "unchanged", ["--max_iters=6"])
    check(tiny.record_of("work")["iter"] == 7, "unchanged, it goes on")
    for path, value, mode in picked:
        judge(replaced(record, path, value), f"{'.'.join(map(str, path))} = {value!r}, {mode}", [mode])
    # Values that once stopped the program.
    for path, value in (("adam_step", 2**31 - 1), ("iter", 2**33), ("samples_seen", 2**63 - 1), ("evaluations", 2**63 - 1),
                        ("evaluations", 2**32 - 1)):
        judge(replaced(record, (path,), value), f"{path} = {value}", ["--max_iters=2147483646"])
    for name in ("micro_batch", "evaluate_batch", "loss_chunk_rows"):
        for mode in (["--max_iters=6"], ["--eval_only=True"], ["--max_iters=6", "--eval_iters=0"]):
            judge(replaced(record, ("plan", name), 2**31 - 1), f"{name}, {mode}", mode)
    print(f"{len(picked)} of {len(cases)} values tried")


end(main)
