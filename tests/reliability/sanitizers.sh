#!/bin/sh
# The programs once more under each sanitizer: sanitizers.sh SOURCE-FOLDER BUILD-FOLDER [asan] [tsan]
#   asan      unit and model tests, cases of every op on the cpu, and the scripts that spend their time in our programs,
#             with AddressSanitizer and UndefinedBehaviorSanitizer; tests/fuzz has the parsers, tests/cuda_on_cpu the kernels
#   tsan      what runs several threads, with ThreadSanitizer; by clang, whose libomp tells it through Archer which threads
#             wait for which, while gcc's OpenMP gives false reports
# Each has its own build folder below BUILD-FOLDER.  JOBS is the number of jobs (2).
set -u
source_folder=$(cd "${1:?}" && pwd) || exit 1
mkdir -p "${2:?}" && build_folder=$(cd "$2" && pwd) || exit 1
shift 2
jobs=${JOBS:-2} failed=''
export BUDGET_FACTOR="${BUDGET_FACTOR:-20}" TEST_LIMIT_S="${TEST_LIMIT_S:-3600}"

# in_build NAME ARGUMENT...: enters the build folder NAME, configures it with these arguments and builds the programs.
in_build() {
    mkdir -p "$build_folder/$1" && cd "$build_folder/$1" || exit 1
    shift
    [ -e Makefile ] || "$source_folder/configure" -q "$@" || exit 1
    make -s -j"$jobs" && make -s -j"$jobs" tests/opcheck/opcheck tests/tools/tokenizer_tool || exit 1
}

# run_tests TEST...: with empty lists of prerequisites only these programs are built.
run_tests() {
    make -s -j"$jobs" -k check-TESTS check_PROGRAMS= check_LIBRARIES= check_DATA= TESTS="$*"
}

# Searches of plans that judge themselves by enumeration have no more code to check than their short cases.
asan() {
    in_build asan --enable-asan --enable-ubsan
    tests=$(cd "$source_folder" && printf '%s\n' tests/unit/check_*.c | sed 's/\.c$//' | grep -v plan_fastest)
    # shellcheck disable=SC2086 # words
    run_tests $tests tests/model/check_autodiff tests/model/check_generate tests/model/check_muon tests/model/check_programs \
        tests/e2e/bad_input.sh tests/e2e/export.py tests/e2e/keep.sh tests/e2e/lora.py tests/e2e/mixture.py \
        tests/e2e/parts.sh tests/e2e/prepare.sh tests/e2e/recompute.sh tests/e2e/resume.sh tests/e2e/sample.sh \
        tests/e2e/tokenizer.py
    status=$?
    for dtype in float32 bfloat16 float16; do
        LSAN_OPTIONS=suppressions="$source_folder/tests/reliability/lsan.supp" OMP_NUM_THREADS=1 \
            tests/opcheck/opcheck --backend=cpu --dtype="$dtype" --cases=4 || status=1
    done
    return "$status"
}

# Reports caused by a library are not ours; halt_on_error makes our first report fail the test.
tsan() {
    in_build tsan --enable-tsan CC="${TSAN_CC:-clang}" CXX=clang++
    export TSAN_OPTIONS="halt_on_error=1 ignore_noninstrumented_modules=1"
    run_tests tests/unit/check_cpu_backend tests/unit/check_log tests/unit/check_session \
        tests/unit/check_thread tests/unit/check_data_tokenizer_encoder tests/model/check_programs tests/e2e/sample.sh \
        tests/reliability/strict_resume.py tests/e2e/resume.sh tests/e2e/tokenizer.py tests/unit/check_cpu_ops \
        tests/unit/check_cpu_gemm
    status=$?
    tests/opcheck/opcheck --threads --backend=cpu --dtype=float32 || status=1
    return "$status"
}

[ $# -gt 0 ] || set -- asan tsan
for name in "$@"; do
    case $name in
    asan | tsan) (set -e && "$name") || failed="$failed $name" ;;
    *) echo "sanitizers.sh: $name is none of asan, tsan" >&2 && exit 2 ;;
    esac
done
[ -z "$failed" ] || { echo "failed:$failed" && exit 1; }
echo "passed: $*"
