#!/bin/sh
# Proves that every check of check_style.py can fail: plants one violation at a time in a small clean tree and requires
# that the check names the file, and that the clean tree passes.
set -u

here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
if ! command -v "$python" >/dev/null 2>&1; then
    echo "SKIP style-selftest: no Python 3 (Debian: python3)"
    exit 77
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0
failed=0
skipped=0

clean_tree() {
    rm -rf "$scratch/tree"
    mkdir -p "$scratch/tree/src/base" "$scratch/tree/src/plan" "$scratch/tree/backends/cpu" "$scratch/tree/tests/ops"
    cp "$here/../../.clang-format" "$scratch/tree/"
    cat >"$scratch/tree/src/base/one.h" <<'EOF'
/* One. */
#ifndef GPT_TRAIN_BASE_ONE_H
#define GPT_TRAIN_BASE_ONE_H

int base_one(void);

#endif
EOF
    cat >"$scratch/tree/src/base/one.c" <<'EOF'
/* One: the smallest source of this tree.
 *
 * It holds one function and nothing else.
 */
#include "base/one.h"

int base_one(void)
{
    return 1;
}
EOF
    sed -e 's/one/two/g; s/ONE/TWO/g; s/BASE/PLAN/g; s/One/Two/; s/base_/plan_/' \
        "$scratch/tree/src/base/one.h" >"$scratch/tree/src/plan/two.h"
    sed -i 's|^int plan|#include "base/one.h"\n\nint plan|' "$scratch/tree/src/plan/two.h"
    sed -e 's|#include.*|#include "plan/two.h"|; s/base_one/plan_two/; s/return 1/return base_one()/' \
        "$scratch/tree/src/base/one.c" >"$scratch/tree/src/plan/two.c"
    mkdir -p "$scratch/tree/src/cli"
    sed -e 's|#include.*|#include "plan/two.h"|; s/int base_one/int main/; s/return 1/return plan_two() - base_one()/' \
        "$scratch/tree/src/base/one.c" >"$scratch/tree/src/cli/main.c"
    cp "$scratch/tree/src/base/one.c" "$scratch/tree/backends/cpu/cpu_one.c"
    sed -i -e 's/base_one/cpu_one/; s/int cpu/static int cpu/' "$scratch/tree/backends/cpu/cpu_one.c"
}

run_style() {
    STYLE_CPPFLAGS='' top_srcdir='' "$python" -B "$here/check_style.py" --root="$scratch/tree" --only="$1" \
        >"$scratch/out" 2>&1
}

# caught CHECK FILE NAME: the check fails and names FILE.
caught() {
    if run_style "$1"; then
        if grep -q '^SKIP' "$scratch/out"; then
            grep '^SKIP' "$scratch/out"
            skipped=$((skipped + 1))
            return
        fi
        echo "FAIL $3: the check $1 let it pass"
        failed=$((failed + 1))
    elif grep -q "^$2:[0-9]*: .*\[$1\]" "$scratch/out"; then
        echo "ok   $3"
        passed=$((passed + 1))
    else
        echo "FAIL $3: the check $1 failed without naming $2:"
        cat "$scratch/out"
        failed=$((failed + 1))
    fi
}

# planted CHECK FILE NAME TEXT: appends TEXT to FILE and requires that the check catches it.
planted() {
    clean_tree
    mkdir -p "$(dirname "$scratch/tree/$2")"
    printf '%b\n' "$4" >>"$scratch/tree/$2"
    caught "$1" "$2" "$3"
}

long_function() {
    printf 'int longest(void);\nint longest(void)\n{\n'
    line=0
    while [ "$line" -lt "$1" ]; do
        printf '    base_one();\n'
        line=$((line + 1))
    done
    printf '    return 0;\n}'
}

clean_tree
for check in includes headers functions comments unfinished paths tolerances cuda structure names; do
    if run_style "$check"; then
        passed=$((passed + 1))
    else
        echo "FAIL clean tree under $check:"
        cat "$scratch/out"
        failed=$((failed + 1))
    fi
done

