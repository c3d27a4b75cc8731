#!/usr/bin/env python3
"""Ranks: several processes train to the bytes of one.

  bytes     1, 2 and 4 ranks with 4 parts write the same files and losses, in each dtype and state format, and of Gemma,
            Phi and Qwen3.5, on the CPU; each rank takes the bytes that were planned
  reduced   with reduce_dtype=bfloat16 too, and the losses stay close to those with float32
  steady    the resident memory of each rank does not grow
  budget    (in make check-long) the ranks of a CPU stay within one budget together
  converted ranks change the state format as one does
  states    a rank plans its share of moments and masters, and of gradients where a part is one micro-step
  diverged  a rank names the first value that is not finite by itself
  full      a disk that is full on rank 0 leaves nothing half written, and all ranks go on
  killed    kill -9 of a rank ends all of them with one line; a resume with another number of ranks gives the bytes of one go
  stopped   a rank that gives no sign of life is named, and all end in time; a signal saves, and the run goes on
  cards     ranks on emulated cards write the bytes of one, also where they share cards; unlike ones are refused
  plans     bytes on the wire, and their time with --link
  refused   numbers that do not divide, missing data, too small a budget: one line, and nothing stays behind
"""

import json
import os
import resource
import signal
import subprocess
import time

from cuda_common import GPT_TRAIN_CUDA
from checks import (GEMMA, GPT_TRAIN, GRANITE, LONG, PHI, QWEN3_5, SMOLLM3, check, end, error_lines, files, has_backend,
                    is_instrumented, make_tokens, metrics, patience, ran, read, read_json, run, skip, some, wait_for)

TINY = ["--dataset=./data", "--n_layer=2", "--n_head=2", "--n_embd=36", "--block_size=24", "--batch_size=4",
        "--micro_batch=3", "--gradient_accumulation_steps=4", "--vocab_size=96", "--dropout=0.1", "--bias=True",
        "--lr_decay_iters=50", "--warmup_iters=2", "--eval_iters=2", "--eval_interval=3", "--parts=4"]
BF16 = "--dtype=bfloat16"
LLAMA = ["--arch=llama", "--optimizer=muon", BF16] # three matrices in one parameter
REDUCED = ["--reduce_dtype=bfloat16"]
TODAY = ([BF16, *GEMMA], [BF16, *PHI, "--optimizer=muon"], [BF16, *QWEN3_5])
FORMATS = ([], *TODAY, [BF16], [BF16, "--state_format=sr_8bit"], LLAMA, ["--optimizer=muon"], ["--dtype=float16"],
           [BF16, "--state_format=sr", "--offload=states"], [BF16, "--state_format=sr_bf16"], [BF16, "--offload=all"],
           [BF16, "--state_format=sr_8bit_full", "--offload=states"], [*LLAMA, "--state_format=sr_bf16", "--offload=states"], GRANITE, [BF16, *SMOLLM3])


def train(out, *arguments, status=0, program=GPT_TRAIN, cards=""):
    return run(program, *TINY, "--backend=cpu", "--threads=1", f"--out_dir={out}", "--max_iters=3", *arguments, status=status,
               timeout=patience(60), environment={"GT_CUDA_ON_CPU_DEVICES": cards})


def start(out, *arguments):
    """Starts a run that does not end by itself; returns it and the processes of its ranks, once it has saved."""
    run = subprocess.Popen([GPT_TRAIN, *TINY, "--backend=cpu", f"--out_dir={out}", "--max_iters=1000000", *arguments],
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: os.path.exists(f"{out}/trainer_state.json"))
    with open(f"/proc/{run.pid}/task/{run.pid}/children", encoding="ascii") as file:
        return run, sorted(map(int, file.read().split()))


def ended(run, status, text):
    """Waits for the run; returns the seconds that it took to end."""
    begin = time.monotonic()
    said = run.communicate(timeout=patience(30))[1]
    check(run.returncode == status and text in said, f"exit status {run.returncode}, not {status}, '{text}': {said[-600:]}")
    check(said.count(" error") == (status == 1), f"at most one error line: {said[-600:]}")
    return time.monotonic() - begin


def results(out):
    """Returns weights, moments, and the losses in full precision."""
    return [*files(out, ".safetensors").items()], [(line["iter"], line["loss"]) for line in metrics(out)], \
        [(line["iter"], line["val_loss"]) for line in metrics(out, "val_loss")]


