"""PyTorch's side of bench/run and gpt-check: updates of a GPT-2, timed.

usage: torch_side.py JSON    {"shape": [layers, heads, channels, vocabulary, samples, block], "micro_batches", "mode",
                              "steps", "seconds", "bias", "device", "threads", "attention", "most_bytes"}
Modes as nanoGPT runs them, on a card: "compile", bf16 by autocast, fp32 weights, fused AdamW; on a processor: "plain", "fused" (AdamW) and "compile_float32", float32.  scaled_dot_product_attention, gradients of micro-batches added up,
clipping by the norm.  "attention" names the only kernel for it, "flash" or "cudnn"; "most_bytes" caps PyTorch's memory on
the card.  Of several micro-batches, listed largest first, the first that fits is used.  Prints one line of
JSON: seconds of each update after the first two, of float32 after the first (at least one, and no more than "seconds"
allows), the micro-batch, the bytes in use on the card at the end, PyTorch's included, and its version; or
{"out_of_memory": true}.
"""
import contextlib
import gc
import json
import sys
import time

import torch

import torch_gpt2


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def is_float32(task):
    return task["mode"] in ("plain", "fused", "compile_float32")


def update(step, model, optimizer, task, micro):
    """Returns the seconds of one update."""
    _, _, _, vocab, samples, block = task["shape"]
    device = task["device"]
    batches = [torch.randint(0, min(vocab, 50257), (micro, block + 1)) for _ in range(samples // micro)]
    wait(device)
    start = time.perf_counter()
    for batch in batches:
        ids = batch.to(device, non_blocking=True)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=not is_float32(task)):
            loss = step(ids[:, :-1], ids[:, 1:]) / len(batches)
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    wait(device)
    return time.perf_counter() - start


def card_bytes(device):
    if device != "cuda":
        return 0
    free, total = torch.cuda.mem_get_info()
    return total - free


def train(task, micro):
    layers, heads, width, vocab, _, block = task["shape"]
    device = task["device"]
    torch.manual_seed(1)
    if "threads" in task:
        torch.set_num_threads(task["threads"])
    if not is_float32(task):
        torch.set_float32_matmul_precision("high")
    model = torch_gpt2.Gpt2(layers, heads, width, vocab, block, bias=task.get("bias", True)).to(device)
    optimizer = model.optimizer(6e-4, (0.9, 0.95), 0.1, **({"fused": True} if task["mode"] != "plain" else {}))
    step = torch.compile(model) if task["mode"].startswith("compile") else model
    times = []
    for _ in range(1 if is_float32(task) else 2):  # compilation, the optimizer's states, the allocator
        update(step, model, optimizer, task, micro)
    while len(times) < task["steps"] and (not times or sum(times) + times[-1] < task.get("seconds", float("inf"))):
        times.append(update(step, model, optimizer, task, micro))
    return {"times": times, "micro_batch": micro, "card_bytes": card_bytes(device), "version": torch.__version__}


def attention_of(task):
    """Returns the context in which scaled_dot_product_attention has the task's kernel only."""
    if not task.get("attention") or task["device"] != "cuda":
        return contextlib.nullcontext()
    kernels = torch.nn.attention.SDPBackend
    return torch.nn.attention.sdpa_kernel({"flash": kernels.FLASH_ATTENTION, "cudnn": kernels.CUDNN_ATTENTION}[task["attention"]])


def memory_cap(task):
    """Leaves PyTorch the task's bytes, less those that its context has taken."""
    if task.get("most_bytes") and task["device"] == "cuda":
        torch.zeros(1, device="cuda")
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(max(task["most_bytes"] - card_bytes("cuda"), 0) / total)


def fits(task, micro):
    """Returns train()'s result; None when memory does not suffice.  Its memory is free again when it has returned."""
    try:
        with attention_of(task):
            return train(task, micro)
    except torch.cuda.OutOfMemoryError:
        return None


def main():
    task = json.loads(sys.argv[1])
    memory_cap(task)
    for micro in task["micro_batches"]:
        found = fits(task, micro)
        if found:
            print(json.dumps(found))
            return
        gc.collect()
        if task["mode"].startswith("compile"):
            torch._dynamo.reset()  # pylint: disable=protected-access
        torch.cuda.empty_cache()
    print(json.dumps({"out_of_memory": True}))


if __name__ == "__main__":
    main()
