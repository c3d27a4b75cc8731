#!/bin/sh
# Every op in bfloat16: control, backends, mutants.  The opencl backend has a script of its own (opcheck_opencl.sh).
set -eu
exec "${top_builddir:?}/tests/opcheck/opcheck" --dtype=bfloat16 --except=opencl
