#!/bin/sh
# opcheck on the emulated cuda backend, every op in three dtypes and three orders of threads: most cases in the
# ascending order, some in the others, and some with a card's rounding.  A kernel whose result depends on the order
# fails here.  With CHECK_LONG=1 there are seven times as many cases.
set -u

opcheck=${top_builddir:?}/tests/cuda_on_cpu/opcheck-cuda
passed=0
failed=0
skipped=0

if [ ! -x "$opcheck" ]; then
    echo "SKIP cuda_orders: no C++17 compiler, so there are no emulated programs"
    echo "checks: 0 passed, 0 failed, 1 skipped"
    exit 77
fi

# order NAME OPTION...: runs opcheck in the order NAME.
order() {
    GT_CUDA_ON_CPU_ORDER=$1
    export GT_CUDA_ON_CPU_ORDER
    shift
    status=0
    output=$("$opcheck" --backend=cuda "$@" 2>&1) || status=$?
    printf '%s\n' "$output" | grep -v '^checks: '
    counts=$(printf '%s\n' "$output" | sed -n 's/^checks: \([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p')
    # shellcheck disable=SC2086
    set -- $counts
    if [ $# -ne 3 ]; then
        echo "FAIL orders-$GT_CUDA_ON_CPU_ORDER: opcheck ended without its count, exit status $status"
        failed=$((failed + 1))
        return
    fi
    if [ "$status" -ne 0 ] && [ "$2" -eq 0 ]; then
        failed=$((failed + 1))
    fi
    passed=$((passed + $1))
    failed=$((failed + $2))
    skipped=$((skipped + $3))
}

many=${CHECK_LONG:+60}
many=${many:-8}
few=${CHECK_LONG:+15}
few=${few:-2}
for dtype in float32 bfloat16 float16; do
    order asc --dtype=$dtype --cases="$many"
    order desc --dtype=$dtype --cases="$few"
    order random:7 --dtype=$dtype --cases="$few"
done
order desc,lockstep --dtype=bfloat16 --cases=4
# With truncated sums as in tensor cores, and inexact functions as on a card.
GT_CUDA_ON_CPU_ROUNDING=card
export GT_CUDA_ON_CPU_ROUNDING
for dtype in float32 bfloat16 float16; do
    order desc --dtype=$dtype --cases="$few"
done
unset GT_CUDA_ON_CPU_ROUNDING
# Every other launch shape that --tune may choose.
for op in attention_forward attention_backward; do
    for dtype in bfloat16 float16; do
        order desc --op=$op --dtype=$dtype --variant=1 --cases="$many"
    done
done
for variant in 1 2; do
    for op in layernorm_forward gelu_forward gelu_backward residual adamw; do
        order desc --op=$op --dtype=bfloat16 --variant=$variant --cases=8
    done
done
order desc --op=adamw_lean --dtype=bfloat16 --variant=1 --cases=8
order desc --op=muon_momentum --dtype=bfloat16 --variant=2 --cases=8
order desc --op=cross_entropy --dtype=bfloat16 --variant=1 --cases="$many"
# A card without bf16 arithmetic and asynchronous copies, which runs other kernels.
GT_CUDA_ON_CPU_DEVICES='75:8g:Emulated Turing'
export GT_CUDA_ON_CPU_DEVICES
order desc --dtype=float16 --cases="$many"
# It still converts bf16: optimizer states may be bf16.
for op in adamw adamw_lean gradient_round muon_momentum muon_step; do
    order desc --op=$op --dtype=bfloat16 --cases="$many"
done
echo "checks: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
