#!/bin/sh
# Checkpoints of earlier releases still evaluate, sample and resume.  tests/fixtures/README.md says how they were made;
# the numbers below are the release's own output.
set -u
: "${GPT_TRAIN:?}" "${GPT_PREPARE:?}" "${GPT_SAMPLE:?}" "${top_srcdir:?}"
passed=0
failed=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

check() { # NAME CONDITION...
    name=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $name"
    fi
}

cp -R "$top_srcdir/tests/fixtures" "$work/fixtures" && chmod -R u+w "$work/fixtures" && cd "$work" || exit 1
check "the text is prepared" "$GPT_PREPARE" --tokenizer=chars --out-dir=data/fixture fixtures/text.txt >prepare.log
out=fixtures/checkpoint-0.1.0

"$GPT_SAMPLE" --out_dir=$out --num_samples=1 --max_new_tokens=60 --top_k=1 --start='A ' >sample.log 2>sample-notes.log
check "0.1.0 continues the text that it learnt" \
    grep -q '^A checkpoint is written aside, synced, and renamed. A kill lea$' sample.log
"$GPT_TRAIN" --init_from=resume --out_dir=$out --max_iters=3001 >resume.log 2>&1
check "0.1.0 resumes" grep -q '^iter 3000: loss 0\.[23]' resume.log
check "0.1.0 and saves" grep -q '"iter": 3002' $out/trainer_state.json
check "and model.safetensors is back" test -s $out/model.safetensors
"$GPT_TRAIN" --init_from=resume --out_dir=$out --eval_only --eval_iters=0 >eval.log 2>&1
check "0.1.0 evaluates near the loss that it had" grep -q '^step 3002: train loss 0\.2[3-6]' eval.log

# Checksums of release 0.2.0 after ten more updates: micro-batches of 3, 3 and 2, two levels of recompute, dropout, loss
# chunks.  The bits are specific to one choice of kernels, one release of the BLAS library and one compiler.
equal_bits() { # KIND MODEL-CKSUM OPTIMIZER-CKSUM
    out=fixtures/checkpoint-0.2.0-$1
    GPT_TRAIN_CPU_ISA=avx2 OPENBLAS_CORETYPE=Haswell "$GPT_TRAIN" --init_from=resume --out_dir="$out" --max_iters=29 \
        --eval_iters=1 --threads=1 --backend=cpu >"$1.log" 2>&1
    check "0.2.0, $1: model after ten updates" test "$(cksum <"$out/model-000030.safetensors")" = "$2"
    check "0.2.0, $1: optimizer after ten updates" test "$(cksum <"$out/optimizer-000030.safetensors")" = "$3"
}
skipped=0
log=${top_builddir:?}/config.log
if grep -q avx2 /proc/cpuinfo 2>/dev/null && "$GPT_TRAIN" --version | grep -q 'OpenBLAS 0\.3\.21,' &&
    grep -q '^gcc version 12\.' "$log" && grep -q "^BUILD_CFLAGS='-g -O2'" "$log" && grep -q "^CFLAGS=''" "$log"; then
    equal_bits float32 "4292118754 20176" "460084040 35872"
    equal_bits lean "3784699230 12016" "3065074683 13420"
    equal_bits muon "2663331590 20176" "2189262275 21256"
else
    skipped=1
    echo "SKIP releases_bits: recorded with AVX2, OpenBLAS 0.3.21, gcc 12 and -O2"
fi
[ "$failed" -eq 0 ] || cat ./*.log
echo "checks: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
