#!/bin/sh
# Every op in bfloat16: control, backends, mutants.
set -eu
exec "${top_builddir:?}/tests/opcheck/opcheck" --dtype=bfloat16
