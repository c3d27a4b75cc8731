#!/usr/bin/env python3
"""Graphs and asynchronous updates in the emulated cuda backend (tests/cuda_on_cpu): the same bytes, without waits.

  replay    runs with --cuda_graphs=auto and off leave the same checkpoint, losses and norms, with dropout, a smaller
            last micro-step, evaluations and a resume; one replays graphs, the other launches kernels
  ahead     uploads have their own stream: batches arrive while kernels run, at any time, with the same bytes; without
            graphs there is one stream
  samples   gpt-sample writes the same text both ways
  waiting   an update whose results are not logged never waits; a logged one waits once; with float16 each update waits
            once, because its loss scale depends on the previous one
  lagging   rare logging gives the same numbers as logging every update, and a run that diverges ends with the same line
  refused   each step of recording fails: one note, kernels are launched, the same bytes, no leak
  failing   a replay, or a kernel in it, fails: one line, exit status 1, the previous checkpoint
A build with --enable-debug inspects every op and replays nothing: only bytes and messages are compared.  Prints
"checks: P passed, F failed, S skipped".
"""
import json
import os
import subprocess
import sys

from cuda_common import (BUILD, GPT_SAMPLE_CUDA, GPT_TRAIN_CUDA, Run, TINY, Work, check, checkpoint, finish,
                         leave_without_programs, losses, some)

COMMON = ["--backend=cuda", "--dropout=0.1", "--lr_decay_iters=12"]
STEPS = ("cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiateWithFlags", "cudaGraphUpload")
REFUSAL = "cannot be kept as a graph"


def is_debug():
    with open(os.path.join(BUILD, "config.h"), encoding="utf-8") as file:
        return "\n#define GT_DEBUG 1" in file.read()


DEBUG = is_debug()


def good(run):
    check(run.status == 0, run.said())
    check(run.report is not None and run.report["objects_alive"] == 0, "something was never given back: " + run.said())
    return run


def replay(work):
    for dtype in some(("bfloat16", "float32", "float16")):
        files = {}
        for word in ("auto", "off"):
            out = f"replay-{dtype}-{word}"
            arguments = [*COMMON, f"--dtype={dtype}", f"--cuda_graphs={word}", "--micro_batch=3", "--eval_interval=3"]
            good(work.train(out, *arguments, "--max_iters=4", "--batch_size=4"))
            run = good(work.train(out, *arguments, "--max_iters=8", "--batch_size=4", "--init_from=resume"))
            files[word] = checkpoint(work.path(out)), losses(work.path(out))
            replays = run.calls("cudaGraphLaunch")
            check(replays == 0 if word == "off" or DEBUG else replays >= 4 * 4 and run.report["replayed"] > 10 * replays,
                  f"{dtype}, {word}: {replays} replays of {run.report['replayed']} kernels")
            beside = run.report["copies_beside"]
            check(beside == 0 if word == "off" else DEBUG or beside >= 4 * 4, f"{dtype}, {word}: {beside} uploads beside kernels")
            if word == "off":
                check(run.calls("cudaStreamBeginCapture") == 0, "captured, although graphs are off")
                check(run.calls("cudaStreamWaitEvent") == 0, "a second stream, although everything was to follow in one")
        check(len(files["auto"][0]) >= 2 and len(files["auto"][1]) == 9, f"{dtype}: no checkpoint, or not 9 steps")
        check(files["auto"] == files["off"], f"{dtype}: graphs leave other bytes, losses or norms")


def ahead(work):
    """Uploads that arrive before the host waits for them."""
    arguments = [*COMMON, "--dtype=bfloat16", "--max_iters=5", "--eval_interval=3"]
    files = []
    for when in ("early", "late"):
        run = good(work.train(f"ahead-{when}", *arguments, COPIES=when))
        files.append((checkpoint(work.path(f"ahead-{when}")), losses(work.path(f"ahead-{when}"))))
        check(DEBUG or run.report["copies_beside"] >= 5 * 2, f"{when}: {run.report['copies_beside']} uploads beside kernels")
    check(len(files[0][0]) >= 2 and files[0] == files[1], "when uploads arrive changes the bytes")


def samples(work):
    """Generates one token at a time, where the cost of launches is highest."""
    text, data = os.path.join(work.folder, "text.txt"), os.path.join(work.folder, "letters")
    with open(os.path.abspath(__file__), "rb") as source, open(text, "wb") as file:
        file.write(source.read())
    done = subprocess.run([os.environ["GPT_PREPARE"], "--tokenizer=chars", f"--out-dir={data}", text], check=False,
                          capture_output=True, text=True)
    check(done.returncode == 0, f"gpt-prepare: {done.stderr}")
    good(Run(GPT_TRAIN_CUDA, f"--dataset={data}", f"--out_dir={work.path('letters-out')}",
             *(word for word in TINY if "vocab" not in word), *COMMON, "--dtype=bfloat16", "--max_iters=2", "--eval_interval=2",
             work=work.folder))
    texts = []
    for word in ("auto", "off"):
        run = good(Run(GPT_SAMPLE_CUDA, f"--out_dir={work.path('letters-out')}", "--backend=cuda", "--num_samples=2",
                       "--max_new_tokens=24", f"--cuda_graphs={word}", work=work.folder))
        texts.append(run.out)
        check((run.calls("cudaGraphLaunch") >= 24) == (word == "auto" and not DEBUG), f"{word}: {run.report}")
    check(texts[0] == texts[1] and len(texts[0]) > 24, f"samples differ: {texts}")


