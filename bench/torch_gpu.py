"""PyTorch's side of bench/gpu-check: updates of a GPT-2 as nanoGPT runs them on a card, timed.

usage: torch_gpu.py JSON     {"shape": [layers, heads, channels, vocabulary, samples, block], "micro_batch", "mode": "eager" or
                              "compile", "steps", "device"}
bf16 by autocast, fp32 weights, scaled_dot_product_attention, fused AdamW, gradients of micro-batches added up, clipping by the
norm.  Prints one line of JSON: seconds of each update but the first three, and PyTorch's version; or {"out_of_memory": true}.
"""
import json
import sys
import time

import torch

import torch_gpt2


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def train(task):
    layers, heads, width, vocab, samples, block = task["shape"]
    device, micro = task["device"], task["micro_batch"]
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = torch_gpt2.Gpt2(layers, heads, width, vocab, block, bias=True).to(device)
    optimizer = model.optimizer(6e-4, (0.9, 0.95), 0.1, fused=device == "cuda")
    step = torch.compile(model) if task["mode"] == "compile" else model
    times = []
    for _ in range(task["steps"] + 3):
        batches = [torch.randint(0, min(vocab, 50257), (micro, block + 1)) for _ in range(samples // micro)]
        wait(device)
        start = time.perf_counter()
        for batch in batches:
            ids = batch.to(device, non_blocking=True)
            with torch.autocast(device, dtype=torch.bfloat16):
                loss = step(ids[:, :-1], ids[:, 1:]) / len(batches)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wait(device)
        times.append(time.perf_counter() - start)
    return {"times": times[3:], "version": torch.__version__}


def main():
    task = json.loads(sys.argv[1])
    try:
        print(json.dumps(train(task)))
    except torch.cuda.OutOfMemoryError:
        print(json.dumps({"out_of_memory": True}))


if __name__ == "__main__":
    main()
