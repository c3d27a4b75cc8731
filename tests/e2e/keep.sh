#!/bin/sh
# shellcheck disable=SC1091,SC2154,SC2317 # e2e.inc has the rest; functions are called through check
# No run removes another run's checkpoint, keep=N keeps N of its own, --checkpoint selects one, and a start first checks
# the data and the room on the disk.
. "${top_srcdir:?}/tests/e2e/e2e.inc"

SHAPE="--dataset=tiny --n_layer=1 --n_head=1 --n_embd=8 --block_size=8 --batch_size=4 --gradient_accumulation_steps=1
    --eval_iters=1 --eval_interval=2 --log_interval=100"

# train STATUS OPTION...
train() {
    train_status=$1
    shift
    # shellcheck disable=SC2086 # a list of words
    run "$train_status" "$GPT_TRAIN" $SHAPE "$@"
}

kept() {
    (cd "$1" && echo checkpoint-*)
}

# resumes LINE: runs the command that a line of stdout gives, up to iteration 20.
resumes() {
    resume_words=$(sed -n "s/.*to resume it: gpt-train //p" stdout)
    [ -n "$resume_words" ] || return 1
    # shellcheck disable=SC2086 # a list of words
    train 0 $resume_words --max_iters=20
}

check "the data" make_data

# Regression: at its first save a new run replaced the existing checkpoint.
check "a first run" train 0 --max_iters=5
checkpoint_sums out >first
cp out/metrics.jsonl first.jsonl
check "a second one learns nothing, and so saves nothing" train 0 --max_iters=3 --always_save_checkpoint=False \
    --eval_iters=0 --learning_rate=0 --min_lr=0
check "the second run says where it would move the first" grep -q "moves it to out/earlier-001" stderr
check "the second run moves nothing" absent out/earlier-001
check "the first run's checkpoint is still there" is "$(checkpoint_sums out)" "$(cat first)"
check "a third one saves" train 0 --max_iters=3 --seed=3
check "the third run keeps the first run's checkpoint" is "$(checkpoint_sums out/earlier-001)" "$(cat first)"
check "the third run keeps the first run's metrics" cmp first.jsonl out/earlier-001/metrics.jsonl
check "no metrics of the first run wait any more" absent out/metrics-????????.jsonl
check "the third run's checkpoint is there" is "$(iter_of out)" 4
check "the command of that line resumes the first run" resumes
check "the first run goes on from where it was" is "$(iter_of out/earlier-001)" 21
check "a fourth run saves" train 0 --max_iters=1
check "the fourth run keeps the third in a folder of its own" is "$(iter_of out/earlier-002)" 4
# A copy of a Hugging Face model has no record.
check "an export" run 0 "$GPT_EXPORT" --format=hf hf
cksum <hf/model.safetensors >model
check "training on in its folder" train 0 --init_from=hf --out_dir=hf --max_iters=1
check "a run in the model's folder keeps the model" is "$(cksum <hf/earlier-001/model.safetensors)" "$(cat model)"

