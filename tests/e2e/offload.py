#!/usr/bin/env python3
"""Optimizer state in host memory: the same bytes on every backend, planned and asked for to the byte.

  bytes     states, gradients and weights in host memory leave the checkpoint of offload=none, in the state formats and with Muon,
            on the cpu, the emulated card and OpenCL; so do each class alone, all, and a parameter of two slices with exponents; a
            resume with another setting goes on to the same bytes
  auto      a budget that is too small for the state on the card is met by moving a part of it; no more than host_budget
            goes to the host, every byte of it is pinned, and the checkpoint is that of an unlimited run
  beside    copies beside computing leave the bytes of offload=none, whether they come early, late or at any time in
            between, in replays and in launches; pinned memory is what the plan says
  link      it is timed by the first run that moves something, also after one that did not, and once; a note names one that
            is much slower than the card's own; what is not pinned, or moves by one engine, is forecast as no overlap
  pageable  where the driver pins nothing, or not all, one line says so, and the bytes stay
  broken    a copy that fails, or a kill, in the middle of a streamed update leaves the last checkpoint whole, and a resume reaches the
            bytes of an unbroken run on a card with one copy engine
  less      a host_budget above the cgroup's limit is refused; memory that is taken between plan and start is planned for again,
            or refused if offload is typed; a run goes on to the same bytes on a machine with less of it
  refused   each budget that cannot be: one line, exit status 2 or 3, and the last
            checkpoint stays whole; one line says what a typed offload does not move
  plans     GPT-2 XL with fp32 masters and moments fits a 12 GB card by the plan alone; a larger host_budget is never slower
"""
import json
import os
import re
import shutil
import subprocess

from checks import (GEMMA, GPT_TRAIN, GRANITE, PHI, QWEN3_5, SMOLLM3, check, end, files, make_tokens, metrics, opencl_device,
                    preloadable, ran, read, skip, some, write, write_json)
from cuda_common import DATA, GPT_TRAIN_CUDA, TINY, checkpoint, good, train

GIB = 1 << 30
FORMATS = (("--dtype=bfloat16", "--state_format=sr_8bit"), ("--dtype=bfloat16", "--state_format=master"),
           ("--dtype=bfloat16", "--state_format=master", "--optimizer=muon", "--muon_learning_rate=0.02"),
           ("--dtype=bfloat16", "--parts=2", "--gradient_accumulation_steps=4"),
           (*GEMMA, "--sample_tokens=12"), ("--dtype=bfloat16", "--optimizer=muon", *PHI), GRANITE, ("--dtype=bfloat16", *SMOLLM3), ("--dtype=bfloat16", *QWEN3_5),
           ("--dtype=float32",), ("--dtype=bfloat16", "--state_format=sr"), ("--dtype=bfloat16", "--state_format=sr_bf16"))


MATRICES = "states,gradients,weights"
SAID = {"none": "", "states": "of optimizer state in host memory", "residuals": "of blocks' inputs in host memory",
        "gradients": "of gradients in host memory", "weights": "of weights in host memory", MATRICES: "of weights in host memory",
        "all": "of blocks' inputs in host memory"}


def devices():
    """Returns (backend, program) of those that this machine can use; backend auto finds only the emulated card."""
    found = [("cpu", GPT_TRAIN)]
    if os.path.exists(GPT_TRAIN_CUDA):
        found.append(("cuda", GPT_TRAIN_CUDA))
    else:
        skip("cuda_emulated", "no C++17 compiler, so that the cuda backend cannot be emulated")
    if opencl_device():
        found.append(("opencl", GPT_TRAIN))
    return found


def run(device, out, *arguments):
    backend, program = device
    return train(out, f"--backend={backend}", "--max_iters=3", "--eval_interval=100", *arguments, program=program,
                 **({"GPT_TRAIN_OPENCL_LIBRARY": ""} if backend == "opencl" else {}))


