#!/bin/sh
# gpt-sample: the end of a sample, sources of prompts, the number of samples computed at once, notes about speed.
# shellcheck disable=SC1091,SC2154,SC2317 # e2e.inc has the rest; functions are called through check
. "${top_srcdir:?set it to the source folder}/tests/e2e/e2e.inc"

make_data
run 0 "$GPT_TRAIN" --dataset=tiny --n_layer=2 --n_head=2 --n_embd=32 --block_size=32 --batch_size=4 \
    --gradient_accumulation_steps=1 --max_iters=30 --eval_interval=30 --eval_iters=1 --learning_rate=1e-2 --warmup_iters=0 \
    --out_dir=out || exit 1

sample() {
    run 0 "$GPT_SAMPLE" --out_dir=out --max_new_tokens=60 --num_samples=5 --seed=7 "$@"
}

# sample_of NUMBER FILE: prints sample NUMBER (from 1) of FILE.
sample_of() {
    awk -v wanted="$1" 'BEGIN { at = 1 } $0 == "---------------" { at++; next } at == wanted' "$2"
}

check "samples" sample --start="int " --sample_batch=1
cp stdout alone
check "one at a time is said" grep -Eq '^gpt-sample: 300 tokens in .* tokens/s, 1 sample at a time$' stderr
check "samples differ" test "$(sample_of 1 alone)" != "$(sample_of 2 alone)"
for batch in 0 2 3 5 64; do
    check "at once: $batch" sample --start="int " --sample_batch=$batch
    check "the same text at once: $batch" cmp alone stdout
done
check "all at once is said" grep -q '5 samples at a time' stderr

printf 'int ' >prompt.txt
check "a prompt file" sample --prompt_file=prompt.txt
check "the same text from a prompt file" cmp alone stdout
check "a prompt file by --prompt-file" sample --prompt-file=prompt.txt
check "the same text by --prompt-file" cmp alone stdout
: >empty.txt
check "an empty prompt file" run 2 "$GPT_SAMPLE" --out_dir=out --prompt_file=empty.txt
check "the error names the empty prompt file" grep -q 'empty.txt is empty' stderr
for prompt in --prompt_file=nowhere.txt --start=FILE:nowhere.txt; do
    check "$prompt" run 2 "$GPT_SAMPLE" --out_dir=out $prompt
    check "$prompt: said" grep -qx 'gpt-sample: error: nowhere.txt: no such file' stderr
done
# Regression: line ends of Windows and a byte-order mark were tokens of the prompt, which no text that gpt-prepare read has.
printf 'int a;\nint ' >lines.txt
check "a prompt of two lines" sample --prompt_file=lines.txt
cp stdout lines
printf '\357\273\277int a;\r\nint ' >windows.txt
for prompt in --prompt_file=windows.txt --start=FILE:windows.txt; do
    check "$prompt" sample "$prompt"
    check "$prompt: the same text" cmp lines stdout
done
printf '\377\376i\000n\000t\000' >wide.txt
check "a prompt in UTF-16" run 2 "$GPT_SAMPLE" --out_dir=out --prompt_file=wide.txt
check "a prompt in UTF-16: said" grep -q 'wide.txt: this text is UTF-16LE, not UTF-8; iconv -f UTF-16LE' stderr
check "two prompts" run 2 "$GPT_SAMPLE" --out_dir=out --prompt_file=prompt.txt --start=x
check "two prompts are one error" is "$(errors stderr)" 1

# The text before the first "e" after the prompt, of every sample.
awk 'BEGIN { RS = "\n---------------\n"; ORS = RS } { head = substr($0, 1, 4); rest = substr($0, 5)
     at = index(rest, "e"); print head (at > 0 ? substr(rest, 1, at - 1) : rest) }' alone >expected
check "samples with a stop text" sample --start="int " --stop=e
check "a stop text ends each sample" cmp expected stdout
check "the line on speed counts the tokens that were drawn" not grep -q ': 300 tokens' stderr
check "a stop text that does not occur" sample --start="int " --stop="no such text"
check "a stop text that does not occur changes nothing" cmp alone stdout
check "a stop text in the prompt" sample --start="int " --stop="int "
check "a stop text in the prompt does not end the sample" test "$(head -n 1 stdout)" != "int "
check "one of several" sample --start="int " --stop='no such text,e'
check "one of several stop texts ends the sample" cmp expected stdout
check "an empty stop text" run 2 "$GPT_SAMPLE" --out_dir=out --stop=a,,b
check "the refusal of an empty stop text is one error" is "$(errors stderr)" 1