# The tokenizer moves with the checkpoint: if the next run has none, the old one must not describe the new model.
mkdir data/plain
cp data/tiny/*.bin data/plain/
check "a run with a tokenizer" train 0 --out_dir=words --max_iters=1
check "the run saves its tokenizer" [ -f words/gpt_tokenizer.json ]
check "the run saves a tokenizer for other programs" [ -f words/tokenizer.json ]
check "a run without" train 0 --out_dir=words --max_iters=1 --dataset=plain
check "the run without a tokenizer leaves none" absent words/gpt_tokenizer.json
check "the run without a tokenizer leaves none for other programs" absent words/tokenizer.json
check "the first keeps its own" cmp data/tiny/gpt_tokenizer.json words/earlier-001/gpt_tokenizer.json
check "the first keeps its tokenizer for other programs" [ -f words/earlier-001/tokenizer.json ]

# The only checkpoint is an earlier run's.
mkdir only
mv out/earlier-001 only/
check "nothing to resume" train 2 --out_dir=only --init_from=resume
check "gpt-train names the earlier run" grep -q "an earlier run is in only/earlier-001" stderr
check "nothing to sample" run 2 "$GPT_SAMPLE" --out_dir=only
check "gpt-sample names the earlier run" grep -q "an earlier run is in only/earlier-001" stderr

# keep and --checkpoint: the losses are lowest before the learning rate is far too high.
check "a good begin" train 0 --out_dir=three --max_iters=3 --keep=3 --learning_rate=0.1 --warmup_iters=0
cp stdout begin
check "the run keeps three" train 0 --out_dir=three --init_from=resume --max_iters=13 --learning_rate=3
best=$(cat begin stdout | sed -n 's/^step \([1-9][0-9]*\):.*val loss \(.*\)/\2 \1/p' | sort -n | sed -n '1s/.* //p')
check "the best checkpoint is an early one" test "$best" -lt 8
check "the last lines name the best checkpoint" grep -qx "The best, of iteration $best, is there too: --checkpoint=best." stdout
check "the best and the last two are kept" is "$(kept three)" "checkpoint-00000$best checkpoint-000010 checkpoint-000012"
for name in "$best" 10 12; do
    dir=three/checkpoint-$(printf %06d "$name")
    check "$name is whole" is "$(iter_of "$dir")" "$name"
    check "$name samples" run 0 "$GPT_SAMPLE" --out_dir="$dir" --num_samples=1 --max_new_tokens=4
    check "$name by its number" run 0 "$GPT_SAMPLE" --out_dir=three --checkpoint="$name" --num_samples=1 --max_new_tokens=4
    check "$name exports" run 0 "$GPT_EXPORT" --out_dir=three --checkpoint="$name" --format=llmc "$name.bin"
done
check "the best by its name" run 0 "$GPT_EXPORT" --out_dir=three --checkpoint=best --format=llmc best.bin
check "--checkpoint=best is the best checkpoint" cmp best.bin "$best.bin"
check "the best checkpoint is evaluated" train 0 --out_dir=three --init_from=resume --checkpoint=best --eval_only
check "the evaluation is at the best checkpoint's iteration" grep -q "^step $best: " stdout
check "the last by its number" run 0 "$GPT_EXPORT" --out_dir=three --checkpoint=14 --format=llmc 14.bin
check "no checkpoint has the number 9" run 2 "$GPT_SAMPLE" --out_dir=three --checkpoint=9
check "the error names the numbers that there are" grep -q "iterations 14, 12, 10, $best" stderr
check "1x is no number of a checkpoint" run 2 "$GPT_SAMPLE" --out_dir=three --checkpoint=1x
check "a run from scratch refuses --checkpoint" train 2 --out_dir=three --checkpoint=best

# Resuming from an older checkpoint keeps the later ones.
checkpoint_sums three >last
cp three/metrics.jsonl last.jsonl
check "going on from 10" train 0 --out_dir=three --init_from=resume --checkpoint=10 --max_iters=11
check "going on from 10: said" grep -q "moves what came after that to three/earlier-001" stderr
check "the branch keeps the last checkpoint" is "$(checkpoint_sums three/earlier-001)" "$(cat last)"
check "the branch keeps the last checkpoint's metrics" cmp last.jsonl three/earlier-001/metrics.jsonl
check "the branch keeps checkpoint 12" is "$(kept three/earlier-001)" "checkpoint-000012"
check "checkpoint 10 stays where it was" is "$(kept three)" "checkpoint-00000$best checkpoint-000010"
check "going on from 10: the same bytes" is "$(iter_of three)" 12
metrics_facts three >branch
metrics_facts three/earlier-001 | sed '/"iter":12/,$d' >trunk
check "the branch has the metrics before iteration 12" cmp branch trunk
check "a run works in a kept checkpoint's folder" train 0 --out_dir=three/checkpoint-000010 --init_from=resume --max_iters=15
check "a run keeps one checkpoint" train 0 --out_dir=three --init_from=resume --keep=1 --max_iters=13
check "the folder in which a run worked stays" is "$(kept three)" checkpoint-000010
check "the checkpoint in that folder is whole" is "$(iter_of three/checkpoint-000010)" 16

# Regression: a truncated train.bin, and one with another tokenizer, were trained on.
cp -r data/tiny data/cut
truncate -s 1000 data/cut/train.bin
check "a cut file" train 2 --dataset=cut --out_dir=none --max_iters=1
check "a cut file: said" grep -q "lists 90000 tokens for the train split, but its files hold 500" stderr
check "a cut file: before anything is made" absent none
cat data/tiny/val.bin data/tiny/val.bin >data/cut/val.bin
cp data/tiny/train.bin data/cut
check "a grown file" train 2 --dataset=cut --out_dir=none --max_iters=1
check "a grown file: said" grep -q "10000 tokens for the val split, but its files hold 20000" stderr
rm data/cut/manifest.json
check "without a manifest" train 0 --dataset=cut --out_dir=none --max_iters=1
cp -r data/tiny data/other
echo 'another text' >other.txt
check "another tokenizer" run 0 "$GPT_PREPARE" --tokenizer=chars --val-fraction=0.3 --out-dir=made other.txt
cp made/gpt_tokenizer.json data/other
check "data with another tokenizer are refused" train 2 --dataset=other --out_dir=none2 --vocab_size=200 --max_iters=1
check "the error names the checksum of the other tokenizer" grep -q "beside it is crc32c:" stderr

# Regression: only the last save noticed that the disk was full.
mkdir disk
if mount -t tmpfs -o size=104k tmpfs disk 2>/dev/null; then
    at_exit() { umount -l "$work/disk"; }
    check "no room" train 1 --n_embd=64 --out_dir=disk/out --max_iters=3
    check "no room: said" grep -q "not enough disk space for a checkpoint" stderr
    check "no room: before the first step" not grep -q "^iter" stdout
    check "to evaluate needs none" train 0 --n_embd=64 --out_dir=disk/out --eval_only
    check "room for one" train 0 --n_embd=16 --out_dir=disk/out --max_iters=1
    check "room for one: said" grep -q "disk space may run out: 2 checkpoints" stderr
    rm -r disk/out
    check "room for two" train 0 --n_embd=8 --out_dir=disk/two --max_iters=1
    check "room for two: nothing said" not grep -q "disk space" stderr
else
    skip keep_disk "a tmpfs cannot be mounted here (root only)"
fi
finish
