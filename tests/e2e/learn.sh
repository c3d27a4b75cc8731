#!/bin/sh
# shellcheck disable=SC1091,SC2154,SC2317 # e2e.inc has the rest; functions are called through check
# Learning and sampling: a tiny model memorises a short text, in which each letter follows from the one before it and
# the place in the line, and gpt-sample reproduces it: greedily, deterministically for a seed, and beyond the context.
. "${top_srcdir:?}/tests/e2e/e2e.inc"

LOSS_MAX=0.05 # of 3.3 (log 27) at the start; the text has no entropy once a line has begun

sample() {
    run 0 "$GPT_SAMPLE" --out_dir=heart --num_samples=1 --threads=2 "$@"
}

# keep NAME: saves gpt-sample's output for a comparison.
keep() {
    cp stdout "$1"
}

last_val_loss() {
    sed -n 's/^step [0-9]*: .*val loss \(.*\)$/\1/p' stdout | tail -n 1
}

below() {
    awk -v value="$1" -v bound="$2" 'BEGIN { exit !(value != "" && value + 0 <= bound + 0) }'
}

mkdir -p data
line="the quick brown fox jumps over a lazy dog; "
i=0
while [ $i -lt 200 ]; do
    printf '%s' "$line"
    i=$((i + 1))
done >text.txt
check "the data" run 0 "$GPT_PREPARE" --tokenizer=chars --out-dir=data/heart text.txt
cat >heart.py <<'PY'
dataset = 'heart'
out_dir = 'heart'
n_layer = 2
n_head = 2
n_embd = 32
block_size = 48
batch_size = 8
gradient_accumulation_steps = 1
learning_rate = 5e-3
min_lr = 5e-4
warmup_iters = 10
max_iters = 300
lr_decay_iters = 300
eval_interval = 100
eval_iters = 4
beta2 = 0.99
threads = 2
PY
check "learning by heart" run 0 "$GPT_TRAIN" heart.py
loss=$(last_val_loss)
echo "validation loss $loss"
check "validation loss $loss is at most $LOSS_MAX" below "$loss" "$LOSS_MAX"
check "a whole evaluation agrees" run 0 "$GPT_TRAIN" heart.py --init_from=resume --eval_only=True --eval_iters=64
check "the whole evaluation's loss is $(last_val_loss)" below "$(last_val_loss)" "$LOSS_MAX"

# Greedy: the text itself, beyond the context of 48, whatever the seed and the temperature.
printf '%s' "$line$line$line$line" | head -c 132 >expected
printf '\n---------------\n' >>expected
check "greedy" sample --start="the " --max_new_tokens=128 --top_k=1
check "greedy gives the text back, beyond the context" cmp stdout expected
check "greedy with another seed" sample --start="the " --max_new_tokens=128 --top_k=1 --seed=99 --temperature=3
check "greedy does not depend on the seed" cmp stdout expected
check "near temperature 0" sample --start="the " --max_new_tokens=128 --top_k=0 --temperature=1e-4
check "near temperature 0 is greedy" cmp stdout expected
check "a prompt longer than the context" sample --start="$line$line" --max_new_tokens=46 --top_k=1
check "the text follows a prompt longer than the context" cmp -s stdout expected

# High temperature: deterministic for a seed, different for another, the same for any number of threads.
check "sampling" sample --start="the " --max_new_tokens=150 --temperature=2 --seed=5
keep first
check "the same seed" sample --start="the " --max_new_tokens=150 --temperature=2 --seed=5 --threads=1
check "the same seed gives the same text" cmp stdout first
check "another seed" sample --start="the " --max_new_tokens=150 --temperature=2 --seed=6
check "another seed gives another text" not cmp -s stdout first

# Refusals.
check "a character outside the vocabulary" run 2 "$GPT_SAMPLE" --out_dir=heart --start="THE" --num_samples=1
check "the refusal is one line" is "$(errors stderr)" 1
check "an empty start" run 2 "$GPT_SAMPLE" --out_dir=heart --start= --num_samples=1
finish
