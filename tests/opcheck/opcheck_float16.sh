#!/bin/sh
# Every op in float16: control, backends, mutants.
set -eu
exec "${top_builddir:?}/tests/opcheck/opcheck" --dtype=float16
