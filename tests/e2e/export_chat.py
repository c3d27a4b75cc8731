#!/usr/bin/env python3
"""Models of conversations leave for Ollama: the folder of --format=ollama.

  modelfile  its lines: the model, the template, the words that end an answer, the length of the context; the commands
  templates  for each template that the project knows, Go's text/template prints the Modelfile's for twenty conversations as jinja2
             prints the family's; TRL's copies of models' templates are compared too
  survival   end tokens, padding, how tokens are chosen, the token before a text, special tokens and the template of a base
             survive training, every format, and the way back from a GGUF file
  bad        no tokenizer, a folder that exists, a full disk: one line, and nothing left
Go and jinja2 are optional.  Prints "checks: P passed, F failed, S skipped".
"""

import importlib.util
import json
import os
import random
import re
import resource
import shutil

from checks import GPT_EXPORT, GPT_PREPARE, GPT_TRAIN, check, end, error_lines, ran, read, read_json, skip, write
from gguf_file import Gguf

# Reads [[template, messages], ...] and prints the results as JSON.  Ollama names the fields of a message so.
GO = """package main

import (
	"bytes"
	"encoding/json"
	"os"
	"text/template"
)

type message struct{ Role, Content, Thinking string }
type given struct {
	Template string
	Messages []message
	NoThink  bool
}

func main() {
	var all []given
	var results []string
	if err := json.NewDecoder(os.Stdin).Decode(&all); err != nil {
		panic(err)
	}
	for _, each := range all {
		var out bytes.Buffer
		parsed := template.Must(template.New("").Parse(each.Template))
		if err := parsed.Execute(&out, map[string]any{"Messages": each.Messages, "IsThinkSet": each.NoThink, "Think": !each.NoThink}); err != nil {
			panic(err)
		}
		results = append(results, out.String())
	}
	_ = json.NewEncoder(os.Stdout).Encode(results)
}
"""


# Each family in Jinja, written from its definition.  `ask`: an answer follows.
LAST = "{% if ask %}PROMPT{% endif %}"
CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}" + LAST.replace("PROMPT", "<|im_start|>assistant\n")
LLAMA3 = ("{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content }}<|eot_id|>{% endfor %}"
          + LAST.replace("PROMPT", "<|start_header_id|>assistant<|end_header_id|>\n\n"))
PHI3 = "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}" + LAST.replace("PROMPT", "<|assistant|>\n")
QWEN3 = CHATML.replace("{{ m.content }}", "{% if loop.last and m.role == 'assistant' %}<think>\n{{ m.thinking }}\n</think>\n\n{% endif %}{{ m.content }}")
# Takes the first system message out of the list, as `system`.
TAKE = "{% set system = none %}{% if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set messages = messages[1:] %}{% endif %}"
DATED = TAKE + ("{{ '<|begin_of_text|>' }}<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
                "{{ system or '' }}<|eot_id|>") + LLAMA3
GEMMA = TAKE + ("<bos>{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{% if loop.first and system is not none %}{{ system }}\n\n"
                "{% endif %}{{ m.content }}<end_of_turn>\n{% endfor %}") + LAST.replace("PROMPT", "<start_of_turn>model\n")
# Its text for conversations without a system message is that of the Modelfile.
SMOLLM3 = TAKE + ("<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\nToday Date: 08 July 2025\nReasoning Mode: /{{ 'no_' if no_think }}think"
                  "\n\n## Custom Instructions\n\n{{ system if system else short if no_think else long }}\n\n") + CHATML.replace(
                      "{{ m.content }}", "{% if m.role == 'assistant' and no_think %}<think>\n\n</think>\n{% elif m.thinking %}<think>\n{{ m.thinking }}\n"
                      "</think>\n{% endif %}{{ m.content }}").replace("assistant\n{% endif %}", "assistant\n{% if no_think %}<think>\n\n</think>\n{% endif %}{% endif %}")


