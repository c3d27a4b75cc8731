#!/usr/bin/env python3
"""Training, resuming and sampling with the cuda backend on the CPU (tests/cuda_on_cpu), through the programs.

  parity    ten steps in float32, bfloat16 and float16, with dropout and biases, have the cpu backend's losses and
            norms
  orders    a random thread order leaves the bytes of the ascending one, as attention's gradients at once do
  tf32      is used on request, and is close to float32
  resume    a run that was stopped and resumed leaves the bytes of the uninterrupted one
  named     a checkpoint names the algorithms of its programs' products, but not of the products that measure the
            device's rate, whose number depends on the available time
  memory    the memory requested from the device is the plan; nothing is allocated or looked up after the first step; no
            leak
  narrow    a nearly full card gets a suggestion that fits, with times if there is room to time products
  sample    gpt-sample writes the text that the cpu backend writes
  old card  before capability 8.0 bfloat16 becomes float16, with a note
"""
import json
import os

from checks import check, metrics, read_json, some
from cuda_common import DATA, GPT_SAMPLE_CUDA, GPT_TRAIN_CUDA, Run, TINY, checkpoint, end_emulated, good, losses, shape, train, train_letters

SIDES_MAX = 24  # of the products that measure the device, a time-dependent number; four steps have hundreds
DTYPES = ("float32", "bfloat16", "float16")
FEW = "86x2:12g:Two multiprocessors"  # have heads enough for attention's gradients at once
# Relative bounds of a loss and a norm.  The first step differs only by the order of sums; Adam then moves every weight
# by about the learning rate whatever its gradient's size, so that differences grow with the steps.
BOUNDS = {"float32": (1e-5, 1e-4), "bfloat16": (1e-3, 1e-2), "float16": (2e-4, 2e-3)}


def parity():
    for dtype in some(DTYPES, 2):
        arguments = [f"--dtype={dtype}", "--max_iters=9", "--eval_interval=100", "--dropout=0.1", "--lr_decay_iters=9"]
        for backend in ("cpu", "cuda"):
            good(train(f"parity-{dtype}-{backend}", f"--backend={backend}", *arguments))
        pairs = [losses(f"parity-{dtype}-{backend}") for backend in ("cpu", "cuda")]
        check(len(pairs[0]) == len(pairs[1]) == 10, f"{dtype}: {len(pairs[0])} and {len(pairs[1])} steps, not 10")
        apart = [max(abs(a - b) / abs(a) for a, b in zip(*both)) for both in zip(*pairs)]
        first, later = BOUNDS[dtype]
        check(apart[0] <= first, f"{dtype}: the first step is {apart[0]:.3g} from the cpu's, not {first:.3g}")
        check(max(apart) <= later, f"{dtype}: steps are up to {max(apart):.3g} from the cpu's, not {later:.3g}")
        check(pairs[0][-1][0] < pairs[0][0][0], f"{dtype}: nothing was learnt, so that nothing was compared")
        print(f"parity {dtype}: first step within {apart[0]:.2g}, ten within {max(apart):.2g} of the cpu's")


def tf32():
    """A float32 run that may round to TF32 has different but close results."""
    runs = {}
    for word in ("False", "True"):
        good(train("tf32-" + word, "--backend=cuda", "--dtype=float32", f"--tf32={word}", "--max_iters=2", "--eval_interval=100"))
        runs[word] = losses("tf32-" + word)
    gap = max(abs(a[0] - b[0]) / a[0] for a, b in zip(*runs.values()))
    check(gap < 2 ** -8, f"TF32 is {gap:.3g} from float32")


def orders():
    arguments = ["--backend=cuda", "--dtype=bfloat16", "--max_iters=2", "--eval_interval=100", "--dropout=0.1"]
    files = {}
    for order in ("asc", "random:7"):
        good(train("order-" + order, *arguments, ORDER=order))
        files[order] = checkpoint("order-" + order)
        check(len(files[order]) >= 2, f"{order}: no checkpoint")
        check(files[order] == files["asc"], f"{order}: other bytes than in ascending order")
    good(train("order-once", *arguments, DEVICES=FEW))
    check(checkpoint("order-once") == files["asc"], "attention's gradients at once: other bytes than in two passes")
    asked = good(train("order-asked", *arguments, GPT_TRAIN_CUDA_MULTIPROCESSORS="2"), "as for 2 multiprocessors")
    check(asked.out.count("2 multiprocessors") + asked.err.count("2 multiprocessors") > 1, "the device is not said to have two")
    named = [read_json(f"order-{name}/trainer_state.json")["plan"]["algorithms"] for name in ("asc", "once", "asked")]
    check(named[0] != named[1], "attention's gradients are computed in two passes on two multiprocessors")
    check(named[1] == named[2] and checkpoint("order-asked") == files["asc"], "a test cannot choose the kernels of two multiprocessors")


