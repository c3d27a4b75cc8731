#!/bin/sh
# shellcheck disable=SC1091,SC2154,SC2317 # e2e.inc has the rest; functions are called through check
# Recompute changes memory and time, but no bit: every level ends with the same weights and moments, including dropout,
# accumulation and a remainder, and plans fewer bytes than the level before it.
. "${top_srcdir:?}/tests/e2e/e2e.inc"

# train LEVEL [FOLDER]
arch=gpt2 interval=0
train() {
    run 0 "$GPT_TRAIN" --dataset=tiny --out_dir="${2:-$1}" --recompute="$1" --arch="$arch" --full_attention_interval=$interval --n_layer=3 --n_head=3 --n_embd=48 --block_size=24 \
        --batch_size=5 --micro_batch=3 --gradient_accumulation_steps=2 --dropout=0.1 --bias=True --loss_chunk=20 \
        --max_iters=2 --eval_iters=1 --eval_interval=100 --warmup_iters=2
}

tensor_sums() {
    (cd "$1" && cksum <model.safetensors && cksum <"$(ls optimizer-*.safetensors)")
}

planned() {
    sed -n 's/.*"planned_bytes":\([0-9]*\).*/\1/p' "$1/metrics.jsonl" | head -n 1
}

below() {
    [ "$1" -lt "$2" ] || { echo "    $1 is not below $2" >&2; return 1; }
}

check "the data" make_data
check "none trains" train none
before=$(planned none)
for level in gelu layernorm mlp full; do
    check "$level trains" train $level
    check "$level gives the bits of none" is "$(tensor_sums $level)" "$(tensor_sums none)"
    check "$level plans fewer bytes than the level before" below "$(planned $level)" "$before"
    before=$(planned $level)
done
# The ops of other blocks: rmsnorm, rope with norms, swiglu and geglu; norms behind attention and the MLP, or at both places; factors; gated
# delta nets in the first and third block.
for arch in qwen3 olmo2 granite gemma3 qwen3_5; do
    [ $arch != qwen3_5 ] || interval=2
    check "$arch trains" train none $arch
    before=$(planned $arch)
    for level in gelu layernorm mlp full; do
        check "$arch: $level trains" train $level $arch-$level
        check "$arch: $level gives the bits of none" is "$(tensor_sums $arch-$level)" "$(tensor_sums $arch)"
        check "$arch: $level plans fewer bytes" below "$(planned $arch-$level)" "$before"
        before=$(planned $arch-$level)
    done
done
arch=gpt2 interval=0
# The arena of each level for 124M, 12 x 1024 at a time, in MiB: one tensor is far more than 1 %.
for level in none:6079 gelu:5215 layernorm:4781 mlp:3701 full:2830; do
    check "the plan of ${level%:*}" run 0 "$GPT_TRAIN" --plan=json --device_profile=rtx3060-12g --dataset=none --eval_iters=1 \
        --n_layer=12 --n_head=12 --n_embd=768 --block_size=1024 --batch_size=12 --micro_batch=12 --dtype=bfloat16 \
        --gradient_accumulation_steps=1 --vocab_size=50304 --recompute="${level%:*}"
    mib=$(($(sed -n 's/.*"arena": *\([0-9]*\).*/\1/p' stdout | head -n 1) >> 20))
    check "the bytes of ${level%:*}" test $((mib * 100)) -ge $((${level#*:} * 99)) -a $((mib * 100)) -le $((${level#*:} * 101))
done
# A mix can be given as a key, also in the report's own words.
check "full:1,gelu trains" train full:1,gelu mixed
check "a mix gives the bits of none" is "$(tensor_sums mixed)" "$(tensor_sums none)"
check "a mix plans less than its lower level" below "$(planned mixed)" "$(planned gelu)"
check "a mix plans more than its higher level" below "$(planned full)" "$(planned mixed)"
check "full x1 + gelu x2 trains" train "full x1 + gelu x2" worded
check "the report's words are the same mix" is "$(planned worded)" "$(planned mixed)"
check "more blocks than there are" run 2 "$GPT_TRAIN" --dataset=tiny --recompute=full:4,none --n_layer=3 --n_head=3 --n_embd=48
check "a level that is none" run 2 "$GPT_TRAIN" --dataset=tiny --recompute=most
# The printed program shows the recomputed ops.
check "the program is printed" run 0 "$GPT_TRAIN" --dataset=tiny --recompute=full --n_layer=1 --n_head=1 --n_embd=8 \
    --block_size=8 --print_program
check "attention runs twice" is "$(sed '/program evaluate/,$d' stdout | grep -c ' fwd attention_forward\| bwd attention_forward')" 4
finish
