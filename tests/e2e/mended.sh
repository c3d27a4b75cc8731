#!/bin/sh
# shellcheck disable=SC1091,SC2154,SC2317 # e2e.inc has the rest; functions are called through check
# Regression tests: each comment names a fixed defect, followed by the case that showed it.
. "${top_srcdir:?}/tests/e2e/e2e.inc"

SHAPE="--n_layer=1 --n_head=1 --n_embd=8 --block_size=8 --batch_size=4 --eval_iters=1 --log_interval=100"

# train DATASET OUT OPTION...
train() {
    train_data=$1 train_out=$2
    shift 2
    # shellcheck disable=SC2086 # a list of words
    run 0 "$GPT_TRAIN" $SHAPE --dataset="$train_data" --out_dir="$train_out" --gradient_accumulation_steps=1 "$@"
}

check "the data" make_data
printf 'abcabcabcabdabcabcabd%.0s' 1 2 3 4 5 6 7 8 9 >other.txt
check "other data" run 0 "$GPT_PREPARE" --tokenizer=chars --val-fraction=0.3 --out-dir=data/other other.txt

# A new run in the folder of an old checkpoint removed its metrics and its tokenizer before it saved anything.
check "an old run" train tiny over --max_iters=3 --eval_interval=2
cp over/gpt_tokenizer.json old-tokenizer.json
cp over/metrics.jsonl old-metrics.jsonl
check "a new run that saves nothing" train other over --max_iters=1 --eval_interval=100 --always_save_checkpoint=False
check "the old tokenizer is still beside the old checkpoint" cmp -s over/gpt_tokenizer.json old-tokenizer.json
check "the old metrics wait beside it" cmp -s over/metrics-????????.jsonl old-metrics.jsonl
# A tokenizer other than the checkpoint's was accepted silently.
check "resume with other data" run 2 "$GPT_TRAIN" --init_from=resume --out_dir=over --dataset=other --max_iters=9
check "resume with other data: said" grep -q "not the one that .* was trained with" stderr
cp data/other/gpt_tokenizer.json over/gpt_tokenizer.json
check "sampling with another tokenizer" run 2 "$GPT_SAMPLE" --out_dir=over --num_samples=1 --max_new_tokens=4

# Metrics of a run that saved nothing were attributed to the checkpoint that was resumed.
cp old-tokenizer.json over/gpt_tokenizer.json
check "another new run that saves nothing" train other over --max_iters=1 --eval_interval=100 --always_save_checkpoint=False
check "the checkpoint goes on" run 0 "$GPT_TRAIN" --init_from=resume --out_dir=over --max_iters=5
lines=$(wc -l <old-metrics.jsonl)
head -n "$lines" over/metrics.jsonl >own-metrics.jsonl
check "the checkpoint goes on with its own metrics" cmp -s own-metrics.jsonl old-metrics.jsonl
check "no metrics wait any more" absent over/metrics-????????.jsonl
check "a new run that saves" train other over --max_iters=2 --eval_interval=2
check "the run that saves has its own metrics" test "$(grep -c "_loss\|\"loss\"" over/metrics.jsonl)" -eq 3
head -n "$lines" over/earlier-001/metrics.jsonl >own-metrics.jsonl
check "the run that saves keeps the other run's metrics" cmp -s own-metrics.jsonl old-metrics.jsonl

# A failed start left a folder with a lock in it.
check "no dataset" run 2 "$GPT_TRAIN" --dataset=nowhere --out_dir=left --max_iters=1
check "no dataset: no folder" absent left
check "nothing to resume" run 2 "$GPT_TRAIN" --init_from=resume --out_dir=left2
check "nothing to resume: no folder" absent left2

# A kill between a run's last save and its tokenizer left the folder without one for ever.
check "a finished run" train tiny last --max_iters=2 --eval_interval=2
cp -r last last-whole
for damage in "rm -f" "cp other.txt" "truncate -s 5"; do
    for name in gpt_tokenizer.json tokenizer.json tokenizer_config.json; do
        $damage last/$name
    done
    check "$damage: a resume with nothing to do" run 0 "$GPT_TRAIN" --init_from=resume --out_dir=last --max_iters=2
    for name in gpt_tokenizer.json tokenizer.json tokenizer_config.json; do
        check "$damage: $name is back" cmp -s last/$name last-whole/$name
        check "$damage: $name: said" grep -q "last/$name was damaged or missing" stderr
    done
done

