#!/bin/sh
# The cpu kernels for narrower instruction sets, which a wide processor would leave untested: some cases of each op in
# every dtype; where a set differs only in the bf16 products, only the cases of those.  A set that the processor or the
# build lacks is skipped.
set -u

opcheck=${top_builddir:?}/tests/opcheck/opcheck
passed=0
failed=0
skipped=0

# isa NAME OPTION...: runs opcheck with the instruction set NAME.
isa() {
    GPT_TRAIN_CPU_ISA=$1
    export GPT_TRAIN_CPU_ISA
    shift
    status=0
    "$opcheck" --backend=cpu --support --op=fill >/dev/null 2>&1 || status=$?
    if [ "$status" -eq 77 ]; then
        echo "SKIP opcheck_$GPT_TRAIN_CPU_ISA: the processor or the build has no $GPT_TRAIN_CPU_ISA"
        skipped=$((skipped + 1))
        return
    fi
    output=$("$opcheck" --backend=cpu "$@") || status=$?
    printf '%s\n' "$output" | grep -v '^checks: '
    counts=$(printf '%s\n' "$output" | sed -n 's/^checks: \([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p')
    # shellcheck disable=SC2086
    set -- $counts
    if [ $# -ne 3 ]; then
        echo "FAIL opcheck_$GPT_TRAIN_CPU_ISA: opcheck ended without its count, exit status $status"
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

isa generic --cases=25
isa avx2 --cases=25
isa avx512 --cases=50 --op=gemm --dtype=bfloat16
echo "checks: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