def resumed(out, ranks, *keys):
    """Resumes a run for two updates, and compares it with one that was never interrupted."""
    last = read_json(f"{out}/trainer_state.json")["iter"] + 1
    train(out, "--init_from=resume", "--strict_resume=True", f"--ranks={ranks}", f"--max_iters={last}", *keys)
    train(f"{out}-whole", f"--max_iters={last}", *keys)
    check([*files(out, ".safetensors").items()] == [*files(f"{out}-whole", ".safetensors").items()],
          f"{out}: resumed at {last - 1} with {ranks} ranks, the bytes of one go")


def compare(name, counts, *arguments):
    train(f"{name}-1", *arguments)
    for ranks in counts:
        out = f"{name}-{ranks}"
        done = train(out, f"--ranks={ranks}", *arguments)
        check(results(out) == results(f"{name}-1"), f"{ranks} ranks: the bytes and losses of one, {arguments}")
        memory = [line for line in done.stdout.splitlines() if line.startswith("Memory: ")]
        planned, allocated = memory[0].split(" ", 1)[1].split(", ")[:2]
        check(planned.split()[:2] == allocated.split()[:2], f"{ranks} ranks: as many bytes as planned, not {memory}")


def bytes_of_one():
    for i, keys in enumerate(some(FORMATS, 7)):
        steps = ["--micro_batch=4"] * (i % 2) # a part is one micro-step, or two
        compare(f"format{i}", (2, 4) if i == 0 else (2,), *keys, *steps)
        if keys in TODAY:
            resumed(f"format{i}-2", 2, *keys, *steps)
    for name, *keys in (("host",), ("host-step", "--micro_batch=4")):
        train(name, "--recompute=full", "--offload=all", "--ranks=2", BF16, *keys)
        train("device", "--recompute=full", BF16, *keys)
        check(results(name) == results("device"), f"states, gradients and weights in the ranks' host memory: the bytes of one rank's on the device, {keys}")
    large = ["--n_embd=256", "--vocab_size=9000", "--micro_batch=4", "--n_layer=1"] # several pieces to exchange and to save
    compare("pieces", (2,), "--max_iters=1", *large)
    for name, ranks in (("pieces-1", 4), ("pieces-2", 1)):
        train(name, "--init_from=resume", "--max_iters=2", f"--ranks={ranks}", *large)
    check(results("pieces-1") == results("pieces-2"), "resumed from several pieces: the same bytes")


def resident(pid, file="status", field="VmRSS:"):
    with open(f"/proc/{pid}/{file}", encoding="ascii") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))


def steady():
    if is_instrumented(GPT_TRAIN):  # AddressSanitizer keeps freed memory for a while
        return skip("ranks_growth", "a build with a sanitizer")
    run, pids = start("steady", "--ranks=2")
    seen = []
    for steps in (50, 150):
        wait_for(lambda: len(metrics("steady")) >= steps, 60)
        seen.append([resident(pid) for pid in pids])
    run.terminate()
    ended(run, 143, "stopped by signal 15")
    growth = [after - before for before, after in zip(*seen)]
    check(len(growth) == 2 and max(growth) <= 1 << 20, f"bytes that ranks grew by in 100 steps: {growth}")


def budget():
    if not LONG:
        return
    wide = ["--n_layer=4", "--n_head=4", "--n_embd=256", "--vocab_size=8192", "--block_size=256", "--batch_size=8", "--micro_batch=0",
            "--eval_iters=1", "--eval_interval=1", "--threads=1"]
    run, pids = start("budget", "--ranks=4", "--memory_budget=600MiB", *wide)
    most = 0
    for _ in range(50): # pages that ranks share count once
        most = max(most, sum(resident(pid, "smaps_rollup", "Pss:") for pid in (run.pid, *pids)))
        time.sleep(0.05)
    run.terminate()
    ended(run, 143, "stopped by signal 15")
    check(len(pids) == 4 and 300 << 20 < most <= 600 << 20, f"four ranks in 600 MiB took {most} bytes")


def reduced():
    for keys in some(([], ["--optimizer=muon"], [BF16, "--state_format=sr_8bit"])):
        train("exact", *keys)
        compare("reduced", (2, 4), *REDUCED, *keys)
        apart = max(abs(a - b) for (_, a), (_, b) in zip(results("exact")[1], results("reduced-1")[1], strict=True))
        check(0 < apart < 2e-3, f"losses with parts in bfloat16 are off by {apart}, {keys}")


def converted():
    """Ranks change the state format as one rank does."""
    for name, before, after in some((("leaner", "master", "sr_8bit"), ("back", "sr_8bit", "master")), 1):
        results_of = []
        for ranks in (1, 2):
            train(f"{name}{ranks}", BF16, f"--state_format={before}", f"--ranks={ranks}", "--max_iters=2")
            train(f"{name}{ranks}", f"--state_format={after}", f"--ranks={ranks}", "--init_from=resume", "--convert_states=True")
            results_of.append(results(f"{name}{ranks}"))
        check(results_of[0] == results_of[1], f"2 ranks: from {before} to {after} with the bytes of one")