planted includes src/base/one.c 'base includes plan' '#include "plan/two.h"'
planted includes src/base/one.c 'no folder in an include' '#include "one.h"'
planted includes src/base/one.c 'upward path' '#include "../plan/two.h"'
planted includes src/plan/three.c 'a folder of the same rank' '#include "io/files.h"'
planted includes src/base/one.c 'a backend from src' '#include "backends/cpu/cpu.h"'
planted includes src/plan/two.h 'a vendor header' '#include <cblas.h>'
planted includes src/plan/two.h 'a vendor header in quotes' '  #  include "cuda_runtime.h"'
planted includes src/plan/two.h 'jansson outside json' '#include <jansson.h>'
planted includes src/cli/three.c 'OpenMP outside the cpu backend' '#include <omp.h>'
planted includes backends/cpu/cpu_one.c 'a backend sees plan' '#include "plan/two.h"'
planted includes backends/cpu/cpu_one.c 'a backend sees model beyond op.h' '#include "model/graph.h"'
planted includes backends/cpu/cpu_one.c 'a backend sees another' '#include "backends/opencl/opencl.h"'
planted includes tests/ops/ref.c 'the oracle sees a backend' '#include "backends/cpu/cpu.h"'
planted includes src/strange/one.c 'a folder without a rank' 'int strange;'
planted structure src/base/one.h 'units that include each other' '#include "plan/two.h"'
planted structure src/base/one.h 'a function that nothing calls' 'int base_three(void);'
planted structure src/base/one.c 'a wide comment' "/* $(printf '%0121d' 0) */"
planted headers src/plan/two.h 'a header that needs another' 'size_t plan_two_bytes(void);'
planted headers src/plan/three.h 'a header without a guard' 'int three(void);'
planted clang src/base/one.c 'a narrowing conversion' 'char base_narrow(long x);\nchar base_narrow(long x)\n{\n    return x;\n}'
planted clang src/base/one.c 'a function without a prototype' 'int base_open(void)\n{\n    return 0;\n}'
planted functions src/base/one.c 'a host function of 71 lines' "$(long_function 68)"
planted functions backends/cpu/cpu_one.c 'a kernel of 121 lines' "$(long_function 118)"
planted format src/base/one.c 'a tab' 'int  base_tab;'
planted comments src/plan/three.c 'no opening comment' 'int three;'
planted comments src/plan/three.c 'a short opening comment' '/* Three. */\nint three;'
planted unfinished src/base/one.c 'a note without an issue' "/* TO""DO: the rest */"
planted unfinished doc/page.md 'a note in a document' "FIX""ME later"
planted paths src/base/one.c 'a path of one machine' '/* see /ro''ot/notes */'
planted paths quickstart 'a path in a script' 'cd /wo''rk/main'

planted names doc/page.md 'a file that is not there' 'See \0140src/base/three.c\0140.'
planted names doc/page.md 'a source without its folder' '\0140three.c\0140 does it.'
planted names doc/page.md 'a name that no source has' '\0140base_three\0140 comes first.'
planted names README.md 'a function that no source has' '\0140three()\0140 comes first.'
planted names doc/page.md 'a function in another file' '\0140base_one\0140 (\0140plan/two.c\0140) comes first.'
planted cuda backends/cuda/kernels/one.cu 'a launch by chevrons' 'void one()\n{\n    kernel<<<1, 2>>>();\n}'
planted cuda backends/cuda/kernels/one.h 'bare shared memory' 'static __shared__ float one[4];'
planted comments backends/cuda/kernels/one.cu 'a kernel file without a comment' 'int one;'
planted functions backends/cuda/kernels/one.cu 'a kernel of 121 lines in CUDA' "$(long_function 118)"
planted headers backends/cuda/cuda_one.h 'a CUDA header without a guard' 'int cuda_one(void);'
planted includes src/base/one.c 'CUDA outside its backend' '#include <cuda_runtime.h>'
planted tolerances tests/ops/near.c 'a tolerance in a comparison' 'int near(double d)\n{\n    return d <= 1e-5;\n}'
planted tolerances tests/opcheck/one.c 'a tolerance with a name' '#define GEMM_TOLERANCE 0.02f'
planted tolerances tests/opcheck/judge.c 'a small number in the judge' 'static const double more = 3e-3;'

# Must not be caught: the longest function allowed, a note with its issue, an include in a comment.
clean_tree
{
    long_function 67
    printf '\n/* %s: see issue #12 */\n/*\n#include "plan/two.h"\n*/\n' "TO""DO"
} >>"$scratch/tree/src/base/one.c"
printf 'static int near(double d)\n{\n    return d <= 8.0 * 0x1p-24; /* not 1e-5 */\n}\n' >"$scratch/tree/tests/ops/near.c"
if run_style includes,functions,unfinished,tolerances; then
    passed=$((passed + 1))
else
    echo "FAIL a legal file was refused:"
    cat "$scratch/out"
    failed=$((failed + 1))
fi

echo "checks: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
