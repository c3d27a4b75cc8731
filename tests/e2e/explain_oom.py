#!/usr/bin/env python3
"""--explain-oom from the command line: a file or standard input, messages of several years, input that is not a
message, and the plan for the memory that the message reports.  Prints "checks: P passed, F failed, S skipped".
"""

import os
import re
import subprocess

from checks import GPT_TRAIN, check, end, patience, write

MESSAGE = ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total capacity of 11.69 GiB "
           "of which 2.68 GiB is free. Process 1234 has 1.97 GiB memory in use. Including non-PyTorch memory, this process "
           "has 7.04 GiB memory in use. Of the allocated memory 6.51 GiB is allocated by PyTorch, and 402.57 MiB is "
           "reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
           "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.\n")
TRACEBACK = ("step 0\nTraceback (most recent call last):\n"
             '  File "nanoGPT/train.py", line 264, in <module>\n    losses = estimate_loss()\n'
             '  File "nanoGPT/model.py", line 187, in forward\n    logits = self.lm_head(x)\n'
             '  File "/x/site-packages/torch/nn/modules/linear.py", line 125, in forward\n    return F.linear(input)\n')
OLD = ("RuntimeError: CUDA out of memory. Tried to allocate 786.00 MiB (GPU 0; 15.78 GiB total capacity; 14.28 GiB already "
       "allocated; 620.69 MiB free; 14.32 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try "
       "setting max_split_size_mb to avoid fragmentation.\n")
SMALL = ["--n_layer=2", "--n_head=2", "--n_embd=64", "--block_size=64", "--gradient_accumulation_steps=1",
         "--vocab_size=50304", "--dataset=./none"]


def explain(text, *arguments, path=None):
    """Returns exit status, standard output and standard error."""
    source = path or "-"
    done = subprocess.run([GPT_TRAIN, "--explain-oom=" + source, *arguments], input=text, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=patience(120), check=False)
    return done.returncode, done.stdout, done.stderr


def contains(name, text, *words):
    for word in words:
        check(re.sub(r"\s+", " ", word) in re.sub(r"\s+", " ", text), f"{name}: {word!r} is not in {text!r}")


def story():
    """An evaluation's logits do not fit: the answer explains each number, names the tensor, and gives the budget and a
    plan that fits it."""
    path = write("log.txt", TRACEBACK + MESSAGE)
    status, out, error = explain("", "--batch_size=64", "--dtype=float32", *SMALL[3:], path=path)
    check(status == 0, f"story: exit status {status}, {error!r}")
    contains("story", out, "CUDA, GPU 0", "tried to allocate 6.14 GiB", "process 1234 1.97 GiB", "context 140.2 MiB",
             "in the forward pass of an evaluation; model.py:187 in forward: logits = self.lm_head(x)",
             "would have been 3.07 GiB short", "9.58 GiB for tensors = 11.69 GiB total - 1.97 GiB of other processes",
             "For the NVIDIA GeForce RTX 3060 12 GB", "a context takes 240.0 MiB", "9.72 GiB available: fits")
    status, out, error = explain("", "--batch_size=64", "--dtype=float32", "--backend=cpu", *SMALL[3:], path=path)
    contains("story on the cpu", out, "For this machine", "9.58 GiB available: fits")
    check(status == 0, f"story on the cpu: exit status {status}, {error!r}")
    status, out, error = explain("", "--batch_size=64", "--device_profile=rtx4090", *SMALL[3:], path=path)
    contains("story on another card", out, "For the NVIDIA GeForce RTX 4090", "fits")
    status, out, error = explain("", "--device_profile=rtx1", *SMALL, path=path)
    check(status == 2 and error.count("gpt-train: error") == 1, f"no such card: {status}, {error!r}")
    status, out, error = explain(MESSAGE, "--batch_size=1024", *SMALL)
    contains("logits", out, "the logits: batch x block_size x vocab_size in 16 bits, 6593445888 B = 6.14 GiB")
    check("nanoGPT's defaults" not in out, "logits: a configuration was given")
    check(not os.path.exists("out"), "nothing is trained: no out folder")


