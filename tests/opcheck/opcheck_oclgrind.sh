#!/bin/sh
# shellcheck disable=SC1091,SC2154 # opcheck.inc has the rest
# The opencl kernels on Oclgrind, which simulates a device and reports accesses beyond a buffer (including local
# memory), data races, and barriers that not all work-items reach.  Every operand has a separate segment of its exact
# size, because within one segment a stray access would hit another tensor.  The script runs small cases of every op,
# products with the tiles for cards (Oclgrind counts as a processor), and products on emulated matrix units with the
# layouts of each vendor.  It judges by the simulator's log, because the simulator reports an error and continues.
# It does not enable reports of uninitialised reads (OCLGRIND_UNINITIALIZED): 21.10 assumes that its shadow of a buffer
# is as long as the last store from the host (hostMemoryStore() of its Uninitialized.cpp), which clEnqueueFillBuffer
# makes word by word.  So it reports word 1024 of an arena that was filled and then written by gt_probe_write, and
# forgets the contents of partial uploads.
# OPCHECK_OCLGRIND_LIBRARY names its ICD if it is elsewhere; OPCHECK_OCLGRIND_CASES="3 8" selects other cases.  With
# CHECK_LONG=1 there are two cases of each op; without, one of those that share memory among work-items, and one tile and
# unit.
. "${top_srcdir:?}/tests/opcheck/opcheck.inc"

library=${OPCHECK_OCLGRIND_LIBRARY:-/usr/lib/oclgrind/liboclgrind-rt-icd.so}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM

[ -f "$library" ] || leave oclgrind "no Oclgrind here (Debian: oclgrind)"
mkdir "$scratch/vendors" "$scratch/cache"
echo "$library" >"$scratch/vendors/oclgrind.icd"
OCL_ICD_VENDORS=$scratch/vendors
OCLGRIND_LOG=$scratch/log
OCLGRIND_DATA_RACES=1
OCLGRIND_MAX_ERRORS=5
XDG_CACHE_HOME=$scratch/cache
GPT_TRAIN_OPENCL_CLBLAST=0
GPT_TRAIN_OPENCL_CHILD=0
export OCL_ICD_VENDORS OCLGRIND_LOG OCLGRIND_DATA_RACES OCLGRIND_MAX_ERRORS XDG_CACHE_HOME
export GPT_TRAIN_OPENCL_CLBLAST GPT_TRAIN_OPENCL_CHILD

tiles=
status=0
"$opcheck" --backend=opencl --support >/dev/null 2>&1 || status=$?
[ "$status" -ne 2 ] || leave opencl "this build has no opencl backend"

# one OP DTYPE CASE: the case must pass on Oclgrind, and leave its log empty.
one() {
    : >"$scratch/log"
    output=$("$opcheck" --backend=opencl --separate --op="$1" --dtype="$2" --case="$3" ${tiles:+"--variant=$tiles"} 2>&1)
    if [ -s "$scratch/log" ]; then
        head -n 12 "$scratch/log"
    fi
    [ ! -s "$scratch/log" ] && printf '%s\n' "$output" | grep -q '^opencl: Oclgrind' &&
        printf '%s\n' "$output" | grep -q '^opencl .* 1 cases, .*[0-9]$'
    verdict "opcheck_oclgrind: $1 case $3 in $2: $output" $?
}

# each DTYPE CASES OP...: runs all of them.
each() {
    dtype=$1
    cases=${OPCHECK_OCLGRIND_CASES:-$2}
    shift 2
    for op in "$@"; do
        for case in $cases; do
            one "$op" "$dtype" "$case"
        done
    done
}

each bfloat16 "4${CHECK_LONG:+ 7}" embed_backward layernorm_backward cross_entropy sum_of_squares \
    ${CHECK_LONG:+dropout bias_backward gemm fill copy residual gelu_forward gelu_backward embed_forward layernorm_forward adamw blend muon_normalize muon_step}
each bfloat16 "1${CHECK_LONG:+ 8}" adamw_lean
${CHECK_LONG:+each bfloat16 "1 8" gradient_round muon_momentum}
${CHECK_LONG:+each float32 "4 6" loss_sum clip_factor gemm}
${CHECK_LONG:+each float16 2 layernorm_backward cross_entropy gemm}
each bfloat16 "3" attention_forward attention_cached
each float32 "2" attention_backward

# 64x64 and 128x128 by 256 of opencl_gemm_shapes.
for tiles in ${CHECK_LONG:+3 4}; do
    each bfloat16 "4${CHECK_LONG:+ 7}" gemm
    ${CHECK_LONG:+each float32 6 gemm}
done
tiles=

export GPT_TRAIN_OPENCL_MATRIX
for GPT_TRAIN_OPENCL_MATRIX in emulated-mma/32 ${CHECK_LONG:+emulated-mma8/32 emulated-wmma/32 emulated-mma/64}; do
    each float16 "5" gemm
    ${CHECK_LONG:+each bfloat16 6 gemm}
done
finish
