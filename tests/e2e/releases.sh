#!/bin/sh
# shellcheck disable=SC1091,SC2154,SC2317 # e2e.inc has the rest; functions are called through check
# Checkpoints of earlier releases still evaluate, sample and resume.  tests/fixtures/README.md says how they were made;
# the numbers below are the release's own output.
. "${top_srcdir:?}/tests/e2e/e2e.inc"

cp -R "$top_srcdir/tests/fixtures" fixtures && chmod -R u+w fixtures || exit 1
check "the text is prepared" run 0 "$GPT_PREPARE" --tokenizer=chars --out-dir=data/fixture fixtures/text.txt
out=fixtures/checkpoint-0.1.0

check "0.1.0 samples" run 0 "$GPT_SAMPLE" --out_dir=$out --num_samples=1 --max_new_tokens=60 --top_k=1 --start='A '
check "0.1.0 continues the text that it learnt" \
    grep -q '^A checkpoint is written aside, synced, and renamed. A kill lea$' stdout
check "0.1.0 resumes" run 0 "$GPT_TRAIN" --init_from=resume --out_dir=$out --max_iters=3001
check "0.1.0 resumes with its loss" grep -q '^iter 3000: loss 0\.[23]' stdout
check "0.1.0 saves" is "$(iter_of $out)" 3002
check "0.1.0 saves model.safetensors" test -s $out/model.safetensors
check "0.1.0 evaluates" run 0 "$GPT_TRAIN" --init_from=resume --out_dir=$out --eval_only --eval_iters=0
check "0.1.0 evaluates near the loss that it had" grep -q '^step 3002: train loss 0\.2[3-6]' stdout

# Checksums of each release after ten more updates: micro-batches of 3, 3 and 2, two levels of recompute, dropout (0.2.0),
# loss chunks.  The bits are specific to one choice of kernels, one release of the BLAS library and one compiler.
equal_bits() { # RELEASE-KIND MODEL-CKSUM OPTIMIZER-CKSUM
    out=fixtures/checkpoint-$1
    check "$1: resumes" run 0 env GPT_TRAIN_CPU_ISA=avx2 OPENBLAS_CORETYPE=Haswell "$GPT_TRAIN" --init_from=resume \
        --out_dir="$out" --max_iters=29 --eval_iters=1 --threads=1 --backend=cpu
    check "$1: model after ten updates" is "$(cksum <"$out/model-000030.safetensors")" "$2"
    check "$1: optimizer after ten updates" is "$(cksum <"$out/optimizer-000030.safetensors")" "$3"
}
log=${top_builddir:?}/config.log
if grep -q avx2 /proc/cpuinfo 2>/dev/null && "$GPT_TRAIN" --version | grep -q 'OpenBLAS 0\.3\.21,' &&
    grep -q '^gcc version 12\.' "$log" && grep -q "^BUILD_CFLAGS='-g -O2'" "$log" && grep -q "^CFLAGS=''" "$log"; then
    equal_bits 0.2.0-float32 "4292118754 20176" "460084040 35872"
    equal_bits 0.2.0-lean "3784699230 12016" "3065074683 13420"
    equal_bits 0.2.0-muon "2663331590 20176" "2189262275 21256"
    equal_bits 0.3.0-gemma3 "157100674 15120" "1736648186 18632"
else
    skip releases_bits "recorded with AVX2, OpenBLAS 0.3.21, gcc 12 and -O2"
fi
finish
