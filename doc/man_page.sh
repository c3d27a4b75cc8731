#!/bin/sh
# Makes a man page: standard input with the line @OPTIONS@ replaced by the option list, and @VERSION@ by the version.
# Usage: man_page.sh MAN_OPTIONS_PROGRAM VERSION train|sample <PAGE.in >PAGE
set -eu

options=$("$1" "$3")
if [ -z "$options" ]; then
    echo "man_page.sh: $1 $3 printed nothing" >&2
    exit 1
fi
while IFS= read -r line; do
    case $line in
    @OPTIONS@) printf '%s\n' "$options" ;;
    *@VERSION@*) printf '%s%s%s\n' "${line%%@VERSION@*}" "$2" "${line#*@VERSION@}" ;;
    *) printf '%s\n' "$line" ;;
    esac
done
