#!/usr/bin/env python3
"""Ranks whose cards exchange by NCCL, on emulated cards and a stand-in for the library (tests/cuda_on_cpu/fake_nccl.c).

  bytes     2 and 4 ranks write the files and losses of one, in several formats; with graphs or without, whatever the order in
            which moves and copies run; and they resume what ranks without NCCL began, and the other way round
  graphs    a replayed program exchanges as many bytes, in as many groups, as kernels that are launched one by one
  memory    what NCCL holds of a card is planned for: the micro-batch shrinks, and as many bytes are taken as planned
  without   ranks that share a card, and ranks without the library, say so and use host memory
  refused   another release on one rank, bytes that arrive changed: one line, and nothing stays behind
  faults    each of NCCL's functions fails, hangs or kills its rank, early and late: all ranks end in time with one line, and a
            resume has the bytes of one rank
"""
import os
import re
import shutil
import time

from checks import patience, read, some
from cuda_common import FOLDER, GPT_TRAIN_CUDA, LONG, Run, check, end_emulated, files, metrics

NCCL = os.path.join(FOLDER, "libnccl.so.2")
CARDS = ",".join(["89:16g:L4"] * 4)
KEYS = ["--dataset=./data", "--n_layer=2", "--n_head=2", "--n_embd=36", "--block_size=8", "--batch_size=3", "--micro_batch=3",
        "--gradient_accumulation_steps=4", "--vocab_size=96", "--dropout=0.1", "--bias=True", "--lr_decay_iters=50",
        "--warmup_iters=2", "--eval_iters=1", "--eval_interval=2", "--parts=4", "--threads=1", "--max_iters=2", "--rank_timeout=60",
        "--backend=cuda", "--log_interval=1"]
BF16 = ["--dtype=bfloat16"]
AFTER = ["--micro_batch=2"] # a part is two micro-steps, and is exchanged after them, not within
FORMATS = ([], [*BF16, *AFTER, "--arch=llama", "--optimizer=muon", "--state_format=sr_bf16", "--offload=all", "--recompute=full"], ["--dtype=float16", "--optimizer=muon"],
           [*BF16, "--offload=all", "--recompute=full"], [*BF16, "--reduce_dtype=bfloat16"], [*BF16, *AFTER, "--reduce_dtype=bfloat16"])
FUNCTIONS = ("ncclGetVersion", "ncclGetUniqueId", "ncclCommInitRank", "ncclGroupStart", "ncclSend", "ncclRecv", "ncclGroupEnd",
             "group", "ncclCommAbort")

QUICK = (("ncclCommInitRank", 1, "hang"), ("ncclGroupEnd", 40, "fail"), ("group", 150, "kill"))  # of the faults


def train(out, ranks, *arguments, status=0, **environment):
    run = Run(GPT_TRAIN_CUDA, *KEYS, f"--out_dir={out}", f"--ranks={ranks}", *arguments,
              **{"DEVICES": CARDS, "GPT_TRAIN_NCCL_LIBRARY": NCCL, "GT_FAKE_NCCL_REPORT": f"{out}.txt", "REPORT": "", **environment})
    check(run.status == status, f"exit status {run.status}, not {status}: {run.said()}")
    return run


def results(out):
    return [*files(out, ".safetensors").items()], [(line["iter"], line["loss"], line["grad_norm"]) for line in metrics(out)], \
        [(line["iter"], line["val_loss"]) for line in metrics(out, "val_loss")]


def memory(run):
    """Returns the bytes planned and allocated, as the last line says them."""
    return re.search(r"^Memory: (\S+ \S+) planned, (\S+ \S+) allocated", run.out, re.M).groups()


def bytes_of_one():
    for i, keys in enumerate(some(FORMATS, 2)):
        train(f"one{i}", 1, *keys)
        for ranks in (2, 4) if LONG else (2,):  # the orders below have four
            run = train(f"ranks{i}-{ranks}", ranks, *keys)
            check("exchange gradients through NCCL 2.28.9" in run.out, run.out)
            check(results(f"ranks{i}-{ranks}") == results(f"one{i}"), f"{ranks} ranks: the bytes and losses of one, {keys}")
            check(len(set(memory(run))) == 1, f"as many bytes as planned, not {memory(run)}")
    for i, order in enumerate(some([{"GT_FAKE_NCCL_SHUFFLE": str(seed), "COPIES": copies}
                                    for seed, copies in enumerate(("random:1", "early", *map("random:{}".format, range(2, 8))), 1)])):
        train(f"order{i}", 4, **order)
        check(results(f"order{i}") == results("one0"), f"in whatever order: the bytes of one, {order}")
    train("one0", 1, "--init_from=resume", "--max_iters=4")
    train("to", 2, GPT_TRAIN_NCCL_LIBRARY="")
    shutil.copytree("ranks0-2", "from")
    for name, library in (("to", NCCL), ("from", "")):
        train(name, 2, "--init_from=resume", "--strict_resume=True", "--max_iters=4", GPT_TRAIN_NCCL_LIBRARY=library)
        check(results(name) == results("one0"), f"resumed {name} NCCL: the bytes of one")


def carried(out):
    """Returns the sorted (rank, groups, moves, bytes) of a run."""
    return sorted(tuple(map(int, line.split())) for line in read(f"{out}.txt").decode().splitlines())


