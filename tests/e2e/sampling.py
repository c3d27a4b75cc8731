#!/usr/bin/env python3
"""gpt-sample with a model whose logits are written here, the same at every position, so that each text is known.

  penalty   repetition_penalty divides positive logits and multiplies negative ones, once for each token of the window
Needs GPT_SAMPLE.  Prints "checks: P passed, F failed, S skipped".
"""
import struct
import subprocess

from checks import GPT_SAMPLE, check_named as check, end, patience, tensors_write, write_json

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


end(penalty)
