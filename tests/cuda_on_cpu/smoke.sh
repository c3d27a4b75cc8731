#!/bin/sh
# smoke.cu: each PTX wrapper against its formula, in the emulator; then compiled by nvcc if it is installed, and run if
# there is a card (otherwise run bench/gpu-check on a machine that has one).
set -u

here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d "${TMPDIR:-/tmp}/gpt-train-smoke-XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
environment=${top_builddir:?}/tests/cuda_on_cpu/build.env
passed=0
failed=0
skipped=0

value_of() {
    sed -n "s/^$1='\(.*\)'\$/\1/p" "$environment"
}

if [ ! -f "$environment" ] || [ "$(value_of have_cxx)" != yes ]; then
    echo "SKIP cuda_smoke: no C++17 compiler, so there is no emulator"
    echo "checks: 0 passed, 0 failed, 1 skipped"
    exit 77
fi

# report NAME STATUS
report() {
    if [ "$2" -eq 0 ]; then
        echo "PASS $1"
        passed=$((passed + 1))
    else
        echo "FAIL $1"
        failed=$((failed + 1))
    fi
}

cd "$top_builddir" || exit 1
# shellcheck disable=SC2046
$(value_of cxx) $(value_of kernel_flags) -x c++ "$here/smoke.cu" -x none tests/cuda_on_cpu/libemulator.a \
    -o "$scratch/smoke"
report smoke-compiles $?
for device in '75:4g:Turing' '86:4g:Ampere'; do
    for order in asc desc random:3; do
        GT_CUDA_ON_CPU_DEVICES=$device GT_CUDA_ON_CPU_ORDER=$order "$scratch/smoke" >"$scratch/output"
        status=$?
        grep '^FAIL' "$scratch/output"
        report "smoke-emulated-${device%%:*}-$order" $status
    done
done
for place in matrix barrier; do
    "$scratch/smoke" $place >"$scratch/output" 2>&1
    [ $? -eq 70 ] && grep -q 'in line' "$scratch/output"
    report smoke-apart-$place $?
done

nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
if [ -z "$nvcc" ]; then
    echo "SKIP cuda_smoke_nvcc: no nvcc"
    skipped=$((skipped + 1))
else
    "$nvcc" -std=c++17 -I"$here/../.." --fmad=false \
        -gencode arch=compute_75,code=sm_75 -gencode arch=compute_80,code=compute_80 \
        -o "$scratch/smoke-nvcc" "$here/smoke.cu"
    report smoke-nvcc-compiles $?
    status=0
    "$scratch/smoke-nvcc" || status=$?
    if [ $status -eq 77 ]; then
        echo "SKIP cuda_smoke_card: no card"
        skipped=$((skipped + 1))
    else
        report smoke-card $status
    fi
fi
echo "checks: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