def others():
    status, out, error = explain(OLD, "--batch_size=1", *SMALL)
    check(status == 0, f"old form: exit status {status}, {error!r}")
    contains("old form", out, "allocated 14.28 GiB", "reserved, unused 41.0 MiB", "No tensor of this configuration has that size",
             "14.93 GiB for tensors = free + PyTorch's own")
    status, out, _ = explain(OLD.replace("CUDA", "HIP"), "--batch_size=8", "--block_size=1024", "--dtype=float32", *SMALL[4:],
                             "--n_layer=2", "--n_head=2", "--n_embd=64", "--memory_budget=2GiB")
    contains("HIP", out, "The message (HIP, GPU 0)", "the logits: batch x block_size x vocab_size in 16 bits", "2.00 GiB available")
    check(status == 0, f"HIP: exit status {status}")
    status, out, _ = explain("RuntimeError: CUDA error: out of memory\n", "--batch_size=1", *SMALL)
    contains("no numbers", out, "gives no sizes", "The message does not say")
    check(status == 0, f"no numbers: exit status {status}")


def totals():
    """The total bounds the budget, whichever process is named and whatever PyTorch claims to use."""
    tried = "CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total capacity of "
    status, out, error = explain(tried + "7.62 GiB of which 2.68 GiB is free.\n", "--batch_size=1", *SMALL)
    contains("a total alone", out, "At most 7.62 GiB including a context", "7.62 GiB available: fits")
    check(status == 0, f"a total alone: exit status {status}, {error!r}")
    # A driver that spills into the host's memory.
    status, out, error = explain(tried + "8.00 GiB of which 0 bytes is free. Including non-PyTorch memory, this process has "
                                 "17179869184.00 GiB memory in use. Of the allocated memory 13.50 GiB is allocated by PyTorch, "
                                 "and 100.00 MiB is reserved by PyTorch but unallocated.\n", "--batch_size=1", *SMALL)
    contains("spilled", out, "8.00 GiB for tensors", "8.00 GiB available: fits")
    check(status == 0, f"spilled: exit status {status}, {error!r}")
    nobody = MESSAGE.replace("Process 1234 has 1.97 GiB memory in use. ", "")
    status, out, error = explain(nobody, "--batch_size=1", *SMALL)
    contains("nobody is named", out, "1.97 GiB used by something the message does not name", "9.72 GiB available: fits")
    check(status == 0, f"nobody is named: exit status {status}, {error!r}")


def impossible():
    for name, text in {"nothing tried": MESSAGE.replace("6.14 GiB", "0 bytes"),
                       "absurd": MESSAGE.replace("6.14 GiB", "999999999999.00 GiB"),
                       "no total": MESSAGE.replace("11.69 GiB", "0 bytes"),
                       "an absurd total": MESSAGE.replace("11.69 GiB", "99999999999999.00 GiB"),
                       "more free than there is": MESSAGE.replace("2.68 GiB", "26.80 GiB"),
                       "others hold more than there is": MESSAGE.replace("1.97 GiB", "19.70 GiB")}.items():
        status, out, error = explain(text, "--batch_size=1", *SMALL)
        check(status == 2 and out == "", f"{name}: exit status {status}, {out!r}")
        check(error.count("gpt-train: error") == 1 and "cannot be right" in error, f"{name}: {error!r}")


def defaults_and_no_fit():
    status, out, error = explain(MESSAGE.replace("11.69 GiB", "1.00 GiB").replace("2.68 GiB", "10.00 MiB")
                                 .replace("6.51 GiB", "500.00 MiB").replace("7.04 GiB", "800.00 MiB")
                                 .replace("1.97 GiB", "100.00 MiB"))
    check(status == 3, f"no fit: exit status {status}")
    contains("no fit", out, "nanoGPT's defaults", "DOES NOT FIT")
    check(error.count("gpt-train: error") == 1, f"no fit: {error!r}")
    check("not enough memory" in error and "---- gpt-train report" not in error, f"no fit: {error!r}")


def refusals():
    cases = {"no message": ("all went well\n", []), "empty": ("", []),
             "json": (MESSAGE, ["--plan=json"])}
    for name, (text, arguments) in cases.items():
        status, out, error = explain(text, *arguments)
        check(status == 2 and out == "", f"{name}: exit status {status}, {out!r}")
        check(error.count("gpt-train: error") == 1, f"{name}: {error!r}")
        check("report" not in error, f"{name}: no report for a wrong call")
    for path in ("absent", "."):
        status, _, error = explain("", path=path)
        check(status in (1, 2) and error.count("gpt-train: error") == 1, f"{path}: {status}, {error!r}")
    status, _, error = explain("CUDA out of memory " * 1000000)
    check(status == 2 and error.count("gpt-train: error") == 1, f"too long: {status}, {error[:200]!r}")
    status, out, error = explain("\x1b[2J" + TRACEBACK.replace("lm_head", "\x1b]0;x\x07") + MESSAGE, "--batch_size=1", *SMALL)
    check(status == 0 and "\x1b" not in out + error, "control characters of the text are not printed")


end(story, others, totals, impossible, defaults_and_no_fit, refusals)
