#!/usr/bin/env python3
"""Fine-tuning: what a run gets that only names a model and its data, and how long it is.

  defaults  adapters, and models with a chat template, get the defaults of fine-tuning; other runs keep nanoGPT's
  wins      a typed key and a key of a file replace a default; a batch that ranks divide
  epochs    updates, warm-up and evaluations follow from the rows, also of a mixture, and of a longer resumed run
  names     a command line and files of other programs train as this program's own keys do
  shows     the first lines show a conversation with what is learnt marked, evaluations answer a prompt of the validation data;
            trained tokens are counted
  known     models of the built-in table, and folders with config.json alone, plan as whole folders do; other names and types
            are answered with what to use
  journey   from a cache as hf download fills it to GGUF, for each family of models with a template that it has
  absent    data that are not there: the first line and the only one; a plan does without
Needs GPT_PREPARE, GPT_TRAIN, GPT_SAMPLE, GPT_EXPORT.  Prints "checks: P passed, F failed, S skipped".
"""
import json
import math
import os
import random
import re
import subprocess

from checks import (GPT_EXPORT, GPT_PREPARE, GPT_SAMPLE, GPT_TRAIN, check_named as check, end, error_lines, files, metrics, read, read_json, skip,
                    small_llama, some, tensors_write, write, write_json)
from gguf_file import Gguf

VOCAB, ROW = 320, 64


def run(*words, program=GPT_TRAIN):
    return subprocess.run([program, *words], check=False, capture_output=True, text=True)


def model_write(folder, template):
    config, tensors = small_llama(VOCAB, 2, 256, 0.1)
    os.makedirs(folder)
    write_json(f"{folder}/config.json", config)
    tensors_write(f"{folder}/model.safetensors", tensors)
    if template:
        write_json(f"{folder}/tokenizer_config.json", {"chat_template": "{{ messages }}"})


def begin():
    random.seed(4)
    model_write("base", False)
    model_write("instruct", True)
    for name, count in (("chats", 400), ("more", 150)):
        lines = [[{"role": "user", "content": f"what is {random.randint(0, 99)}?"}, {"role": "assistant", "content": f"it is {random.randint(0, 99)}."}]
                 for _ in range(count)]
        write(f"{name}.jsonl", "".join(json.dumps({"messages": messages}) + "\n" for messages in lines))
        tokenizer = ["--tokenizer=train", f"--vocab-size={VOCAB}", "--chat=chatml"] if name == "chats" else ["--tokenizer=data/chats", "--chat=chatml"]
        run(*tokenizer, f"--block-size={ROW}", "--val-fraction=0.1", f"{name}.jsonl", program=GPT_PREPARE)