# A run whose output was lost, and one whose last save was refused, ended with status 0.
if [ -c /dev/full ]; then
    # shellcheck disable=SC2086 # a list of words
    check "training into a full disk's file" run 1 sh -c '"$@" >/dev/full' sh "$GPT_TRAIN" $SHAPE --dataset=tiny --out_dir=mute \
        --max_iters=1
    check "output that is lost is said" grep -q "standard output could not be written: No space left" stderr
    check "the run into a full disk's file is saved" test -s mute/trainer_state.json
else
    skip mended_full_stdout 'no /dev/full'
fi

# A stop was noticed only after all micro-steps of an update.
# shellcheck disable=SC2086 # a list of words
"$GPT_TRAIN" $SHAPE --dataset=tiny --out_dir=long --gradient_accumulation_steps=200000 --micro_batch=1 --max_iters=1 \
    >stdout 2>stderr &
pid=$!
tries=0
while ! grep -q '^step 0' stdout && [ $tries -lt 100 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
kill -TERM $pid
tries=0
while kill -0 $pid 2>/dev/null && [ $tries -lt 50 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
check "a stop within an update" not kill -0 $pid 2>/dev/null
kill -KILL $pid 2>/dev/null
status=0
wait $pid || status=$?
check "a stop within an update: the status" is $status 143

# A closed pipe went unnoticed until all samples were computed.
check "a run to sample from" train tiny pipe --max_iters=2 --eval_interval=100
{
    status=0
    "$GPT_SAMPLE" --out_dir=pipe --num_samples=1000000 --max_new_tokens=1000 2>stderr || status=$?
    echo $status >ended
} | head -c 10 >stdout
check "a closed pipe ends the sampling" is "$(cat ended)" 141
check "a closed pipe is no error" is "$(errors stderr)" 0

# Sizes overflowed an int.
check "too many sequences" run 2 "$GPT_TRAIN" --dataset=tiny --batch_size=1048576 --gradient_accumulation_steps=1048576 \
    --micro_batch=1 --block_size=1 --plan

# With bound threads the program counted only the processors of the first thread, and ran one thread.  Places are cores,
# because by default they are hyperthreads.
plan_threads() {
    "$GPT_TRAIN" --dataset=tiny --backend=cpu --block_size=8 --plan "$@" 2>&1 | grep -o '[0-9]* threads*' | head -n 1
}
# limited FLAG LIMIT STATUS: runs under a limit of the shell.
limited() {
    # shellcheck disable=SC2086,SC3045 # lists of words; dash and others know the flags
    (ulimit "$1" "$2" && exec "$GPT_TRAIN" $SHAPE --dataset=tiny --backend=cpu --max_iters=0 --out_dir=limited) \
        >stdout 2>stderr
    case $? in "$3" | "${4:-$3}") true ;; *) false ;; esac
}
check "a plan names its threads" test -n "$(plan_threads)"
check "as many threads where they are bound" is \
    "$(export OMP_PROC_BIND=close OMP_PLACES=cores && plan_threads)" "$(plan_threads)"

export OMP_NUM_THREADS=1
check "OMP_NUM_THREADS is obeyed" is "$(plan_threads)" "1 thread"
check "--threads wins over it" is "$(plan_threads --threads=3)" "3 threads"
# From here on as a user runs it: the program limits how long its threads spin by starting itself again.
unset OMP_NUM_THREADS OMP_WAIT_POLICY

# Limits of the shell crashed the program, or other processes were blamed for them.
check "a small stack" limited -s 100 1
check "a small stack: named" grep -q "error: the stack is limited to 100.0 KiB (ulimit -s)" stderr

# A batch smaller than the checkpoint's was computed at the checkpoint's micro-batch.
check "a large batch" train tiny shrink --max_iters=1 --eval_interval=100 --batch_size=32
check "resumed with a small one" run 0 "$GPT_TRAIN" --init_from=resume --out_dir=shrink --batch_size=2 --max_iters=3
check "resumed with a small one: at once" grep -q "; all 2 sequences of 8 tokens in one step" stdout

# When only the best checkpoint is saved, a stop replaced it by the current one, and a best that could not be saved
# still counted as the one to beat.
mkfifo lines
# at_line LINE COMMAND OUT OPTION...: runs COMMAND with the process id when the log has LINE; $status is the exit
# status.
at_line() {
    line=$1 deed=$2 out=$3
    shift 3
    # shellcheck disable=SC2086 # lists of words
    "$GPT_TRAIN" $SHAPE $BEST --out_dir="$out" "$@" >lines 2>stderr &
    pid=$!
    while read -r text; do
        case $text in
        "$line"*) $deed $pid ;;
        esac
    done <lines
    status=0
    wait $pid || status=$?
    [ $status -eq 0 ]
}
BEST="--dataset=tiny --always_save_checkpoint=False --gradient_accumulation_steps=300 --micro_batch=4 --eval_iters=20
    --eval_interval=4 --max_iters=7 --warmup_iters=0 --learning_rate=0.01 --log_interval=1"
