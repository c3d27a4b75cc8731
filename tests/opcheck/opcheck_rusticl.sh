#!/bin/sh
# shellcheck disable=SC1091,SC2034,SC2154 # opcheck.inc has the rest
# Every op of the opencl backend on Mesa's rusticl with llvmpipe, in three dtypes: a different compiler from PoCL's
# (SPIR-V and NIR), a different runtime, 32 KiB of local memory, no fp32 subnormals, and a division that need not be
# exact.  The ops whose bits op.h defines need subnormals, and must be refused.  OPCHECK_RUSTICL_LIBRARY names the ICD
# if it is elsewhere; OPCHECK_RUSTICL_CASES=N runs N cases of each op, 0 all of them.
. "${top_srcdir:?}/tests/opcheck/opcheck.inc"

library=${OPCHECK_RUSTICL_LIBRARY:-}
cases=${OPCHECK_RUSTICL_CASES:-${CHECK_LONG:+0}}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM
exact="adamw_lean blend gradient_round muon_momentum muon_normalize muon_step sum_parts"
refused=

for path in /usr/lib/*/libRusticlOpenCL.so.1 /usr/lib64/libRusticlOpenCL.so.1; do
    if [ -z "$library" ] && [ -f "$path" ]; then
        library=$path
    fi
done
[ -f "$library" ] || leave rusticl "no rusticl here (Debian: mesa-opencl-icd)"
mkdir "$scratch/vendors" "$scratch/cache"
echo "$library" >"$scratch/vendors/rusticl.icd"
OCL_ICD_VENDORS=$scratch/vendors
RUSTICL_ENABLE=llvmpipe
XDG_CACHE_HOME=$scratch/cache
export OCL_ICD_VENDORS RUSTICL_ENABLE XDG_CACHE_HOME

status=0
"$opcheck" --backend=opencl --support --op=fill >/dev/null 2>&1 || status=$?
[ "$status" -ne 2 ] || leave opencl "this build has no opencl backend"
[ "$status" -eq 0 ] || leave rusticl "its llvmpipe cannot be opened"

for dtype in float32 bfloat16 float16; do
    counted "opcheck_rusticl in $dtype" --backend=opencl --dtype="$dtype" --cases="${cases:-4}"
    printf '%s\n' "$output" | grep -q '^opencl: llvmpipe'
    verdict "opcheck_rusticl: $dtype: not on llvmpipe" $?
    refused="$refused $(printf '%s\n' "$output" | sed -n 's/^opencl *[a-z0-9]* *\([a-z_]*\) .* not supported.*/\1/p')"
done
# shellcheck disable=SC2086
refused=$(printf '%s\n' $refused | sort -u | tr '\n' ' ')
[ "$refused" = "$exact " ]
verdict "opcheck_rusticl: the ops without support should be $exact, and are: $refused" $?
skipped=0 # these ops, which the line above has judged
finish
