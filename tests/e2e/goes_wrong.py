#!/usr/bin/env python3
"""Reports of a run when training goes wrong.

  planted   a NaN in the output of an op (gpt-train-faulty): a replay of the update names op, layer, element and
            micro-step, and changes nothing: the tensors saved after the skipped update are those saved before it
  machine   the same but only once, so that the replay finds nothing: the machine is blamed
  overflow  a weight of 3e38: the op that overflows first is named, on the cpu, on the emulated card and on OpenCL
  half      float16: a loss that is not finite ends a run after ten updates; evaluation, questions and samples end with
            status 1 and the op; a weight that float16 cannot hold, or that is a NaN, is refused with its place
  spike     64 bytes of noise in data that otherwise repeat one line: the update that meets them is reported, with
            the place and the text of its samples, the noise first
  failing   an upload, a download, a run or a wait that fails once ends a run, which goes on to the bytes of one without
  report    a device that fails gets the report that users paste: version, status, backend, plan, the keys that were set
  course    a validation loss outside expected_losses is reported once, if the settings are those of the file; the
            shipped configurations state five points
"""
import glob
import os
import random
import re
import shutil
import struct

from checks import (BUILD, GPT_PREPARE, GPT_SAMPLE, GPT_TRAIN, SOURCE, check, end, make_tokens, opencl_device, ran, read,
                    read_json, run, skip, tensors_read, tensors_write, write)

FAULTY = os.path.join(BUILD, "tests", "reliability", "gpt-train-faulty")
CUDA = os.path.join(BUILD, "tests", "cuda_on_cpu", "gpt-train-cuda")
TINY = ["--dataset=./data", "--n_layer=2", "--n_head=2", "--n_embd=16", "--block_size=16", "--batch_size=2", "--vocab_size=96",
        "--gradient_accumulation_steps=2", "--micro_batch=2", "--eval_iters=1", "--threads=1", "--warmup_iters=1", "--dropout=0.1",
        "--bias=True", "--log_interval=1"]
NOISE, NOISE_AT = 64, 40000  # in bytes, of 60,000


def train(out, *arguments, program=GPT_TRAIN, status=0, flags=TINY, **environment):
    """Returns the lines that it wrote to standard error."""
    return run(program, *flags, f"--out_dir={out}", *arguments, status=status, environment=environment).stderr


def one_line(said, pattern, what):
    found = [line for line in said.splitlines() if re.search(pattern, line)]
    check(len(found) == 1, f"{what}: '{pattern}' is in {len(found)} lines of: {said[-800:]}")


def tensors(out):
    """Returns the saved weights and moments."""
    return [read(os.path.join(out, entry["name"])) for entry in read_json(os.path.join(out, "trainer_state.json"))["files"]]


def planted():
    for op, expected in (("attention_forward", r"h\.0\.attn\.y\[0, 0\] = nan, made by attention_forward of layer 0, micro-step 1 of 2"),
                         ("gelu_backward", r"h\.1\.mlp.*\[0, 0\] = nan, made by gelu_backward of layer 1, micro-step 1 of 2")):
        train("before", "--max_iters=2")
        shutil.copytree("before", op)
        bad_loss = op.endswith("forward")  # then nothing is saved at the end
        said = train(op, "--init_from=resume", "--max_iters=3", program=FAULTY, status=int(bad_loss), GPT_FAULT_NAN=f"{op}:3:9")
        one_line(said, "iter 3: the first value that is not finite: " + expected + ", from inputs up to [0-9.]+$", op)
        check(tensors(op) == tensors("before"), f"{op}: a skipped update and its replay changed what is saved")


def machine():
    said = train("machine", "--max_iters=4", program=FAULTY, GPT_FAULT_NAN="gelu_forward:2:1")
    one_line(said, "iter 2: computed again from the same weights and samples, every value is finite: .* is faulty$", "machine")


