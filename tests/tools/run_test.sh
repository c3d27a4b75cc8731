#!/bin/sh
# Runs one test for the automake harness: selects the interpreter, ends a test that hangs, adds the time that it took.
# Usage: run_test.sh TEST [ARGUMENT...].  The exit status is the test's own; the last line is "seconds: S, P of processors".
set -u

test_path=$1
shift
limit_s=${TEST_LIMIT_S:-900}
# Where more programs run than there are processors, a test takes longer in proportion.
if [ -r /proc/loadavg ]; then
    limit_s=$(awk -v limit="$limit_s" -v processors="$(nproc 2>/dev/null || echo 1)" \
        '{ waiting = $1 / processors; printf "%d", limit * (waiting > 1 ? waiting : 1) }' /proc/loadavg)
fi

now() {
    # Nanoseconds if date supports them, else whole seconds.
    stamp=$(date +%s.%N 2>/dev/null)
    case $stamp in
    *N | '') date +%s ;;
    *) echo "$stamp" ;;
    esac
}

run_limited() {
    if command -v timeout >/dev/null 2>&1; then
        timeout -k 10 "$limit_s" "$@"
    else
        "$@"
    fi
}

# Each test has a cache of its own and never the user's.  It begins with the timings and compiled kernels that earlier
# tests of this build left, so that most models are timed once; what --tune chose is not passed on.
cache=$(mktemp -d "${TMPDIR:-/tmp}/gpt-train-cache-XXXXXX") || exit 1
trap 'rm -rf "$cache"' EXIT
XDG_CACHE_HOME=$cache
export XDG_CACHE_HOME
passed_on=$(cd "${top_builddir:-.}" && pwd)/tests/cache
(umask 077 && mkdir -p "$passed_on/gpt-train/calibration" "$passed_on/gpt-train/opencl")
cp -Rp "$passed_on/gpt-train" "$cache" 2>/dev/null

pass_on() {
    for file in "$cache"/gpt-train/calibration/* "$cache"/gpt-train/opencl/*; do
        to=$passed_on${file#"$cache"}
        [ ! -f "$file" ] || [ -e "$to" ] || { cp -p "$file" "$to.$$" && mv "$to.$$" "$to"; }
    done
}

# PoCL takes minutes to compile all kernels, so the tests of a build share a cache of them, and only CHECK_LONG=1
# optimises them.
[ -n "${CHECK_LONG:-}" ] || POCL_EXTRA_BUILD_FLAGS=${POCL_EXTRA_BUILD_FLAGS:--cl-opt-disable}
[ -z "${POCL_EXTRA_BUILD_FLAGS:-}" ] || export POCL_EXTRA_BUILD_FLAGS
POCL_CACHE_DIR=${POCL_CACHE_DIR:-$(cd "${top_builddir:-.}" && pwd)/tests/pocl-cache}
mkdir -p "$POCL_CACHE_DIR"
export POCL_CACHE_DIR

# Most tests do not depend on the backend and expect the cpu's results: only tests that name a card use it (opcheck,
# tests/e2e/cards.py).
GPT_TRAIN_BACKEND=${GPT_TRAIN_BACKEND:-cpu}
export GPT_TRAIN_BACKEND

# Tests run in parallel, one per processor: more threads would only wait for each other.  A test of threads sets its own
# number.
OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
export OMP_NUM_THREADS
# Its threads sleep while they wait: spinning would take the processors from the tests beside it.
OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
export OMP_WAIT_POLICY

# For builds with AddressSanitizer: leaks that are not ours.  Mesa's rusticl leaks in a library that it unloads, which no
# suppression can name, so such builds see PoCL alone.
LSAN_OPTIONS=suppressions=${top_srcdir:-.}/tests/reliability/lsan.supp:print_suppressions=0${LSAN_OPTIONS:+:$LSAN_OPTIONS}
export LSAN_OPTIONS
pocl=/etc/OpenCL/vendors/pocl.icd
if [ -f "$pocl" ] && grep -q __asan_init "${GPT_TRAIN:-gpt-train}" 2>/dev/null; then
    OCL_ICD_VENDORS=${OCL_ICD_VENDORS:-$pocl}
    export OCL_ICD_VENDORS
fi

start=$(now)
case $test_path in
*.py)
    if [ -z "${PYTHON:-}" ]; then
        echo "SKIP $(basename "$test_path" .py): no Python 3 (Debian: python3)"
        exit 77
    fi
    run_limited "$PYTHON" -B "$test_path" "$@"
    ;;
*.sh)
    if [ -x "$test_path" ]; then
        run_limited "$test_path" "$@"
    else
        run_limited sh "$test_path" "$@"
    fi
    ;;
*)
    # shellcheck disable=SC2086 # EMULATOR is a command with its options
    run_limited ${EMULATOR:-} "$test_path" "$@"
    ;;
esac
status=$?
[ "$status" -ne 0 ] || pass_on
if [ "$status" -eq 124 ]; then
    echo "ended: longer than $limit_s s (TEST_LIMIT_S)"
fi
# The second line of `times` has the ended children, this test among them; a pipe would ask for those of a new process.
times >"$cache/times"
echo "$start $(now)" | awk -v times="$cache/times" '{
    while ((getline line < times) > 0) last = line
    gsub(/[ms]/, " ", last); split(last, t, " ")
    printf "seconds: %.2f, %.2f of processors\n", $2 - $1, 60 * (t[1] + t[3]) + t[2] + t[4] }'
exit "$status"
