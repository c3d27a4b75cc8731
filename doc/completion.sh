#!/bin/sh
# shellcheck disable=SC2016,SC2086 # what is written is expanded later; EMULATOR is a command with its options
# Writes the completion of a program for a shell, from the keys and choices in its --help.
# Usage: completion.sh bash|zsh|fish PROGRAM >FILE
# A key completes to its choices (VALUE has a bar), to a path (PATH, DIR, FILE, or a key that names one), or to nothing.
set -eu

shell=$1
name=$(basename "$2")
help=$(${EMULATOR:-} "$2" --help=all 2>/dev/null || ${EMULATOR:-} "$2" --help)
# One line a key: NAME, VALUE or -, and its description up to a semicolon.
keys=$(printf '%s\n' "$help" | awk '
    function finish() {
        if (key != "") { sub(/;.*/, "", text); gsub(/[\[\]:\047"`$\\]/, "", text); print key, value, text }
        key = ""
    }
    /^  --[a-z]/ {
        finish()
        key = $1; $1 = ""; text = $0
        sub(/^--/, "", key); value = key
        sub(/^[^=\[]*\[?=?/, "", value); sub(/\].*/, "", value); sub(/[=\[].*/, "", key)
        if (value == "BOOL") value = "True|False"
        if (key ~ /(_|-)(dir|data)$|^(dataset|init_from|json|state|start)$/ && value !~ /\|/) value = "PATH"
        if (value == "") value = "-"
        next
    }
    /^     / && key != "" { sub(/^ +/, ""); text = text " " $0; next }
    { finish() }
    END { finish(); print "help - show the keys"; print "version - show the release" }' | sort -u -k1,1)

# The words of a choice: "a|b" becomes "a b"; nothing for other values.
choices() {
    case $1 in
    *"|"*) printf '%s' "$1" | tr '|' ' ' ;;
    esac
}

case $shell in
bash)
    function=_$(printf '%s' "$name" | tr - _)
    printf '# Completion of %s.\n%s()\n{\n    local line=${COMP_LINE:0:COMP_POINT}\n' "$name" "$function"
    printf '    local word=${line##*[[:space:]]}\n    case $word in\n'
    printf '%s\n' "$keys" | while read -r key value _; do
        words=$(choices "$value")
        [ -z "$words" ] || printf '    --%s=*) COMPREPLY=($(compgen -W "%s" -- "${word#*=}")) ;;\n' "$key" "$words"
    done
    printf '    --*=*)\n        compopt -o filenames 2>/dev/null\n'
    printf '        COMPREPLY=($(compgen -f -- "${word#*=}"))\n        ;;\n'
    printf '    --*)\n        compopt -o nospace 2>/dev/null\n'
    all=$(printf '%s\n' "$keys" | awk '{ printf "--%s%s ", $1, $2 == "-" ? "" : "=" }')
    printf '        COMPREPLY=($(compgen -W "%s" -- "$word"))\n        ;;\n' "$all"
    printf '    *)\n        compopt -o filenames 2>/dev/null\n'
    printf '        COMPREPLY=($(compgen -f -- "$word"))\n        ;;\n'
    printf '    esac\n}\ncomplete -F %s %s\n' "$function" "$name"
    ;;
zsh)
    printf '#compdef %s\n_arguments \\\n' "$name"
    printf '%s\n' "$keys" | while read -r key value text; do
        words=$(choices "$value")
        case $value in
        -) printf "    '--%s[%s]' \\\\\n" "$key" "$text" ;;
        PATH | DIR | FILE) printf "    '--%s=[%s]:path:_files' \\\\\n" "$key" "$text" ;;
        *) printf "    '--%s=[%s]:value:%s' \\\\\n" "$key" "$text" "${words:+($words)}" ;;
        esac
    done
    printf "    '*:file:_files'\n"
    ;;
fish)
    printf '# Completion of %s.\n' "$name"
    printf '%s\n' "$keys" | while read -r key value text; do
        words=$(choices "$value")
        case $value in
        -) more= ;;
        PATH | DIR | FILE) more=' -r' ;;
        *) more=" -x${words:+ -a '$words'}" ;;
        esac
        printf "complete -c %s -l %s%s -d '%s'\n" "$name" "$key" "$more" "$text"
    done
    ;;
*)
    echo "completion.sh: bash, zsh or fish?" >&2
    exit 2
    ;;
esac
