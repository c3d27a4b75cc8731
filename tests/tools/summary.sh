#!/bin/sh
# Adds up the logs of a `make check`.
#
# Usage: summary.sh TESTS_FOLDER LOG...   (LOG = tests/SUITE/NAME.log, its NAME.trs in the same folder)
# Reads from each log the last "checks: P passed, F failed, S skipped" (a test without one counts as one check), the
# "seconds: S, P of processors" of run_test.sh, and lines "SKIP NAME: reason".  Prints one row per suite with its budget, names every
# failure, and ends with exactly "N passed, N failed, N skipped".  Exit status 1 when anything failed, or a suite (or
# the whole) exceeded its budget of processor seconds, which do not depend on other work of the machine.  If CI is set in the environment, a skip that TESTS_FOLDER/expected-skips does not
# list is named and is a failure.  BUDGET_FACTOR multiplies the budgets (sanitizer builds).
set -eu

folder=$1
shift
budget_factor=${BUDGET_FACTOR:-1}
in_ci=${CI:-}

facts_of_log() {
    # One line per log: suite test result passed failed skipped seconds, then one per named skip.
    log=$1
    trs=${log%.log}.trs
    result=MISSING
    if [ -f "$trs" ]; then
        result=$(sed -n 's/^:test-result: *\([A-Z]*\).*/\1/p' "$trs" | tail -n 1)
    fi
    if [ ! -f "$log" ]; then
        log=/dev/null
    fi
    awk -v path="${trs%.trs}" -v result="${result:-MISSING}" '
        /^checks: [0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { passed = $2; failed = $4; skipped = $6; counted = 1 }
        /^seconds: / { seconds = $2; busy = $3 }
        /^SKIP [^ :]+: / { name = $2; sub(/:.*/, "", name); print "skip", name; named++ }
        END {
            suite = path; sub(/^.*tests\//, "", suite); sub(/\/.*/, "", suite)
            if (!counted) {
                passed = (result == "PASS"); skipped = (result == "SKIP"); failed = !(passed || skipped)
            }
            if (result != "PASS" && result != "SKIP" && failed == 0)
                failed = 1
            if (result == "SKIP" && skipped == 0)
                skipped = 1
            if (skipped > named + 0)
                print "skip", path
            print "test", suite, path, result, passed, failed, skipped, seconds + 0, busy + 0
        }' "$log"
}

for log in "$@"; do
    facts_of_log "$log"
done | awk -v factor="$budget_factor" -v in_ci="$in_ci" -v budgets="$folder/budgets" -v skips="$folder/expected-skips" '
    function read_tables(line, field) {
        while ((getline line < budgets) > 0)
            if (line !~ /^(#|[ \t]*$)/) { split(line, field, /[ \t]+/); budget[field[1]] = field[2] * factor }
        while ((getline line < skips) > 0)
            if (line !~ /^(#|[ \t]*$)/) { split(line, field, /[ \t]+/); expected[field[1]] = 1 }
    }
    BEGIN { read_tables() }
    $1 == "skip" { if (!($2 in expected) && !seen[$2]++) unexpected[++unexpected_count] = $2; next }
    {
        if (!($2 in suite_tests)) order[++suites] = $2
        suite_tests[$2]++; suite_passed[$2] += $5; suite_failed[$2] += $6; suite_skipped[$2] += $7
        suite_seconds[$2] += $8; suite_busy[$2] += $9
        passed += $5; failed += $6; skipped += $7; seconds += $8; busy += $9
        if ($6 > 0) failure[++failures] = $3 " (" $4 ", " $6 " failed)"
    }
    function row(name, tests, checks, bad, skips_, time, cpu, limit) {
        printf "%-10s %6d %8d %7d %8d %9.1f %10.1f %8s%s\n", name, tests, checks, bad, skips_, time, cpu,
            limit == "" ? "-" : limit, (limit != "" && cpu > limit) ? "  OVER BUDGET" : ""
        if (limit != "" && cpu > limit) over++
    }
    END {
        printf "\n%-10s %6s %8s %7s %8s %9s %10s %8s\n", "suite", "tests", "checks", "failed", "skipped", "seconds",
            "processors", "budget"
        for (i = 1; i <= suites; i++) {
            s = order[i]; tests += suite_tests[s]
            row(s, suite_tests[s], suite_passed[s] + suite_failed[s], suite_failed[s], suite_skipped[s],
                suite_seconds[s], suite_busy[s], budget[s])
        }
        row("total", tests, passed + failed, failed, skipped, seconds, busy, budget["total"])
        print ""
        for (i = 1; i <= failures; i++) print "FAILED: " failure[i]
        for (i = 1; in_ci != "" && i <= unexpected_count; i++) print "unexpected skip: " unexpected[i]
        if (over) print "over budget: " over
        if (in_ci != "") failed += unexpected_count
        failed += over
        if (suites == 0) { print "no test ran"; failed++ }
        printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
        exit failed > 0
    }'