def rows_of(name):
    return (os.path.getsize(f"data/{name}/train.bin") // 2 - 1) // ROW


def configuration(out):
    return read_json(f"{out}/trainer_state.json")["configuration"]


def trained(out, *words):
    done = run(f"--out_dir={out}", "--backend=cpu", *words)
    check(f"{out} trains", done.returncode == 0, done.stderr[-400:])
    return configuration(out), done


def differing(found, wanted):
    return {key: (found.get(key), value) for key, value in wanted.items() if found.get(key) != value}


def length(rows, epochs=3, each=16, ratio=0.03):
    """Returns the keys of a run's length as the documents define them."""
    updates = math.ceil(epochs * rows / each)
    return {"max_iters": updates - 1, "lr_decay_iters": updates - 1, "warmup_iters": math.ceil(ratio * updates)}


TUNED = {"epochs": 3, "warmup_ratio": 0.03, "sampler": "epoch", "document_mask": True, "block_size": ROW, "batch_size": 16,
         "gradient_accumulation_steps": 1, "min_lr": 0, "weight_decay": 0, "beta2": 0.999, "keep": 2}


def defaults():
    rows = rows_of("chats")
    half = max(rows // 32, 1)
    wanted = {**TUNED, **length(rows), "eval_interval": half, "lora_rank": 4, "lora_alpha": 8, "learning_rate": 2e-4}
    found, done = trained("adapters", "--init_from=./base", "--lora_rank=4", "--dataset=chats")
    check("adapters: their defaults", not differing(found, wanted), differing(found, wanted))
    lines = [line for line in done.stderr.splitlines() if "defaults of fine-tuning" in line]
    check("adapters: one line lists them", len(lines) == 1 and all(f"{key}=" in lines[0] for key in [*wanted, "eval_iters"] if key != "lora_rank"), done.stderr)
    check("adapters: the last checkpoint, and one more", any(name.startswith("checkpoint-") for name in os.listdir("adapters")))
    steps = [int(number) for number in re.findall(r"^step (\d+):", done.stdout, re.MULTILINE)]
    check("adapters: two evaluations an epoch", steps == list(range(0, wanted["max_iters"] + 1, half)), steps)
    for which in ([], ["--checkpoint=best"]):
        done = run("--out_dir=adapters", *which, "--start=what", "--num_samples=1", "--max_new_tokens=3", "--backend=cpu", program=GPT_SAMPLE)
        check(f"gpt-sample {which}", done.returncode == 0, done.stderr)
    found, _ = trained("whole", "--init_from=./instruct", "--dataset=./data/chats")
    wanted = {**TUNED, **length(rows), "learning_rate": 1e-5}
    check("a chat template: its defaults", not differing(found, wanted), differing(found, wanted))
    found, done = trained("plain", "--init_from=./base", "--dataset=chats")
    check("a published base model: the same", not differing(found, wanted), differing(found, wanted))
    os.rename("data/chats", "here")
    found, _ = trained("beside", "--init_from=./base", "--lora_rank=2", "--dataset=here", "--max_iters=0")
    check("a data set of the working folder", found["block_size"] == ROW)
    os.rename("here", "data/chats")


    os.makedirs("adapted")
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        write(f"adapted/{name}", read(f"whole/{name}"))
    done = run("--tokenizer=adapted", "--chat=chatml", f"--block-size={ROW}", "--out-dir=data/again", "chats.jsonl", program=GPT_PREPARE)
    command = done.stdout[done.stdout.find("  gpt-train"):].replace("\\\n", " ").replace("  gpt-train", "").split()
    check("gpt-prepare suggests to tune the model", command == ["--init_from=./adapted", "--lora_rank=16", "--dataset=again", "--out_dir=out-again"],
          done.stdout + done.stderr)


def wins():
    rows = rows_of("chats")
    write("mine.py", "learning_rate = 3e-3\nwarmup_iters = 1\nkeep = 1\n")
    found, done = trained("file", "mine.py", "--init_from=./base", "--lora_rank=4", "--dataset=chats", "--batch_size=4", "--weight_decay=0.5", "--epochs=0.5",
                          "--lora_alpha=5")
    wanted = {**TUNED, **length(rows, 0.5, 4), "epochs": 0.5, "learning_rate": 3e-3, "warmup_iters": 1, "warmup_ratio": 0, "keep": 1, "batch_size": 4,
              "weight_decay": 0.5, "lora_alpha": 5}
    check("keys of a file and flags", not differing(found, wanted), differing(found, wanted))
    line = next(line for line in done.stderr.splitlines() if "defaults of fine-tuning" in line)
    check("set keys are not listed", not any(f" {key}=" in line for key in ("learning_rate", "weight_decay", "keep", "batch_size", "epochs")), line)
    found, _ = trained("short", "--init_from=./base", "--lora_rank=4", "--dataset=chats", "--max_iters=3")
    check("max_iters decides the length", not differing(found, {"max_iters": 3, "lr_decay_iters": 3, "warmup_iters": 1, "epochs": 0}), found)
    write("long.py", "max_iters = 1000\nlr_decay_iters = 1000\nwarmup_iters = 50\n")
    found, _ = trained("typed", "long.py", "--init_from=./base", "--lora_rank=4", "--dataset=chats", "--epochs=1")
    check("a flag replaces a file's length", not differing(found, {**length(rows, 1), "warmup_iters": 50}), found)
    done = run("--init_from=./base", "--lora_rank=4", "--dataset=chats", "--epochs=1", "--max_iters=5", "--plan", "--backend=cpu")
    check("two lengths", "epochs=1.0 (--epochs=1) has no effect because of max_iters=5 (--max_iters=5)" in done.stderr, done.stderr)
    done = run("--init_from=./base", "--lora_rank=4", "--dataset=chats", "--num_train_epochs=0", "--plan", "--backend=cpu")
    check("no epochs are no length", done.returncode == 2 and "would leave the length to max_iters=600000" in done.stderr, done.stderr)
    done = run("--init_from=./base", "--lora_rank=4", "--dataset=chats", "--epochs=1", "--hours=2", "--plan", "--backend=cpu")
    check("epochs and hours", done.returncode == 2 and len(error_lines(done)) == 1 and "contradicts hours" in done.stderr, done.stderr)
    done = run("--init_from=./base", "--lora_rank=4", "--dataset=chats", "--ranks=3", "--plan", "--backend=cpu")
    check("three ranks divide an update", done.returncode == 0 and "batch_size=18" in done.stderr, done.stderr)


def epochs():
    rows = rows_of("chats"), rows_of("more")
    found, _ = trained("mixed", "--init_from=./base", "--lora_rank=4", "--dataset=chats:0.5,more:0.5", "--epochs=1.5")
    wanted = length(sum(rows), 1.5)
    check("a mixture's epoch", not differing(found, wanted), (rows, differing(found, wanted)))
    found, done = trained("longer", "--init_from=./base", "--lora_rank=4", "--dataset=chats", "--epochs=1")
    check("what to try", done.stdout.splitlines()[-1] == "Try it: gpt-sample --out_dir=longer --chat", done.stdout[-300:])
    check("one epoch", not differing(found, length(rows[0], 1)), found)
    found, _ = trained("longer", "--init_from=resume", "--epochs=2")
    check("two on resume", not differing(found, {**length(rows[0], 2), "epochs": 2, "learning_rate": 2e-4}), found)
    found, done = trained("longer", "--init_from=resume")
    check("as many as before", not differing(found, length(rows[0], 2)) and "nothing to do" in done.stderr, done.stderr)
    found, _ = trained("longer", "--init_from=resume", f"--max_iters={found['max_iters'] + 1}")
    check("max_iters on resume", found["epochs"] == 0, found)
    found, _ = trained("scratch", "--n_layer=1", "--n_head=2", "--n_embd=8", f"--block_size={ROW}", "--dataset=chats", "--epochs=1", "--warmup_ratio=0.5",
                       "--batch_size=10", "--gradient_accumulation_steps=2", "--eval_iters=1")
    check("a new model", not differing(found, length(rows[0], 1, 20, 0.5)), found)
    done = run("--init_from=./base", "--lora_rank=4", "--dataset=chats", "--epochs=1", "--batch_size=500", "--plan", "--backend=cpu")
    check("more rows an update than there are", f"an update has 500 rows, but the data only {rows[0]}, so it repeats them" in done.stderr, done.stderr)


def names():
    ours = ["--init_from=./base", "--lora_rank=4", "--lora_alpha=16", "--dataset=chats", "--batch_size=2", "--gradient_accumulation_steps=3",
            "--epochs=1", "--learning_rate=1e-3", "--warmup_ratio=0.1", "--lr_schedule=linear", "--dtype=bfloat16"]
    theirs = {"model_name_or_path": "./base", "lora_r": 4, "lora_alpha": 16, "dataset": "chats", "per_device_train_batch_size": 2,
              "gradient_accumulation_steps": 3, "num_train_epochs": 1.0, "learning_rate": 1e-3, "warmup_ratio": 0.1, "lr_scheduler_type": "linear",
              "bf16": True, "packing": False, "load_in_4bit": True, "report_to": "none"}
    wanted, _ = trained("ours", *ours)
    flags = [word for key, value in theirs.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    write_json("theirs.json", theirs)
    write("theirs.yaml", "".join(f"{key}: {value}\n" for key, value in theirs.items()))
    yaml = "libyaml" in run("--version").stdout
    for out, words in [("flags", flags), ("json", ["theirs.json"])] + [("yaml", ["theirs.yaml"])] * yaml:
        found, done = trained(out, *words)
        check(f"{out}: the same run", found == wanted and read(f"{out}/model.safetensors") == read("ours/model.safetensors"), differing(found, wanted))
        check(f"{out}: one answer", len([line for line in done.stderr.splitlines() if "not needed" in line]) == 1, done.stderr)
    if not yaml:
        skip("finetune_yaml", "a build without libyaml")
    words = ["--per_device_train_batch_size=2", "--gradient_accumulation_steps=2", "--threads=1"]
    two, _ = trained("two", "--init_from=./base", "--lora_rank=4", "--dataset=chats", "--max_steps=2", "--ranks=2", *words)
    check("two ranks: each has its batch", (two["batch_size"], two["gradient_accumulation_steps"], two["max_iters"]) == (4, 2, 1), two)
    again, done = trained("two", "--init_from=resume", "--max_steps=3", "--ranks=1", *words)
    check("resumed on one: the rows of before", again["batch_size"] == 4 and "has no effect" in done.stderr, done.stderr)


def flags_of(name, split):
    mask = read(f"data/{name}/{split}.mask")[16:]
    return [mask[i // 8] >> i % 8 & 1 for i in range(8 * len(mask))]


def shows():
    tokens, learnt = rows_of("more") * ROW + 1, sum(flags_of("more", "train"))
    _, done = trained("shown", "--init_from=./base", "--lora_rank=4", "--dataset=more", "--epochs=1", "--batch_size=1", "--eval_interval=20")
    lines = done.stdout.splitlines()
    at = next(i for i, line in enumerate(lines) if "as the model sees it" in line)
    check("how many tokens are trained", f"{learnt} of {tokens} tokens" in lines[at - 1], lines[at - 1])
    check("a conversation with marks", re.fullmatch(r"  <\|im_start\|>user\n  what is \d+\?<\|im_end\|>\n  <\|im_start\|>assistant\n"
                                                    r"  \[\[it is \d+\.<\|im_end\|>\]\]", "\n".join(lines[at + 1:at + 5])) is not None, lines[at:at + 6])
    answers = [line for line in lines if line.startswith("--- answer after ")]
    prompt = r"--- answer after \d+ iterations to: <\|im_start\|>user\\nwhat is \d+\?<\|im_end\|>\\n<\|im_start\|>assistant\\n"
    check("an answer at each evaluation", len(answers) == sum(line.startswith("step ") for line in lines) > 2 and
          all(re.fullmatch(prompt, line) for line in answers), answers)
    counted = sum(line["trained_tokens"] for line in metrics("shown"))
    check("an epoch trains each of them once", counted == sum(flags_of("more", "train")[1:tokens]), (counted, learnt))
    check("answers are in metrics.jsonl", len(metrics("shown", "sample")) == len(answers))
    _, done = trained("quiet", "--init_from=./base", "--lora_rank=4", "--dataset=more", "--max_iters=0", "--sample_tokens=0")
    check("a key turns answers off", "--- answer" not in done.stdout and "as the model sees it" in done.stdout)
    found, done = trained("shown", "--init_from=resume", "--epochs=2")
    check("a resumed run answers too", found["sample_tokens"] == 64 and "--- answer" in done.stdout and "as the model sees it" not in done.stdout, done.stdout)
    _, done = trained("moved", "--init_from=./base", "--lora_rank=4", "--dataset=more", "--max_iters=1", "--offload=states", "--batch_size=2")
    check("answers with weights in host memory", "--- answer" in done.stdout, done.stdout)


def config(kind, layers, heads, groups, head, width, inner, vocabulary, tied, positions, epsilon, theta, factor=0):
    fields = {"model_type": kind, "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": groups, "hidden_size": width,
              "intermediate_size": inner, "vocab_size": vocabulary, "tie_word_embeddings": tied, "max_position_embeddings": positions,
              "rms_norm_eps": epsilon, "rope_theta": theta}
    scaling = {"factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}
    return {**fields, **({"head_dim": head} if head else {}), **({"rope_scaling": scaling} if factor else {})}


# Of the config.json of these models on Hugging Face's Hub, in citsjtu2020/LLM-Prof, sglang/Model_Config.md.
PUBLIC = {
    "Qwen/Qwen3-8B": config("qwen3", 36, 32, 8, 128, 4096, 12288, 151936, False, 40960, 1e-6, 1e6),
    "meta-llama/Llama-3.2-3B": config("llama", 28, 24, 8, 128, 3072, 8192, 128256, True, 131072, 1e-5, 5e5, 32.0),
    "Qwen/Qwen2.5-7B": config("qwen2", 28, 28, 4, 0, 3584, 18944, 152064, False, 131072, 1e-6, 1e6),
    "meta-llama/Llama-3.1-8B": config("llama", 32, 32, 8, 0, 4096, 14336, 128256, False, 131072, 1e-5, 5e5, 8.0),
    "Qwen/Qwen2.5-3B": config("qwen2", 36, 16, 2, 0, 2048, 11008, 151936, True, 32768, 1e-6, 1e6),
    "Qwen/Qwen2.5-14B": config("qwen2", 48, 40, 8, 0, 5120, 13824, 152064, False, 131072, 1e-5, 1e6),
    "Qwen/Qwen2.5-32B": config("qwen2", 64, 40, 8, 0, 5120, 27648, 152064, False, 131072, 1e-5, 1e6),
    "Qwen/Qwen3-4B": config("qwen3", 36, 32, 8, 128, 2560, 9728, 151936, True, 40960, 1e-6, 1e6),
    "Qwen/Qwen3-14B": config("qwen3", 40, 40, 8, 128, 5120, 17408, 151936, False, 40960, 1e-6, 1e6),
    "Qwen/Qwen3-32B": config("qwen3", 64, 64, 8, 128, 5120, 25600, 151936, False, 40960, 1e-6, 1e6)}


def known():
    def plan(source):
        done = run(f"--init_from={source}", "--lora_rank=16", "--block_size=64", "--batch_size=1", "--gradient_accumulation_steps=1",
                   "--device_profile=rtx4090-24g", "--host_budget=64GiB", "--plan=json")
        check(f"{source}: a plan", done.returncode == 0, done.stderr)
        return {key: value for key, value in json.loads(done.stdout).items() if key != "forecast"}, done
    os.environ["HF_HUB_CACHE"] = os.path.abspath("hub")
    for name, fields in some(list(PUBLIC.items()), 3):
        folder = name.split("/")[1]
        os.makedirs(folder)
        write_json(f"{folder}/config.json", fields)
        by_name, done = plan(name)
        check(f"{name}: by its name as by config.json", by_name == plan("./" + folder)[0])
        check(f"{name}: where the shape is from, and how to get it", "comes from the built-in table" in done.stderr and
              f"hf download {name}" in done.stderr, done.stderr)
    done = run("--init_from=Qwen/Qwen3-8B", "--lora_rank=16", "--device_profile=rtx3070-8g", "--plan")
    check("8B on 8 GB", done.returncode == 0 and done.stdout.endswith("hf download Qwen/Qwen3-8B --exclude 'original/*'\n"), done.stdout[-300:])
    check("8B on 8 GB: what it assumes", all(done.stderr.count(words) == 1 for words in ("up to 16.00 GiB of host memory", "the data are not there")), done.stderr)
    done = run("--init_from=Qwen/Qwen3-8B", "--lora_rank=16", "--device_profile=rtx3070-8g", "--host_budget=0", "--plan")
    check("8B on 8 GB without host memory", done.returncode == 3 and "host memory may" not in done.stderr and "--host_budget=12." in done.stdout, done.stderr)
    done = run("--init_from=Qwen/Qwen3-4B", "--device_profile=rtx3070-8g", "--plan")
    check("4B in full on 8 GB: adapters are the alternative", done.returncode == 3 and "lora_rank 16, micro_batch" in done.stdout and
          "n_layer" not in done.stdout and "with\n" + 35 * " " + "--host_budget=" in done.stdout, done.stdout[-600:])
    done = run("--init_from=Qwen/Qwen3-32B", "--device_profile=rtx3060-12g", "--plan")
    check("32B in full: adapters, since a desktop has no 500 GiB of memory", done.returncode == 3 and "lora_rank 16" in done.stdout and
          "gradients, weights" not in done.stdout, done.stdout[-600:])
    done = run("--dataset=some/chats", "--plan", "--backend=cpu")
    check("a plan of a new model without data", done.returncode == 0 and done.stderr.count("the data are not there") == 1, done.stderr)
    cached = "hub/models--me--mine/snapshots/0123abcd"
    os.makedirs(cached)
    write_json(f"{cached}/config.json", PUBLIC["Qwen/Qwen3-4B"])
    done = run("--init_from=me/mine", "--lora_rank=4", "--device_profile=rtx4090-24g", "--plan")
    check("config.json alone in the cache", done.returncode == 0 and "hf download me/mine" in done.stdout, done.stderr)
    for name, words in (("Qwen/Qwen3-8B", "hf download Qwen/Qwen3-8B"), ("Qwen/Qwen3-9B", "did you mean Qwen/Qwen3-4B, Qwen/Qwen3-8B?"),
                        ("qwen3-4b", "did you mean Qwen/Qwen3-4B?"), ("some/thing", "hf download some/thing")):
        done = run(f"--init_from={name}", "--lora_rank=4", "--dataset=chats", "--out_dir=none", "--backend=cpu")
        check(f"{name} is not there", done.returncode == 2 and len(error_lines(done)) == 1 and words in done.stderr, done.stderr)
    sized = {"hidden_size": 2048, "num_hidden_layers": 28, "vocab_size": 262144}
    for name, fields, words in (("gemma", {"model_type": "gemma2", **sized}, '"gemma2" is not supported'),
                                ("nested", {"model_type": "qwen3_5_moe", "text_config": sized}, "a model of about this size is Qwen/Qwen3.5-2B"),
                                ("bits", {**PUBLIC["Qwen/Qwen3-4B"], "quantization_config": {"load_in_4bit": True}}, "use the model in 16 bits")):
        os.makedirs(name)
        write_json(f"{name}/config.json", fields)
        done = run(f"--init_from=./{name}", "--lora_rank=4", "--plan", "--backend=cpu")
        check(f"{name}: refused with what to use", done.returncode == 2 and len(error_lines(done)) == 1 and words in done.stderr, done.stderr)


# Of each family: the architecture of the model, its model_type, its chat template, and parts by which the template is recognised.
FAMILIES = {
    "gpt2": ("gpt2", "gpt2", "chatml", ("<|im_start|>", "<|im_end|>", "message['content']")),
    "llama-3.2": ("llama", "llama", "llama3.2", ("<|start_header_id|>", "<|eot_id|>", "Cutting Knowledge Date: December 2023", 'strftime_now("%d %b %Y")')),
    "mistral": ("llama", "mistral", "mistral", ('"[INST] " + system_message', '"[INST] " + message["content"] + "[/INST]"',
                                                '" " + message["content"]|trim + eos_token')),
    "qwen2.5": ("qwen2", "qwen2", "qwen2.5", ("<|im_start|>", "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
                                              "<tool_response>", "</tools>")),
    "qwen3": ("qwen3", "qwen3", "qwen3", ("<|im_start|>", "loop.index0 > ns.last_query_index %}", "reasoning_content", "enable_thinking is false",
                                          "<tool_response>", '"arguments": ')),
    "olmo2": ("olmo2", "olmo2", "chatml", ("<|im_start|>", "<|im_end|>", "message['content']")),
    "smollm2": ("llama", "llama", "smollm2", ("<|im_start|>", "named SmolLM, trained by Hugging Face<|im_end|>", "messages[0]['role'] != 'system'")),
    "gemma-3": ("gemma3", "gemma3_text", "gemma3", ("<start_of_turn>", "<end_of_turn>", "first_user_prefix", "| trim")),
    "phi-4-mini": ("phi3", "phi3", "phi4-mini", ("'<|' + message['role'] + '|>'", "<|end|>", "eos_token", "<|tool|>"))}
# What ends an answer.
ENDS = {"llama3.2": "<|eot_id|>", "mistral": "</s>", "gemma3": "<end_of_turn>", "phi4-mini": "<|end|>"}


def cached(name, source, template, kind):
    """Lays a model out in the cache: files are links to blobs, and refs/main names the snapshot."""
    at, commit = f"home/hub/models--made--{name}", "0123456789abcdef0123456789abcdef01234567"
    given = {file: data for file, data in files(source).items() if file != "gpt_tokenizer.json"} # which no other program writes
    said = {**json.loads(given["tokenizer_config.json"]), "chat_template": "{# " + " ".join(template) + " #}"}
    given["tokenizer_config.json"] = json.dumps(said).encode()
    given["config.json"] = json.dumps({**json.loads(given["config.json"]), "model_type": kind}).encode()
    write(f"{at}/refs/main", commit)
    os.makedirs(f"{at}/snapshots/{commit}")
    for i, (file, data) in enumerate(given.items()):
        write(f"{at}/blobs/{i:040x}", data)
        os.symlink(f"../../blobs/{i:040x}", f"{at}/snapshots/{commit}/{file}")


def journey():
    os.environ.pop("HF_HUB_CACHE", None)
    os.environ["HF_HOME"] = os.path.abspath("home")
    for name, (arch, kind, template, parts) in FAMILIES.items():
        run("--tokenizer=train", f"--vocab-size={VOCAB}", f"--chat={template}", "--block-size=256", f"--out-dir=data/v-{name}", "more.jsonl", program=GPT_PREPARE)
        run(f"--arch={arch}", f"--dataset=v-{name}", "--n_layer=1", "--n_head=2", "--n_embd=32", "--block_size=256", "--max_iters=0", "--batch_size=1",
            "--gradient_accumulation_steps=1", "--eval_iters=1", "--backend=cpu", f"--out_dir=made-{name}", "--document_mask=True")
        run(f"--out_dir=made-{name}", "--format=hf", "--dtype=float32", "--evaluate=0", f"hf-{name}", program=GPT_EXPORT)
        cached(name, f"hf-{name}", parts, kind)
        done = run("--chat", f"--tokenizer=made/{name}", "--block-size=256", f"--out-dir=data/{name}", "more.jsonl", program=GPT_PREPARE)
        check(f"{name}: gpt-prepare knows the template", done.returncode == 0 and f"chat template: {template}, recognised" in done.stderr, done.stderr)
        _, done = trained(f"out-{name}", f"--init_from=made/{name}", "--lora_rank=4", f"--dataset={name}", "--epochs=1", "--sample_tokens=4")
        check(f"{name}: answers while it trains", "--- answer after" in done.stdout, done.stdout)
        done = subprocess.run([GPT_SAMPLE, f"--out_dir=out-{name}", "--chat", "--max_new_tokens=8", "--backend=cpu"], input="what is 1?\nwhat is 2?\n",
                              check=False, capture_output=True, text=True)
        check(f"{name}: gpt-sample answers and ends", done.returncode == 0 and len(done.stdout) > 2, done.stderr)
        done = subprocess.run([GPT_SAMPLE, f"--out_dir=out-{name}", "--num_samples=1", "--max_new_tokens=2", "--backend=cpu"],
                              check=False, capture_output=True, text=True)
        check(f"{name}: gpt-sample names --chat", "add --chat to get answers" in done.stderr, done.stderr)
        done = run(f"--out_dir=out-{name}", "--format=gguf", f"{name}.gguf", program=GPT_EXPORT)
        check(f"{name}: gpt-export", done.returncode == 0, done.stderr)
        check(f"{name}: gpt-export says what it judged", "of the validation data, prompts and answers)" in done.stdout, done.stdout)
        keys = Gguf(f"{name}.gguf").keys
        check(f"{name}: GGUF with the model's template", keys["general.architecture"] == arch and all(part in keys["tokenizer.chat_template"] for part in parts),
              {key: value for key, value in keys.items() if not key.startswith("tokenizer.ggml")})
        stop, tokens = ENDS.get(template, "<|im_end|>"), keys["tokenizer.ggml.tokens"]
        for form in ("hf", "ollama"):
            done = run(f"--out_dir=out-{name}", f"--format={form}", "--dtype=float32", "--evaluate=0", f"{form}-of-{name}", program=GPT_EXPORT)
            check(f"{name}: gpt-export --format={form}", done.returncode == 0, done.stderr)
        ends = read_json(f"hf-of-{name}/generation_config.json")["eos_token_id"]
        ends = ends if isinstance(ends, list) else [ends]
        found = {tokens[keys[f"tokenizer.ggml.{key}_token_id"]] for key in ("eos", "eot") if f"tokenizer.ggml.{key}_token_id" in keys}
        check(f"{name}: what ends an answer", tokens[keys["tokenizer.ggml.eos_token_id"]] == tokens[ends[0]] == stop and {tokens[i] for i in ends} == found
              and f'PARAMETER stop "{stop}"' in read(f"ollama-of-{name}/Modelfile").decode(), f"{ends} {found}")


def absent():
    for words in (["--dataset=/nonexistent"], ["--dataset=nowhere", "--init_from=./base", "--lora_rank=4"], ["--dataset=chats:0.5,nowhere:0.5"]):
        done = run(*words, "--out_dir=none", "--backend=cpu")
        check(f"{words}: one line", done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "cannot open this dataset folder" in done.stderr
              and "--dataset=PATH names one elsewhere" in done.stderr, done.stderr)
    done = run("--dataset=some/chats", "--out_dir=none", "--backend=cpu")
    check("a data set of the Hub", done.returncode == 2 and "hf download --repo-type=dataset some/chats" in done.stderr, done.stderr)
    done = run("--dataset=nowhere", "--init_from=./base", "--lora_rank=4", "--plan", "--backend=cpu")
    check("a plan without data", done.returncode == 0 and "a plan of 1000" in done.stderr, done.stderr)


if __name__ == "__main__":
    end(defaults, wins, epochs, names, shows, known, journey, absent, begin=begin)
