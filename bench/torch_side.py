"""PyTorch's side of bench/run: a GPT-2's training step, timed.

usage: torch_side.py SHAPE STEPS THREADS plain|fused     SHAPE: JSON [layers, heads, channels, vocabulary, batch, block]
Prints one line of JSON: seconds of each step except the first, and PyTorch's version.
"""
import json
import sys
import time

import torch

import torch_gpt2


def main():
    (layers, heads, width, vocab, batch, block), steps = json.loads(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(int(sys.argv[3]))
    torch.manual_seed(1)
    model = torch_gpt2.Gpt2(layers, heads, width, vocab, block, bias=True)
    optimizer = model.optimizer(6e-4, (0.9, 0.95), 0.1, **({"fused": True} if sys.argv[4] == "fused" else {}))
    times = []
    for _ in range(steps + 1):
        ids = torch.randint(0, min(vocab, 50257), (batch, block + 1))
        start = time.perf_counter()
        loss = model(ids[:, :-1], ids[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        times.append(time.perf_counter() - start)
    print(json.dumps({"times": times[1:], "version": torch.__version__}))


if __name__ == "__main__":
    main()
