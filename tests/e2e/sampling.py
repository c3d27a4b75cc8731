#!/usr/bin/env python3
"""What gpt-sample writes.

  penalty   with a model whose logits are written here, the same at every position, so that each text is known:
            repetition_penalty divides positive logits and multiplies negative ones, once for each token of the window
  ring      a sliding window's ring of keys and values gives the same text on all backends
Needs GPT_TRAIN and GPT_SAMPLE.
"""
import os
import struct
import subprocess

from checks import (BUILD, GPT_SAMPLE, GPT_TRAIN, check_named as check, end, make_tokens, opencl_device, patience, ran, skip,
                    tensors_write, write_json)

WIDTH, WINDOW = 8, 4


def make_model(folder, logits):
    """Writes GPT-2 of one block that adds nothing; the last norm gives the first of WIDTH channels, alone."""
    def tensor(*shape, values=()):
        count = 1
        for size in shape:
            count *= size
        return "F32", shape, struct.pack(f"<{count}f", *(list(values) + [0.0] * (count - len(values))))
    rows = [value for byte in range(256) for value in (logits.get(chr(byte), -50.0), *[0.0] * (WIDTH - 1))]
    tensors = {"wte.weight": tensor(256, WIDTH, values=rows), "wpe.weight": tensor(WINDOW, WIDTH),
               "ln_f.weight": tensor(WIDTH), "ln_f.bias": tensor(WIDTH, values=[1.0])}
    for name, shape in (("attn.c_attn", (WIDTH, 3 * WIDTH)), ("attn.c_proj", (WIDTH, WIDTH)), ("mlp.c_fc", (WIDTH, 4 * WIDTH)),
                        ("mlp.c_proj", (4 * WIDTH, WIDTH))):
        tensors[f"h.0.{name}.weight"], tensors[f"h.0.{name}.bias"] = tensor(*shape), tensor(shape[1])
    for name in ("ln_1", "ln_2"):
        tensors[f"h.0.{name}.weight"], tensors[f"h.0.{name}.bias"] = tensor(WIDTH), tensor(WIDTH)
    tensors_write(folder + "/model.safetensors", tensors)
    write_json(folder + "/config.json", {"model_type": "gpt2", "n_layer": 1, "n_head": 1, "n_embd": WIDTH, "n_positions": WINDOW,
                                         "vocab_size": 256, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5})


def greedy(logits, start, count, penalty):
    """The text by the definition: the penalty changes the logits of the tokens in the window."""
    text = start
    for _ in range(count):
        seen = text[-WINDOW:]
        changed = {token: value if token not in seen else value / penalty if value > 0 else value * penalty
                   for token, value in logits.items()}
        text += max(changed, key=changed.get)
    return text


def penalty():
    cases = {"negative": ({"a": -1.0, "b": -1.5, "c": -1.8, "d": -5.0}, "c", "cabaac"),
             "mixed": ({"a": 0.5, "b": -0.1, "c": 0.3, "d": -0.15}, "d", None),
             "window": ({"a": 3.0, "b": 2.5, "c": 2.2, "d": 2.0, "e": 1.9, "f": 1.8, "g": 1.7, "h": 1.6}, "a", "abcdea"),
             "once": ({"a": 3.0, "b": 1.2, "c": 1.0}, "aaa", "aaaa")}
    for name, (logits, start, begins) in cases.items():
        make_model(name, logits)
        for factor in (1.0, 2.0, 5.0):
            wanted = greedy(logits, start, 12, factor)
            done = subprocess.run([GPT_SAMPLE, "--init_from=" + name, "--tokenizer=bytes", "--start=" + start, "--temperature=0",
                                   f"--repetition_penalty={factor}", "--max_new_tokens=12", "--num_samples=1", "--threads=1"],
                                  capture_output=True, text=True, check=False, timeout=patience(60))
            check(f"{name}, penalty {factor}", done.stdout.split("\n")[0] == wanted and (factor != 2.0 or wanted.startswith(begins or "")),
                  f"{done.stdout!r}, expected {wanted!r}; {done.stderr}")


def ring():
    """160 tokens and prefills of 64 in 2 layers with a window of 24, whose cache has 128 rows, and one without."""
    make_tokens("data")
    made = subprocess.run([GPT_TRAIN, "--dataset=./data", "--vocab_size=256", "--arch=qwen3", "--n_layer=3", "--n_head=2", "--n_embd=32",
                           "--n_kv_head=1", "--sliding_window=24", "--sliding_window_pattern=3", "--block_size=256", "--batch_size=4",
                           "--gradient_accumulation_steps=1", "--max_iters=20", "--eval_iters=1", "--learning_rate=1e-2", "--warmup_iters=0",
                           "--device=cpu", "--out_dir=windows"], capture_output=True, text=True, check=False, timeout=patience(60))
    check("a model with windows", made.returncode == 0, made.stderr)
    emulated = os.path.join(BUILD, "tests", "cuda_on_cpu", "gpt-sample-cuda")
    programs = [(GPT_SAMPLE, "cpu"), (emulated, "cuda"), (GPT_SAMPLE, "opencl")]
    if not os.path.exists(emulated):
        skip("cuda_ring", "no C++17 compiler, so that the cuda backend cannot be emulated")
        programs.remove((emulated, "cuda"))
    if opencl_device() is None:
        programs.pop()
    texts = {}
    for program, device in programs:
        done = ran(program, "--out_dir=windows", "--tokenizer=bytes", "--start=" + "0123456789" * 14, "--max_new_tokens=20",
                   "--num_samples=1", "--temperature=1", "--dtype=float32", "--device=" + device, timeout=patience(120))
        texts[device] = done.stdout
        check(f"the text of a ring on {device}", done.returncode == 0 and len(done.stdout) > 160 and done.stdout == texts["cpu"],
              done.stdout + done.stderr)


end(penalty, ring)