def moved(out):
    """Returns the bytes that the plan and the device agreed on."""
    line = metrics(out, "planned_bytes")[-1]
    check(line["planned_bytes"] == line["allocated_bytes"], f"{out}: {line['allocated_bytes']} bytes asked for, not as planned")
    return line["planned_bytes"]


def bytes_equal():
    for device in devices():
        for i, arguments in enumerate(some(FORMATS, 9 if device[0] == "cpu" else 1)):
            arguments = [*arguments, "--dropout=0.1", "--batch_size=4", "--micro_batch=3", "--recompute=full"]
            arguments += ["--max_iters=1"] if device[0] == "opencl" else []
            outs = {word: f"{device[0]}-{i}-{word}" for word in (SAID if i == 0 and device[0] == "cpu" else ("none", MATRICES))}
            for word, out in outs.items():
                good(run(device, out, *arguments, f"--offload={word}"), SAID[word])
                check(len(checkpoint(out)) >= 2 and checkpoint(out) == checkpoint(outs["none"]), f"{out}: other bytes")
                check(read(f"{out}/trainer_state.json") == read(f"{outs['none']}/trainer_state.json"), f"{out}: another record")
                moved(out)
        outs = [outs["none"], outs[MATRICES]]
        for out, word in zip(outs, ("all", "residuals")) if device[0] != "opencl" else ():
            good(run(device, out, *arguments, f"--offload={word}", "--init_from=resume", "--max_iters=5"), SAID[word])
        check(checkpoint(outs[0]) == checkpoint(outs[1]), f"{device[0]}: resumed with the other setting: other bytes")


def slices_equal():
    """The states of a parameter pass through the device in slices of 4Mi elements; so do their blocks' exponents."""
    large = ["--vocab_size=66000", "--n_layer=1", "--n_head=1", "--n_embd=64", "--block_size=8", "--batch_size=1", "--micro_batch=1", "--max_iters=1",
             "--gradient_accumulation_steps=1", "--dtype=bfloat16", "--state_format=sr_8bit_full"]
    for word in ("none", MATRICES):
        good(run(("cpu", GPT_TRAIN), f"large-{word}", *large, f"--offload={word}"), SAID[word])
    check(len(checkpoint("large-none")) >= 2 and checkpoint("large-none") == checkpoint(f"large-{MATRICES}"), "two slices: other bytes")


def plan(*arguments, status=0, program=GPT_TRAIN):
    done = ran(program, *arguments, "--plan=json")
    check(done.returncode == status, f"exit status {done.returncode}, not {status}: {arguments} {done.stderr[-500:]}")
    return json.loads(done.stdout)


def auto():
    if not os.path.exists(GPT_TRAIN_CUDA):
        return
    wide = ["--dtype=bfloat16", "--n_embd=128", "--max_iters=0", "--micro_batch=2", "--loss_chunk=32", "--recompute=none"]
    resident = good(run(("cuda", GPT_TRAIN_CUDA), "wide", *wide))
    check("host memory" not in resident.out, "offload without need")
    total = moved("wide")
    context = plan("--backend=cuda", *DATA, *TINY, *wide, program=GPT_TRAIN_CUDA)["bytes"]["context"]
    least = None
    for share in (0.85, 0.75):
        out = f"wide-{share}"
        budget = int(total * share) + context
        done = good(run(("cuda", GPT_TRAIN_CUDA), out, *wide, f"--memory_budget={budget}B"), "of optimizer state in host memory")
        check(checkpoint(out) == checkpoint("wide"), f"{out}: other bytes")
        pinned = done.report["pinned_bytes_peak"] - resident.report["pinned_bytes_peak"]
        on_card = done.report["live_bytes_peak"] - resident.report["live_bytes_peak"]
        check(0 < pinned and moved(out) - pinned == total + on_card, f"{out}: {pinned} bytes pinned, {on_card} on the card")
        check(least is None or pinned >= least, f"{out}: a smaller budget moves less")
        least = pinned
    done = run(("cuda", GPT_TRAIN_CUDA), "none", *wide, f"--memory_budget={int(total * 0.75) + context}B", "--host_budget=0")
    check(done.status == 3 and "not enough memory" in done.err, done.said())


