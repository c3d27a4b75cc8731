#!/usr/bin/env python3
"""Models of conversations leave for Ollama: the folder of --format=ollama.

  modelfile  its lines: the model, the template, the words that end an answer, the length of the context; the commands
  templates  Go's text/template prints the Modelfile's template for twenty conversations as jinja2 prints the one in the GGUF file
  bad        no tokenizer, a folder that exists, a full disk: one line, and nothing left
Go and jinja2 are optional.  Prints "checks: P passed, F failed, S skipped".
"""

import json
import os
import random
import resource
import shutil
import subprocess

from checks import GPT_EXPORT, GPT_PREPARE, GPT_TRAIN, check, end, error_lines, read, skip, write

# Reads [[template, messages], ...] and prints the results as JSON.  Ollama names the fields of a message so.
GO = """package main

import (
	"bytes"
	"encoding/json"
	"os"
	"text/template"
)

type message struct{ Role, Content string }
type given struct {
	Template string
	Messages []message
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
		if err := parsed.Execute(&out, map[string]any{"Messages": each.Messages}); err != nil {
			panic(err)
		}
		results = append(results, out.String())
	}
	_ = json.NewEncoder(os.Stdout).Encode(results)
}
"""


def run(*arguments, **options):
    return subprocess.run(arguments, capture_output=True, text=True, check=False, **options)


def must(*arguments):
    done = run(*arguments)
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


def conversations():
    """Twenty: with and without a system's message, of 1 to 7 messages, with the characters that templates trip over."""
    random.seed(20261128)
    texts = ["Hello", "", "a\nb\n\nc", "{{ .Content }}", "{% raw %}", "<b>&amp;\"'", "naïve 日本 🙂", "  spaces  ", "\ttab", "```c\nint i;\n```"]
    for i in range(20):
        messages = [{"role": "system", "content": random.choice(texts)}] * (i % 3 == 1)
        for k in range(2 * (i % 4) + 1):
            messages = messages + [{"role": "assistant" if k % 2 else "user", "content": random.choice(texts)}]
        yield messages + [{"role": "assistant", "content": random.choice(texts)}] * (i % 5 == 4)


def check_modelfile(kind, stop):
    out = must(GPT_EXPORT, "--out_dir=out-" + kind, "--format=ollama", "--dtype=q8_0", "My " + kind)
    check("ollama create my%s -f 'My %s/Modelfile'" % (kind, kind) in out and "ollama run my" + kind in out, "the commands: " + out)
    lines = modelfile("My " + kind)
    check([word for word, _ in lines] == ["FROM", "TEMPLATE", "PARAMETER", "PARAMETER", "PARAMETER"], "instructions: %s" % lines)
    check(lines[0][1] == "./model.gguf" and [rest for _, rest in lines[2:]] == ['stop "%s"' % stop, 'stop "<|endoftext|>"', "num_ctx 64"], "%s" % lines)
    check(read("My %s/model.gguf" % kind)[:4] == b"GGUF" and sorted(os.listdir("My " + kind)) == ["Modelfile", "model.gguf"], "files")
    must(GPT_EXPORT, "--out_dir=out-" + kind, "--format=gguf", "--dtype=q8_0", "alone.gguf", "--force")
    check(len(read("alone.gguf")) == len(read("My %s/model.gguf" % kind)), "model.gguf is not that of --format=gguf")


def jinja_of(path):
    """Returns tokenizer.chat_template of a GGUF file."""
    data, name = read(path), b"tokenizer.chat_template"
    at = data.index(name) + len(name) + 4
    return data[at + 8:at + 8 + int.from_bytes(data[at:at + 8], "little")].decode()


def templates():
    kinds = {"chatml": "<|im_end|>", "llama3": "<|eot_id|>"}
    for kind, stop in kinds.items():
        make_model(kind)
        check_modelfile(kind, stop)
    try:
        import jinja2  # pylint: disable=import-outside-toplevel
    except ImportError:
        skip("export_jinja2", "no jinja2 for this Python")
        return
    if shutil.which("go") is None:
        skip("export_go", "no Go compiler")
        return
    given, wanted = [], []
    for kind, stop in kinds.items():
        template, go = jinja2.Template(jinja_of("My %s/model.gguf" % kind)), dict(modelfile("My " + kind))["TEMPLATE"]
        for messages in conversations():
            given.append({"Template": go, "Messages": messages})
            asks = messages[-1]["role"] != "assistant"
            text = template.render(messages=messages, add_generation_prompt=asks)
            wanted.append(text if asks else text.removesuffix("\n").removesuffix(stop))
    write("main.go", GO)
    done = run("go", "run", "main.go", input=json.dumps(given), env={**os.environ, "GO111MODULE": "off", "GOFLAGS": ""})
    check(done.returncode == 0, "go run: " + done.stderr[-500:])
    for messages, ours, theirs in zip(given, json.loads(done.stdout or "[]"), wanted):
        check(ours == theirs, "%s: Go prints %r, jinja2 %r" % (messages, ours, theirs))


def bad():
    def refused(what, status, *arguments, **options):
        before = sorted(os.listdir("."))
        done = run(GPT_EXPORT, "--format=ollama", *arguments, **options)
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


end(templates, bad)
