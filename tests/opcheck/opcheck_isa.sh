#!/bin/sh
# shellcheck disable=SC1091,SC2154 # opcheck.inc has the rest
# The cpu kernels for narrower instruction sets, which a wide processor would leave untested: some cases of each op in
# every dtype, all of them with CHECK_LONG=1; where a set differs only in the bf16 products, only the cases of those.  Then that 1, 2 and 3 threads leave
# the same bytes.  A set that the processor or the build lacks is skipped.
. "${top_srcdir:?}/tests/opcheck/opcheck.inc"

# isa NAME OPTION...: runs opcheck with the instruction set NAME.
isa() {
    export GPT_TRAIN_CPU_ISA="$1"
    shift
    status=0
    "$opcheck" --backend=cpu --support >/dev/null 2>&1 || status=$?
    if [ "$status" -eq 77 ]; then
        echo "SKIP opcheck_$GPT_TRAIN_CPU_ISA: the processor or the build has no $GPT_TRAIN_CPU_ISA"
        skipped=$((skipped + 1))
        return
    fi
    counted "opcheck_$GPT_TRAIN_CPU_ISA" --backend=cpu "$@"
}

cases=${CHECK_LONG:+30}
isa generic --cases="${cases:-4}"
# Where avx2 is the default, the other scripts have run all of its cases.
"$opcheck" --backend=cpu --op=fill --cases=1 | grep -q 'avx2 kernels' || isa avx2 --cases="${cases:-4}"
isa avx2 --threads
isa avx512 --cases=50 --op=gemm --dtype=bfloat16
isa avx512_bf16 --cases=50 --op=gemm --dtype=bfloat16
isa avx512_bf16 --threads --dtype=bfloat16
finish
