#!/usr/bin/env python3
"""Memory is known before step 1, as seen by the system.

  plan      the arena requested from the device, the plan, and `--plan=json` are one number
  growth    the process grows by at most 2 MiB over 100 steps with evaluation and saving
  baseline  peak RSS minus the plan is the same for any batch: within max(4 MiB, 1 %) over batch 1 to 16
  refusal   a model that cannot fit the budget ends with exit status 3 within a second of a processor, and takes no memory
The model of `baseline` has 4 layers of 128 channels and 20,000 tokens; GPT_TRAIN_MEMORY_124M=1 takes GPT-2 124M (about 2
minutes), for published figures.
"""

import json
import os
import shutil
import subprocess

from checks import GPT_TRAIN, LONG, check, end, is_instrumented, metrics, patience, ran, skip, write

MIB = 1 << 20
STEPS = 110 if LONG else 60
GROWTH_MAX = 2 * MIB
VARIATION_MAX = 4 * MIB
REFUSAL_SECONDS = patience(1.0)  # of processors
REFUSAL_RSS_MAX = 128 * MIB


def write_tokens(folder, vocab):
    """Any tokens do; only the sizes matter."""
    for split in ("train", "val"):
        write(os.path.join(folder, split + ".bin"), b"".join((i * 7919 % vocab).to_bytes(2, "little") for i in range(20000)))


def rss_bytes(pid, field):
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith(field + ":"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def ended(process):
    """Returns exit status, peak RSS in bytes and processor seconds; the process's output must have been read or redirected to
    a file."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime


def plan_bytes(arguments):
    text = subprocess.run([GPT_TRAIN] + arguments + ["--plan=json"], stdout=subprocess.PIPE, check=True).stdout
    return json.loads(text)["bytes"]["arena"]


def growth():
    """Samples the process from outside while it trains, evaluates and saves."""
    out = "growth"
    arguments = ["--dataset=./small", "--n_layer=3", "--n_head=4", "--n_embd=64", "--block_size=32",
                 "--batch_size=8", "--gradient_accumulation_steps=2", "--micro_batch=3", "--vocab_size=2000", "--eval_iters=3",
                 "--eval_interval=10", f"--max_iters={STEPS - 1}", "--threads=2", "--dropout=0.1"]
    process = subprocess.Popen([GPT_TRAIN] + arguments + ["--out_dir=" + out], stdout=subprocess.PIPE, text=True)
    warm, largest, saves, last = 0, 0, 0, ""
    for line in process.stdout:
        last = line
        saves += line.startswith("saving checkpoint")
        if warm == 0 and line.startswith("iter 0:"):
            warm = rss_bytes(process.pid, "VmRSS")
        elif warm > 0:
            largest = max(largest, rss_bytes(process.pid, "VmHWM"))
    status, _, _ = ended(process)
    check(status == 0, f"growth: exit status {status}")
    check(saves >= STEPS // 11, f"growth: {saves} saves")
    check(warm > 0 and largest > 0, f"growth: no RSS seen ({warm}, {largest})")
    check(largest - warm <= GROWTH_MAX or is_instrumented(GPT_TRAIN), f"growth: from {warm} to at most {largest} bytes")
    check(last == f"Try it: gpt-sample --out_dir={out}\n", f"growth: the last line is {last!r}")
    lines = metrics(out)
    check(len(lines) == STEPS, f"growth: {len(lines)} lines of metrics")
    plan = plan_bytes(arguments)
    check(all(line["planned_bytes"] == line["allocated_bytes"] == plan for line in lines), f"growth: {plan}, {lines[0]}")
    print(f"growth: {(largest - warm) / 1024:.0f} KiB above {warm / MIB:.1f} MiB, plan {plan / MIB:.1f} MiB, {saves} saves")


def baseline():
    shape = ["--n_layer=4", "--n_head=4", "--n_embd=128", "--vocab_size=20000"]
    if os.environ.get("GPT_TRAIN_MEMORY_124M"):
        shape = ["--n_layer=12", "--n_head=12", "--n_embd=768", "--vocab_size=50304"]
    rests, plans = [], []
    for batch in (1, 8) if not LONG else (1, 2, 4, 8, 16):
        out = f"batch-{batch}"
        arguments = shape + ["--dataset=./gpt2", "--block_size=64", f"--batch_size={batch}",
                             "--gradient_accumulation_steps=1", "--max_iters=1", "--eval_iters=1",
                             "--always_save_checkpoint=False", "--threads=1"]
        with open("log", "w", encoding="ascii") as log:
            status, peak, _ = ended(subprocess.Popen([GPT_TRAIN] + arguments + ["--out_dir=" + out], stdout=log, stderr=log))
        check(status == 0, f"baseline: batch {batch}: exit status {status}")
        if status != 0:
            return
        line = metrics(out)[-1]
        check(line["planned_bytes"] == line["allocated_bytes"], f"baseline: {line}")
        plans.append(line["planned_bytes"])
        rests.append(peak - line["planned_bytes"])
        shutil.rmtree(out)
    bound = max(VARIATION_MAX, max(plans) // 100)
    print(f"baseline: plans {[round(plan / MIB, 1) for plan in plans]} MiB, "
          f"the rest {[round(rest / MIB, 1) for rest in rests]} MiB")
    check(max(rests) - min(rests) <= bound, f"baseline: varies by {max(rests) - min(rests)}, at most {bound}")
    check(min(rests) > 0, "baseline: the arena is committed")
    check(sorted(plans) == plans and plans[-1] > plans[0], f"baseline: plans {plans}")


def refusal():
    """A budget that the weights alone exceed, for a batch of a dozen up to one whose program would have millions of
    ops."""
    for batch in (12, 1 << 16, 1 << 20):
        out = f"refused-{batch}"
        arguments = [f"--batch_size={batch}", "--block_size=1024", "--vocab_size=50304", "--memory_budget=1GiB", "--dataset=./gpt2"]
        process = subprocess.Popen([GPT_TRAIN] + arguments + ["--out_dir=" + out], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        text, error = process.stdout.read(), process.stderr.read()
        status, peak, seconds = ended(process)
        errors = [line for line in error.splitlines() if line.startswith("gpt-train: error")]
        check(status == 3, f"refusal of batch {batch}: exit status {status}, {error!r}")
        check(seconds <= REFUSAL_SECONDS, f"refusal of batch {batch}: {seconds:.2f} s")
        check(peak <= REFUSAL_RSS_MAX, f"refusal of batch {batch}: {peak} bytes")
        check(len(errors) == 1 and "memory_budget allows 1.00 GiB" in errors[0], f"refusal of batch {batch}: {error!r}")
        check(text == "", f"refusal of batch {batch}: printed {text!r}")
        check(not os.path.exists(os.path.join(out, "metrics.jsonl")), f"refusal of batch {batch}: metrics were begun")
        planned = ran(GPT_TRAIN, *arguments, "--plan")
        check(planned.returncode == 3, f"plan of batch {batch}: {planned.returncode} {planned.stderr}")
        print(f"refusal of batch {batch}: {1e3 * seconds:.0f} ms, {peak / MIB:.1f} MiB")


def main():
    if not os.path.isdir("/proc/self"):
        skip("memory", "no /proc on this system")
        return
    write_tokens("small", 2000)
    write_tokens("gpt2", 20000)
    growth()
    refusal()
    if is_instrumented(GPT_TRAIN):
        skip("memory_process", "what a process takes is the sanitizer's too")
    else:
        baseline()


end(main)
