#!/bin/sh
# shellcheck disable=SC1091,SC2154 # e2e.inc has the rest
# An update in parts sees the samples and masks of an undivided one, resumes to the byte, and allocates what was planned,
# in each storage of gradients.  GPT_TRAIN_BACKEND selects the backend.
. "${top_srcdir:?}/tests/e2e/e2e.inc"

# train STATUS OUT ARGUMENT...: four parts of three and one sequences, unless the arguments say otherwise.
train() {
    status=$1 out=$2
    shift 2
    run "$status" "$GPT_TRAIN" --dataset=tiny --out_dir="$out" --n_layer=2 --n_head=2 --n_embd=32 --block_size=24 --batch_size=4 \
        --micro_batch=3 --gradient_accumulation_steps=4 --dropout=0.1 --bias=True --loss_chunk=20 --max_iters=5 \
        --lr_decay_iters=5 --warmup_iters=2 --eval_iters=1 --eval_interval=100 --log_interval=1 "$@"
}

sums() {
    (cd "$1" && cksum <model.safetensors && cksum <"$(ls optimizer-*.safetensors)")
}

# The loss of the first update, to six digits: it depends on the samples and masks, and hardly on the order of sums.
first_loss() {
    sed -n 's/^{"iter":0,"loss":\([0-9.]*\),.*/\1/p' "$1/metrics.jsonl" | awk '{ printf "%.6g\n", $1 }'
}

planned_is_allocated() {
    sed -n 's/^Memory: \(.*\) planned, \(.*\) allocated.*/\1=\2/p' stdout | awk -F= '$1 != $2 { exit 1 } END { exit NR != 1 }'
}

check "the data" make_data
check "no parts" train 0 whole
check "one part" train 0 one --parts=1
check "one part has the bits of no parts" is "$(sums one)" "$(sums whole)"
for states in master sr sr_8bit; do
    keys="--dtype=bfloat16 --state_format=$states"
    [ $states != master ] || keys=
    # shellcheck disable=SC2086 # words without blanks
    {
        check "$states: undivided" train 0 "whole-$states" $keys
        check "$states: four parts" train 0 "four-$states" $keys --parts=4
        check "$states: as many bytes as planned" planned_is_allocated
        check "$states: the samples of an undivided update" is "$(first_loss "four-$states")" "$(first_loss "whole-$states")"
        check "$states: another order of sums" test "$(sums "four-$states")" != "$(sums "whole-$states")"
        check "$states: four parts, to iteration 3" train 0 "resumed-$states" $keys --parts=4 --max_iters=2
        check "$states: the checkpoint's parts" train 0 "resumed-$states" $keys --init_from=resume
        check "$states: the bits of one go" is "$(sums "resumed-$states")" "$(sums "four-$states")"
    }
done
check "two parts instead of four" train 2 four-master --parts=2 --init_from=resume --strict_resume=True --max_iters=7
check "both numbers are named" grep -q "parts was 4, is 2" stderr
check "three parts of sixteen sequences" train 2 three --parts=3
check "the reason" grep -q "parts=3 does not divide the 16 sequences" stderr
finish
