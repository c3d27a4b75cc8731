#!/bin/sh
# shellcheck disable=SC1091,SC2154,SC2317 # e2e.inc has the rest; functions are called through check
# Resume is bit-exact: forty uninterrupted steps equal a run that was killed with -9 and resumed; and one, two and three
# threads give the same bytes.  With dropout, both samplers, one part and four.  A kill that misses its window is tried
# again, and a test whose kills all missed fails.  tests/reliability/kills.py has the signals that ask a run to stop.
. "${top_srcdir:?}/tests/e2e/e2e.inc"

pid=
# shellcheck disable=SC2317 # called by the trap
at_exit() {
    [ -z "$pid" ] || kill -9 "$pid" 2>/dev/null
}

mkfifo pipe

# Twelve micro-steps an update, so that a step lasts long enough for a kill to hit it.
arguments() {
    echo --dataset=tiny --n_layer=2 --n_head=2 --n_embd=32 --block_size=32 --batch_size=4 --gradient_accumulation_steps=12 \
        --max_iters=39 --eval_interval=17 --eval_iters=2 --dropout=0.1 --warmup_iters=5 --lr_decay_iters=40 --bias=True
}

train() {
    out=$1
    shift
    # shellcheck disable=SC2046 # words without blanks
    run 0 "$GPT_TRAIN" $(arguments) --out_dir="$out" "$@"
}

# train_until LINE OUT ARGUMENT...: killed once a line of the log begins with LINE; $status is the exit status.
train_until() {
    line=$1 out=$2
    shift 2
    # shellcheck disable=SC2046
    "$GPT_TRAIN" $(arguments) --out_dir="$out" "$@" >pipe 2>stderr &
    pid=$!
    while read -r text; do
        case $text in
        "$line"*) kill -9 "$pid" ;;
        esac
    done <pipe
    status=0
    wait "$pid" || status=$?
    pid=
}

# Succeeds when two folders have the same checkpoint and the same metrics; the workspaces of more threads are larger.
same_run() {
    checkpoint_sums "$1" >sums-a && checkpoint_sums "$2" >sums-b && diff sums-a sums-b >&2 || return 1
    metrics_facts "$1" | sed "${3:-}" >facts-a && metrics_facts "$2" | sed "${3:-}" >facts-b && diff facts-a facts-b >&2
}

# The last iteration in the folder's metrics.
last_iter() {
    sed -n 's/^{"iter":\([0-9]*\),"loss".*/\1/p' "$1/metrics.jsonl" | tail -n 1
}

killed_inside() {
    last=$(last_iter "$1")
    [ "$status" -eq 137 ] && [ "$(iter_of "$1")" -eq 17 ] && [ "$last" -ge 18 ] && [ "$last" -le 22 ]
}

# kill_and_resume OUT ARGUMENT...: killed between 18 and 22, resumed to the end.
kill_and_resume() {
    folder=$1
    shift
    for try in 1 2 3 4 5 6; do
        rm -rf "$folder"
        train_until "iter 19:" "$folder" "$@"
        killed_inside "$folder" && break
        echo "kill number $try missed its window: status $status, iteration $(last_iter "$folder")"
    done
    check "a kill hit the window" killed_inside "$folder"
    check "the resumed run" train "$folder" --init_from=resume "$@"
}

check "the data" make_data
for sampler in random epoch; do
    parts=1
    [ $sampler = random ] || parts=4
    check "$sampler: in one go" train "one-$sampler" --sampler=$sampler --threads=1 --parts=$parts
    check "$sampler: forty steps" is "$(iter_of "one-$sampler")" 40
    kill_and_resume "killed-$sampler" --sampler=$sampler --threads=1 --parts=$parts
    check "$sampler: killed and resumed equals one go" same_run "one-$sampler" "killed-$sampler"
done
for threads in 2 3; do
    check "$threads threads" train "threads-$threads" --sampler=random --threads=$threads
    check "$threads threads give the same bytes" same_run one-random "threads-$threads" 's/"planned_bytes".*//'
done
check "another seed gives other bytes" train other --sampler=random --threads=1 --seed=7
check "the comparison sees a difference" not same_run one-random other 2>/dev/null
# A second resume of a finished run changes nothing.
checkpoint_sums one-random >before
check "resuming a finished run" train one-random --init_from=resume --sampler=random --threads=1
checkpoint_sums one-random >after
check "a finished run stays as it is" cmp -s before after
finish
