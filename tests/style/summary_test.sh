#!/bin/sh
# Tests the summary, which decides CI's result: invented logs in, exact lines out.
set -u

here=$(cd "$(dirname "$0")" && pwd)
tools=$here/../tools
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0
failed=0
mkdir -p "$scratch/tests/unit" "$scratch/tests/e2e"

# test_log NAME RESULT TEXT
test_log() {
    printf '%b' "$3" >"$scratch/tests/$1.log"
    printf ':test-result: %s\n:global-test-result: %s\n' "$2" "$2" >"$scratch/tests/$1.trs"
}

# expect NAME STATUS LAST_LINE TEXT LOG...: runs the summary; TEXT is part of its output.
expect() {
    name=$1 status=$2 last=$3 text=$4
    shift 4
    found=0
    (cd "$scratch" && sh "$tools/summary.sh" tests "$@") >"$scratch/out" 2>&1 || found=$?
    if [ "$found" -eq "$status" ] && [ "$(tail -n 1 "$scratch/out")" = "$last" ] && grep -q -- "$text" "$scratch/out"; then
        passed=$((passed + 1))
        return
    fi
    echo "FAIL $name: exit $found (expected $status), expected \"$last\" and \"$text\" in:"
    cat "$scratch/out"
    failed=$((failed + 1))
}

printf 'unit 10\ne2e 5\ntotal 100\n' >"$scratch/tests/budgets"
printf '# allowed\nno-torch because it may be absent\n' >"$scratch/tests/expected-skips"
CI=''
BUDGET_FACTOR=1
export CI BUDGET_FACTOR

test_log unit/a PASS 'noise\nchecks: 7 passed, 0 failed, 0 skipped\nseconds: 1.50\n'
test_log unit/b PASS 'no closing line\nseconds: 2\n'
expect 'counts and a test without a line' 0 '8 passed, 0 failed, 0 skipped' 'unit  *2  *8 ' \
    tests/unit/a.log tests/unit/b.log

test_log unit/c FAIL 'checks: 3 passed, 2 failed, 0 skipped\n'
expect 'failures' 1 '10 passed, 2 failed, 0 skipped' 'FAILED: tests/unit/c' tests/unit/a.log tests/unit/c.log
test_log unit/d FAIL 'checks: 3 passed, 0 failed, 0 skipped\n'
expect 'a failing status without a failed check' 1 '3 passed, 1 failed, 0 skipped' 'FAILED: tests/unit/d' tests/unit/d.log
test_log unit/e PASS 'checks: 3 passed, 1 failed, 0 skipped\n'
expect 'a failed check behind a good status' 1 '3 passed, 1 failed, 0 skipped' 'FAILED: tests/unit/e' tests/unit/e.log
test_log unit/f FAIL 'Segmentation fault\n'
expect 'a crash' 1 '0 passed, 1 failed, 0 skipped' 'FAILED: tests/unit/f' tests/unit/f.log
expect 'a test that never ran' 1 '7 passed, 1 failed, 0 skipped' 'MISSING' tests/unit/a.log tests/unit/never.log
expect 'no test at all' 1 '0 passed, 1 failed, 0 skipped' 'no test ran'

test_log e2e/s SKIP 'SKIP no-torch: no PyTorch\nSKIP tests/e2e/s.py (exit status: 77)\n'
expect 'an expected skip' 0 '7 passed, 0 failed, 1 skipped' 'e2e' tests/unit/a.log tests/e2e/s.log
CI=true
expect 'an expected skip in CI' 0 '7 passed, 0 failed, 1 skipped' 'e2e' tests/unit/a.log tests/e2e/s.log
test_log e2e/u SKIP 'SKIP no-cat: no cat\n'
expect 'an unexpected skip in CI' 1 '7 passed, 1 failed, 1 skipped' 'unexpected skip: no-cat' tests/unit/a.log tests/e2e/u.log
test_log e2e/n SKIP 'gone\n'
expect 'a skip without a name in CI' 1 '0 passed, 1 failed, 1 skipped' 'unexpected skip: tests/e2e/n' tests/e2e/n.log
test_log e2e/p PASS 'SKIP one: x\nchecks: 4 passed, 0 failed, 2 skipped\n'
expect 'fewer names than skips in CI' 1 '4 passed, 2 failed, 2 skipped' 'unexpected skip: tests/e2e/p' tests/e2e/p.log
CI=''
expect 'an unexpected skip elsewhere' 0 '7 passed, 0 failed, 1 skipped' 'e2e' tests/unit/a.log tests/e2e/u.log

test_log e2e/slow PASS 'checks: 1 passed, 0 failed, 0 skipped\nseconds: 5.01\n'
expect 'over the budget' 1 '1 passed, 1 failed, 0 skipped' 'OVER BUDGET' tests/e2e/slow.log
BUDGET_FACTOR=2
expect 'a stretched budget' 0 '1 passed, 0 failed, 0 skipped' 'e2e' tests/e2e/slow.log

# The runner: keeps the status, adds the time, ends tests that hang.
runner() {
    name=$1 status=$2 text=$3
    printf '#!/bin/sh\n%s\n' "$4" >"$scratch/one.sh"
    found=0
    TEST_LIMIT_S=1 sh "$tools/run_test.sh" "$scratch/one.sh" >"$scratch/out" 2>&1 || found=$?
    if [ "$found" -eq "$status" ] && grep -q "$text" "$scratch/out"; then
        passed=$((passed + 1))
    else
        echo "FAIL $name: exit $found (expected $status), expected \"$text\" in:"
        cat "$scratch/out"
        failed=$((failed + 1))
    fi
}
runner 'status 0 and the time' 0 '^seconds: [0-9.]*$' 'exit 0'
runner 'status 77' 77 '^seconds: ' 'exit 77'
runner 'a hang' 124 '^ended: longer than 1 s' 'exec sleep 30'

echo "checks: $passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
