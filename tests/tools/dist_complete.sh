#!/bin/sh
# Fails when a release lacks a file that the repository tracks.  Usage: dist_complete.sh SRCDIR DISTDIR.
# Outside a git checkout (a release made from a release) there is nothing to compare with.
set -eu

srcdir=$1
distdir=$2
if ! command -v git >/dev/null 2>&1 || ! [ -e "$srcdir/.git" ]; then
    exit 0
fi
missing=$(git -C "$srcdir" ls-files | while read -r file; do
    if [ -e "$srcdir/$file" ] && ! [ -e "$distdir/$file" ]; then
        echo "$file"
    fi
done)
if [ -n "$missing" ]; then
    echo "the release lacks tracked files; name them in a local.mk:" >&2
    echo "$missing" >&2
    exit 1
fi
