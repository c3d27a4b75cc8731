#!/bin/sh
# shellcheck disable=SC1091,SC2154,SC2317 # e2e.inc has the rest; functions are called through check
# memory_budget: the same configuration under smaller and smaller budgets trains to the same loss, never exceeds the
# budget by the kernel's count, and is refused with exit status 3 if nothing fits.
. "${top_srcdir:?}/tests/e2e/e2e.inc"

# train NAME OPTION...
train() {
    train_name=$1
    shift
    run 0 "$GPT_TRAIN" --dataset=tiny --out_dir="$train_name" --n_layer=4 --n_head=4 --n_embd=128 --block_size=64 \
        --batch_size=30 --gradient_accumulation_steps=2 --bias=True --max_iters=2 --eval_iters=1 --eval_interval=100 \
        --warmup_iters=2 "$@"
}

# The loss of the last step, with all digits.
loss() {
    sed -n 's/.*"iter":2,"loss":\([0-9.e+-]*\).*/\1/p' "$1/metrics.jsonl"
}

near() {
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a != "" && b != "" && d <= 1e-5 * b) }' ||
        { echo "    $1 is not near $2" >&2; return 1; }
}

# The run's peak resident set, in KiB.
peak_kib() {
    sed -n 's/.*process at most \([0-9.]*\) MiB.*/\1/p' stdout | awk '{ printf "%d\n", $1 * 1024 }'
}

at_most() {
    [ "$sanitized" = no ] || return 0
    if [ -z "$1" ] || [ "$1" -gt "$2" ]; then
        echo "    \"$1\" is above $2" >&2
        return 1
    fi
}

refused() { # STATUS BUDGET
    run "$1" "$GPT_TRAIN" --dataset=tiny --out_dir=refused --n_layer=4 --n_head=4 --n_embd=128 --memory_budget="$2" &&
        is "$(errors stderr)" 1 && not grep -q . stdout
}

# No plan covers a sanitizer's shadow memory.
sanitized=no
if grep -q -e __asan_init -e __tsan_init "$GPT_TRAIN"; then
    sanitized=yes
    skip budget_rss "this build has a sanitizer, whose own memory counts"
fi

check "the data" make_data
check "without a budget" train free
check "nothing is changed without a budget" not grep -q "plan: changed to fit a budget" stdout
for mib in ${CHECK_LONG:+130} 100 84; do
    check "$mib MiB" train "b$mib" --memory_budget="${mib}MiB"
    check "$mib MiB: the change is said" grep -q "plan: changed to fit a budget" stdout
    check "$mib MiB: the process stays below" at_most "$(peak_kib)" $((mib * 1024))
    check "$mib MiB: the loss is the same" near "$(loss "b$mib")" "$(loss free)"
done
check "a pinned micro-batch stays" train pinned --memory_budget=110MiB --micro_batch=20
check "a pinned micro-batch is said" grep -q "micro-batch 20" stdout
check "as bytes" train bytes --memory_budget=104857600
check "as bytes: the plan of 100 MiB" is "$(loss bytes)" "$(loss b100)"

# A resumed run keeps its plan, so that its bits do not depend on the free memory at that time.
check "to be resumed" train b84r --memory_budget=84MiB --max_iters=1
check "resumed without a budget" run 0 "$GPT_TRAIN" --init_from=resume --out_dir=b84r --max_iters=2
check "resumed: the bits of the uninterrupted run" cmp -s b84r/model.safetensors b84/model.safetensors

check "70 MiB does not fit" refused 3 70MiB
check "the refusal names choices" grep -q "alternative 1 that fits: .* per update (estimated)" stderr
check "the refusal names the least budget" grep -q "this run needs at least [0-9]* MiB, memory_budget allows 70.0 MiB$" stderr
for bad in 0 -1 abc 10XB 1e40 MiB nan; do
    check "memory_budget=$bad" refused 2 "$bad"
    check "memory_budget=$bad: examples" grep -q "invalid memory_budget '$bad'; examples: 11.4GiB, 500MiB, 80%" stderr
done
check "a number without its unit" refused 2 11.4
check "the error asks whether 11.4GiB was meant" grep -q "memory_budget '11.4' means 11 bytes; did you mean 11.4GiB?" stderr
check "more than there is" refused 2 1e6GiB
finish
