#!/usr/bin/env python3
"""A run that trains, evaluates, saves, samples, is stopped and resumed: nothing may grow.

A tiny model trains for SOAK_MINUTES (default: 0.1 in `make check`, 15 with CHECK_LONG=1); it is stopped about ten
times, alternately by SIGTERM and SIGKILL, and resumed.  The resident memory and the open files of each process are
sampled several times a second.  After the first evaluations of a process its memory may grow by no more than
GROWTH_KIB, however long it lives, and in the last quarter of the samples it has no more open files than in the first;
later processes use no more than the first; the folder keeps its number of files; every resume starts at the recorded
iteration, and every loss is finite.  The metrics count the memory requested from the device, not what is in use: that
is the plan's bytes in every line.

The emulated cuda backend shows what is in use: its run-time library records all live objects at each wait.  After the
end of the first evaluation there may be no additional byte, allocation, stream, event or graph, and none at the end of
a process.

GPT_TRAIN_BACKEND selects the backend of the other runs.  With cuda, nvidia-smi also reports the memory in use on the
card, if available: within a process, and from process to process, it may grow by CARD_MIB, if no one else uses the
card.  Needs Linux's /proc.  Prints "checks: P passed, F failed, S skipped".
"""
import collections
import math
import os
import shutil
import signal
import subprocess
import time

import tiny

import cuda_common
from checks import GPT_PREPARE, check, end, is_instrumented, metrics, read, skip

MINUTES = float(os.environ.get("SOAK_MINUTES") or (15 if tiny.LONG else 0.1))
SEGMENTS = 10
FILES = 10  # of a folder with one checkpoint
SAMPLE_SECONDS = 0.1
LOOKS_MIN = 20
LATE_SECONDS = 300  # extra time for a process to warm up, or to save and end, on a busy machine
WARM_EVALUATIONS = 3
LATER_EVALUATIONS = 5  # of a sampled process
SANITIZED = is_instrumented(tiny.GPT_TRAIN)  # its processes include the sanitizer's memory
GROWTH_KIB = 512   # within a process, once it is warm
ACROSS_KIB = 2048  # between the processes of a soak: the loader and the allocator place things anew
CARD = os.environ.get("GPT_TRAIN_BACKEND") == "cuda" and shutil.which("nvidia-smi")
CARD_LOOKS = 10    # samples of the process for each sample of the card
CARD_MIB = 2       # the driver's allocation unit
EMULATED = 2 if not tiny.LONG else 4  # processes on the emulated card
CYCLES = 4 if not tiny.LONG else 40   # evaluations, with samples and saves, in each of them
LATE = 0.4    # the last share of the waits of an emulated process, in which it does not start any more
STEADY = 0.7  # the share of these waits, up to the end, during which the state on the device is constant
RUN = ["--dataset=./data", "--n_layer=2", "--n_head=2", "--n_embd=32", "--block_size=32", "--batch_size=4",
       "--gradient_accumulation_steps=2", "--eval_interval=50", "--eval_iters=2", "--log_interval=200", "--threads=1",
       "--dropout=0.1", "--sample_tokens=16", "--max_iters=1000000000", "--warmup_iters=100", "--out_dir=out"]


def prepare():
    tiny.make_bottles(4000)
    done = subprocess.run([GPT_PREPARE, "--tokenizer=bytes", "--out-dir=data", "text.txt"], capture_output=True,
                          text=True, timeout=60, check=False)
    check(done.returncode == 0, f"gpt-prepare: {done.stderr[-300:]}")