def waits(work, dtype, interval, steps):
    """Returns how often a run of so many steps waited."""
    run = good(work.train(f"waits-{dtype}-{interval}-{steps}", *COMMON, f"--dtype={dtype}", f"--max_iters={steps - 1}",
                          f"--log_interval={interval}", "--eval_interval=100", "--learning_rate=1e-3"))
    return run.report["waits_after_replay"], checkpoint(work.path(f"waits-{dtype}-{interval}-{steps}"))


def waiting(work):
    for dtype, interval, each in some((("bfloat16", 100, 0), ("bfloat16", 1, 1), ("float16", 100, 1), ("float32", 100, 0)), 3):
        (few, _), (many, _) = (waits(work, dtype, interval, steps) for steps in (5, 11))
        if not DEBUG:
            check(few > 0, "nothing ever waited, so that nothing was counted")
            check(many - few == 6 * each,
                  f"{dtype}, logged every {interval}: {many - few} waits in 6 updates, not {6 * each}")
    seldom, always = (waits(work, "bfloat16", interval, 11)[1] for interval in (100, 1))
    check(len(seldom) >= 2 and seldom == always, "how often is logged changes the bytes")


def by_iter(out):
    with open(os.path.join(out, "metrics.jsonl"), encoding="ascii") as file:
        lines = [json.loads(line) for line in file]
    return {line["iter"]: (line["loss"], line["grad_norm"], line["lr"], line["skipped"]) for line in lines if "loss" in line}


def lagging(work):
    seen = {}
    for interval in (1, 4, 40):
        good(work.train(f"lag-{interval}", *COMMON, "--dtype=bfloat16", "--max_iters=13", f"--log_interval={interval}",
                        "--eval_interval=10"))
        seen[interval] = by_iter(work.path(f"lag-{interval}"))
    check(sorted(seen[1]) == list(range(14)) and sorted(seen[4]) == list(range(0, 14, 4)) and sorted(seen[40]) == [0],
          f"other steps were logged: {[sorted(steps) for steps in seen.values()]}")
    for interval in (4, 40):
        check(all(seen[1][step] == numbers for step, numbers in seen[interval].items()),
              f"a log line of every {interval}th step has other numbers than one of every step")
    for interval in (1, 100):
        run = work.train(f"diverge-{interval}", "--backend=cuda", "--dtype=float32", "--max_iters=400", "--warmup_iters=0",
                         "--decay_lr=False", "--learning_rate=1000", "--weight_decay=1000", "--grad_clip=0", "--eval_interval=1000",
                         f"--log_interval={interval}")
        skipped = [line for line in run.err.splitlines() if "this update is skipped" in line]
        check(run.status == 1 and len(run.errors) == 1 and "10 updates in a row were skipped" in run.errors[0], run.said())
        check(len(skipped) == 10, f"every {interval}: {len(skipped)} skipped updates were said, not 10")
        seen["diverged", interval] = skipped
        check(not checkpoint(work.path(f"diverge-{interval}")), "a model that has diverged was saved")
    check(seen["diverged", 1] == seen["diverged", 100], "what is said of skipped updates depends on the log's interval")


def refused(work):
    arguments = [*COMMON, "--dtype=bfloat16", "--max_iters=3", "--eval_interval=2"]
    clean = good(work.train("recorded", *arguments))
    check(REFUSAL not in clean.out + clean.err, "said without reason")
    wanted = checkpoint(work.path("recorded"))
    for step in STEPS:
        count = clean.calls(step)
        check(count > 3, f"{step} was called {count} times")
        for number in some((1, 3)):
            out = f"refused-{step}-{number}"
            run = good(work.train(out, *arguments, FAIL=f"{step}:{number}"))
            said = (run.out + run.err).count(REFUSAL)
            check(said == 1 and not run.errors, f"{step}:{number}: said {said} times: {run.err[-400:]}")
            check(checkpoint(work.path(out)) == wanted, f"{step}:{number}: other bytes")
            check(run.calls(step) == number, f"{step}:{number}: tried again {run.calls(step)} times")


def failing(work):
    arguments = [*COMMON, "--dtype=bfloat16", "--max_iters=6", "--eval_interval=4"]
    good(work.train("replayed", *COMMON, "--dtype=bfloat16", "--max_iters=2", "--eval_interval=2"))
    before = checkpoint(work.path("replayed"))
    for function, error in (("cudaGraphLaunch:1", ""), ("cudaGraphLaunch:4", ""),
                            ("cudaGraphLaunch:3", ":cudaErrorIllegalAddress"), ("cudaGraphLaunch:2", ":cudaErrorMemoryAllocation")):
        run = work.train("replayed", *arguments, "--init_from=resume", FAIL=function + error)
        if DEBUG:
            continue
        check(run.status in (1, 3) and len(run.errors) == 1, f"{function}{error}: {run.said()}")
        check(checkpoint(work.path("replayed")) == before, f"{function}{error}: the checkpoint changed")


def main():
    leave_without_programs("cuda_graphs")
    with Work() as work:
        for part in (replay, ahead, samples, waiting, lagging, refused, failing):
            part(work)
    return finish()


if __name__ == "__main__":
    sys.exit(main())