def with_default(text):
    return "{% if messages[0].role != 'system' %}<|im_start|>system\n" + text + "<|im_end|>\n{% endif %}" + CHATML


# Of each family: the template, what ends an answer, and whether it removes white space around texts, which Go cannot.
FAMILIES = {
    "chatml": (CHATML, "<|im_end|>", False),
    "llama3": ("{{ '<|begin_of_text|>' }}" + LLAMA3, "<|eot_id|>", False),
    "smollm2": (with_default("You are a helpful AI assistant named SmolLM, trained by Hugging Face"), "<|im_end|>", False),
    "qwen2": (with_default("You are a helpful assistant."), "<|im_end|>", False),
    "qwen2.5": (with_default("You are Qwen, created by Alibaba Cloud. You are a helpful assistant."), "<|im_end|>", False),
    "qwen3": (QWEN3.replace("assistant\n{% endif %}", "assistant\n{% if no_think %}<think>\n\n</think>\n\n{% endif %}{% endif %}"), "<|im_end|>", True),
    "qwen3-instruct": (CHATML, "<|im_end|>", False),
    "qwen3-thinking": (QWEN3.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}"), "<|im_end|>", True),
    "qwen3.5": (QWEN3.replace("assistant\n{% endif %}", "assistant\n<think>\n{% if no_think %}\n</think>\n\n{% endif %}{% endif %}"), "<|im_end|>", True),
    "qwen3.5-nothink": (QWEN3.replace("assistant\n{% endif %}", "assistant\n<think>\n\n</think>\n\n{% endif %}"), "<|im_end|>", True),
    "smollm3": (SMOLLM3, "<|im_end|>", True),
    "meta-llama3": ("{{ '<|begin_of_text|>' }}" + LLAMA3, "<|eot_id|>", True),
    "llama3.1": (DATED, "<|eot_id|>", True),
    "llama3.2": (DATED, "<|eot_id|>", True),
    "gemma": (GEMMA, "<end_of_turn>", True),
    "gemma3": (GEMMA, "<end_of_turn>", True),
    "mistral": (TAKE + "<s>{% for m in messages %}{% if m.role == 'user' %}[INST] {% if loop.last and system is not none %}{{ system }}\n\n{% endif %}{{ m.content }}[/INST]"
                "{% else %} {{ m.content }}</s>{% endif %}{% endfor %}", "</s>", True),
    "mistral-nemo": (TAKE + "<s>{% for m in messages %}{% if m.role == 'user' %}[INST]{% if loop.last and system is not none %}{{ system }}\n\n{% endif %}"
                     "{{ m.content }}[/INST]{% else %}{{ m.content }}</s>{% endif %}{% endfor %}", "</s>", False),
    "phi3": (PHI3, "<|end|>", False),
    "phi4": (CHATML.replace("\n", "").replace("}}{{ m.c", "}}<|im_sep|>{{ m.c").replace("assistant", "assistant<|im_sep|>"), "<|im_end|>", False),
    "phi4-mini": (PHI3.replace("\n", ""), "<|end|>", False),
}
# TRL's copies of models' templates.  Gemma's refuses a system message, and those of the two dated ones say today's date.
TRL = {"llama3": "meta-llama3", "llama3_1": "llama3.1", "llama3_2": "llama3.2", "qwen2_5": "qwen2.5", "qwen3": "qwen3", "phi3": "phi3",
       "qwen3_instruct_2507": "qwen3-instruct", "qwen3_5_think": "qwen3.5", "qwen3_5_nothink": "qwen3.5-nothink", "gemma": "gemma", "gemma3": "gemma3"}


def must(*arguments):
    done = ran(*arguments)
    check(done.returncode == 0, "%s: %s" % (" ".join(arguments), done.stderr[-400:]))
    return done.stdout


