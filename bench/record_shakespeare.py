#!/usr/bin/env python3
"""For published figures, not in CI: nanoGPT's CPU configuration on tinyshakespeare, gpt-train against PyTorch.

    bench/record_shakespeare.py --build=BUILD --text=input.txt [--iters=2000] [--threads=2] [--work=FOLDER]

Both start from the same weights and read the same batches.  The loss is that of the whole validation split, by
gpt-train's evaluation for its own weights and by PyTorch for both.  Steps are timed in alternating runs of 100.  Prints
one JSON object at the end.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import time

import torch

import torch_gpt2 as ref

LAYERS, HEADS, WIDTH, BLOCK, BATCH = 4, 4, 128, 64, 12
PEAK, LOW, WARMUP = 1e-3, 1e-4, 100
SEED = 1337


def whole_split_loss(model, path):
    data = ref.TrainingBatches(path, 0, BLOCK).tokens
    total, count = 0.0, 0
    with torch.no_grad():
        starts = list(range(0, len(data) - 1, BLOCK))
        for at in range(0, len(starts), 64):
            rows = [s for s in starts[at:at + 64] if s + BLOCK < len(data)]
            x = torch.stack([data[s:s + BLOCK] for s in rows])
            y = torch.stack([data[s + 1:s + 1 + BLOCK] for s in rows])
            total += model(x, y).item() * x.numel()
            count += x.numel()
        tail = starts[-1]
        if tail + BLOCK >= len(data):
            x, y = data[tail:len(data) - 1][None], data[tail + 1:][None]
            if x.numel():
                # The tail has its full context, as gpt-train's last window does.
                x, y = data[-BLOCK - 1:-1][None], data[-BLOCK:][None]
                left = len(data) - 1 - tail
                logits_loss = tail_loss(model, x, y, left)
                total += logits_loss * left
                count += left
    return total / count


def tail_loss(model, x, y, left):
    ignored = y.clone()
    ignored[:, :BLOCK - left] = -100
    return model(x, ignored).item()


def torch_train(model, batches, iters):
    optimizer = model.optimizer(PEAK, (0.9, 0.99), 0.1)
    times = []
    for step in range(iters):
        start = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = ref.learning_rate(step, PEAK, LOW, WARMUP, 2000)
        x, y = batches(step, 0, BATCH)
        loss = model(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append(time.perf_counter() - start)
        yield step, loss.item(), times


def gpt_train(build, data, out, extra, threads):
    command = [os.path.join(build, "gpt-train"), "--dataset=" + data, "--out_dir=" + out, "--batch_size=12",
               "--gradient_accumulation_steps=1", "--learning_rate=1e-3", "--min_lr=1e-4", "--warmup_iters=100",
               "--lr_decay_iters=2000", "--beta2=0.99", "--eval_iters=1", "--eval_interval=1000000",
               "--threads=%d" % threads] + extra
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--iters", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work", default="record-work")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(SEED)
    data, start, out = (os.path.join(options.work, name) for name in ("data/", "start", "out"))
    subprocess.run([os.path.join(options.build, "gpt-prepare"), "--tokenizer=chars", "--out-dir=" + data, options.text],
                   check=True, capture_output=True)
    model = ref.Gpt2(LAYERS, HEADS, WIDTH, 65, BLOCK)
    ref.save_folder(model, start, HEADS, BLOCK)
    batches = ref.TrainingBatches(os.path.join(data, "train.bin"), SEED, BLOCK)
    ours_ms, theirs_ms, run = [], [], torch_train(model, batches, options.iters)
    for first in range(0, options.iters, 100):
        last = min(first + 100, options.iters)
        text = gpt_train(options.build, data, out, ["--init_from=" + (start if first == 0 else "resume"),
                                                    "--max_iters=%d" % (last - 1)], options.threads)
        ours_ms += [float(t) for t in re.findall(r"^iter \d+: loss [\d.]+, time ([\d.]+)ms", text, re.M)]
        for step, _, times in run:
            if step == last - 1:
                theirs_ms += [1e3 * t for t in times[first:last]]
                break
        print("%d iterations" % last, flush=True)
    text = gpt_train(options.build, data, out, ["--init_from=resume", "--eval_only=True", "--eval_iters=0"],
                     options.threads)
    ours = float(re.search(r"val loss ([\d.]+)", text).group(1))
    trained = ref.Gpt2(LAYERS, HEADS, WIDTH, 65, BLOCK)
    load_folder(trained, out)
    result = {
        "iterations": options.iters, "threads": options.threads, "torch": torch.__version__,
        "val_loss_gpt_train": ours,
        "val_loss_gpt_train_weights_in_torch": whole_split_loss(trained, os.path.join(data, "val.bin")),
        "val_loss_torch": whole_split_loss(model, os.path.join(data, "val.bin")),
        "ms_gpt_train": {"min": min(ours_ms), "median": statistics.median(ours_ms)},
        "ms_torch": {"min": min(theirs_ms), "median": statistics.median(theirs_ms)},
        "ratio_of_medians": statistics.median(ours_ms) / statistics.median(theirs_ms),
    }
    print(json.dumps(result, indent=1))


def load_folder(model, folder):
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        raw = file.read()
    length = int.from_bytes(raw[:8], "little")
    header, body = json.loads(raw[8:8 + length]), bytearray(raw[8 + length:])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            entry = header["transformer." + name]
            begin, end = entry["data_offsets"]
            parameter.copy_(torch.frombuffer(body[begin:end], dtype=torch.float32).view(entry["shape"]))


if __name__ == "__main__":
    main()
