#!/usr/bin/env python3
"""Graphs and asynchronous updates in the emulated cuda backend (tests/cuda_on_cpu): the same bytes, without waits.

  replay    runs with --cuda_graphs=auto and off leave the same checkpoint, losses and norms, with dropout, a smaller
            last micro-step, evaluations and a resume; one replays graphs, the other launches kernels
  profile   --profile=True times ops and replays by events, training passes only, and leaves the same bytes
  samples   gpt-sample writes the same text both ways
  waiting   an update whose results are not logged never waits; a logged one waits once; with float16 each update waits
            once, because its loss scale depends on the previous one
  lagging   rare logging gives the same numbers as logging every update, and a run that diverges ends with the same line
  refused   each step of recording fails: one note, kernels are launched, the same bytes, no leak
  failing   a replay, or a kernel in it, fails: one line, exit status 1, the previous checkpoint
A build with --enable-debug inspects every op and replays nothing: only bytes and messages are compared.
"""
import functools
import re

from checks import BUILD, check, metrics, read, some
from cuda_common import GPT_SAMPLE_CUDA, Run, checkpoint, end_emulated, good, losses, train, train_letters

DEBUG = b"\n#define GT_DEBUG 1" in read(BUILD + "/config.h")
COMMON = ["--backend=cuda", "--dropout=0.1", "--lr_decay_iters=12"]
STEPS = ("cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiateWithFlags", "cudaGraphUpload")
REFUSAL = "cannot be kept as a graph"


def replay():
    for dtype in some(("bfloat16", "float32", "float16")):
        files = {}
        for word in ("auto", "off"):
            out = f"replay-{dtype}-{word}"
            arguments = [*COMMON, f"--dtype={dtype}", f"--cuda_graphs={word}", "--micro_batch=3", "--eval_interval=3"]
            good(train(out, *arguments, "--max_iters=2", "--batch_size=4"))
            run = good(train(out, *arguments, "--max_iters=5", "--batch_size=4", "--init_from=resume"))
            files[word] = checkpoint(out), losses(out)
            replays = run.calls("cudaGraphLaunch")
            check(replays == 0 if word == "off" or DEBUG else replays >= 3 * 4 and run.report["replayed"] > 10 * replays,
                  f"{dtype}, {word}: {replays} replays of {run.report['replayed']} kernels")
            if word == "off":
                check(run.calls("cudaStreamBeginCapture") == 0, "captured, although graphs are off")
        check(len(files["auto"][0]) >= 2 and len(files["auto"][1]) == 6, f"{dtype}: no checkpoint, or not 6 steps")
        check(files["auto"] == files["off"], f"{dtype}: graphs leave other bytes, losses or norms")


def profile():
    arguments = [*COMMON, "--dtype=bfloat16", "--max_iters=4", "--eval_interval=2"]
    plain = good(train("profile-off", *arguments))
    run = good(train("profile-on", *arguments, "--profile=True"), "gaps")
    check(checkpoint("profile-on") == checkpoint("profile-off"), "--profile changes the bytes")
    table = {name: int(runs) for name, runs in re.findall(r"^(\w+) +(\d+) +[\d.]+ +[\d.]+ % ", run.out, re.M)}
    check(table.get("loss_sum") == 6 and table.get("clip_factor") == 3, f"not two micro-steps of every other update: {table}")
    if not DEBUG:
        check(plain.calls("cudaGraphLaunch") > run.calls("cudaGraphLaunch") >= 2 * 2, f"{run.report}")
        launches = run.calls("cudaEventElapsedTime")
        check(launches > 20 * 3, f"{launches} times were read")


def samples():
    """Generates one token at a time, where the cost of launches is highest."""
    train_letters("letters-out", *COMMON, "--dtype=bfloat16", "--max_iters=2", "--eval_interval=2")
    texts = []
    for word in ("auto", "off"):
        run = good(Run(GPT_SAMPLE_CUDA, "--out_dir=letters-out", "--backend=cuda", "--num_samples=2",
                       "--max_new_tokens=24", f"--cuda_graphs={word}"))
        texts.append(run.out)
        check((run.calls("cudaGraphLaunch") >= 24) == (word == "auto" and not DEBUG), f"{word}: {run.report}")
    check(texts[0] == texts[1] and len(texts[0]) > 24, f"samples differ: {texts}")