def make_model(kind):
    lines = [json.dumps({"messages": [{"role": "user", "content": "Say %d." % i}, {"role": "assistant", "content": "It is %d." % i}]}) for i in range(60)]
    must(GPT_PREPARE, "--tokenizer=train", "--vocab-size=320", "--chat=" + kind, "--block-size=64", "--val-fraction=0.3", "--out-dir=data/" + kind,
         write(kind + ".jsonl", "\n".join(lines) + "\n"))
    must(GPT_TRAIN, "--dataset=" + kind, "--out_dir=out-" + kind, "--arch=llama", "--n_layer=1", "--n_head=2", "--n_embd=32", "--block_size=64",
         "--batch_size=2", "--gradient_accumulation_steps=1", "--max_iters=2", "--eval_iters=1")


def modelfile(folder):
    """Returns the instructions of a Modelfile: [(word, argument)], as Ollama's parser reads them."""
    text, found = read(folder + "/Modelfile").decode(), []
    while text != "":
        line, _, text = text.partition("\n")
        word, _, rest = line.partition(" ")
        if rest.startswith('\"\"\"'):
            rest, _, text = (rest[3:] + "\n" + text).partition('\"\"\"')
            text = text.removeprefix("\n")
        if word != "#":
            found.append((word, rest))
    return found


def conversations(trims):
    """Twenty: with and without a system message, of 1 to 7 messages, with the characters that templates trip over; some answers
    have a reasoning.  `trims`: without white space around texts."""
    random.seed(20261128)
    texts = ["Hello", "", "a\nb\n\nc", "{{ .Content }}", "{% raw %}", "<b>&amp;\"'", "naïve 日本 🙂", "  spaces  ", "\ttab", "```c\nint i;\n```"]

    def message(role):
        text = random.choice(texts)
        return {"role": role, "content": text.strip() if trims else text, "thinking": random.choice(["", "Well:\nyes"]) if role == "assistant" else ""}
    for i in range(20):
        messages = [message("system")] * (i % 3 == 1) + [message("assistant" if k % 2 else "user") for k in range(2 * (i % 4) + 1)]
        yield messages + [message("assistant")] * (i % 5 == 4)


def check_modelfile(kind, stop):
    out = must(GPT_EXPORT, "--out_dir=out-" + kind, "--format=ollama", "--dtype=q8_0", "My " + kind)
    check("ollama create my%s -f 'My %s/Modelfile'" % (kind, kind) in out and "ollama run my" + kind in out, "the commands: " + out)
    lines = modelfile("My " + kind)
    check([word for word, _ in lines] == ["FROM", "TEMPLATE", "PARAMETER", "PARAMETER", "PARAMETER"], "instructions: %s" % lines)
    check(lines[0][1] == "./model.gguf" and [rest for _, rest in lines[2:]] == ['stop "%s"' % stop, 'stop "<|endoftext|>"', "num_ctx 64"], "%s" % lines)
    check(read("My %s/model.gguf" % kind)[:4] == b"GGUF" and sorted(os.listdir("My " + kind)) == ["Modelfile", "model.gguf"], "files")
    must(GPT_EXPORT, "--out_dir=out-" + kind, "--format=gguf", "--dtype=q8_0", "alone.gguf", "--force")
    check(len(read("alone.gguf")) == len(read("My %s/model.gguf" % kind)), "model.gguf is not that of --format=gguf")


def family_make(kind):
    """Writes the Modelfile of a model of this family: the weights are ChatML's, under another vocabulary."""
    _, stop, _ = FAMILIES[kind]
    must(GPT_PREPARE, "--tokenizer=train", "--vocab-size=300", "--chat=" + kind, "--block-size=4096", "--val-fraction=0", "--out-dir=data/" + kind,
         write("one.jsonl", json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}) + "\n"))
    for name in ("config.json", "model.safetensors"):
        write("hf-%s/%s" % (kind, name), read("hf/" + name))
    write("hf-%s/gpt_tokenizer.json" % kind, read("data/%s/gpt_tokenizer.json" % kind))
    write("hf-%s/tokenizer_config.json" % kind, json.dumps({"chat_template": "{{ messages }}"}))
    must(GPT_EXPORT, "--out_dir=hf-" + kind, "--format=ollama", "--evaluate=0", "ollama-" + kind)
    lines = modelfile("ollama-" + kind)
    check(("PARAMETER", 'stop "%s"' % stop) in lines and ("PARAMETER", "num_ctx 64") in lines, "%s: %s" % (kind, lines))
    return dict(lines)["TEMPLATE"]


