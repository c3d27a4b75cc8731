#!/bin/sh
# Runs every fuzzing target for 1,000 inputs, FUZZ_RUNS inputs or FUZZ_SECONDS, from its seeds.  A crash, a leak or a
# time-out fails, and the input that caused it is kept in $top_builddir/tests/fuzz/NAME.crash.  The targets come from
# the command line, or else from FUZZ_TARGETS.  Needs top_srcdir and top_builddir.
set -u
: "${top_srcdir:?set it to the source folder}" "${top_builddir:?set it to the build folder}" "${FUZZ_TARGETS=}"
if [ -z "${FUZZ_SECONDS:-}" ]; then
    FUZZ_RUNS=${FUZZ_RUNS:-1000}
fi
seconds=${FUZZ_SECONDS:-86400}
work=$(mktemp -d "${TMPDIR:-/tmp}/gpt-train-fuzz-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
passed=0 failed=0 skipped=0

# Inputs are not much longer than the format's smallest valid file: longer ones cost time and reach nothing else.
bytes_max() {
    case $1 in
    nanogpt) echo 16384 ;;
    archive | pickle | tokenizer_json | vocab) echo 8192 ;;
    hf_hub) echo 256 ;;
    config | config_flat | device_profile) echo 1024 ;;
    oom_message | record) echo 2048 ;;
    *) echo 4096 ;;
    esac
}

# inputs NAME: prints how many inputs were tried.
inputs() {
    sed -n 's/^stat::number_of_executed_units: *//p' "$work/$1.log"
}

# -seed makes runs reproducible on one machine.  A small quarantine lets freed memory be reused soon, which is many
# times faster than fresh pages.  Allocation stacks are not recorded for the same reason; run a target on its .crash
# alone to see them.
run_target() {
    mkdir "$work/$1" || return 1
    ASAN_OPTIONS="quarantine_size_mb=8:malloc_context_size=0:${ASAN_OPTIONS:-}" \
        "$top_builddir/tests/fuzz/fuzz_$1" -seed=1337 -runs="${FUZZ_RUNS:--1}" -max_total_time="$seconds" \
        -max_len="$(bytes_max "$1")" -timeout=20 \
        -rss_limit_mb=2048 -print_final_stats=1 -print_funcs=0 -artifact_prefix="$work/$1." "$work/$1" \
        "$top_srcdir/tests/fuzz/corpus/$1" >"$work/$1.log" 2>&1
}

if [ $# -eq 0 ]; then
    # shellcheck disable=SC2086
    set -- $FUZZ_TARGETS
fi
for target in "$@"; do
    if ! [ -x "$top_builddir/tests/fuzz/fuzz_$target" ]; then
        skipped=$((skipped + 1))
        echo "SKIP fuzz_$target: no clang with libFuzzer (Debian: clang, libclang-rt-dev)"
    elif run_target "$target" && [ "$(inputs "$target")" -ge "${FUZZ_RUNS:-1}" ]; then
        passed=$((passed + 1))
        echo "PASS fuzz_$target: $(inputs "$target") inputs"
    else
        failed=$((failed + 1))
        echo "FAIL fuzz_$target"
        tail -n 40 "$work/$target.log" | sed 's/^/    /'
        for input in "$work/$target".*-*; do
            if [ -e "$input" ]; then
                cp "$input" "$top_builddir/tests/fuzz/$target.crash"
                echo "    the input is tests/fuzz/$target.crash"
            fi
        done
    fi
done

echo "checks: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] || exit 1
[ "$passed" -gt 0 ] || exit 77
