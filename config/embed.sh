#!/bin/sh
# Writes a C file that holds texts: embed.sh PREFIX TYPE HEADER FILE... prints, for each FILE named NAME.SUFFIX,
#     const struct TYPE PREFIX_NAME = {"NAME", text, length};
# The text is an array of byte values, because a string literal may not be that long in C11; where a line includes a
# header of src/, backends/ or tests/, the text has the header.  Needs od and awk only.
set -eu
LC_ALL=C
export LC_ALL

prefix=$1
type=$2
header=$3
included='/^#include "/ {
    file = (/"(backends|tests)\// ? "" : "src/") $2
    gsub(/"/, "", file)
    while ((getline line <file) > 0)
        print line
    printf "#line %d\n", NR + 1
    next
}
{ print }'
shift 3
echo "/* Made by config/embed.sh; do not edit. */"
echo "#include \"$header\""
for file in "$@"; do
    name=${file##*/}
    name=${name%.*}
    size=$(awk "$included" "$file" | wc -c)
    echo
    echo "static const char text_${name}[] = {"
    awk "$included" "$file" | od -An -v -tu1 | awk '{ for (i = 1; i <= NF; i++) printf "%s,", $i; printf "\n" }'
    echo "0};"
    echo "extern const struct $type ${prefix}_$name;"
    echo "const struct $type ${prefix}_$name = {\"$name\", text_$name, $((size))};"
done
