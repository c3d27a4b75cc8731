#!/bin/sh
# The suite once more under each sanitizer: sanitizers.sh SOURCE-FOLDER BUILD-FOLDER [asan] [tsan] [msan] [valgrind]
#   asan      all of `make check` with AddressSanitizer and UndefinedBehaviorSanitizer
#   tsan      unit tests, model tests and the training scripts, with ThreadSanitizer; clang, because gcc's OpenMP is not
#             instrumented
#   msan      the parsers that call no foreign library, with MemorySanitizer: damaged files, then a minute of fuzzing
#             each
#   valgrind  unit tests of src/base, src/data and src/io and a training run under memcheck, which sees into libraries
#             too
# Without names all four.  Each has its own build folder below BUILD-FOLDER.  JOBS is the number of jobs (2); takes an
# hour.
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
        TESTS='tests/unit/check_cpu_backend tests/unit/check_exec tests/unit/check_feed tests/unit/check_log
            tests/unit/check_session tests/unit/check_thread tests/unit/check_ticker tests/unit/check_watchdog
            tests/unit/check_data_prepare tests/model/check_programs tests/e2e/sample.sh tests/reliability/strict_resume.py
            tests/e2e/resume.sh tests/unit/check_cpu_ops tests/unit/check_cpu_gemm tests/opcheck/opcheck_float32.sh'
}

# jansson, PCRE2 and libarchive are not instrumented, so their output looks uninitialised: no target that uses them is
# run.  nanogpt is one of those: it makes a configuration from its input, and ends at json_decref(), which is inlined
# into our code.  Nor are targets with a folder: clang 14 does not know this C library's fstat().  MemorySanitizer has
# no suppressions at run time, and continuing after reports would hide ours among theirs; these targets would need
# instrumented libraries.
msan() {
    targets="choices llmc_model oom_message pickle token_file"
    in_folder msan --disable-hardening CC=clang
    for target in $targets; do
        make -s FUZZ_SANITIZERS=memory "tests/fuzz/fuzz_$target" || return 1
    done
    FUZZ_TARGETS="$targets" top_srcdir="$source_folder" top_builddir=. python3 -B "$source_folder/tests/fuzz/every_bit.py" &&
        FUZZ_TARGETS="$targets" FUZZ_SECONDS="${FUZZ_SECONDS:-60}" top_srcdir="$source_folder" top_builddir=. \
            sh "$source_folder/tests/fuzz/run.sh"
}

# Valgrind does not know all instructions of our kernels and OpenBLAS, and does not follow a program that restarts
# itself, as gpt-train does unless a variable limits how long waiting threads spin.  Unit tests fork as usual: Valgrind
# follows forks, and some tests need a process of their own.
memcheck() {
    GOMP_SPINCOUNT=0 OMP_NUM_THREADS=1 OPENBLAS_CORETYPE=Haswell GPT_TRAIN_CPU_ISA=generic CK_TIMEOUT_MULTIPLIER=20 \
        valgrind -q --error-exitcode=99 --leak-check=full \
        --suppressions="$source_folder/tests/reliability/valgrind.supp" "$@" >valgrind.log 2>&1 && return 0
    echo "FAIL valgrind $*"
    tail -n 40 valgrind.log
    return 1
}

valgrind_sample() {
    in_build valgrind
    bad=0
    for test in check_file check_json check_log check_hostmem check_ticker check_data_tokens check_data_sampler \
        check_data_batch check_io_safetensors check_io_checkpoint_record check_io_pickle check_io_foreign; do
        make -s "tests/unit/$test" && memcheck "tests/unit/$test" || bad=1
    done
    rm -rf data out && mkdir data
    awk 'BEGIN { for (i = 0; i < 4000; i++) printf "%c%c", 97 + i % 26, 97 + i % 17 }' >text.txt
    ./gpt-prepare --tokenizer=bytes --out-dir=data text.txt >/dev/null &&
        memcheck ./gpt-train --dataset=./data --n_layer=1 --n_head=2 --n_embd=16 --block_size=16 --batch_size=2 \
            --gradient_accumulation_steps=2 --max_iters=2 --eval_interval=1 --eval_iters=1 --threads=1 --sample_tokens=4 \
            --out_dir=out || bad=1
    return $bad
}

[ $# -gt 0 ] || set -- asan tsan msan valgrind
for name in "$@"; do
    case $name in
    asan | tsan | msan) (set -e && "$name") || failed="$failed $name" ;;
    valgrind) (valgrind_sample) || failed="$failed $name" ;;
    *) echo "sanitizers.sh: $name is none of asan, tsan, msan, valgrind" >&2 && exit 2 ;;
    esac
done
[ -z "$failed" ] || { echo "failed:$failed" && exit 1; }
echo "passed: $*"
