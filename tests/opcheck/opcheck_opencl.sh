#!/bin/sh
# shellcheck disable=SC1091,SC2154 # opcheck.inc has the rest
# Every op of the opencl backend on device 0, in three dtypes one after the other, because drivers such as PoCL compile
# at the first launch and the kernels serve all dtypes.  Then: the ops that divide exactly, with the division and square
# root for devices without exact ones; tiles for products that are not this device's default; launches that are divided
# into dispatches; and products on matrix units, emulated with the layouts of each vendor.
# OPCHECK_OPENCL_CASES=N runs N cases of each op, 0 all of them; the default is 5, and 12 with CHECK_LONG=1.
. "${top_srcdir:?}/tests/opcheck/opcheck.inc"

cases=${OPCHECK_OPENCL_CASES:-${CHECK_LONG:+12}}
cases=${cases:-5}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM

status=0
"$opcheck" --backend=opencl --support >/dev/null 2>&1 || status=$?
[ "$status" -ne 2 ] || leave opencl "this build has no opencl backend"
[ "$status" -eq 0 ] || leave opencl_device "no OpenCL device here (Debian: pocl-opencl-icd)"

# run DTYPE OPTION...
run() {
    dtype=$1
    shift
    counted "opcheck_opencl in $dtype" --backend=opencl --dtype="$dtype" --cases="$cases" "$@"
}

for dtype in float32 bfloat16 float16; do
    run "$dtype"
done

GPT_TRAIN_OPENCL_DIVISION=software
export GPT_TRAIN_OPENCL_DIVISION
for op in adamw_lean muon_normalize; do
    run bfloat16 --op="$op"
done
unset GPT_TRAIN_OPENCL_DIVISION

# The other shapes of opencl_gemm_shapes: work-groups, for cards, and single work-items, for processors.
for variant in 4:float16 ${CHECK_LONG:+2:bfloat16 3:float32 6:bfloat16}; do
    run "${variant#*:}" --op=gemm --variant="${variant%:*}"
done

# Launches divided into many dispatches with an offset, as cards with a watchdog need them.
GPT_TRAIN_OPENCL_DISPATCH=20000
export GPT_TRAIN_OPENCL_DISPATCH
for op in gemm ${CHECK_LONG:+layernorm_backward attention_backward}; do
    run bfloat16 --op="$op"
done
unset GPT_TRAIN_OPENCL_DISPATCH

# One size of tiles, that of tests/e2e/opencl.py, because drivers take seconds to compile each kernel; with CHECK_LONG=1
# one for each vendor's layout.
export GPT_TRAIN_OPENCL_MATRIX
units="emulated-mma/32:bfloat16"
[ -z "${CHECK_LONG:-}" ] || units="emulated-mma:bfloat16 emulated-mma8/64:float16 emulated-wmma/64:bfloat16"
[ -n "${CHECK_LONG:-}" ] || cases=2
if printf '%s\n' "$output" | grep -q 'Portable Computing Language, driver 6\.0'; then
    echo "SKIP opencl_emulated: PoCL 6.0 compiles the emulated units to different code from time to time, and that is wrong"
    skipped=$((skipped + 1))
    units=
fi
for unit in $units; do
    GPT_TRAIN_OPENCL_MATRIX=${unit%:*}
    run "${unit#*:}" --op=gemm
    printf '%s\n' "$output" | grep -q 'products on emulated matrix units'
    verdict "opcheck_opencl: $unit was not used" $?
done

# PoCL may turn local memory into a global variable of the compiled kernel; then groups that run at once share it, and
# results are wrong only occasionally.
if command -v nm >/dev/null 2>&1; then
    shared=$(find "$POCL_CACHE_DIR" -name 'gt_*.so' -newer "$scratch" -exec nm {} + 2>/dev/null | sed -n 's/.* [bBdD] \(gt_.*\)/\1/p')
    [ -z "$shared" ]
    verdict "opcheck_opencl: groups share what should be their own: $shared" $?
fi
finish
