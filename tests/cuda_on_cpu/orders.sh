#!/bin/sh
# shellcheck disable=SC1091,SC2154 # opcheck.inc has the rest
# opcheck on the emulated cuda backend, every op in three dtypes and three orders of threads: most cases in the
# ascending order, some in the others, and some with a card's rounding.  A kernel whose result depends on the order
# fails here.  With CHECK_LONG=1 there are several times as many cases.
. "${top_srcdir:?}/tests/opcheck/opcheck.inc"

opcheck=$top_builddir/tests/cuda_on_cpu/opcheck-cuda
[ -x "$opcheck" ] || leave cuda_orders "no C++17 compiler, so there are no emulated programs"

# order NAME OPTION...: runs opcheck in the order NAME.
order() {
    export GT_CUDA_ON_CPU_ORDER="$1"
    shift
    counted "orders-$GT_CUDA_ON_CPU_ORDER" --backend=cuda "$@"
}

many=${CHECK_LONG:+20}
many=${many:-4}
few=${CHECK_LONG:+6}
few=${few:-2}
for dtype in float32 bfloat16 float16; do
    order asc --dtype=$dtype --cases="$many"
    order desc --dtype=$dtype --cases="$few"
    order random:7 --dtype=$dtype --cases="$few"
done
for sequence in asc desc random:7 desc,lockstep; do
    order $sequence --op=gemm --dtype=float16 --half_sums --cases="$many"
    order $sequence --op=gemm --dtype=float16 --half_sums --variant=1 --cases="$many"
    order $sequence --op=gemm --dtype=bfloat16 --variant=1 --cases="$many"
    order $sequence --op=gemm --dtype=bfloat16 --variant=2 --cases="$many"
    order $sequence --op=gemm --dtype=float16 --variant=2 --cases="$few"
done
for op in attention_forward attention_backward; do
    order random:7 --op=$op --dtype=float16 --half_sums --cases="$many"
done
order desc,lockstep --dtype=bfloat16 --cases=4
# Some of these products may use a workspace, for which cuBLASLt has no algorithm here; it has one without.
GT_CUDA_ON_CPU_BARE=1
export GT_CUDA_ON_CPU_BARE
order asc --op=gemm --dtype=bfloat16 --cases=60
unset GT_CUDA_ON_CPU_BARE
# With truncated sums as in tensor cores, and inexact functions as on a card.
GT_CUDA_ON_CPU_ROUNDING=card
export GT_CUDA_ON_CPU_ROUNDING
for dtype in float32 bfloat16 float16; do
    order desc --dtype=$dtype --cases="$few"
done
for op in gemm attention_forward attention_backward; do # fp16 sums are cut off
    order desc --op=$op --dtype=float16 --half_sums --cases="$many"
done
order desc --op=gemm --dtype=bfloat16 --variant=1 --cases="$many"
unset GT_CUDA_ON_CPU_ROUNDING
# Every other launch shape that --tune may choose.
for op in attention_forward attention_backward; do
    for dtype in bfloat16 float16; do
        order desc --op=$op --dtype=$dtype --variant=1 --cases="$many"
    done
done
for variant in 1 2; do
    for op in layernorm_forward rope_forward gelu_backward swiglu_forward residual adamw; do
        order desc --op=$op --dtype=bfloat16 --variant=$variant --cases=3
    done
done
order desc --op=adamw_lean --dtype=bfloat16 --variant=1 --cases=3
order desc --op=muon_momentum --dtype=bfloat16 --variant=2 --cases=3
order desc --op=cross_entropy --dtype=bfloat16 --variant=1 --cases="$many"
for dtype in bfloat16 float16; do # rows that registers keep, and with half the threads only in part
    order desc --op=cross_entropy --dtype=$dtype --case=77
    order desc --op=cross_entropy --dtype=$dtype --case=77 --variant=1
done
# With one multiprocessor grids are shorter than the work.
GT_CUDA_ON_CPU_DEVICES='86x1:12g:Emulated card'
export GT_CUDA_ON_CPU_DEVICES
order desc --dtype=bfloat16 --cases="$few"
# All gradients of attention at once, for which these cases have enough heads if there are two multiprocessors.
GT_CUDA_ON_CPU_DEVICES='86x2:12g:Emulated card'
export GT_CUDA_ON_CPU_DEVICES
for dtype in bfloat16 float16; do
    order asc --op=attention_backward --dtype=$dtype --cases="$many"
    order random:7 --op=attention_backward --dtype=$dtype --cases="$few"
    order random:7 --op=attention_backward --dtype=$dtype --case=34 # a window, with heads of 128
done
order asc --op=attention_backward --dtype=float16 --half_sums --cases="$many"
order random:7 --op=attention_backward --dtype=float16 --half_sums --case=34
order desc,lockstep --op=attention_backward --dtype=bfloat16 --cases="$few"
GT_CUDA_ON_CPU_ROUNDING=card
export GT_CUDA_ON_CPU_ROUNDING
order desc --op=attention_backward --dtype=bfloat16 --cases="$few"
unset GT_CUDA_ON_CPU_ROUNDING
# Both kernels of the tests' options, as bench/gpu-check runs them on a card that would choose neither.
GT_CUDA_ON_CPU_DEVICES='90:12g:Emulated H100'
GPT_TRAIN_CUDA_MULTIPROCESSORS=2
GPT_TRAIN_CUDA_HALF_SUMS=any
export GPT_TRAIN_CUDA_MULTIPROCESSORS GPT_TRAIN_CUDA_HALF_SUMS
order asc --op=attention_backward --dtype=bfloat16 --cases="$many"
order desc --op=gemm --dtype=float16 --half_sums --cases="$many"
unset GPT_TRAIN_CUDA_MULTIPROCESSORS GPT_TRAIN_CUDA_HALF_SUMS
# A card without bf16 arithmetic and asynchronous copies, which runs other kernels.
GT_CUDA_ON_CPU_DEVICES='75:8g:Emulated Turing'
order desc --dtype=float16 --cases="$many"
# It still converts bf16: optimizer states may be bf16.
for op in adamw adamw_lean gradient_round muon_momentum muon_step; do
    order desc --op=$op --dtype=bfloat16 --cases="$many"
done
finish
