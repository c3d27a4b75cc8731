#!/usr/bin/env python3
"""Adapters of low rank (LoRA).  Their numbers are compared with PyTorch's in parity_torch.py.

  trains    on every backend, at every recompute level, in chunks, micro-steps and parts, by two ranks, with the base in host
            memory: the losses of the plain run; planned bytes are asked for, and only adapters have gradients and moments
  resumes   a run that is continued has the bytes of one that was not stopped; a checkpoint holds adapters alone; another
            base is refused
  leaves    adapters open again, by themselves and as PEFT's files; added to their base they are W + alpha / rank B A, also in GGUF,
            and give the same losses and text
  refused   what cannot be: one line, exit status 2
  plans     Qwen2.5-7B and Llama 3.1 8B fit a card of 12 GB and half of 32 GB of host memory, by the search alone
"""
import array
import json
import os
import random
import shutil
import subprocess

from checks import (GPT_EXPORT, GPT_SAMPLE, GPT_TRAIN, check, drawn_tensor, end, error_lines, files, metrics, opencl_device, ran,
                    read, read_json, small_llama, some, tensors_read, tensors_write, write, write_json)
from gguf_file import Gguf
from cuda_common import GPT_TRAIN_CUDA

VOCAB, WIDTH, BLOCK = 257, 32, 16
DATA = ["--dataset=./data", "--batch_size=6", "--gradient_accumulation_steps=1", f"--block_size={BLOCK}", "--max_iters=4", "--eval_interval=100",
        "--eval_iters=2", "--log_interval=1", "--learning_rate=3e-2", "--warmup_iters=0", "--decay_lr=False"]
LORA = ["--lora_rank=4", "--lora_alpha=8"]


def begin():
    random.seed(20240611)
    config, tensors = small_llama(VOCAB, 3, 64, 0.3)
    for folder in ("base", "other"):
        os.makedirs(folder)
        write_json(f"{folder}/config.json", config)
        tensors_write(f"{folder}/model.safetensors", tensors)
        tensors["model.norm.weight"] = drawn_tensor(WIDTH, 0, 0.1)
    os.makedirs("data")
    for split, count in (("train", 4000), ("val", 1000)):
        ids = [7 * i % VOCAB for i in range(count)]
        with open(f"data/{split}.bin", "wb") as file:
            file.write(b"".join(id.to_bytes(2, "little") for id in ids))


def run(out, *arguments, program=GPT_TRAIN, env=None):
    return ran(program, f"--out_dir={out}", *DATA, *arguments, env=env)


def train(out, *arguments, program=GPT_TRAIN, env=None):
    done = run(out, *arguments, program=program, env=env)
    check(done.returncode == 0, f"{out}: {done.stderr[-500:]}")
    return [line["loss"] for line in metrics(out)]


def close(what, ours, other, bound):
    check(len(ours) == len(other) > 0 and all(abs(a - b) <= bound for a, b in zip(ours, other)), f"{what}: {ours}, not {other}")