def states():
    """A rank has its share of the moments and masters.  It has one whole gradient of fp32 or, if a part is one micro-step,
    its share of the sums and those gradients that are not complete, or not yet with the others."""
    keys = [*TINY, BF16, "--backend=cpu", "--n_embd=256", "--n_layer=4", "--plan=json"]
    each = {}
    for ranks, *steps in ((1,), (2,), (4,), (4, "--micro_batch=4")):
        run = subprocess.run([GPT_TRAIN, *keys, f"--ranks={ranks}", *steps], check=True, capture_output=True, text=True)
        each[ranks + len(steps)] = json.loads(run.stdout)["categories"]
    for ranks in (2, 4):
        for states_of in ("moments", "master"):
            part = each[ranks][states_of] / each[1][states_of]
            check(part <= 1 / ranks + 0.01, f"{ranks} ranks: a share of {part:.4f} of the {states_of}")
    check(each[1]["gradients"] == 2 * each[4]["gradients"], f"the sum takes no other gradient: {each}")
    check(each[5]["gradients"] < 0.6 * each[4]["gradients"], f"gradients of one micro-step are divided: {each}")


def diverged():
    """A rank repeats an update without the others, also where micro-steps exchange."""
    for steps in (3, 4):
        run = train("diverged", "--ranks=2", "--dtype=float16", f"--micro_batch={steps}", "--learning_rate=1000", "--warmup_iters=0",
                    "--max_iters=30", status=1)
        check("iter 1: the first value that is not finite: " in run.stderr and "micro-step 1 of" in run.stderr, run.stderr)


def full_disk():
    """If rank 0 cannot save, all go on together and end with its error."""
    run = subprocess.Popen([GPT_TRAIN, *TINY, "--backend=cpu", "--out_dir=full", "--ranks=2", "--max_iters=5"], text=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                           preexec_fn=lambda: (signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
                                               resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))))
    said = run.communicate(timeout=patience(30))[1]
    check(run.returncode == 1 and "iter 3 could not be saved; this run has saved no checkpoint; training continues" in said, said)
    check(not os.path.exists("full/trainer_state.json"), "nothing is half saved")


def cards():
    if not os.path.exists(GPT_TRAIN_CUDA):
        return skip("ranks_cards", "no C++17 compiler, so that the cuda backend cannot be emulated")
    keys = {"program": GPT_TRAIN_CUDA, "cards": "89:16g:L4,89:16g:L4,75:16g:T4"}
    card = ["--backend=cuda", "--max_iters=0", "--n_embd=16", "--block_size=8", "--eval_iters=1"]
    train("card1", *card, **keys)
    train("card2", *card, "--ranks=2", **keys)
    check(results("card2") == results("card1"), "two cards: the bytes and losses of one")
    keys["cards"] = "89:16g:L4,89:16g:L4" # two ranks each: they divide its memory
    train("card4", *card, "--ranks=4", "--dtype=float16", "--optimizer=muon", "--offload=all", **keys)
    train("card1h", *card, "--dtype=float16", "--optimizer=muon", **keys)
    check(results("card4") == results("card1h"), "shared cards, and host memory: the bytes and losses of one")
    keys["cards"] = "89:16g:L4,75:16g:T4"
    for status, text, arguments in ((2, "rank 1 computes in float16", ["--ranks=2"]),
                                    (2, "devices='0,0' names 0 twice", ["--devices=0,0"]),
                                    (2, "names fewer cards than the 4 ranks", ["--devices=0,1", "--ranks=4"])):
        lines = error_lines(train("cards", *card, *arguments, status=status, **keys))
        check(len(lines) == 1 and text in lines[0], f"one error line with '{text}', not {lines}")