@functools.cache
def waits(dtype, interval, steps):
    """Returns how often a run of so many steps waited."""
    run = good(train(f"waits-{dtype}-{interval}-{steps}", *COMMON, f"--dtype={dtype}", f"--max_iters={steps - 1}",
                          f"--log_interval={interval}", "--eval_interval=100", "--learning_rate=1e-3"))
    return run.report["waits_after_replay"], checkpoint(f"waits-{dtype}-{interval}-{steps}")


def waiting():
    for dtype, interval, each in some((("bfloat16", 100, 0), ("bfloat16", 1, 1), ("float16", 100, 1), ("float32", 100, 0)), 3):
        (few, _), (many, _) = (waits(dtype, interval, steps) for steps in (3, 5))
        if not DEBUG:
            check(few > 0, "nothing ever waited, so that nothing was counted")
            check(many - few == 2 * each,
                  f"{dtype}, logged every {interval}: {many - few} waits in 2 updates, not {2 * each}")
    seldom, always = (waits("bfloat16", interval, 5)[1] for interval in (100, 1))
    check(len(seldom) >= 2 and seldom == always, "how often is logged changes the bytes")


def by_iter(out):
    return {line["iter"]: (line["loss"], line["grad_norm"], line["lr"], line["skipped"]) for line in metrics(out)}


def lagging():
    seen = {}
    for interval in (1, 4):
        good(train(f"lag-{interval}", *COMMON, "--dtype=bfloat16", "--max_iters=6", f"--log_interval={interval}",
                        "--eval_interval=4"))
        seen[interval] = by_iter(f"lag-{interval}")
    check(sorted(seen[1]) == list(range(7)) and sorted(seen[4]) == list(range(0, 7, 4)),
          f"other steps were logged: {[sorted(steps) for steps in seen.values()]}")
    check(all(seen[1][step] == numbers for step, numbers in seen[4].items()),
          "a log line of every fourth step has other numbers than one of every step")
    for interval in (1, 100):
        run = train(f"diverge-{interval}", "--backend=cuda", "--dtype=float32", "--max_iters=400", "--warmup_iters=0",
                         "--decay_lr=False", "--learning_rate=1000", "--weight_decay=1000", "--grad_clip=0", "--eval_interval=1000",
                         f"--log_interval={interval}")
        skipped = [line for line in run.err.splitlines() if "this update is skipped" in line]
        check(run.status == 1 and len(run.errors) == 1 and "10 updates in a row were skipped" in run.errors[0], run.said())
        check(len(skipped) == 10, f"every {interval}: {len(skipped)} skipped updates were said, not 10")
        seen["diverged", interval] = skipped
        check(not checkpoint(f"diverge-{interval}"), "a model that has diverged was saved")
    check(seen["diverged", 1] == seen["diverged", 100], "what is said of skipped updates depends on the log's interval")


def refused():
    arguments = [*COMMON, "--dtype=bfloat16", "--max_iters=3", "--eval_interval=2"]
    clean = good(train("recorded", *arguments))
    check(REFUSAL not in clean.out + clean.err, "said without reason")
    wanted = checkpoint("recorded")
    for step in STEPS:
        count = clean.calls(step)
        check(count > 3, f"{step} was called {count} times")
        for number in some((1, 3)):
            out = f"refused-{step}-{number}"
            run = good(train(out, *arguments, FAIL=f"{step}:{number}"))
            said = (run.out + run.err).count(REFUSAL)
            check(said == 1 and not run.errors, f"{step}:{number}: said {said} times: {run.err[-400:]}")
            check(checkpoint(out) == wanted, f"{step}:{number}: other bytes")
            check(run.calls(step) == number, f"{step}:{number}: tried again {run.calls(step)} times")


def failing():
    arguments = [*COMMON, "--dtype=bfloat16", "--max_iters=6", "--eval_interval=4"]
    good(train("replayed", *COMMON, "--dtype=bfloat16", "--max_iters=2", "--eval_interval=2"))
    before = checkpoint("replayed")
    for function, error in (("cudaGraphLaunch:1", ""), ("cudaGraphLaunch:3", ":cudaErrorIllegalAddress")):
        run = train("replayed", *arguments, "--init_from=resume", FAIL=function + error)
        if DEBUG:
            continue
        check(run.status in (1, 3) and len(run.errors) == 1, f"{function}{error}: {run.said()}")
        check(checkpoint("replayed") == before, f"{function}{error}: the checkpoint changed")


end_emulated("cuda_graphs", replay, profile, samples, waiting, lagging, refused, failing)