def resume():
    for dtype in some(("float16", "float32", "bfloat16")):
        common = ["--backend=cuda", f"--dtype={dtype}", "--eval_interval=4", "--dropout=0.1", "--lr_decay_iters=12"]
        for out, arguments in (("whole", ["--max_iters=7"]), ("parts", ["--max_iters=3"]),
                               ("parts", ["--init_from=resume", "--max_iters=7"])):
            good(train(f"{out}-{dtype}", *arguments, *common, DEVICES=FEW))
        whole, parts = checkpoint("whole-" + dtype), checkpoint("parts-" + dtype)
        check(len(whole) >= 2 and whole == parts, f"{dtype}: a resumed run leaves other bytes")


def memory():
    runs = {}
    for steps in (4, 8):
        out = f"memory-{steps}"
        arguments = ["--backend=cuda", "--dtype=bfloat16", f"--max_iters={steps}", "--eval_interval=4", "--dropout=0.1"]
        run = runs[steps] = good(train(out, *arguments))
        planned = [line["planned_bytes"] for line in metrics(out, "planned_bytes")]
        plan = Run(GPT_TRAIN_CUDA, *DATA, *TINY, *arguments, "--plan=json")
        known = json.loads(plan.out)["bytes"] if plan.status == 0 else {"arena": 0, "context": 0}
        check(planned and planned[0] == known["arena"], f"{planned} B in the metrics, {known} in the plan: {plan.said()}")
        check(run.report["allocated_bytes"] == known["arena"] + known["context"],
              f"{run.report['allocated_bytes']} B were asked of the device; the plan: {known}")
        for function in ("cudaMalloc", "cudaHostAlloc", "cudaStreamCreateWithFlags", "cudaEventCreateWithFlags"):
            check(run.calls(function) > 0, f"{function} was not counted")
            check(run.calls(function, "after_launch") == 0, f"{function} after the first kernel")
    check(runs[8].calls("launch") > runs[4].calls("launch"), "kernels are not counted")
    # The number of products that measure the device's rate depends on the time; a step has dozens of products.
    looked_up = [runs[steps].calls("cublasLtMatmulAlgoGetHeuristic") for steps in (4, 8)]
    check(0 < looked_up[0] and abs(looked_up[1] - looked_up[0]) <= SIDES_MAX,
          f"algorithms are looked up while the run goes on: {looked_up}")


def narrow():
    """The emulated context leaves 54 of 270 MiB, and 84 of 300 MiB."""
    for mib, timed in ((270, False), (300, True)):
        card = {"DEVICES": f"86:{mib}m:Narrow", "XDG_CACHE_HOME": os.path.abspath(f"narrow-{mib}")}
        plan = train("narrow", "--backend=cuda", "--plan", **card)
        check(plan.status == 0 and " fits, " in plan.out, f"{mib} MiB: {plan.said()}")
        check(("too little to time" in plan.err) != timed, f"{mib} MiB: {plan.said()}")
        check("Forecast" in plan.out, f"{mib} MiB: {plan.out[-300:]}")
    large = train("narrow", "--backend=cuda", "--n_layer=8", "--n_embd=512", "--n_head=8", **card)
    check(large.status == 3 and len(large.errors) == 1 and "not enough memory" in large.errors[0], large.said())
    check("alternative 1 that fits: " in large.out + large.err, large.said())


def named():
    """A run names its own products, not those that were made to calibrate the card."""
    cold = {"XDG_CACHE_HOME": os.path.abspath("named-cache")}
    run = good(train("named", "--backend=cuda", "--max_iters=2", "--eval_interval=2", **cold))
    algorithms = read_json("named/trainer_state.json")["plan"]["algorithms"]
    made = run.calls("cublasLtMatmulDescCreate")
    products = [value for value in algorithms.values() if value != shape("gemm", "fp32 sums")]  # and which kernel makes them
    check(0 < len(products) < made, f"{len(products)} algorithms are named, and {made} products were made")


def sample():
    train_letters("sample", "--backend=cuda", "--dtype=float32", "--max_iters=4", "--eval_interval=4")
    texts = {}
    for backend in ("cuda", "cpu"):
        for batch in (1, 3):
            run = Run(GPT_SAMPLE_CUDA, "--out_dir=sample", f"--backend={backend}", "--max_new_tokens=24",
                      "--num_samples=3", "--seed=11", "--dtype=float32", f"--sample_batch={batch}")
            check(run.status == 0 and len(run.out) > 24, run.said())
            texts[backend, batch] = run.out
            if backend == "cuda" and run.report:
                check(run.calls("launch") > 0 and run.report["objects_alive"] == 0, "a sample without kernels, or a leak")
    check(len(set(texts.values())) == 1, "the backends write different texts")


def old_card():
    device = "75:8g:NVIDIA T4"
    good(train("old", "--backend=cuda", "--max_iters=2", "--eval_interval=100", DEVICES=device), "has no bfloat16", "using float16")
    before = losses("old")
    train("old-cpu", "--backend=cpu", "--dtype=float16", "--max_iters=2", "--eval_interval=100")
    gaps = [abs(a[0] - b[0]) / b[0] for a, b in zip(before, losses("old-cpu"))]
    check(len(gaps) == 3 and max(gaps) < 1e-2, f"an sm_75 card is {gaps} from the cpu's float16")


end_emulated("cuda_train", parity, tf32, orders, resume, named, memory, narrow, sample, old_card)