same_end() {
    checkpoint_sums best >sums-a && checkpoint_sums "$1" >sums-b && cmp -s sums-a sums-b
}
check "only the best, in one go" at_line "never" false best
check "only the best: the last updates are looked at too" is "$(iter_of best)" 8
at_line "iter 5:" "kill -TERM" best-stopped
check "a stop behind the best: the status" is $status 143
check "a stop behind the best: it stays" is "$(iter_of best-stopped)" 4
check "a stop behind the best: said" grep -q "the checkpoint of iter 4 stays" stderr
check "a stop behind the best: resumed" at_line "never" false best-stopped --init_from=resume
check "a stop behind the best: the same end" same_end best-stopped
at_line "iter 1:" "kill -TERM" best-early
check "a stop before the best: saved" [ "$(iter_of best-early)" -eq 2 ]
at_line "iter 2:" "kill -TERM" best-early --init_from=resume
check "another stop before the best: saved" [ "$(iter_of best-early)" -eq 3 ]
check "a stop before the best: resumed" at_line "never" false best-early --init_from=resume
check "a stop before the best: the same end" same_end best-early
at_line "step 0:" "kill -TERM" best-none
check "a stop before the first update: nothing is saved" absent best-none/trainer_state.json
check "a stop before the first update: said" grep -q "nothing is saved" stderr
# The last updates were lost silently when the run ended off the schedule.
check "the end between two evaluations" at_line "never" false best-none --max_iters=5 --eval_interval=4
check "the end between two evaluations: saved" is "$(iter_of best-none)" 6
check "never better than at the start" at_line "never" false best-never --max_iters=5 --eval_iters=0 --learning_rate=0 --min_lr=0
check "never better than at the start: nothing is saved" absent best-never/trainer_state.json
# The plan and a forecast of 200 years came only after half a minute of silence, in which memory was committed.
at_line "memory:" "kill -KILL" long --max_iters=2000000000 --gradient_accumulation_steps=1000
check "a run that nobody waits for: what takes less" grep -q "more than a month; .* (max_iters)" stderr
# shellcheck disable=SC2086 # a list of words
check "a width that was never timed" run 0 env XDG_CACHE_HOME="$PWD/never" "$GPT_TRAIN" $SHAPE --dataset=tiny --n_embd=64 --batch_size=512 \
    --gradient_accumulation_steps=1 --max_iters=0 --out_dir=early
check "plan and estimate are said before memory is taken" is \
    "$(sed '/^calibration/q' stdout | grep -o '^number of parameters\|^plan\|^estimate\|^calibration' | sed 's/:.*//' | tr '\n' ' ')" \
    "number of parameters plan estimate calibration "
if command -v prlimit >/dev/null 2>&1; then
    full_from_then_on() {
        case $text in
        "iter 5:"*) prlimit --fsize=1000: --pid "$1" ;;
        esac
    }
    check "nine updates" at_line "never" false best --init_from=resume --max_iters=9
    check "nine updates: of the end" is "$(iter_of best)" 10
    check "nine updates in one go" at_line "never" false best-nine --max_iters=9
    check "nine updates in one go: the same end" same_end best-nine
    at_line "iter " full_from_then_on best-full --max_iters=9
    check "a best that cannot be saved: the status" is $status 1
    check "a best that cannot be saved: the one before stays" is "$(iter_of best-full)" 4
    check "a best that cannot be saved: resumed" at_line "never" false best-full --init_from=resume --max_iters=9
    check "a best that cannot be saved: the same end" same_end best-full
else
    skip mended_full_disk 'no prlimit'
fi
# More threads than one of our loops supports ended every new run with an assertion.
check "257 threads" train tiny wide --max_iters=0 --eval_interval=100 --threads=257

# A descriptor that was closed at the start was reused for one of our files: the log went into the lock, which the next
# start then refused, and gpt-prepare read its own lock as its input.
# shellcheck disable=SC2086 # a list of words
closed_run() {
    "$GPT_TRAIN" $SHAPE --dataset=tiny --out_dir="closed$1" --gradient_accumulation_steps=1 --max_iters=1 --always_save_checkpoint=True
}
status=0
(GOMP_SPINCOUNT=0 && export GOMP_SPINCOUNT && closed_run 1 >&- 2>stderr) || status=$?
check "no standard output: the status" is $status 1
check "no standard output: said" grep -q "standard output could not be written" stderr
check "no standard output: the lock" is "$(tr -d '0-9\n' <closed1/lock)" ""
status=0
(closed_run 2 <&- >&- 2>&-) || status=$?
check "none of the three: the status" is $status 1
for out in closed1 closed2; do
    check "$out: the metrics" is "$(grep -cv '^{.*}$' $out/metrics.jsonl)" 0
    check "$out: a resume" run 0 "$GPT_TRAIN" --init_from=resume --out_dir=$out --max_iters=2
