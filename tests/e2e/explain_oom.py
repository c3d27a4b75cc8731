#!/usr/bin/env python3
"""--explain-oom from the command line: a file or standard input, messages of several years, input that is not a
message, and the plan for the memory that the message reports.
"""

import os
import re

from checks import GPT_TRAIN, check, end, patience, ran, write

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
    done = ran(GPT_TRAIN, "--explain-oom=" + source, *arguments, input=text, timeout=patience(120))
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
    report(MESSAGE, "CUDA, GPU 0", arguments=["--batch_size=1", "--lora_rank=8"])  # a plan needs no weights
    contains("logits", out, "the logits: batch x block_size x vocab_size in 16 bits, 6593445888 B = 6.14 GiB")
    check("nanoGPT's defaults" not in out, "logits: a configuration was given")
    status, out, error = explain(MESSAGE, "--batch_size=1", "--block_size=256", "--init_from=Qwen/Qwen3-0.6B", "--lora_rank=16")
    check(status == 0 and "comes from the built-in table" in error, f"a known model by its name: {status}, {error!r}")
    contains("a known model", out, "a vocabulary of 151936", "fits")
    check(out.rstrip().endswith("hf download Qwen/Qwen3-0.6B --exclude 'original/*'"), f"the last line: {out[-200:]!r}")
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
    contains("spilled", out, "this process unknown the driver does not count it", "At most 8.00 GiB",
             "PyTorch had 13.60 GiB on this card of 8.00 GiB", "put 5.60 GiB into the host's memory",
             "--memory_budget=SIZE", "8.00 GiB available: fits")
    check("for tensors" not in out and "context  " not in out, f"spilled: {out!r}")
    check(status == 0, f"spilled: exit status {status}, {error!r}")
    nobody = MESSAGE.replace("Process 1234 has 1.97 GiB memory in use. ", "")
    status, out, error = explain(nobody, "--batch_size=1", *SMALL)
    contains("nobody is named", out, "1.97 GiB used by something the message does not name", "9.72 GiB available: fits")
    check(status == 0, f"nobody is named: exit status {status}, {error!r}")


def report(text, *words, arguments=("--batch_size=1",), never=()):
    """A message is explained in these words, and a plan follows.  Returns what is printed."""
    status, out, error = explain(text, *arguments, *SMALL)
    check(status == 0 and "fits" in out, f"{text[:60]}: exit status {status}, {error!r}")
    contains(text[:60], out, *words)
    for word in never:
        check(word not in re.sub(r"\s+", " ", out), f"{text[:60]}: {word!r} is in {out!r}")
    check(max(map(len, out.split("\n"))) <= 120, f"{text[:60]}: long lines")
    return out


def not_counted():
    """Amounts of 2^64 bytes are no amounts, and the rest of the message says enough."""
    report("CUDA out of memory. Tried to allocate 18.63 GiB. GPU 0 has a total capacity of 45.00 GiB of which 43.66 GiB is "
           "free. Process 1459 has 17179869184.00 GiB memory in use. 2.25 GiB allowed; Of the allocated memory 0 bytes is "
           "allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.\n",
           "process 1459 unknown", "exceeded the limit of 2.25 GiB", "2.25 GiB for tensors: the limit", never=["EiB"])
    # A slice of a card: the processes are those of the whole card.
    report("CUDA out of memory. Tried to allocate 1.24 GiB. GPU 0 has a total capacity of 19.50 GiB of which 1.06 GiB is free. "
           "Process 12 has 10.30 GiB memory in use. Process 13 has 15.74 GiB memory in use. Of the allocated memory 17.60 GiB "
           "is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.\n",
           "another program, perhaps elsewhere", "18.76 GiB for tensors", "the 20 GB slice of an A100 or H100")


