#!/usr/bin/env python3
"""Training in bfloat16 and float16: the same course as in float32, resume to the byte, loss scaling, overflow, memory.

  course    the losses of a run in 16 bits stay close to float32's, and the validation loss within 0.05 nats of it
  resume    a run that was stopped and resumed leaves the bytes of the uninterrupted one, loss scaler included
  scaler    the scale follows torch.amp.GradScaler's rule (PyTorch 2's own if installed) through forced overflows
  diverged  with an absurd learning rate updates are skipped, no weight becomes infinite, the run stops with one line,
            and the previous checkpoint still loads
  poison    a checkpoint with a NaN is refused, naming the tensor
  memory    the process takes no more than the plan and the stated headroom: nothing is upcast as a whole
"""

import json
import os
import re
import shutil
import struct

from checks import (GPT_TRAIN, LONG, check, end, error_lines, files, is_instrumented, make_tokens, metrics, read_json, run, skip,
                    some, tensors_read, tensors_write)

TINY = ["--n_layer=2", "--n_head=2", "--n_embd=32", "--block_size=32", "--batch_size=4", "--vocab_size=96",
        "--gradient_accumulation_steps=2", "--eval_iters=4", "--warmup_iters=5", "--bias=True", "--threads=1"]
DTYPES = ("bfloat16", "float16")


def train(out, *arguments, status=0):
    return run(GPT_TRAIN, "--dataset=./data", f"--out_dir={out}", *TINY, *arguments, status=status)


def course():
    runs, steps = {}, 150 if LONG else 60
    for dtype in ("float32",) + DTYPES:
        out = "course-" + dtype
        train(out, f"--dtype={dtype}", f"--max_iters={steps}", f"--eval_interval={steps // 2}", f"--lr_decay_iters={steps}",
              "--learning_rate=3e-3")
        runs[dtype] = metrics(out), metrics(out, "val_loss")
    steps, evaluations = runs["float32"]
    check(steps[-1]["loss"] < 0.8 * steps[0]["loss"], "float32 learns")
    for dtype in DTYPES:
        other, other_evaluations = runs[dtype]
        worst = max(abs(a["loss"] - b["loss"]) for a, b in zip(steps, other))
        check(len(other) == len(steps) and worst < 0.1, f"{dtype}: a loss {worst:.4f} from float32's")
        check(worst > 0.0, f"{dtype}: the very losses of float32")
        gap = abs(other_evaluations[-1]["val_loss"] - evaluations[-1]["val_loss"])
        check(gap < 0.05, f"{dtype}: validation loss {gap:.4f} from float32's")
        print(f"{dtype}: losses within {worst:.4f}, validation loss within {gap:.4f} of float32's")


def resume():
    for dtype in some(("float16", "bfloat16")):
        whole, parts = "whole-" + dtype, "parts-" + dtype
        common = [f"--dtype={dtype}", "--eval_interval=10", "--dropout=0.1", "--lr_decay_iters=30"]
        train(whole, "--max_iters=29", *common)
        train(parts, "--max_iters=14", *common)
        train(parts, "--init_from=resume", "--max_iters=29", *common)
        check(files(whole, ".safetensors") == files(parts, ".safetensors"), f"{dtype}: a resumed run leaves other bytes")
        states = [read_json(os.path.join(out, "trainer_state.json")) for out in (whole, parts)]
        check(states[0].get("loss_scaler") == states[1].get("loss_scaler"), f"{dtype}: another loss scaler")
        check((states[0].get("loss_scaler") is not None) == (dtype == "float16"), f"{dtype}: a loss scaler in the record")


def reference_scales(found):
    """The scale before each update, by PyTorch 2's own GradScaler or else by its rule."""
    scales, scale, tracker, scaler = [], 65536.0, 0, None
    try:
        import torch  # pylint: disable=import-outside-toplevel
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(torch.ones(1))
    except (ImportError, AttributeError, TypeError, RuntimeError):
        scaler = None
    for inf in found:
        if scaler:
            scales.append(scaler.get_scale())
            weight = torch.nn.Parameter(torch.zeros(1))
            weight.grad = torch.full((1,), float("inf") if inf else 1.0)
            optimizer = torch.optim.SGD([weight], lr=0.0)
            scaler.step(optimizer)
            scaler.update()
            continue
        scales.append(scale)
        tracker = 0 if inf else tracker + 1
        if inf:
            scale *= 0.5
        elif tracker == 2000:
            scale, tracker = scale * 2.0, 0
    print("float16: scales compared with", "PyTorch's GradScaler" if scaler else "GradScaler's rule")
    return scales


def scaler():
    """One token an update: its loss gradient is the scale itself, so that a doubled scale overflows at once."""
    out = "scaler"
    train(out, "--dtype=float16", "--max_iters=4400", "--eval_interval=100000", "--block_size=1", "--n_layer=1",
          "--batch_size=1", "--gradient_accumulation_steps=1", "--n_embd=8", "--learning_rate=1e-3",
          "--always_save_checkpoint=False", "--decay_lr=False")
    steps = metrics(out)
    skipped = [0] + [step["skipped"] for step in steps]
    found = [after > before for before, after in zip(skipped, skipped[1:])]
    scales = [step["loss_scale"] for step in steps]
    check(sum(found) >= 3 and found[-1] is False, f"{sum(found)} overflows were forced")
    check(len(set(scales)) >= 2, "the scale moved")
    check(scales == reference_scales(found), "the sequence of scales is not GradScaler's")
    print(f"float16: {sum(found)} overflows in {len(found)} updates, scales {min(scales):g} to {max(scales):g}")


