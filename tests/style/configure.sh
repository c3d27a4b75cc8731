#!/bin/sh
# configure refuses a big-endian processor in one line.
set -u

root=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
ln -s "$root/build-aux" "$root/src" . && cp "$root/configure" .
expected='configure: error: s390x-ibm-linux-gnu is big-endian, which is not supported: token files and checkpoints are little-endian'

# The answer is given, since the compiler makes programs for this machine.
status=0
./configure --quiet --host=s390x-linux-gnu CC="$CC" ac_cv_c_bigendian=yes >out 2>&1 || status=$?
if [ "$status" -eq 1 ] && [ "$(cat out)" = "$expected" ]; then
    echo "checks: 1 passed, 0 failed, 0 skipped"
    exit 0
fi
echo "FAIL exit $status, expected 1 and: $expected"
cat out
echo "checks: 0 passed, 1 failed, 0 skipped"
exit 1