STREAMED = ("--backend=cuda", "--dtype=bfloat16", "--state_format=sr_8bit", "--max_iters=2", "--eval_interval=100")


def beside():
    if not os.path.exists(GPT_TRAIN_CUDA):
        return
    good(train("resident", *STREAMED, "--offload=none"))
    wanted = checkpoint("resident")
    planned = plan(*STREAMED, *DATA, *TINY, "--offload=all", program=GPT_TRAIN_CUDA)["bytes"]["host_arena"]
    for when, graphs in some((("early", "auto"), ("random:1", "off"), ("late", "auto"), ("random:2", "auto"), ("random:3", "off")), 3):
        out = f"beside-{when}"
        done = good(train(out, *STREAMED, "--offload=all", f"--cuda_graphs={graphs}", COPIES=when, LINK="1e6"))
        check(checkpoint(out) == wanted, f"{out}: other bytes")
        check(done.report["in_us"] > 0 and done.report["out_us"] > 0, f"{out}: no copy engine was busy")
        pinned = done.report["pinned_bytes_peak"] - 2 * (2 << 20) - 256 * 64
        check(pinned == planned > 0, f"{out}: {pinned} bytes pinned, {planned} planned")


    link_bytes()


def link_bytes():
    """The copy engines are as long busy as the bytes take that a formula counts, weights and gradients of 2 bytes."""
    wide = [*STREAMED, "--offload=all", "--n_embd=64", "--cuda_graphs=off"]
    few, many = (good(train(f"link-bytes-{iters}", *wide, f"--max_iters={iters}", LINK="1e6")).report for iters in (1, 3))
    block, tokens, places, state, inputs = 2 * 12 * 64 * 64 * 2, 96 * 64 * 2, 16 * 64 * 2, 222 * 1024, 2 * 2 * 16 * 64 * 2
    matrices = block + tokens + places
    wanted = {"in_us": 2 * (2 * block + 2 * tokens + places + inputs) + matrices + 2 * matrices + state,
              "out_us": 2 * (matrices + inputs) + matrices + state}
    for engine, count in wanted.items():
        moved_bytes = (many[engine] - few[engine]) / 2 # a microsecond for each byte
        check(abs(moved_bytes - count) <= 0.01 * count, f"{engine}: {moved_bytes} bytes an update, not {count}")


