#!/bin/sh
# Shell scripts: every one parses, shellcheck finds nothing, and quickstart's test for cards names what is missing.
set -u

root=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0
failed=0
skipped=0

verdict() {
    if [ "$1" -eq 0 ]; then
        passed=$((passed + 1))
    else
        echo "FAIL $2"
        failed=$((failed + 1))
    fi
}

scripts=$(cd "$root" && find quickstart .ci/run doc tests -type f \( -name '*.sh' -o -name quickstart -o -name run \))
for script in $scripts; do
    sh -n "$root/$script"
    verdict $? "$script does not parse"
done
if command -v shellcheck >/dev/null 2>&1; then
    for script in $scripts; do
        shellcheck "$root/$script"
        verdict $? "shellcheck: $script"
    done
else
    echo "SKIP shellcheck: no shellcheck (Debian: shellcheck)"
    skipped=$((skipped + 1))
fi

# card NAME VENDOR CLASS TEXT: a fake device in a fake sysfs; TEXT must appear.
card() {
    rm -rf "$scratch/sys"
    mkdir -p "$scratch/sys/bus/pci/devices/0000:01:00.0"
    echo "$2" >"$scratch/sys/bus/pci/devices/0000:01:00.0/vendor"
    echo "$3" >"$scratch/sys/bus/pci/devices/0000:01:00.0/class"
    QUICKSTART_ROOT="$scratch" "$root/quickstart" cards >"$scratch/out" 2>&1
    verdict $? "quickstart cards: $1"
    grep -q "$4" "$scratch/out"
    verdict $? "quickstart cards: $1: no \"$4\" in: $(cat "$scratch/out")"
    grep -q -e 'runs on the CPU' -e 'uses the CPU' "$scratch/out"
    verdict $? "quickstart cards: $1 does not say where the job runs"
}
card 'NVIDIA without a driver' 0x10de 0x030000 'nvidia-driver'
card 'AMD without an ICD' 0x1002 0x030000 'mesa-opencl-icd'
card 'Intel without an ICD' 0x8086 0x038000 'intel-opencl-icd'
card 'a network card' 0x8086 0x020000 'graphics card was found'

"$root/quickstart" nonsense >"$scratch/out" 2>&1
[ $? -eq 2 ]
verdict $? 'quickstart with an unknown word does not exit with 2'

echo "checks: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