def spoilt():
    """Makes a folder with a weight that overflows any product."""
    train("whole", "--max_iters=1")
    os.makedirs("spoilt")
    shutil.copy("whole/config.json", "spoilt")
    weights = tensors_read("whole/model.safetensors")
    name = next(name for name in weights if name.endswith("h.1.mlp.c_fc.weight"))
    dtype, shape, raw = weights[name]
    tensors_write("spoilt/model.safetensors", {**weights, name: (dtype, shape, struct.pack("<f", 3e38) * (len(raw) // 4))})


def overflow():
    spoilt()
    programs = [("cpu", GPT_TRAIN), ("opencl", GPT_TRAIN)] + ([("cuda", CUDA)] if os.path.exists(CUDA) else [])
    if len(programs) < 3:
        skip("goes_wrong_cuda", "no C++17 compiler, so that the cuda backend cannot be emulated")
    for backend, program in programs:
        if backend == "opencl" and opencl_device() is None:
            continue
        # A card checks ten updates together; none of them changes a weight.
        said = train("from-spoilt", "--init_from=spoilt", f"--backend={backend}", "--max_iters=20", "--log_interval=10",
                     "--eval_interval=100", program=program, status=1)
        one_line(said, r"iter 0: the first value that is not finite: h\.1\.mlp\.c_fc\.d\[\d+, \d+\] = -?(inf|nan), made by gemm of "
                       r"layer 1, micro-step 1 of 2, from inputs up to 3e\+38$", backend)
        check("updates in a row" in said, f"{backend}: {said[-400:]}")


def filled(out, value):
    """Makes a folder with a weight that reads the first half of its inputs `value` times.  The sum of all is 0."""
    os.makedirs(out)
    shutil.copy("wide/config.json", out)
    weights = tensors_read("wide/model.safetensors")
    name = next(name for name in weights if name.endswith("h.1.mlp.c_fc.weight"))
    dtype, shape, raw = weights[name]
    half_of = len(raw) // 8 * struct.pack("<f", value)
    tensors_write(f"{out}/model.safetensors", {**weights, name: (dtype, shape, half_of + raw[len(half_of):])})


def half():
    said = train("steep", "--dtype=float16", "--learning_rate=1000", "--grad_clip=0", "--max_iters=80", "--eval_interval=100", status=1)
    skipped = len(re.findall("this update is skipped", said))
    found = re.search(r"error.diverged.: the model has diverged: (\d+) updates in a row were skipped", said)
    check(found and 10 <= int(found[1]) <= skipped, f"the number of skipped updates: {said[-600:]}")
    check(said.count("the loss is not finite (nan); this update is skipped") <= 10 and "-nan" not in said, f"ten: {said[-900:]}")
    check("gpt-train report" not in said, "a run that diverged is no failure of the program")
    train("wide", "--max_iters=1", "--vocab_size=256")
    filled("near", 6e4)
    filled("beyond", 1e5)
    filled("broken", float("nan"))
    flags, wide = ["--device=cpu", "--dtype=float16"], [flag.replace("=96", "=256") for flag in TINY]
    cause = r"error.diverged.: .*is not finite; the first value that is not finite: h\.1\.mlp\.c_fc\.d\[\d+, \d+\] = -?(inf|nan), made by " \
            r"gemm of layer 1, from inputs up to 6e\+04; float16 ends at 65504: --dtype=float32"
    judged = [[GPT_TRAIN, "--eval_data=data/val.bin"], [GPT_TRAIN, *wide, "--eval_only=True"],
              [GPT_SAMPLE, "--tokenizer=bytes", "--start=a", "--max_new_tokens=3"]]
    for command in judged:
        done = ran(*command, *flags, "--init_from=near")
        check(done.returncode == 1 and done.stderr.count("error") == 1, f"{command}: {done.returncode} {done.stderr}")
        one_line(done.stderr, cause, str(command))
        for model, words in (("beyond", r"holds 100000 at \[0,0\], which float16 cannot hold \(at most 65504\); add --dtype=float32"),
                             ("broken", r"holds a value that is not finite, nan at \[0,0\]; the file is damaged")):
            done = ran(*command, *flags, f"--init_from={model}")
            check(done.returncode == 2 and done.stdout.count("loss") == 0, f"{command} {model}: {done.returncode} {done.stdout}")
            one_line(done.stderr, rf"error: {model}/model.safetensors: tensor \S+: {words}", f"{command} {model}")
    done = ran(GPT_TRAIN, "--eval_data=data/val.bin", "--init_from=beyond", "--device=cpu")
    check(done.returncode == 0 and "nan" not in done.stdout, f"float32 holds it: {done.stdout} {done.stderr}")
    said = train("from-near", "--init_from=near", "--dtype=float16", "--max_iters=2", flags=wide, status=1)
    check("earlier update" not in said and "iter 0: the first value that is not finite" in said, f"from the start: {said[-600:]}")
    with open("from-near/metrics.jsonl", encoding="utf-8") as lines:
        check(all("nan" not in line.lower() for line in lines), "a NaN in metrics.jsonl")


def spike():
    noise = bytes(random.Random(7).choices(range(33, 127), k=NOISE))
    text = b"0123456789abcde\n" * 3750
    write("even.txt", text[:NOISE_AT] + noise + text[NOISE_AT + NOISE:])
    done = ran(GPT_PREPARE, "--tokenizer=bytes", "--out-dir=even", "even.txt")
    check(done.returncode == 0, done.stderr)
    # The noise is in the first, the second and a smaller last micro-step.
    one, smaller = ["--batch_size=4", "--gradient_accumulation_steps=1"], "--micro_batch=3"
    for out, arguments, samples in (("first", ["--seed=1", "--max_iters=220"], (0, 1)), ("second", ["--seed=8", "--max_iters=190"], (2, 3)),
                                    ("last", ["--seed=7", "--max_iters=230", *one, smaller], (3,))):
        worst = spikes_of(out, text, noise, *arguments)
        check(any(sample in samples for sample in worst), f"the worst samples of spikes: {worst}, none of {samples}")


def spikes_of(out, text, noise, *arguments):
    """Trains, and returns the number of the worst sample of each spike."""
    said = train(out, "--dataset=./even", "--vocab_size=256", "--dropout=0", "--learning_rate=1e-2", "--eval_interval=1000",
                 *arguments)
    worst = []
    found = re.findall(r"iter (\d+): a spike: loss (\S+) \(usually (\S+)\), gradient norm \S+ \(usually \S+\)$", said, re.M)
    check(len(found) > 0 and all(float(loss) > 1.1 * float(usual) for _, loss, usual in found), f"spikes: {said[-800:]}")
    for iteration, _, _ in found:
        samples = re.findall(rf"iter {iteration}: sample (\d), loss (\S+): \./even//?train\.bin, tokens (\d+) to (\d+): \"(.*)\"$", said, re.M)
        losses, begin = [float(sample[1]) for sample in samples], int(samples[0][2]) if samples else -1
        check(len(samples) == 3 and losses == sorted(losses, reverse=True), f"samples of a spike: {samples} {said[-800:]}")
        check(NOISE_AT - 16 <= begin < NOISE_AT + NOISE and int(samples[0][3]) == begin + 15, f"another sample is the worst: {samples}")
        check(samples[0][4][:4] in (text[:NOISE_AT] + noise).decode(), f"another text: {samples[0]}")
        worst.append(int(samples[0][0]))
    return worst


def failing():
    """A call of the device that fails once ends the run, which goes on to the bytes of one without."""
    train("whole", "--max_iters=4")
    for fault in ("upload:3", "download:3", "run:3", "sync:3"):
        out = fault.split(":")[0]
        train(out, "--max_iters=2")
        said = train(out, "--init_from=resume", "--max_iters=4", program=FAULTY, status=1, GPT_FAULT=fault)
        check(said.count("gpt-train: error") == 1 and "a planted fault: " + fault in said, f"{fault}: {said[-600:]}")
        train(out, "--init_from=resume", "--max_iters=4")
        check(tensors(out) == tensors("whole"), f"{fault}: then other bytes")


def report():
    if not os.path.exists(CUDA):
        skip("cuda_emulated", "no C++17 compiler, so that the cuda backend cannot be emulated")
        return
    said = train("lost", "--max_iters=4", "--backend=cuda", program=CUDA, status=1,
                 GT_CUDA_ON_CPU_FAIL="launch:9:cudaErrorIllegalAddress")
    check(said.count("gpt-train: error") == 1, f"one error line: {said}")
    block = said[said.find("---- gpt-train report, to be pasted where you ask for help ----"):]
    for words in ("version   gpt-train ", "status    device, exit status 1", "backend   cuda: ", "memory    ", "--vocab_size=96",
                  "plan      ", "---- end of report ----"):
        check(words in block, f"'{words}' is not in the report: {block!r}")
    check("--weight_decay" not in block, "only keys that were set are in the report")


def course():
    settings = {name[2:]: value for name, value in (word.split("=") for word in TINY[1:])}
    write("expects.py", "".join(f"{name} = {value}\n" for name, value in settings.items()) +
          "dataset = './data'\nmax_iters = 4\neval_interval = 2\nexpected_losses = '0:1-9 2:1-1.1 4:1-1.1'\n")

    def said(out, *arguments):
        return train(out, "expects.py", *arguments, flags=())

    one_line(said("course"), r"step 2: val loss [0-9.]+ is outside 1 to 1\.1, which expects\.py expects of its own data", "course")
    check("outside" not in said("others", "--n_layer=1"), "another model was compared")
    check("outside" not in said("within", "--expected_losses=0:1-9 2:1-9"), "a loss inside the band was reported")
    for name in glob.glob(os.path.join(SOURCE, "config", "*.py")):
        points = re.findall(r"^expected_losses = '([^']*)'$", read(name).decode(), re.M)
        if not os.path.basename(name).startswith(("own_text", "afternoon", "quickstart")):  # nothing is known about the text
            check(len(points) == 1 and len(points[0].split()) == 5, f"{name} states {points}")
        done = ran(GPT_TRAIN, name, "--print_program", "--dataset=./data", "--vocab_size=256")
        check(done.returncode == 0, f"{name}: {done.stderr}")


end(planted, machine, overflow, half, spike, failing, report, course, begin=lambda: make_tokens("data"))