check "top_p of nearly nothing" sample --start="int " --top_p=1e-9
cp stdout nucleus
check "greedy" sample --start="int " --top_k=1
check "top_p of nearly nothing is greedy" cmp nucleus stdout
check "top_p of 1" sample --start="int " --top_p=1
check "top_p of 1 changes nothing" cmp alone stdout
check "top_p of 0.5" sample --start="int " --top_p=0.5
check "top_p of 0.5 changes the text" not cmp -s alone stdout
# Regression: a request for more tokens than fit in memory ended in a refused allocation, or by the system's OOM killer.
check "too many tokens" run 3 "$GPT_SAMPLE" --out_dir=out --num_samples=4096 --sample_batch=4096 --max_new_tokens=1000000000
check "too many tokens: the bytes" grep -q "4096 samples of .* need .*iB of memory, and .*iB is free" stderr
check "too many tokens: one line" test "$(grep -c error: stderr)" -eq 1

# Regression: text that is slower, and a prompt of which the model sees only a part, came without a note.
note='text beyond block_size=32 tokens is slower'
check "within the context" run 0 "$GPT_SAMPLE" --out_dir=out --num_samples=1 --start="int " --max_new_tokens=29
check "within the context: no word" not grep -q "$note" stderr
check "beyond the context" run 0 "$GPT_SAMPLE" --out_dir=out --num_samples=1 --start="int " --max_new_tokens=30
check "beyond the context: said once" is "$(grep -c "$note" stderr)" 1
check "no prompt that is cut" not grep -q 'the prompt has' stderr
check "a long prompt" run 0 "$GPT_SAMPLE" --out_dir=out --num_samples=1 --max_new_tokens=1 \
    --start="static int long_prompt(const char *text)"
check "a long prompt: said" grep -q 'the prompt has 40 tokens; the model sees the last 32' stderr

# Regression: the same line for everything that was missing: "gpt_tokenizer.json: no such file".
lacks() {
    lacks_words=$1
    shift
    run 2 "$@" && [ "$(errors stderr)" -eq 1 ] && grep -q "$lacks_words" stderr
}
mkdir begun empty
: >begun/lock
check "no folder" lacks 'nowhere: no such folder; train a model' "$GPT_SAMPLE" --out_dir=nowhere
check "no model" lacks 'empty: no model here; train one' "$GPT_SAMPLE" --out_dir=empty
check "no checkpoint yet" lacks 'begun: no checkpoint yet; gpt-train saves' "$GPT_SAMPLE" --out_dir=begun
check "export: no folder" lacks 'nowhere: no such folder; train a model' \
    "$(dirname "$GPT_SAMPLE")/gpt-export" --out_dir=nowhere --format=hf exported
for word in bytes gpt2; do
    cp -r out $word
    check "a folder called $word" run 0 "$GPT_SAMPLE" --out_dir=$word --start="int " --max_new_tokens=60 --num_samples=5 --seed=7
    check "a folder called $word: the same text" cmp alone stdout
done
cp -r out bare
rm bare/*token*
check "the data set's tokenizer" run 0 "$GPT_SAMPLE" --out_dir=bare --start="int " --max_new_tokens=60 --num_samples=5 --seed=7
check "the data set's tokenizer: said" grep -q 'bare has no tokenizer; using data/tiny' stderr
check "the data set's tokenizer: the same text" cmp alone stdout
mv data aside
check "no tokenizer" lacks 'bare: the model has no tokenizer; name one with --tokenizer=' "$GPT_SAMPLE" --out_dir=bare
check "a named tokenizer" run 0 "$GPT_SAMPLE" --out_dir=bare --start="int " --max_new_tokens=60 --num_samples=5 --seed=7 \
    --tokenizer=aside/tiny
check "a named tokenizer: the same text" cmp alone stdout
check "another tokenizer" lacks 'bytes: this tokenizer .* is not the one' "$GPT_SAMPLE" --out_dir=bare --tokenizer=bytes
mv aside data
check "text without its flag" lacks 'write --start="Once upon" for a prompt, --out_dir=DIR' "$GPT_SAMPLE" "Once upon"
check "a folder without its flag" lacks 'out: is a folder; write --out_dir=out' "$GPT_SAMPLE" out

check "top_p of 0" run 2 "$GPT_SAMPLE" --out_dir=out --top_p=0
check "top_p of 2" run 2 "$GPT_SAMPLE" --out_dir=out --top_p=2

finish