def trl_template(name):
    """Returns TRL's copy of a model's template, or None."""
    found = importlib.util.find_spec("trl")
    places = [os.path.join(place, "chat_templates", name + ".jinja") for place in (found.submodule_search_locations if found else ())]
    return next((read(place).decode() for place in places if os.path.exists(place)), None)


def cases_make(jinja2):
    """Returns what Go is given, and what it should print."""
    world, given, wanted = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]), [], []
    world.globals.update(raise_exception=lambda text: text, strftime_now=lambda form: "26 Jul 2024")
    world.filters["tojson"] = json.dumps
    for kind, (own, stop, trims) in FAMILIES.items():
        go = family_make(kind)
        texts = dict(zip(("short", "long"), re.findall(r"(You are a helpful AI assistant named SmolLM.*?)\{\{ e", go)))
        theirs = [Gguf("ollama-%s/model.gguf" % kind).keys["tokenizer.chat_template"]] + [text for name, word in TRL.items() if word == kind for text in [trl_template(name)] if text is not None]
        for jinja in [jinja2.Template(own, keep_trailing_newline=True)] + [world.from_string(text) for text in theirs]:
            for i, messages in enumerate(conversations(trims)):
                asks, no_think = messages[-1]["role"] != "assistant", i % 4 == 3
                if theirs and kind == "gemma" and messages[0]["role"] == "system":
                    continue
                known = [{**each, "reasoning_content": each["thinking"]} for each in messages]
                text = jinja.render(messages=known, ask=asks, add_generation_prompt=asks, no_think=no_think, **({"enable_thinking": False} if no_think else {}),
                                    bos_token={"<|eot_id|>": "<|begin_of_text|>", "<end_of_turn>": "<bos>"}.get(stop, ""), eos_token="", **texts)
                given.append({"Template": go, "Messages": messages, "NoThink": no_think})
                wanted.append(text if asks else text.removesuffix("\n").removesuffix(stop))
    return given, wanted


def templates():
    for kind in ("chatml", "llama3"):
        make_model(kind)
        check_modelfile(kind, FAMILIES[kind][1])
    must(GPT_EXPORT, "--out_dir=out-chatml", "--format=hf", "hf")
    for kind, stop in (("phi4-mini", "<|end|>"), ("qwen3", "<|im_end|>")): # a new model's template: its text in Jinja is ours
        make_model(kind)
        must(GPT_EXPORT, "--out_dir=out-" + kind, "--format=ollama", "--evaluate=0", "new-" + kind)
        check(stop in dict(modelfile("new-" + kind))["TEMPLATE"], "new-%s: no template" % kind)
        check("tokenizer.chat_template" in Gguf("new-%s/model.gguf" % kind).keys, "new-%s: Jinja" % kind)
    try:
        import jinja2  # pylint: disable=import-outside-toplevel
    except ImportError:
        skip("export_jinja2", "no jinja2 for this Python")
        return
    if shutil.which("go") is None:
        skip("export_go", "no Go compiler")
        return
    if trl_template("qwen3") is None:
        skip("export_trl", "no TRL, which has copies of models' templates")
    given, wanted = cases_make(jinja2)
    write("main.go", GO)
    done = ran("go", "run", "main.go", input=json.dumps(given), env={**os.environ, "GO111MODULE": "off", "GOFLAGS": ""})
    check(done.returncode == 0, "go run: " + done.stderr[-500:])
    for messages, ours, theirs in zip(given, json.loads(done.stdout or "[]"), wanted):
        check(ours == theirs, "%s: Go prints %r, jinja2 %r" % (messages, ours, theirs))