def link():
    if not os.path.exists(GPT_TRAIN_CUDA):
        return
    # A cache without any timing, and an arena of 2 MiB, which times the link.
    os.environ["XDG_CACHE_HOME"] = os.path.abspath("cache-link")
    wide = ["--backend=cuda", "--dtype=bfloat16", "--n_embd=96", "--max_iters=0", "--eval_interval=100", "--block_size=8",
            "--gradient_accumulation_steps=1"]
    said = r"link: ([0-9.]+) GB/s each way"
    good(train("link-none", *wide, "--offload=none"))
    first, second = (good(train("link", *wide, "--offload=states")) for _ in range(2))
    unsettled = "does not settle" in first.err  # then nothing is kept
    check(re.search(said, first.out) and (unsettled or not re.search(said, second.out)), f"timed twice: {first.err}")
    for name, own in (("NVIDIA H100 PCIe", 37.2), ("a card of nobody", 0.0)):
        done = good(train("named", *wide, "--offload=states", DEVICES=f"90:12g:{name}"))
        rate = re.search(said, done.out)
        check(rate and (float(rate[1]) < 0.28 * own) == ("is slow" in done.err), f"{name}: {rate} {done.err}")
    done = good(train("named", *wide, "--offload=states", PIN="0", DEVICES="90:12g:NVIDIA H100 NVL"), "does not pin")
    check("is slow" not in done.err, "memory that is not pinned is no slow link")
    xl = ["--n_layer=48", "--n_head=25", "--n_embd=1600", "--block_size=1024", "--vocab_size=50304", "--dtype=bfloat16", "--offload=states"]
    card = {"schema": 1, "name": "x", "backend": "cuda", "memory_bytes": 40 << 30, "usable_bytes": 39 << 30, "largest_allocation_bytes": 40 << 30,
            "alignment_bytes": 256, "units": 28, "dtypes": ["float32", "bfloat16"], "bandwidth_bytes_per_s": 1e15, "share": 0, "share_source": "",
            "flops_per_s": {"float32": 1e20, "float16": 0, "bfloat16": 0, "tf32": 0}, "source": "", "link_bytes_per_s": 2e9}
    adds = []
    for engines in ({}, {"copy_engines": 1}, {"copy_engines": 0}):
        write_json("card.json", {**card, **engines})
        text = subprocess.run([GPT_TRAIN, "--dataset=none", "--device_profile=./card.json", "--host_budget=64GiB", "--batch_size=1", *xl, "--plan"],
                              check=True, capture_output=True, text=True).stdout
        adds.append(float(re.search(r"which adds ([\d.]+)\s+s", " ".join(text.split()))[1]))
    one_way = 12 * 1.5576e9 / 2e9
    for seconds, ways in zip(adds, (1, 2, 2)):
        check(abs(seconds - ways * one_way) <= 0.05 * seconds, f"12 bytes a parameter take {one_way} s each way: {adds}")
    states = [GPT_TRAIN, "--dataset=none", "--device_profile=rtx3060-12g", "--offload=states"]
    done = ran(*states, "--plan")
    check(done.returncode == 0 and "assumes that up to 16.00 GiB of host memory" in done.stderr, f"a profile's host memory: {done.stderr}")
    done = ran(*states, "--plan=svg", "--host_budget=1MiB", timeout=60)
    check(done.returncode == 3, f"the picture of what no budget of the card makes fit: {done.returncode}, {done.stderr}")


def pageable():
    if not os.path.exists(GPT_TRAIN_CUDA):
        return
    for limit in ("0", "8k"):
        done = good(train(f"pageable-{limit}", *STREAMED, "--offload=states", PIN=limit), "does not pin")
        check(done.err.count("does not pin") == 1, f"said more than once: {done.err}")
        check(checkpoint(f"pageable-{limit}") == checkpoint("resident"), f"{limit} pinned: other bytes")
    done = train("faulty", *STREAMED, "--offload=states", FAIL="cudaHostRegister:1:cudaErrorUnknown")
    check(done.status == 1 and len(done.errors) == 1 and "pinning host memory" in done.errors[0], done.said())


