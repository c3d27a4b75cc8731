#!/bin/sh
# Compiles the cuda backend's host code, the emulator and the fakes against CUDA's own headers, with the C and C++
# compilers; nvcc compiles the kernels with them.  This proves that the stand-ins in include/ have the
# signatures of the real ones.  Nothing is linked or run.
set -u

here=$(cd "$(dirname "$0")" && pwd)
top=${top_srcdir:-$here/../..}
scratch=$(mktemp -d "${TMPDIR:-/tmp}/gpt-train-headers-XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
passed=0
failed=0

headers=
for folder in "${CUDA_HOME:-/none}/include" /usr/local/cuda/include /usr/include; do
    if [ -f "$folder/cuda_runtime.h" ] && [ -f "$folder/cublasLt.h" ]; then
        headers=$folder
        break
    fi
done
cxx=${CXX:-g++}
if [ -z "$headers" ] || ! command -v "${cxx%% *}" >/dev/null 2>&1; then
    echo "SKIP cuda_real_headers: no cuda_runtime.h and cublasLt.h of a CUDA toolkit, or no $cxx"
    echo "checks: 0 passed, 0 failed, 1 skipped"
    exit 77
fi
printf '%s\n' '#define PACKAGE_NAME "gpt-train"' '#define PACKAGE_VERSION "0"' '#define PACKAGE_STRING "0"' \
    '#define CUDA_ARCH_LIST "86"' \
    >"$scratch/config.h"

# CUDA's headers take a second to parse: each language parses them once, where the compiler supports precompiled
# headers.
printf '#include <%s>\n' cuda_runtime.h cuda_bf16.h cuda_fp16.h >"$scratch/kept.hpp"
printf '#include <%s>\n' cuda_runtime.h cublasLt.h >"$scratch/kept.h"

# compile COMMAND...
compile() {
    "$@" -D_DEFAULT_SOURCE -D_POSIX_C_SOURCE=200809L -DHAVE_CONFIG_H -I"$scratch" -isystem "$headers" \
        -I"$top/src" -I"$top" -Wall -Wextra -Werror
}

# try FILE COMMAND...
try() {
    file=$1
    shift
    if compile "$@" -fsyntax-only "$file" 2>"$scratch/words"; then
        passed=$((passed + 1))
    else
        echo "FAIL headers ${file#"$top"/}"
        head -n 5 "$scratch/words"
        failed=$((failed + 1))
    fi
}

# shellcheck disable=SC2086
compile ${CC:-cc} -std=c11 -x c-header "$scratch/kept.h" -o "$scratch/kept.h.gch" 2>/dev/null
for file in "$top"/backends/cuda/*.c; do
    # shellcheck disable=SC2086
    try "$file" ${CC:-cc} -std=c11 -include "$scratch/kept.h"
done
# shellcheck disable=SC2086
compile $cxx -std=c++17 -Wno-unknown-pragmas -Wno-class-memaccess -DGT_CUDA_EMULATED -I"$here" -x c++-header \
    "$scratch/kept.hpp" -o "$scratch/kept.hpp.gch" 2>/dev/null
for file in "$here"/emulator.cpp "$here"/rounding.cpp "$here"/fake_*.cpp "$here"/smoke.cu; do
    # shellcheck disable=SC2086
    try "$file" $cxx -std=c++17 -Wno-unknown-pragmas -Wno-class-memaccess -DGT_CUDA_EMULATED -I"$here" \
        -include "$scratch/kept.hpp" -x c++
done
# What cuda_nccl.c declares of NCCL by itself, as nccl.h has it.
if [ -f "$headers/nccl.h" ]; then
    cat >"$scratch/nccl.c" <<'END'
#include <nccl.h>
_Static_assert(sizeof(ncclUniqueId) == 128 && ncclSuccess == 0 && ncclInt8 == 0, "the constants of cuda_nccl.c");
int all(int *version, ncclUniqueId *id, ncclComm_t *comm, const void *from, void *to, cudaStream_t stream);
int all(int *version, ncclUniqueId *id, ncclComm_t *comm, const void *from, void *to, cudaStream_t stream)
{
    return (int)ncclGetVersion(version) + (int)ncclGetUniqueId(id) + (int)ncclCommInitRank(comm, 2, *id, 0) +
           (int)ncclGroupStart() + (int)ncclSend(from, (size_t)1, 0, 1, *comm, stream) +
           (int)ncclRecv(to, (size_t)1, 0, 1, *comm, stream) + (int)ncclGroupEnd() + (int)ncclCommAbort(*comm) +
           (ncclGetErrorString(ncclSuccess) != NULL);
}
END
    # shellcheck disable=SC2086
    try "$scratch/nccl.c" ${CC:-cc} -std=c11
fi
echo "checks: $passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
