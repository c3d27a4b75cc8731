#!/bin/sh
# Makes a man page: standard input with the line @OPTIONS@ replaced by the keys of PROGRAM --help=all, and @VERSION@ by
# the version.
# Usage: man_page.sh PROGRAM VERSION <PAGE.in >PAGE
set -eu

# A title is followed by the keys of its group: "  --key=VALUE  text", folded.  \& keeps roff from reading a leading dot
# as a request; - ' and \ are its own characters.
# shellcheck disable=SC2086 # EMULATOR is a command with its options
options=$(${EMULATOR:-} "$1" --help=all | awk '
    function roff(text) {
        gsub(/\\/, "\\e", text); gsub(/-/, "\\-", text); gsub(/\047/, "\\(aq", text)
        sub(/\(default /, "(default\\ ", text)
        return text
    }
    function finish() { if (form != "") printf ".TP\n.B %s\n\\&%s.\n", roff(form), roff(text); form = "" }
    /^  --/ {
        finish()
        if (title != "") print ".SS " roff(title)
        title = ""; form = $1; $1 = ""; text = $0; sub(/^ /, "", text)
        next
    }
    /^ / && form != "" { gsub(/^ +/, ""); text = text (text == "" ? "" : " ") $0; next }
    { finish(); title = $0 }')
if [ -z "$options" ]; then
    echo "man_page.sh: $1 --help=all lists no keys" >&2
    exit 1
fi
while IFS= read -r line; do
    case $line in
    @OPTIONS@) printf '%s\n' "$options" ;;
    *@VERSION@*) printf '%s%s%s\n' "${line%%@VERSION@*}" "$2" "${line#*@VERSION@}" ;;
    *) printf '%s\n' "$line" ;;
    esac
done