CHOICE = {"temperature": 0.625, "top_k": 20, "top_p": 0.9375, "min_p": 0.0625, "repetition_penalty": 1.0625}


def base_make():
    """Makes the folder of a model as others publish it: three end tokens, a padding token, a token before a text."""
    for name in ("config.json", "model.safetensors"):
        write("base/" + name, read("hf/" + name))
    words = read_json("hf/tokenizer.json")
    ids = {each["content"]: each["id"] for each in words["added_tokens"]}
    begin = "<|endoftext|>"
    words["post_processor"] = {"type": "TemplateProcessing", "pair": [], "special_tokens": {begin: {"id": begin, "ids": [ids[begin]], "tokens": [begin]}},
                               "single": [{"SpecialToken": {"id": begin, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]}
    write("base/tokenizer.json", json.dumps(words))
    write("base/tokenizer_config.json", json.dumps({"chat_template": read_json("hf/tokenizer_config.json")["chat_template"], "pad_token": "<|im_start|>"}))
    write("base/generation_config.json", json.dumps({"eos_token_id": [7, ids["<|im_end|>"]], "do_sample": True, "transformers_version": "5", "own": [1], **CHOICE}))
    return ids, {"ends": {7, *(ids[text] for text in ("<|im_end|>", begin))}, "padding": ids["<|im_start|>"], "begins": True,
                 "specials": set(ids), "template": read_json("base/tokenizer_config.json")["chat_template"], **CHOICE}


def facts_of_hf(folder, ids):
    said, words, other = (read_json("%s/%s.json" % (folder, name)) for name in ("generation_config", "tokenizer", "tokenizer_config"))
    check(said["own"] == [1] and "transformers_version" not in said, "%s: generation_config.json: %s" % (folder, said))
    check(ids[other["pad_token"]] == said["pad_token_id"], "%s: pad_token" % folder)
    return {"ends": set(said["eos_token_id"]), "padding": said["pad_token_id"], "begins": words["post_processor"]["type"] == "TemplateProcessing",
            "specials": {each["content"] for each in words["added_tokens"] if each["special"]}, "template": other["chat_template"],
            **{name: said[name] for name in CHOICE}}


def facts_of_gguf(path, _):
    keys = Gguf(path).keys
    names = {"temperature": "temp", "repetition_penalty": "penalty_repeat"}
    ends = {keys["tokenizer.ggml.%s_token_id" % name] for name in ("eos", "eot", "eom")}
    check(ends == set(json.loads(keys["gpt_train.generation"])["eos_token_id"]), "the two lists of end tokens differ")
    return {"ends": ends,
            "padding": keys["tokenizer.ggml.padding_token_id"], "begins": keys["tokenizer.ggml.add_bos_token"],
            "specials": {text for text, kind in zip(keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"]) if kind == 3},
            "template": keys["tokenizer.chat_template"], **{name: keys["general.sampling." + names.get(name, name)] for name in CHOICE}}


def facts_of_ollama(folder, _):
    found, tokens = facts_of_gguf(folder + "/model.gguf", None), Gguf(folder + "/model.gguf").keys["tokenizer.ggml.tokens"]
    said = [rest.split(" ", 1) for word, rest in modelfile(folder) if word == "PARAMETER"]
    ends = {tokens.index(text[1:-1]) for name, text in said if name == "stop"}
    names = {"repetition_penalty": "repeat_penalty"}
    return {**found, "ends": ends, **{name: float(dict(said)[names.get(name, name)]) for name in CHOICE}}


def survival():
    ids, wanted = base_make()
    lines = "chatml.jsonl"

    def trained(base, out):
        must(GPT_PREPARE, "--tokenizer=" + base, "--chat", "--block-size=64", "--val-fraction=0.3", "--out-dir=data/" + out, lines)
        must(GPT_TRAIN, "--init_from=./" + base, "--dataset=" + out, "--out_dir=" + out, "--batch_size=2", "--gradient_accumulation_steps=1", "--max_iters=1",
             "--eval_iters=1")
        return out
    steps = [("trained, hf", trained("base", "tuned"), "hf", facts_of_hf), ("gguf", "tuned", "gguf", facts_of_gguf), ("ollama", "tuned", "ollama", facts_of_ollama),
             ("without training, hf", "base", "hf", facts_of_hf), ("gguf, hf", "way-1", "hf", facts_of_hf), ("gguf, gguf", "way-1", "gguf", facts_of_gguf)]
    for i, (what, source, form, facts) in enumerate(steps):
        must(GPT_EXPORT, "--out_dir=" + source, "--format=" + form, "--dtype=float32", "--evaluate=0", "way-%d" % i)
        found = facts("way-%d" % i, ids)
        check(found == wanted, "%s: %s, wanted %s" % (what, found, wanted))
    must(GPT_EXPORT, "--out_dir=" + trained("way-1", "again"), "--format=hf", "--evaluate=0", "way-last")
    found = facts_of_hf("way-last", ids)
    check(found == wanted, "gguf, trained, hf: %s, wanted %s" % (found, wanted))
    plain_text(ids, wanted)


def plain_text(ids, wanted):
    """A chat model in GGUF that is trained on plain text stays one; a file of another program has its end tokens in keys alone."""
    must(GPT_PREPARE, "--tokenizer=way-1", "--val-fraction=0.3", "--out-dir=data/plain", write("plain.txt", "It is not a conversation. " * 200))
    for i, more in enumerate(((), ("--lora_rank=2",))):
        out = "plain-%d" % i
        must(GPT_TRAIN, "--init_from=./way-1", "--dataset=plain", "--out_dir=" + out, "--block_size=32", "--batch_size=2", "--gradient_accumulation_steps=1",
             "--max_iters=1", "--eval_iters=1", *more)
        for form, facts in (("hf", facts_of_hf), ("gguf", facts_of_gguf), ("ollama", facts_of_ollama)):
            must(GPT_EXPORT, "--out_dir=" + out, "--format=" + form, "--dtype=float32", "--evaluate=0", "%s-%s" % (out, form))
            found = facts("%s-%s" % (out, form), ids)
            check(found == wanted, "plain text%s, %s: %s, wanted %s" % (more, form, found, wanted))
    write("foreign.gguf", read("way-1").replace(b"gpt_train.generation", b"another_x.generation"))
    must(GPT_EXPORT, "--out_dir=foreign.gguf", "--format=hf", "--evaluate=0", "foreign")
    check(set(read_json("foreign/generation_config.json")["eos_token_id"]) == wanted["ends"], "eot_token_id and eom_token_id")


def bad():
    def refused(what, status, *arguments, **options):
        before = sorted(os.listdir("."))
        done = ran(GPT_EXPORT, "--format=ollama", *arguments, **options)
        check(done.returncode == status and len(error_lines(done)) == 1 and what in done.stderr, "%s: %d %s" % (arguments, done.returncode, done.stderr))
        check(sorted(os.listdir(".")) == before, "%s: left files" % (arguments,))
    refused("already exists", 2, "--out_dir=out-chatml", "My chatml")
    refused("folder of a run", 2, "--out_dir=out-chatml", "--force", "out-llama3")
    refused("cannot", 1, "--out_dir=out-chatml", "no/such/folder")
    refused("", 1, "--out_dir=out-chatml", "full", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
    must(GPT_EXPORT, "--out_dir=out-llama3", "--format=ollama", "--force", "My chatml")
    check("<|eot_id|>" in read("My chatml/Modelfile").decode(), "--force: the old Modelfile is still there")
    shutil.copytree("out-chatml", "bare")
    for name in ("gpt_tokenizer.json", "tokenizer.json", "tokenizer_config.json"):
        os.remove("bare/" + name)
    refused("no tokenizer", 2, "--out_dir=bare", "new")


end(templates, survival, bad)