def trains():
    plain = train("plain", "--init_from=./base", *LORA, "--backend=cpu")
    check(plain[0] - plain[-1] > 0.05, f"the adapters learn nothing: {plain}")
    variants = [["--offload=states", "--recompute=full"]] + some([["--recompute=" + level] for level in ("gelu", "layernorm", "mlp")])
    for i, arguments in enumerate(variants):
        train(f"v{i}", "--init_from=./base", *LORA, "--backend=cpu", *arguments)
        check(read("plain/model-000005.safetensors") == read(f"v{i}/model-000005.safetensors"), f"{arguments}: other bytes")
    close("pieces", train("pieces", "--init_from=./base", *LORA, "--backend=cpu", "--micro_batch=4", "--loss_chunk=7", "--recompute=full:1,mlp:1,none"),
          plain, 1e-5)
    divided = ["--init_from=./base", *LORA, "--backend=cpu", "--parts=2", "--threads=1"]
    close("parts", train("divided", *divided), plain, 1e-5)
    train("ranks", *divided, "--ranks=2")
    check(read("divided/model-000005.safetensors") == read("ranks/model-000005.safetensors"), "two ranks: other bytes than one")
    for out, words in (("rank", ["--lora_rank=4"]), ("alpha", ["--lora_rank=4", "--lora_alpha=4"])): # the default scale is 2
        train(out, "--init_from=./base", *words, "--backend=cpu")
    check(read("rank/model-000005.safetensors") == read("plain/model-000005.safetensors") != read("alpha/model-000005.safetensors"),
          "lora_alpha is not twice lora_rank by default")
    check(read_json("rank/trainer_state.json")["adapter"]["lora_alpha"] == 8, "the default lora_alpha in the record")
    half = train("half", "--init_from=./base", *LORA, "--backend=cpu", "--dtype=bfloat16")
    close("bfloat16", half, plain, 0.1)
    for backend, program in [("cuda", GPT_TRAIN_CUDA)] * os.path.exists(GPT_TRAIN_CUDA) + [("opencl", GPT_TRAIN)] * bool(opencl_device()):
        env = dict(os.environ, **({"GPT_TRAIN_OPENCL_LIBRARY": ""} if backend == "opencl" else {}))
        for offload, when in (("none", ""), ("all", "random:1")):
            env["GT_CUDA_ON_CPU_COPIES"] = when
            out = f"{backend}-{offload}"
            close(out, train(out, "--init_from=./base", *LORA, f"--backend={backend}", "--dtype=float32", f"--offload={offload}", "--max_iters=1",
                             program=program, env=env), plain[:2], 1e-4)
            line = metrics(out, "planned_bytes")[-1]
            check(line["planned_bytes"] == line["allocated_bytes"], f"{out}: other bytes than planned")
            check(read(f"{backend}-none/model-000002.safetensors") == read(f"{out}/model-000002.safetensors"), f"{out}: other bytes than resident")
    done = run("none", "--init_from=./base", *LORA, "--backend=cpu", "--dtype=bfloat16", "--plan=json")
    told = json.loads(done.stdout)["categories"]
    adapters = sum(len(raw) // 4 for _, _, raw in tensors_read("plain/model.safetensors").values())
    wanted = {"master": 4 * adapters, "moments": 8 * adapters, "gradients": 4 * adapters}
    for name, count in wanted.items():
        check(count == told[name], f"{told[name]} bytes of {name}, not the adapters' {count}")


def resumes():
    train("whole", "--init_from=./base", *LORA, "--backend=cpu", "--dtype=bfloat16")
    train("parts", "--init_from=./base", *LORA, "--backend=cpu", "--dtype=bfloat16", "--max_iters=1")
    train("parts", "--init_from=resume", "--backend=cpu", "--max_iters=4")
    for name in ("model-000005.safetensors", "optimizer-000005.safetensors"):
        check(read(f"whole/{name}") == read(f"parts/{name}"), f"{name}: a resumed run has other bytes")
    names = tensors_read("whole/model.safetensors")
    check(len(names) == 3 * 7 * 2 and all("lora_" in name for name in names), f"the checkpoint holds {sorted(names)[:3]}...")
    check("config.json" not in files("whole"), "adapters alone are no model, but there is config.json")
    shutil.copytree("base", "kept")
    shutil.copy("other/model.safetensors", "base/model.safetensors")
    done = run("parts", "--init_from=resume", "--backend=cpu", "--max_iters=9")
    check(done.returncode == 2 and "were trained on another model" in done.stderr, f"another base: {done.stderr[-300:]}")
    shutil.copy("kept/model.safetensors", "base/model.safetensors")
    done = run("parts", "--init_from=resume", "--lora_rank=8", "--backend=cpu", "--max_iters=9")
    check(done.returncode == 2 and "lora_rank = 8" in done.stderr, f"another rank: {done.stderr[-300:]}")
    train("parts", "--init_from=resume", *LORA, "--backend=cpu", "--max_iters=5")


def export(source, form, out, *arguments):
    return ran(GPT_EXPORT, f"--out_dir={source}", f"--format={form}", *arguments, out)


def added(layer, scale):
    """Checks that merging adds scale B A, summed here in double, to the weight of a layer."""
    def rows(path, name):
        _, (count, columns), raw = tensors_read(path)[name]
        numbers = array.array("f", raw)
        return [numbers[i * columns:(i + 1) * columns] for i in range(count)]
    base, merged = (rows(f"{folder}/model.safetensors", layer + ".weight") for folder in ("base", "merged"))
    a, b = (rows("peft/adapter_model.safetensors", f"base_model.model.{layer}.lora_{part}.weight") for part in "AB")
    for i, row in enumerate(base):
        wanted = [value + scale * sum(b[i][k] * a[k][j] for k in range(4)) for j, value in enumerate(row)]
        check(all(abs(x - y) <= 1e-6 for x, y in zip(wanted, merged[i])), f"{layer}, row {i}: {merged[i][:3]}, not {wanted[:3]}")
    check(any(x != y for row, other in zip(base, merged) for x, y in zip(row, other)), f"{layer} is that of the base")


def llama_cpp_adapter(config):
    """--format=gguf-lora: names, shapes and keys of llama.cpp's converter; PEFT's values, the rows of B of queries in llama.cpp's order."""
    done = export("run", "gguf-lora", "adapter.gguf")
    check(done.returncode == 0, f"gguf-lora: {done.stderr}")
    gguf, peft = Gguf("adapter.gguf"), tensors_read("peft/adapter_model.safetensors")
    wanted = {"general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora", "adapter.lora.alpha": config["lora_alpha"]}
    check({key: gguf.keys.get(key) for key in wanted} == wanted and not any(key.startswith(("llama.", "tokenizer.")) for key in gguf.keys), str(gguf.keys))
    parts = {"self_attn.q_proj": "attn_q", "self_attn.v_proj": "attn_v", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
    check(len(gguf.tensors) == len(peft), f"{len(gguf.tensors)} tensors, not {len(peft)}")
    for layer in range(3):
        for name, other in parts.items():
            for part in "AB":
                _, shape, raw = peft[f"base_model.model.model.layers.{layer}.{name}.lora_{part}.weight"]
                dims, kind, data = gguf.tensors[f"blk.{layer}.{other}.weight.lora_{part.lower()}"]
                rows = [data[i:i + 4 * shape[1]] for i in range(0, len(data), 4 * shape[1])]
                if (other, part) == ("attn_q", "B"):  # heads of 8: rows i and i + 4 are neighbours
                    rows = [rows[8 * (i // 8) + 2 * (i % 4) + i % 8 // 4] for i in range(len(rows))]
                check((dims, kind, b"".join(rows)) == (shape[::-1], 0, raw), f"{other}, {part}: {dims}, {kind}")
    for form, word in (("gguf-lora", "use --format=gguf"), ("peft", "use --format=hf")):
        done = export("base", form, "none")
        check(done.returncode == 2 and word in done.stderr, f"{form} without adapters: {done.stderr}")
    done = export("run", "gguf-lora", "none", "--dtype=q8_0")
    check(done.returncode == 2 and "cannot store q8_0" in done.stderr, f"quantised adapters: {done.stderr}")


def leaves():
    train("run", "--init_from=./base", *LORA, "--target_modules=['q_proj', 'v_proj', \"up_proj\",down_proj]", "--backend=cpu")
    for form, out in (("peft", "peft"), ("hf", "merged"), ("gguf", "merged.gguf")):
        done = export("run", form, out, "--dtype=float32")
        check(done.returncode == 0, f"{form}: {done.stderr}")
    config = read_json("peft/adapter_config.json")
    check((config["r"], config["lora_alpha"], sorted(config["target_modules"])) == (4, 8.0, ["down_proj", "q_proj", "up_proj", "v_proj"]), str(config))
    judged = []
    for source in ("./peft", "./merged", "./run"):
        done = run("judge", f"--init_from={source}", "--eval_only=True", "--backend=cpu")
        check(done.returncode == 0, f"{source}: {done.stderr}")
        judged.append([word for word in done.stdout.split("val loss ")[-1].split()][0])
    check(len(set(judged)) == 1, f"losses of the adapters, merged, and as a run: {judged}")
    check(export("peft", "hf", "merged-again").returncode == 0, "PEFT's files are exported")
    check(read("merged/model.safetensors") == read("merged-again/model.safetensors"), "other bytes by way of PEFT's files")
    values = sum(len(raw) for _, _, raw in tensors_read("merged/model.safetensors").values())  # GGUF ends with them
    check(export("merged", "gguf", "again.gguf", "--dtype=float32").returncode == 0 and read("merged.gguf")[-values:] == read("again.gguf")[-values:],
          "GGUF of the adapters' run and of the merged model: other values")
    check(export("base", "gguf", "base.gguf", "--dtype=float32").returncode == 0 and read("base.gguf")[-values:] != read("merged.gguf")[-values:], "GGUF is not merged")
    added("model.layers.1.mlp.down_proj", 2.0)
    llama_cpp_adapter(config)
    added("model.layers.2.self_attn.q_proj", 2.0)
    texts = []
    for source in ("./peft", "./merged", "./base"):
        done = subprocess.run([GPT_SAMPLE, f"--init_from={source}", "--tokenizer=bytes", "--start=ab", "--temperature=0", "--max_new_tokens=20",
                               "--num_samples=1", "--backend=cpu"], check=False, capture_output=True)
        check(done.returncode == 0, f"a sample of {source}: {done.stderr[-300:]}")
        texts.append(done.stdout)
    check(texts[0] == texts[1] != texts[2], f"samples of the adapters, merged, and of the base: {texts}")
    for field, value in (("use_dora", True), ("rank_pattern", {"q_proj": 2}), ("modules_to_save", ["lm_head"]), ("bias", "all"),
                         ("target_modules", ["lm_head"]), ("r", 5), ("init_lora_weights", "pissa"), ("peft_type", "IA3"),
                         ("unheard_of", 3), ("alpha_pattern", {"q_proj": 9}), ("lora_bias", True), ("layers_to_transform", [0]),
                         ("target_modules", ".*[01].*q_proj"), ("base_model_name_or_path", "./nothing"), ("base_model_name_or_path", "/nothing"),
                         ("base_model_name_or_path", "nobody/nothing"), ("base_model_name_or_path", ""), ("base_model_name_or_path", None)):
        changed({**config, field: value})
        for done in (run("x", "--init_from=./changed", "--backend=cpu"), export("changed", "hf", "y")):
            check(done.returncode == 2 and len(error_lines(done)) == 1, f"{field}={value}: {done.returncode} {done.stderr}")
            if field in ("use_dora", "rank_pattern", "modules_to_save", "bias", "peft_type", "layers_to_transform"):
                check("merge_and_unload()" in done.stderr, f"{field}={value}: what to do: {done.stderr}")
    changed({**config, "lora_alpha": 3})
    done = run("alpha-of-the-file", "--init-from=./changed", "--lora_rank=4", "--backend=cpu")
    check(done.returncode == 0 and read_json("alpha-of-the-file/trainer_state.json")["adapter"]["lora_alpha"] == 3, f"alpha of the file: {done.stderr}")
    done = run("x", "--init_from=./changed", "--lora_rank=2", "--backend=cpu")
    check(len(error_lines(done)) == 1 and "gpt-export --format=hf first adds these" in done.stderr, f"other adapters: {done.stderr}")
    for fields in ({"target_modules": ".*(q_proj|v_proj|up_proj|down_proj)"}, {"use_rslora": True, "lora_alpha": 4},
                   {"target_modules": ["self_attn.q_proj", "v_proj", "mlp.up_proj", "down_proj"], "layers_to_transform": [0, 1, 2]}):
        changed({**config, **fields})
        done = run("judge", "--init_from=./changed", "--eval_only=True", "--backend=cpu")
        check(done.returncode == 0 and done.stdout.split("val loss ")[-1].split()[0] == judged[0], f"{fields}: {done.stdout} {done.stderr}")


def changed(config):
    shutil.copytree("peft", "changed", dirs_exist_ok=True)
    write_json("changed/adapter_config.json", config)


def names_its_file():
    """Errors of the adapter's tensors name the adapter's file, not the base's."""
    config, tensors = read_json("peft/adapter_config.json"), tensors_read("peft/adapter_model.safetensors")
    name = "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight"
    dtype, shape, raw = tensors[name]
    for what, change in (("a shape", {name: (dtype, [2, shape[0] * shape[1] // 2], raw)}), ("another type", {name: ("I32", shape, raw)}),
                         ("a value", {name: (dtype, shape, b"\0\0\x80\x7f" + raw[4:])}), ("one missing", {name: None}),
                         ("one more", {name.replace("q_proj", "k_proj"): (dtype, shape, raw)})):
        changed(config)
        tensors_write("changed/adapter_model.safetensors", {key: value for key, value in {**tensors, **change}.items() if value})
        done = run("x", "--init_from=./changed", "--backend=cpu")
        check(done.returncode == 2 and len(error_lines(done)) == 1 and "changed/adapter_model.safetensors: " in error_lines(done)[0],
              f"{what}: {done.returncode} {done.stderr}")
    for what, names in (("the adapter's name", {key.replace(".weight", ".default.weight"): value for key, value in tensors.items()}), ("PEFT's", tensors)):
        tensors_write("changed/adapter_model.safetensors", names)
        done = run("judge", "--init_from=./changed", "--eval_only=True", "--backend=cpu")
        check(done.returncode == 0, f"names with {what}: {done.stderr}")
    shutil.copytree("base", "outputs/checkpoint-20")
    os.makedirs("outputs/checkpoint-5")
    beside = {"base_model.model." + key: value for key, value in tensors_read("base/model.safetensors").items()}
    tensors_write("outputs/checkpoint-20/model.safetensors", {**beside, **names})
    write("outputs/checkpoint-5/adapter_model.bin", b"")
    write("ollama/model.gguf", b"GGUF")
    for folder, said in (("ollama", "name the file: ./ollama/model.gguf"), ("outputs", "such as ./outputs/checkpoint-20"), ("outputs/checkpoint-20", "saved together with its PEFT adapters"),
                         ("outputs/checkpoint-5", "AutoPeftModel")):
        done = run("x", f"--init_from=./{folder}", "--backend=cpu")
        check(done.returncode == 2 and said in done.stderr, f"{folder}: {done.stderr}")
    changed(config)
    os.truncate("changed/adapter_model.safetensors", os.path.getsize("changed/adapter_model.safetensors") - 1)
    done = run("x", "--init_from=./changed", "--backend=cpu")
    check(done.returncode == 2 and "changed/adapter_model.safetensors: " in done.stderr, f"cut short: {done.stderr}")


def refused():
    for arguments, word in ((["--init_from=scratch", *LORA], "name the model"), (["--init_from=./base", *LORA, "--lora_targets=c_attn"], "no 'c_attn'"),
                            (["--init_from=./base", "--lora_rank=17"], "above a dimension"), (["--init_from=./base", "--lora_alpha=8"], "needs lora_rank"),
                            (["--init_from=./base", *LORA, "--optimizer=muon"], "only adamw")):
        done = run("x", *arguments, "--backend=cpu")
        check(done.returncode == 2 and word in done.stderr and len(error_lines(done)) == 1, f"{arguments}: {done.returncode} {done.stderr}")
    done = run("x", "--init_from=./base", "--lora_r=4", "--lora_target_modules=q_proj, v_proj", "--backend=cpu", "--plan")
    check(done.returncode == 0, f"a blank between layers: {done.stderr}")
    # The least dimension of the base's matrices is that of its keys, 16, and of the other's that of its MLP.
    write_json("thin/config.json", {**read_json("base/config.json"), "intermediate_size": 8})
    for base, rank, status in (("base", 16, 0), ("thin", 8, 0), ("thin", 9, 2)):
        done = run("x", f"--init_from=./{base}", f"--lora_rank={rank}", "--backend=cpu", "--plan")
        check(done.returncode == status and ("above a dimension" in done.stderr) == (status == 2), f"{base}, {rank}: {done.returncode} {done.stderr}")
    done = export("base", "peft", "y")
    check(done.returncode == 2 and "has none" in done.stderr, f"no adapters: {done.stderr}")


def plans():
    wide = ["--lora_rank=16", "--block_size=1024", "--batch_size=1", "--gradient_accumulation_steps=8", "--dtype=bfloat16", "--tie_embeddings=False"]
    for shape in ("--arch=qwen2 --n_layer=28 --n_head=28 --n_kv_head=4 --n_embd=3584 --n_inner=18944 --vocab_size=152064",
                  "--arch=llama --n_layer=32 --n_head=32 --n_kv_head=8 --n_embd=4096 --n_inner=14336 --vocab_size=128256"):
        done = ran(GPT_TRAIN, *shape.split(), *wide, "--device_profile=rtx3060-12g", "--host_budget=16GiB", "--plan=json")
        check(done.returncode == 0, f"{shape}: {done.stderr[-300:]}")
        plan = json.loads(done.stdout)
        check(plan["bytes"]["fits"] and 0 < plan["bytes"]["host_arena"] <= 16 << 30, f"{shape}: {plan['bytes']}")
        check("frozen weights" in plan["search"]["changes"], plan["search"]["changes"])
        # Each of the 8 sequences fetches the weights twice, at most.
        alone, serial = plan["forecast"]["seconds_per_step"] / plan["search"]["time_ratio_modelled"], 16 * plan["host_categories"]["parameters"] / 18.6e9
        check(plan["forecast"]["seconds_per_step"] < alone + 0.6 * serial, f"{shape}: copies of {serial} s are not beside computing: {plan['forecast']}")


if __name__ == "__main__":
    end(trains, resumes, leaves, names_its_file, refused, plans, begin=begin)