done
status=0
"$GPT_PREPARE" --tokenizer=chars --out-dir=data/closed - <&- >stdout 2>stderr || status=$?
check "no standard input: the status" is $status 1
check "no standard input: no data" absent data/closed/train.bin

# When the caller ignored SIGCHLD, our children were reaped before we waited for them.
check "SIGCHLD ignored" run 0 sh -c 'trap "" CHLD; "$@"' sh "$GPT_TRAIN" --list_devices

# With too little address space the matrix library requested more memory for ever.
status=0
# shellcheck disable=SC3045 # dash and bash have ulimit -v
(ulimit -v 200000 && timeout -s KILL 60 "$GPT_TRAIN" --version) >stdout 2>stderr || status=$?
if grep -q -e __asan_init -e __tsan_init -e __msan_init "$GPT_TRAIN"; then
    skip mended_space 'a sanitizer needs more address space'
elif [ $status -eq 137 ]; then
    skip mended_space 'OpenBLAS waits for address space before the program begins (0.3.29 does)'
else
    check "little address space" limited -v 200000 3 1 # 1: OpenBLAS, which needs more on some processors
    check "little address space: named" grep -q "ulimit -v limits the memory of this process to 195.3 MiB" stderr
    check "little address space: nobody else is blamed" not grep -q "^others \|processes" stderr
    # shellcheck disable=SC2086,SC3045 # a list of words; dash and bash have ulimit -v
    narrow() {
        ulimit -v 200000 && timeout 300 "$GPT_TRAIN" $SHAPE --dataset=tiny --out_dir=narrow --threads=2 --max_iters=1 >stdout 2>stderr
    }
    status=0
    (narrow) || status=$?
    check "little address space: an end" test $status -lt 4
    check "little address space: said" is "$(errors stderr)" "$([ $status -eq 0 ] && echo 0 || echo 1)"
    check "little address space: gpt-export" run 0 sh -c 'ulimit -v 200000 && timeout 300 "$@"' sh "${GPT_EXPORT:?}" --version
fi

# A link to nothing was reported as not a directory, and a new folder whose lock could not be made stayed.
ln -s nowhere dangling
check "a link to nothing" run 1 "$GPT_TRAIN" --dataset=tiny --out_dir=dangling --max_iters=0
check "a link to nothing: said" grep -q "a broken link has this name" stderr

# Schedules that a run does not reach were silent: a warm-up longer than the run, an extension after the decay.
check "a warm-up longer than the run" train tiny short --max_iters=5
check "the warm-up is said once" is "$(grep -c 'warning: the run ends inside the warm-up (max_iters=5, warmup_iters=2000)' stderr)" 1
check "a run that decays" train tiny extended --max_iters=4 --warmup_iters=2 --lr_decay_iters=4
check "a run that decays says nothing of its schedule" not grep -q "learning rate" stderr
check "max_iters alone extends the run" run 0 "$GPT_TRAIN" --init_from=resume --out_dir=extended --max_iters=8
check "the extended run says that its rate stays at min_lr" grep -q "iter 5 is beyond lr_decay_iters=4: .*stays at min_lr=6e-05; --lr_decay_iters=8" stderr
check "extended with its schedule" run 0 "$GPT_TRAIN" --init_from=resume --out_dir=extended --max_iters=12 --lr_decay_iters=12
check "the run with an extended schedule says nothing of it" not grep -q "learning rate" stderr

# A run that went on from a kept checkpoint compared its best loss with "the first".
check "kept checkpoints" train tiny kept --max_iters=4 --eval_interval=2 --warmup_iters=0 --keep=3 --learning_rate=1e-3
check "a branch that finds nothing better" run 0 "$GPT_TRAIN" --init_from=resume --checkpoint=2 --out_dir=kept --max_iters=5 \
    --eval_interval=2 --always_save_checkpoint=False --learning_rate=0.9 --min_lr=0.9
check "the branch says whose loss is the best" grep -q "no evaluation found a lower validation loss than [0-9.]*, the best of kept\.$" stdout
finish
