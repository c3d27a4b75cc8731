#!/bin/sh
# Checkpoints that earlier releases wrote still evaluate, sample and resume.  tests/fixtures/README.md says how they were
# made; the numbers below are what the release itself printed.
set -u
: "${GPT_TRAIN:?}" "${GPT_PREPARE:?}" "${GPT_SAMPLE:?}" "${top_srcdir:?}"
passed=0
failed=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

check() { # NAME CONDITION...
    name=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $name"
    fi
}

cp -R "$top_srcdir/tests/fixtures" "$work/fixtures" && chmod -R u+w "$work/fixtures" && cd "$work" || exit 1
check "the text is prepared" "$GPT_PREPARE" --tokenizer=chars --out-dir=data/fixture fixtures/text.txt >prepare.log
out=fixtures/checkpoint-0.1.0

"$GPT_SAMPLE" --out_dir=$out --num_samples=1 --max_new_tokens=60 --top_k=1 --start='A ' >sample.log 2>sample-notes.log
check "0.1.0 continues the text that it learnt" \
    grep -q '^A checkpoint is written aside, synced, and renamed. A kill lea$' sample.log
"$GPT_TRAIN" --init_from=resume --out_dir=$out --max_iters=3001 >resume.log 2>&1
check "0.1.0 resumes" grep -q '^iter 3000: loss 0\.[23]' resume.log
check "0.1.0 and saves" grep -q '"iter": 3002' $out/trainer_state.json
check "and model.safetensors is back" test -s $out/model.safetensors
"$GPT_TRAIN" --init_from=resume --out_dir=$out --eval_only --eval_iters=0 >eval.log 2>&1
check "0.1.0 evaluates near the loss that it had" grep -q '^step 3002: train loss 0\.2[3-6]' eval.log
[ "$failed" -eq 0 ] || cat ./*.log
echo "checks: $passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