def counted():
    """Updates skipped before a resume are counted in its metrics."""
    out = "counted"
    tiny = ["--dtype=float16", "--block_size=1", "--n_layer=1", "--batch_size=1", "--gradient_accumulation_steps=1", "--n_embd=8"]
    train(out, *tiny, "--max_iters=1")
    train(out, *tiny, "--init_from=resume", "--max_iters=3")
    skipped = [step["skipped"] for step in metrics(out)]
    check(len(skipped) == 4 and skipped[1] >= 1 and skipped == sorted(skipped), f"skipped before and after a resume: {skipped}")


def finite(out):
    """Returns true when all values of the folder's model are finite."""
    return all(abs(value) < 1e30 for _, _, raw in tensors_read(os.path.join(out, "model.safetensors")).values()
               for value in struct.unpack(f"<{len(raw) // 4}f", raw))


def diverged():
    for dtype in DTYPES:
        out = "diverged-" + dtype
        train(out, f"--dtype={dtype}", "--max_iters=5", "--eval_interval=5")
        shutil.copytree(out, out + "-short")
        absurd = ["--init_from=resume", f"--dtype={dtype}", "--eval_interval=2", "--learning_rate=1000", "--weight_decay=1000",
                  "--decay_lr=False", "--grad_clip=0"]
        run = train(out, "--max_iters=400", *absurd, status=1)
        errors = error_lines(run)
        check(len(errors) == 1 and "skipped" in errors[0] and "learning_rate" in errors[0], f"{dtype}: {errors}")
        check("is not saved" in run.stderr, f"{dtype}: what had diverged was saved")
        last = int(re.findall(r"iter (\d+): .*this update is skipped", run.stderr)[-1])
        short = train(out + "-short", f"--max_iters={last - 3}", *absurd, status=1)
        check(f"error[diverged]: iter {last - 2} is not saved" in short.stderr, f"{dtype}: an end whose save is refused: {short.stderr[-300:]}")
        check(finite(out), f"{dtype}: a weight is not finite")
        judged = train(out, "--init_from=resume", f"--dtype={dtype}", "--eval_only=True").stdout
        loss = next(line for line in judged.splitlines() if "val loss" in line).split()[-1]
        check(float(loss) < float("inf"), f"{dtype}: the checkpoint that is left has a loss of {loss}")
        train(out, "--init_from=resume", f"--dtype={dtype}", "--max_iters=7", "--eval_interval=5",
              "--learning_rate=1e-3", "--weight_decay=0.1")


def poison():
    train("poison", "--dtype=bfloat16", "--max_iters=5", "--eval_interval=5")
    os.makedirs("poisoned")
    shutil.copy("poison/config.json", "poisoned")
    weights = tensors_read("poison/model.safetensors")
    name = next(name for name in weights if name.endswith("h.1.mlp.c_fc.weight"))
    dtype, shape, raw = weights[name]
    tensors_write("poisoned/model.safetensors", {**weights, name: (dtype, shape, raw[:12] + struct.pack("<f", float("nan")) + raw[16:])})
    run = train("from-poisoned", "--init_from=poisoned", "--dtype=bfloat16", "--max_iters=1", status=2)
    errors = error_lines(run)
    check(len(errors) == 1 and name in errors[0], f"a NaN in {name}: {errors}")


def memory():
    """A model of 19M parameters: an upcast of its weights or activations would show."""
    sizes, shadowed = {}, is_instrumented(GPT_TRAIN)
    if shadowed:
        skip("halves_resident", "a build with a sanitizer, whose own memory counts")
    large = ["--max_iters=0", "--eval_interval=1000", "--eval_iters=1", "--n_layer=6", "--n_embd=512", "--n_head=8",
             "--block_size=128", "--batch_size=4", "--gradient_accumulation_steps=1"]
    for dtype in ("float32", "float16"):
        sizes[dtype] = json.loads(train("plan", "--dtype=" + dtype, *large, "--plan=json").stdout)["bytes"]["arena"]
    for dtype in some(("bfloat16", "float16")):
        out = "memory-" + dtype
        run = train(out, f"--dtype={dtype}", *large)
        line = next(text for text in run.stdout.splitlines() if text.startswith("Memory: "))
        steps = metrics(out)
        most = next(part for part in line.split(", ") if part.startswith("process at most"))
        number, unit = most.rstrip(".").split()[-2:]
        resident = float(number) * {"KiB": 2.0 ** 10, "MiB": 2.0 ** 20, "GiB": 2.0 ** 30}[unit]
        planned = steps[-1]["planned_bytes"]
        check(shadowed or resident <= planned + (64 << 20), f"{dtype}: {resident:.0f} resident, {planned} planned")
        sizes[dtype] = planned
    # Weights and their masters take 6 bytes instead of 4, activations 2 instead of 4.  The two differ in scratch only:
    # a processor with bfloat16 products packs its operands differently.
    check(abs(sizes["bfloat16"] - sizes["float16"]) < 0.02 * sizes["float16"], f"16-bit plans differ: {sizes}")
    check(sizes["bfloat16"] < 0.97 * sizes["float32"], f"16 bits save too little: {sizes}")


end(course, resume, scaler, counted, diverged, poison, memory, begin=lambda: make_tokens("data"))
