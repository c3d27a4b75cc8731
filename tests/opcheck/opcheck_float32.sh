#!/bin/sh
# Every op in float32: control, backends, mutants.  opcheck_opencl.sh covers the opencl backend.
set -eu
exec "${top_builddir:?}/tests/opcheck/opcheck" --dtype=float32 --except=opencl