def graphs():
    train("launched", 2, "--cuda_graphs=off")
    replayed, launched = carried("ranks0-2"), carried("launched") # bytes_of_one() trained the first
    check(replayed == launched and [rank for rank, *_ in replayed] == [0, 1], f"replayed {replayed}, launched {launched}")
    check(results("ranks0-2") == results("launched"), "replayed as launched: the same bytes")
    check(replayed[0][1] < replayed[0][2] / 2 * 1.01, f"a send and a receive make a group: {replayed}")
    rank, groups, moves, _ = carried("order0")[0]
    check(groups * 3 < moves, f"rank {rank} of four has all exchanges of a piece in a group: {groups} for {moves}")


def memory_of_nccl():
    keys = ["--micro_batch=0", "--batch_size=16", "--gradient_accumulation_steps=1", "--parts=2", "--n_embd=64", "--block_size=64",
            "--max_iters=0", "--eval_iters=1"]
    context = 200 << 20
    card = {"DEVICES": ",".join([f"89:{context + (80 << 20)}:L4"] * 2), "GT_FAKE_NCCL_BYTES": str(30 << 20)}
    planned = []
    for library in ("", NCCL):
        run = train(f"memory{len(planned)}", 2, *keys, GPT_TRAIN_NCCL_LIBRARY=library, **card)
        check(len(set(memory(run))) == 1, f"as many bytes as planned, not {memory(run)}")
        planned.append(float(memory(run)[0].split()[0]))
    check(planned[1] < planned[0], f"MiB planned without NCCL and beside it: {planned}")
    run = train("full", 2, *keys, status=3, **{**card, "GT_FAKE_NCCL_BYTES": str(33 << 20)})
    check(len(run.errors) == 1 and "not enough memory" in run.errors[0], run.said())


def without():
    for name, ranks, text, environment in (("shared", 4, "ranks 0 and 2 share a card", {"DEVICES": "89:16g:L4,89:16g:L4"}),
                                           ("absent", 2, "rank 0 has no libnccl.so.2", {"GPT_TRAIN_NCCL_LIBRARY": "/nonexistent"})):
        run = train(name, ranks, "--max_iters=0", **environment)
        check(f"cuda: exchanges pass through host memory: {text}" in run.err and "that they share" in run.out, run.said())
        check("cannot be kept as a graph" not in run.err, run.said())


def refused():
    for status, text, environment in (
            (2, "has another version of NCCL than rank 0: 22", {"GT_FAKE_NCCL_VERSIONS": "versions"}),
            (1, "rank 1 did not get the bytes that rank 0 sent it", {"GT_FAKE_NCCL_FAIL": "1:group:2:wrong"})):
        run = train("refused", 2, status=status, **environment)
        check(len(run.errors) == 1 and text in run.errors[0], f"one error line with '{text}': {run.said()}")
        check(not os.path.exists("refused"), f"nothing stays behind: {text}")


def fault(name, number, what, rank):
    out = f"fault-{name}-{number}-{what}"
    limit = patience(2)
    begin = time.monotonic()
    run = Run(GPT_TRAIN_CUDA, *KEYS, f"--out_dir={out}", "--ranks=2", f"--rank_timeout={int(limit)}",
              "--eval_interval=1", DEVICES=CARDS, REPORT="", GPT_TRAIN_NCCL_LIBRARY=NCCL,
              GT_FAKE_NCCL_FAIL=f"{rank}:{name}:{number}:{what}")
    seconds = time.monotonic() - begin
    check(run.status in (0, 1) and len(run.errors) == run.status, f"{name} {number} {what}: {run.said()}")
    check(seconds < 2 * limit + patience(4), f"{name} {number} {what}: {seconds:.1f} s")
    if run.status == 1:
        wanted = {"kill": "was ended by signal 9", "hang": "has had no answer from NCCL for",
                  "fail": "NCCL"}[what]
        check(wanted in run.errors[0], f"{name} {number} {what}: {run.errors}")
    for path in [os.path.join(os.environ.get("TMPDIR", "/tmp"), name) for name in os.listdir(os.environ.get("TMPDIR", "/tmp"))
                 if name.startswith("fake-nccl-")]:
        os.remove(path) # ranks were killed before they had met
    resume = ["--init_from=resume"] if os.path.exists(f"{out}/trainer_state.json") else []
    train(out, 4 if rank else 2, "--eval_interval=1", *resume)
    check(files(out, "model.safetensors") == files("ranks0-2", "model.safetensors"), f"{name} {number} {what}: the bytes of one")


def faults():
    cases = [(name, number, what) for name in FUNCTIONS for number in (1, 40, 150) for what in ("fail", "hang", "kill")
             if (number == 1 or name not in ("ncclGetVersion", "ncclGetUniqueId", "ncclCommInitRank", "ncclCommAbort")) and
             (name, what) != ("group", "fail")]
    for i, case in enumerate(cases if LONG else QUICK):
        fault(*case, -1 if case[0] in ("ncclGetVersion", "ncclGetUniqueId") else i % 2)


if __name__ == "__main__":
    end_emulated("cuda_nccl", bytes_of_one, graphs, memory_of_nccl, without, refused, faults)