def room():
    """A device with room was neither full nor fragmented."""
    for free, total in (("8.68 GiB", "15.78"), ("554.47 MiB", "19.94")):
        report(f"CUDA out of memory. Tried to allocate 394.00 MiB (GPU 0; {total} GiB total capacity; 5.17 GiB already "
               f"allocated; {free} free; 5.25 GiB reserved in total by PyTorch)\n",
               "Not fragmentation: the device had", "more than was requested", "a limit applies", never=["full", "short"])
    report("HIP out of memory. Tried to allocate 2.00 MiB. GPU 7 has a total capacity of 287.98 GiB of which 203.49 GiB is free. "
           "Of the allocated memory 68.63 GiB is allocated by PyTorch, and 14.93 GiB is reserved by PyTorch but unallocated.\n",
           "for small tensors", "203.49 GiB free", "For this machine", never=["card was full"])


def fragments():
    """Unused memory of PyTorch would have been enough in one piece, below the limit if there is one."""
    for free, words in (("200.68 MiB free; 5.75", ["Fragmentation: free and unused memory would have been enough"]),
                        ("200.68 MiB free; 5.25", ["Not fragmentation: even in one piece", "short"]),
                        ("8.68 GiB free; 5.30 GiB allowed; 5.25", ["Not fragmentation: it would have exceeded the limit of 5.30 GiB"]),
                        ("8.68 GiB free; 6.30 GiB allowed; 6.25", ["Fragmentation below the limit of 6.30 GiB"])):
        report("CUDA out of memory. Tried to allocate 394.00 MiB (GPU 0; 15.78 GiB total capacity; 5.17 GiB already allocated; "
               f"{free} GiB reserved in total by PyTorch)\n", *words)


def apple():
    report("RuntimeError: MPS backend out of memory (MPS allocated: 5.50 GB, other allocations: 14.76 GB, max allowed: 20.40 "
           "GB). Tried to allocate 147.24 MB on private pool.\n", "other allocations 14.76 GiB of this process: MPSGraph",
           "20.40 GiB for tensors: the limit", "above 12.00 GiB the Mac may swap", "20.40 GiB available: fits",
           never=["other programs, the screen", "rounded up"])


def cards():
    """The card is one that reports such a total; others that do are named, and those without bfloat16."""
    old = "CUDA out of memory. Tried to allocate 786.00 MiB (GPU 0; %s GiB total capacity; 1.00 GiB already allocated; 0.10 GiB free; 1.00 GiB reserved in total by PyTorch)"
    for total, dtype, words in (("14.56", "float16", ["For the NVIDIA T4 16 GB", "Without bfloat16: t4-16g"]),
                                ("15.78", "float16", ["the total of the Tesla V100 16 GB, which has no profile"]),
                                ("31.74", "float16", ["the total of the Tesla V100 32 GB, which has no profile"]),
                                ("5.80", "float16", ["rtx2060-6g", "Without bfloat16"]),
                                ("22.06", "bfloat16", ["For the NVIDIA A10 24 GB", "Cards with such a total: a10-24g, l4-24g."]),
                                ("39.56", "bfloat16", ["For the NVIDIA A100 40 GB"]),
                                ("4.75", "bfloat16", ["1g.5gb slice of an A100"]),
                                ("11.69", "bfloat16", ["For the NVIDIA GeForce RTX 3060 12 GB", "Cards with such a total: rtx3060-12g",
                                                       "Without bfloat16: rtx2060-12g"]),
                                ("60.00", "bfloat16", ["No card that is known here has 60.00 GiB"])):
        out = report(old % total, *words)
        check(f", {dtype}\n" in out, f"{total} GiB: not in {dtype}: {out!r}")
    for dtype in ("float16", "bfloat16"):  # what the configuration says stays, where the card can do it
        out = report(old % "11.69", arguments=["--batch_size=1", "--dtype=" + dtype])
        check(f", {dtype}\n" in out, f"--dtype={dtype}: {out!r}")
    for total, words in (("14.75", ["For the NVIDIA T4 16 GB"]), ("31.74", ["the Tesla V100 32 GB"])):  # and where it cannot
        out = report(old % total, *words, arguments=["--batch_size=1", "--dtype=bfloat16"])
        check(", float16\n" in out, f"--dtype=bfloat16 on {total} GiB: {out!r}")