def plans():
    """What ranks exchange, by a formula of its own, and that a faster link makes them faster."""
    keys = ["--plan=json", "--ranks=8", "--device_profile=rtx4070", "--dtype=bfloat16", "--vocab_size=50304", "--n_layer=12",
            "--n_head=12", "--n_embd=768", "--block_size=1024", "--bias=True", "--micro_batch=12", "--batch_size=12",
            "--gradient_accumulation_steps=40", "--parts=8", "--backend=auto"]
    last, vectors = 0.0, 12 * 13 * 768 + 2 * 768 # which each rank adds, and updates, as a whole
    matrices = 124439808 + 47 * 768 - vectors # 47: rows that pad GPT-2's vocabulary
    for link, rate in (("1GbE", 0.1175e9), ("10GbE", 1.175e9), ("12GB/s", 12e9)):
        plan = json.loads(train("plans", *keys, f"--link={link}").stdout)
        ranks, step = plan["ranks"], plan["forecast"]["seconds_per_step"]
        sent = 7 / 8 * matrices * (4 + 2) + 7 * vectors * 4
        check(abs(ranks["exchange_bytes"] / sent - 1) < 1e-6, f"bytes on the wire: {ranks} {sent}")
        check(abs(ranks["exchange_seconds"] / (sent / rate) - 1) < 1e-3, f"their time over {link}: {ranks}")
        speed_up = ranks["alone_seconds_per_step"] / step
        check(last < speed_up < 8, f"{link}: {speed_up:.2f} times as fast as one rank, after {last:.2f}")
        last = speed_up
        check(ranks["smallest_bytes"] == ranks["largest_bytes"] > 0, f"AdamW's ranks are alike: {ranks}")
    muon = json.loads(train("plans", "--plan=json", "--optimizer=muon", "--parts=5", "--batch_size=15", "--ranks=5").stdout)["ranks"]
    check(muon["smallest_bytes"] < muon["largest_bytes"], f"five ranks have eight matrices of Muon: {muon}")
    halved = json.loads(train("plans", *keys, *REDUCED).stdout)["ranks"]["exchange_bytes"]
    check(abs(halved / (sent - 7 / 8 * matrices * 2 - 7 * vectors * 2) - 1) < 1e-6, f"gradients of half the bytes: {halved}")
    lines = error_lines(train("plans", *keys, "--link=fast", status=2))
    check(len(lines) == 1 and "link='fast'" in lines[0], f"a link that is none: {lines}")


def killed():
    for victim, ranks, *keys in some(((1, 4, BF16, "--state_format=sr_8bit"), (0, 1), (1, 2, *LLAMA)), 2):
        run, pids = start(f"killed{victim}{ranks}", "--ranks=2", *keys)
        check(len(pids) == 2, f"two processes: {pids}")
        os.kill(pids[victim], signal.SIGKILL)
        ended(run, 1, f"rank {victim} was ended by signal 9, last seen at iter ")
        check(not any(os.path.exists(f"/proc/{pid}") for pid in pids), "no process stays")
        resumed(f"killed{victim}{ranks}", ranks, *keys)
    run, pids = start("orphans", "--ranks=2")
    run.kill()
    run.communicate()
    time.sleep(patience(0.3))
    left = [pid for pid in pids if os.path.exists(f"/proc/{pid}") and read(f"/proc/{pid}/cmdline")] # not a zombie
    check(left == [], f"ranks end with the process that forked them: {left}")


def stopped():
    run, pids = start("stopped", "--ranks=2", "--rank_timeout=1")
    os.kill(pids[1], signal.SIGSTOP)
    seconds = ended(run, 1, "rank 1 has given no sign of life for 1 s, last seen at iter ")
    check(seconds < patience(3), f"ended within the limit and 2 s: {seconds:.1f} s")
    for victim in some(("launcher", "rank 1")):
        run, pids = start(f"signal-{victim}", "--ranks=2")
        os.kill(run.pid if victim == "launcher" else pids[1], signal.SIGTERM)
        ended(run, 143, "stopped by signal 15; saving")
        resumed(f"signal-{victim}", 4)


def refused():
    for status, text, arguments in (
            (2, "ranks=3 does not divide the 4 parts of an update", ["--ranks=3"]),
            (2, "ranks=8 does not divide the 4 parts of an update", ["--ranks=8"]),
            (2, "parts=5 does not divide the 16 sequences of an update", ["--ranks=5", "--parts=5"]),
            (2, "cannot open this dataset folder", ["--ranks=2", "--dataset=./nothing"]),
            (3, "not enough memory", ["--ranks=2", "--memory_budget=100MiB"])):
        lines = error_lines(train("refused", *arguments, status=status))
        check(len(lines) == 1 and text in lines[0], f"one error line with '{text}', not {lines}")
        check(not os.path.exists("refused"), f"nothing stays behind: {arguments}")
    if not has_backend("mpi"):
        done = ran(GPT_TRAIN, *TINY, "--out_dir=refused", env={**os.environ, "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0"})
        check(done.returncode == 2 and "this build has no MPI" in done.stderr and "--ranks=2" in done.stderr, done.stderr)


if __name__ == "__main__":
    end(bytes_of_one, reduced, steady, budget, converted, states, diverged, full_disk, cards, plans, killed, stopped, refused,
        begin=lambda: make_tokens("data"))
