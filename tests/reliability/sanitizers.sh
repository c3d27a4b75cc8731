#!/bin/sh
# The suite once more under each sanitizer: sanitizers.sh SOURCE-FOLDER BUILD-FOLDER [asan] [tsan]
#   asan      all of `make check` with AddressSanitizer and UndefinedBehaviorSanitizer
#   tsan      unit tests, model tests and the training scripts, with ThreadSanitizer; clang, because gcc's OpenMP is not
#             instrumented
# Each has its own build folder below BUILD-FOLDER.  JOBS is the number of jobs (2).
set -u
source_folder=$(cd "${1:?}" && pwd) || exit 1
mkdir -p "${2:?}" && build_folder=$(cd "$2" && pwd) || exit 1
shift 2
jobs=${JOBS:-2} failed=''
export BUDGET_FACTOR="${BUDGET_FACTOR:-20}" TEST_LIMIT_S="${TEST_LIMIT_S:-3600}"

# in_folder NAME ARGUMENT...: enters the build folder NAME and configures it with these arguments.
in_folder() {
    mkdir -p "$build_folder/$1" && cd "$build_folder/$1" || exit 1
    shift
    [ -e Makefile ] || "$source_folder/configure" -q "$@" || exit 1
}

# in_build NAME ARGUMENT...: the same, and builds the programs.
in_build() {
    in_folder "$@"
    make -s -j"$jobs" || exit 1
}

asan() {
    in_build asan --enable-asan --enable-ubsan
    make -s -j"$jobs" check
}

# Reports caused by a library are not ours; halt_on_error makes our first report fail the test.
tsan() {
    in_build tsan --enable-tsan CC=clang CXX=clang++
    make -s -j"$jobs" tests/opcheck/opcheck || exit 1
    # With empty lists of prerequisites only these programs are built.
    TSAN_OPTIONS="halt_on_error=1 ignore_noninstrumented_modules=1" make -s -j"$jobs" check-TESTS \
        check_PROGRAMS= check_LIBRARIES= check_DATA= \
        TESTS='tests/unit/check_cpu_backend tests/unit/check_exec tests/unit/check_log
            tests/unit/check_session tests/unit/check_thread
            tests/unit/check_data_tokenizer_encoder tests/model/check_programs tests/e2e/sample.sh tests/reliability/strict_resume.py
            tests/e2e/resume.sh tests/unit/check_cpu_ops tests/unit/check_cpu_gemm tests/opcheck/opcheck_float32.sh'
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