def look(pid):
    """Returns (resident KiB, open files) of a process; None when it is gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            resident = [int(line.split()[1]) for line in file if line.startswith("VmRSS:")]
        return (resident[0], len(os.listdir(f"/proc/{pid}/fd"))) if resident else None
    except (FileNotFoundError, ProcessLookupError):
        return None


def look_at_card():
    """Returns the MiB in use on the first card, as counted by the driver."""
    done = subprocess.run([CARD, "--query-gpu=memory.used", "--format=csv,noheader,nounits"], capture_output=True, text=True,
                          timeout=60, check=True)
    return int(done.stdout.split()[0])


def evaluations(log):
    return read(log).count(b"\nstep ")


def enough(seen, done):
    return len(seen) >= LOOKS_MIN and done >= WARM_EVALUATIONS + LATER_EVALUATIONS


def segment(number, seconds):
    """Runs one process.  Returns its samples once it was warm, [(resident, files)], those of the card, [MiB], and its
    exit status."""
    log = f"log-{number}"
    resume = ["--init_from=resume"] if number > 0 else []
    seen, card, done = [], [], 0
    with open(log, "w", encoding="utf-8") as output, open("errors", "a", encoding="utf-8") as errors, \
            subprocess.Popen([tiny.GPT_TRAIN, *RUN, *resume], env=tiny.ENVIRONMENT, stdout=output, stderr=errors) as process:
        end, late = time.monotonic() + seconds, time.monotonic() + seconds + LATE_SECONDS
        while process.poll() is None and (time.monotonic() < end or (not enough(seen, done) and time.monotonic() < late)):
            time.sleep(SAMPLE_SECONDS)
            done = evaluations(log)
            now = look(process.pid)
            if done >= WARM_EVALUATIONS and now is not None:
                seen.append(now)
                if CARD and len(seen) % CARD_LOOKS == 1:
                    card.append(look_at_card())
        process.send_signal(signal.SIGKILL if number % 3 == 2 else signal.SIGTERM)
        process.wait(timeout=LATE_SECONDS)
    check(enough(seen, done), f"process {number} was seen {len(seen)} times while warm, in {done} evaluations")
    return seen, card, process.returncode


def judge_segment(number, seen, status, iteration):
    expected = -signal.SIGKILL if number % 3 == 2 else 128 + signal.SIGTERM
    check(status == expected, f"process {number} ended with {status}, not {expected}: {tail('errors')}")
    if seen:
        grown = max(resident for resident, _ in seen) - seen[0][0]
        check(SANITIZED or grown <= GROWTH_KIB, f"process {number} grew by {grown} KiB")
        early, late = quarters([files for _, files in seen])
        check(min(late) <= min(early), f"process {number}: open files rose: first {early}, last {late}")
    now = tiny.contents("out").get("iter", 0)
    check(now > iteration, f"process {number} came from iteration {iteration} to {now}")
    # A process killed during a save may leave the previous checkpoint, and the file that it was writing.
    most = FILES if status != -signal.SIGKILL else FILES + 4
    check(0 < len(os.listdir("out")) <= most, f"the folder: {sorted(os.listdir('out'))}")
    return now


def judge_card(history):
    """`history` is the memory in use on the card, [MiB] for each process."""
    check(all(history), f"looks at the card: {list(map(len, history))}")
    for number, card in enumerate(history):
        check(max(card) <= card[0] + CARD_MIB, f"process {number}: the card's memory in use rose: {card[0]} to {max(card)} MiB")
    check(max(map(max, history)) <= history[0][0] + CARD_MIB, f"later processes take more of the card: {list(map(max, history))} MiB")
    print(f"the card: {sum(map(len, history))} looks, {min(map(min, history))} to {max(map(max, history))} MiB in use")


def quarters(values):
    """Returns the first and the last quarter.  A save briefly has more files open, so the callers compare minima."""
    count = max(1, len(values) // 4)
    return values[:count], values[-count:]


def tail(name):
    return read(name).decode(errors="replace")[-500:]


def judge_all(history, iteration):
    resident = [max(resident for resident, _ in seen) for seen in history if seen]
    files = [min(files for _, files in seen) for seen in history if seen]
    check(SANITIZED or max(resident) - resident[0] <= ACROSS_KIB, f"later processes are larger: {resident} KiB")
    check(max(files) <= files[0], f"open files of the processes: {files}")
    entries = metrics("out")
    memory = {(entry["planned_bytes"], entry["allocated_bytes"]) for entry in entries}
    check(len(memory) == 1 and all(planned == allocated for planned, allocated in memory), f"planned, asked for: {memory}")
    losses = [entry["loss"] for entry in entries]
    check(len(losses) > 1 and all(math.isfinite(loss) for loss in losses), f"{len(losses)} losses, all finite")
    check(losses[-1] < losses[0], f"it learns: {losses[0]} to {losses[-1]}")
    grown = max(max(resident for resident, _ in seen) - seen[0][0] for seen in history if seen)
    print(f"{MINUTES:g} minutes, {len(history)} processes, {iteration} updates, {sum(map(evaluations, logs(history)))} "
          f"evaluations with samples, {sum(len(seen) for seen in history)} looks: resident {min(resident)} to {max(resident)} "
          f"KiB, growth within a process at most {grown} KiB, {max(files)} open files")


def logs(history):
    return [f"log-{number}" for number in range(len(history))]


def emulated():
    """The same cycle on the emulated card: each process continues from the previous one."""
    if not os.path.exists(cuda_common.GPT_TRAIN_CUDA):
        skip("soak_cuda", "no C++17 compiler, so that the cuda backend cannot be emulated")
        return
    os.makedirs("emulated")
    os.chdir("emulated")
    prepare()
    seen, beside = [], []  # a plan has a row for each of the first iterations, so later processes have more
    for number in range(EMULATED):
        resume = ["--init_from=resume"] if number > 0 else []
        done = cuda_common.Run(cuda_common.GPT_TRAIN_CUDA, "--dataset=./data", "--out_dir=out", *cuda_common.TINY, "--eval_interval=1",
                               "--sample_tokens=4", "--dropout=0.1", "--backend=cuda", f"--max_iters={CYCLES * (number + 1)}",
                               *resume, HISTORY="history")
        seen.append(judge_device(f"emulated process {number}", done))
        if seen[-1]:
            beside.append((seen[-1][0] - metrics("out")[-1]["planned_bytes"], *seen[-1][1:]))
    check(len(set(beside[1:])) == 1, f"later emulated processes hold other than earlier ones, beside the plan: {beside}")
    done = cuda_common.Run(cuda_common.GPT_SAMPLE_CUDA, "--out_dir=out", "--num_samples=3", "--max_new_tokens=4", "--start=a",
                           "--backend=cuda", HISTORY="history")
    seen.append(judge_device("emulated sample", done))
    print(f"emulated card: {EMULATED * CYCLES} evaluations with samples and saves; bytes, pinned bytes, allocations and objects of "
          f"the runs and of gpt-sample: {seen}")


def judge_device(what, done):
    """Checks that the live objects are constant from early on to the closing, and all released at the end.  Returns
    that state."""
    check(done.status == 0, f"{what}: {done.said()}")
    if done.status != 0:
        return None
    report = done.report
    states = [tuple(map(int, line.split())) for line in read("history").decode().splitlines()]
    late = states[int((1 - LATE) * len(states)):]
    held, steady = collections.Counter(late).most_common(1)[0]
    more = [state for state in states[states.index(held):] if any(now > then for now, then in zip(state, held))]
    check(not more, f"{what}: more than {held} is alive at {len(more)} later waits: {more[-1:]}")
    check(steady >= STEADY * len(late), f"{what}: {held} at {steady} of {len(late)} late waits: {sorted(set(late))[-5:]}")
    check(report["live_bytes"] == 0 and report["objects_alive"] == 0,
          f"{what}: at the end {report['live_bytes']} bytes and {report['objects_alive']} objects are alive")
    return held


def main():
    if not os.path.isdir("/proc/self/fd"):
        skip("soak", "no /proc")
        return
    history, cards, iteration = [], [], 0
    prepare()
    segments = max(3, min(SEGMENTS, int(MINUTES * 60 / 4)))
    for number in range(segments):
        seen, card, status = segment(number, MINUTES * 60 / segments)
        history.append(seen)
        cards.append(card)
        iteration = judge_segment(number, seen, status, iteration)
    judge_all(history, iteration)
    if CARD:
        judge_card(cards)
    emulated()


end(main)