def broken():
    if not os.path.exists(GPT_TRAIN_CUDA):
        return
    streamed = [*STREAMED, f"--offload={MATRICES}", "--cuda_graphs=off"]
    good(train("broken", *streamed))
    shutil.copytree("broken", "unbroken")
    before, streamed = files("broken", ".safetensors"), [*streamed, "--init_from=resume", "--max_iters=4"]
    calls = good(train("unbroken", *streamed, ENGINES="1")).calls("cudaMemcpyAsync")
    said = ""
    for number in range(calls // 2, calls // 2 + 30, 10):
        done = train("broken", *streamed, FAIL=f"cudaMemcpyAsync:{number}:cudaErrorUnknown")
        check(done.status == 1 and len(done.errors) == 1, done.said())
        check(files("broken", ".safetensors") == before, f"copy {number} fails: another checkpoint")
        said += done.err
    check("cuda: store: " in said or "cuda: fetch: " in said, f"no copy of the update failed: {said}")
    done = train("broken", *streamed, FAIL=f"cudaMemcpyAsync:{calls // 2}:kill")
    check(done.status == -9 and files("broken", ".safetensors") == before, f"killed in an update: {done.status} {done.said()}")
    good(train("broken", *streamed))
    check(checkpoint("broken") == checkpoint("unbroken"), "resumed after a failing copy and a kill: other bytes")


def less():
    library = preloadable("offload_less", GPT_TRAIN_CUDA, "tests/e2e/small_memory.c") if os.path.exists(GPT_TRAIN_CUDA) else None
    if library is None:
        return
    wide = ["--backend=cuda", "--dtype=bfloat16", "--n_embd=128", "--max_iters=0", "--eval_interval=100", "--micro_batch=2",
            "--loss_chunk=32", "--recompute=none"]
    preload = {"LD_PRELOAD": library, "SMALL_MEMORY": "."}

    def machine(free, later=0, limit="max"):
        for name, text in (("meminfo", f"MemTotal: 33554432 kB\nMemAvailable: {free} kB\n"), ("cgroup", "0::/\n"), ("memory.max", limit),
                           ("meminfo.later", f"MemTotal: 33554432 kB\nMemAvailable: {later} kB\n")):
            write(name, text.encode())
    good(train("wide", *wide, "--offload=none"))
    machine(1 << 24, limit=str(4 * GIB))
    done = train("x", *wide, "--host_budget=5GiB", **preload)
    check(done.status == 2 and len(done.errors) == 1 and "more than this machine has: 4.00 GiB" in done.errors[0], done.said())
    context = plan(*DATA, *TINY, *wide, program=GPT_TRAIN_CUDA)["bytes"]["context"]
    before, again, budget = checkpoint("wide"), 0, f"--memory_budget={int(0.7 * moved('wide')) + context}B"
    for opening in range(1, 9):  # one of them is that before the start
        machine(1 << 24, later=1 << 11)
        done = train("wide", *wide, "--init_from=resume", "--offload=states", SMALL_MEMORY_LATER=str(opening), **preload)
        if done.status == 0:
            break
        again += done.err.count("planning again")
        check(done.status == 3 and len(done.errors) == 1 and "not enough host memory: this offload needs" in done.errors[0], done.said())
        check(checkpoint("wide") == before, "a machine with less memory changed the checkpoint")
    check(again > 0 and done.status == 0, f"memory was never taken between plan and start: {done.said()}")
    machine(1 << 24)
    for out in ("rich", "poor"):
        good(train(out, *wide, budget, **preload), "of optimizer state in host memory")
    resumed = [*wide, "--init_from=resume", "--max_iters=1"]
    good(train("rich", *resumed, budget, **preload), "of optimizer state in host memory")
    machine(1 << 11)
    done = train("poor", *resumed, budget, **preload)
    check(done.status == 3 and len(done.errors) == 1 and "not enough memory" in done.errors[0] and "alternative 1 that fits" in done.err, done.said())
    check("host memory" not in good(train("poor", *resumed, **preload)).out, "offload without memory")
    check(checkpoint("rich") == checkpoint("poor"), "resumed on a machine with less memory: other bytes")


def refused():
    device = ("cuda", GPT_TRAIN_CUDA) if os.path.exists(GPT_TRAIN_CUDA) else ("cpu", GPT_TRAIN)
    good(run(device, "kept"))
    before = files("kept", ".safetensors")
    for status, text, *arguments in ((2, "more than this machine has", "--host_budget=900000GiB"), (2, "invalid host_budget", "--host_budget=much"),
                                     (2, "invalid host_budget", "--host_budget=200%"),
                                     (2, "did you mean 16GiB", "--host_budget=16"),
                                     (3, "not enough host memory", "--offload=states", "--host_budget=0"),
                                     (3, "not enough host memory", "--offload=residuals", "--host_budget=0"),
                                     (3, "host_budget allows 1.0 MiB", "--offload=states", "--host_budget=1MiB", "--n_embd=192"),
                                     (2, "expected auto, none, all, or a list", "--offload=states,moments")):
        done = run(device, "kept", *arguments, "--init_from=" + ("scratch" if len(arguments) == 3 else "resume"))
        check(done.status == status and len(done.errors) == 1 and text in done.errors[0], f"'{text}' wanted: {done.said()}")
    check(files("kept", ".safetensors") == before, "a refusal changed the checkpoint")
    good(run(("cpu", GPT_TRAIN), "shared", "--host_budget=1GiB"), "offload='auto' moves nothing")
    done = good(run(("cpu", GPT_TRAIN), "adapters", "--offload=gradients", "--lora_rank=2", "--init_from=./kept"))
    check("offload='gradients' moves no gradients" in done.err, done.said())
    for word in ("residuals", "all"):
        done = good(run(("cpu", GPT_TRAIN), "unmoved", f"--offload={word}", "--recompute=mlp"))
        check(done.err.count(f"offload='{word}' moves no block's input: recompute='mlp' recomputes no block in full") == 1, done.said())


def plans():
    xl = ["--dataset=none", "--device_profile=rtx3060-12g", "--n_layer=48", "--n_head=25", "--n_embd=1600", "--block_size=1024",
          "--vocab_size=50304", "--dtype=bfloat16", "--batch_size=12", "--gradient_accumulation_steps=40", "--eval_iters=1"]
    alone = plan(*xl, status=3)
    check(alone["bytes"]["host_arena"] == 0, "a profile's host memory was guessed")
    kinds = {choice["kind"]: choice["changes"] for choice in alone["choices"]}
    check(kinds["host_budget"].endswith("with --host_budget=17.40GiB"), f"the budget that would do: {kinds}")
    seconds, arenas, budgets = [], [], (17.6, 64)
    for host in budgets:
        found = plan(*xl, f"--host_budget={host}GiB")
        check(found["bytes"]["fits"] and found["states"]["format"] == "master" and found["bytes"]["host_arena"] <= host * GIB,
              f"{host} GiB: {found['bytes']}")
        seconds.append(found["search"]["time_ratio_modelled"])
        arenas.append(found["bytes"]["host_arena"])
    check(seconds == sorted(seconds, reverse=True), f"a larger host_budget is slower: {seconds}")
    check(found["host_categories"]["gradients"] > 0, f"with room for them no gradients move: {found['host_categories']}")
    narrow = [*xl, f"--host_budget={budgets[0]}GiB", "--memory_budget=9.2GiB"]
    small = plan(*narrow)
    check(small["bytes"]["fits"] and small["bytes"]["host_arena"] <= budgets[0] * GIB, f"XL does not fit 9.2 GiB: {small['bytes']}")
    check(small["host_categories"]["activations"] > 0, f"no block's input moves: {small['host_categories']}")
    check(sum(small["host_categories"].values()) == small["bytes"]["host_arena"], "the host's categories are not its arena")
    check(small["search"]["time_ratio_modelled"] >= seconds[0], f"a smaller memory_budget is faster: {small['search']}")
    drawn = ran(GPT_TRAIN, *xl, f"--host_budget={budgets[0]}GiB", "--plan=svg").stdout
    check(f"host memory {arenas[0] / GIB:.2f} GiB" in drawn and "wte.weight.master\n" in drawn, "the picture lacks the host's memory")
    text = " ".join(subprocess.run([GPT_TRAIN, *xl, f"--host_budget={budgets[0]}GiB", "--plan"], check=True, capture_output=True, text=True).stdout.split())
    adds = float(re.search(r"which adds ([\d.]+) ms to each update", text)[1]) / 1e3
    link, update = 12 * 1.5576e9 / 18.6e9, 30 * 1.5576e9 / (0.7 * 360e9)  # AdamW alone moves 30 bytes a parameter on the card
    check(link - 1.15 * update <= adds <= 1.15 * link, f"12 bytes a parameter take {link} s on the link, AdamW {update}: {adds}")


end(bytes_equal, slices_equal, auto, beside, link, pageable, broken, less, refused, plans, begin=lambda: make_tokens("data"))