def without_sizes():
    """Drivers, libraries, NCCL, llm.c and a killed process: what it was, and how to plan without sizes."""
    for text, word in {"RuntimeError: CUDA driver error: out of memory": "expandable_segments",
                       "CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`": "A library",
                       "Last error:\nCuda failure 'out of memory'": "NCCL had no room",
                       "[CUDA ERROR] at file train_gpt2.cu:1236:\nout of memory": "llm.c allocates everything",
                       "  exitcode  : -9 (pid: 4242)": "The host's memory ran out, not the card's"}.items():
        report(text + "\n", word, "--memory_budget=SIZE", "--device_profile=NAME")


def encodings():
    """Windows PowerShell's UTF-16, and colours."""
    for name, encoding in {"little": "utf-16-le", "big": "utf-16-be"}.items():
        path = write(name + ".txt", "")
        for mark in ("\ufeff", ""):
            with open(path, "wb") as file:
                file.write((mark + OLD.replace("\n", "\r\n")).encode(encoding))
            status, out, error = explain("", "--batch_size=1", *SMALL, path=path)
            check(status == 0, f"UTF-16, {name}: exit status {status}, {error!r}")
            contains("UTF-16, " + name, out, "tried to allocate 786.0 MiB", "allocated 14.28 GiB")
    report("\x1b[1;31mOutOfMemoryError: \x1b[0mCUDA out of memory. Tried to allocate \x1b[1;36m394.00\x1b[0m MiB (GPU \x1b[1;36m0\x1b[0m; "
           "\x1b[1;36m15.70\x1b[0m GiB total capacity; \x1b[1;36m5.17\x1b[0m GiB already allocated; 200.68 MiB free; 5.25 GiB "
           "reserved in total by PyTorch)\n", "tried to allocate 394.0 MiB", "total 15.70 GiB", "allocated 5.17 GiB")


def impossible():
    for name, text in {"nothing tried": MESSAGE.replace("6.14 GiB", "0 bytes"),
                       "absurd": MESSAGE.replace("6.14 GiB", "999999999999.00 GiB"),
                       "no total": MESSAGE.replace("11.69 GiB", "0 bytes"),
                       "an absurd total": MESSAGE.replace("11.69 GiB", "99999999999999.00 GiB"),
                       "more free than there is": MESSAGE.replace("2.68 GiB", "26.80 GiB")}.items():
        status, out, error = explain(text, "--batch_size=1", *SMALL)
        check(status == 2 and out == "", f"{name}: exit status {status}, {out!r}")
        check(error.count("gpt-train: error") == 1 and "cannot be right" in error, f"{name}: {error!r}")


def defaults_and_no_fit():
    status, out, error = explain(MESSAGE.replace("11.69 GiB", "300.00 MiB").replace("2.68 GiB", "10.00 MiB")
                                 .replace("6.51 GiB", "100.00 MiB").replace("7.04 GiB", "200.00 MiB")
                                 .replace("1.97 GiB", "60.00 MiB"))
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
        check(name == "json" or "--memory_budget=SIZE" in error, f"{name}: no way on: {error!r}")
    for path in ("absent", "."):
        status, _, error = explain("", path=path)
        check(status in (1, 2) and error.count("gpt-train: error") == 1, f"{path}: {status}, {error!r}")
    status, _, error = explain("CUDA out of memory " * 1000000)
    check(status == 2 and error.count("gpt-train: error") == 1, f"too long: {status}, {error[:200]!r}")
    status, out, error = explain("\x1b[2J" + TRACEBACK.replace("lm_head", "\x1b]0;x\x07") + MESSAGE, "--batch_size=1", *SMALL)
    check(status == 0 and "\x1b" not in out + error, "control characters of the text are not printed")


end(story, others, totals, not_counted, room, fragments, apple, cards, without_sizes, encodings, impossible, defaults_and_no_fit,
    refusals)
