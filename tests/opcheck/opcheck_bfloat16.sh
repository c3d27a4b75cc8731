#!/bin/sh
# Every op in bfloat16: control, backends, mutants.  opcheck_opencl.sh covers the opencl backend.
set -eu
exec "${top_builddir:?}/tests/opcheck/opcheck" --dtype=bfloat16 --except=opencl
