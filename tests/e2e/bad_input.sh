#!/bin/sh
# shellcheck disable=SC1091,SC2154,SC2317 # e2e.inc has the rest; functions are called through check
# Bad input from a user: data, configuration, folders, disks, checkpoints.  Each case must end with the exit status of
# its kind (2 bad input, 1 a failure of the system), with exactly one error line that names the file and the field,
# without partially written files, and with the last good checkpoint intact.
. "${top_srcdir:?}/tests/e2e/e2e.inc"

mounted=
late=
at_exit() {
    [ -z "$mounted" ] || umount "$mounted"
}

model="--n_layer=1 --n_head=2 --n_embd=16 --block_size=16 --batch_size=2 --gradient_accumulation_steps=1 --eval_iters=1 \
    --threads=1 --warmup_iters=0 --lr_decay_iters=100"

# gpt_train ARGUMENT...: the program with a tiny model; the arguments may override its options.
gpt_train() {
    # shellcheck disable=SC2086 # words without blanks
    "$GPT_TRAIN" $model "$@"
}

# refuses STATUS TEXT... -- ARGUMENT...: that status, nothing on standard output, one error line with all the texts.
refuses() {
    expected=$1
    shift
    : >texts
    while [ "$1" != -- ]; do
        printf '%s\n' "$1" >>texts
        shift
    done
    shift
    run "$expected" gpt_train "$@" || return 1
    [ -n "$late" ] || [ ! -s stdout ] || { echo "standard output is not empty" >>stderr; return 1; }
    grep '^gpt-train: error' stderr >errors
    not grep -q '^---- gpt-train report' stderr || return 1
    is "$(wc -l <errors | tr -d ' ')" 1 || return 1
    while read -r text; do
        grep -qF -- "$text" errors || { echo "no \"$text\" in the error line" >>stderr; return 1; }
    done <texts
}

# The same for errors that appear only during the run: standard output is not empty.
refuses_late() {
    late=yes
    refuses "$@"
    outcome=$?
    late=
    return "$outcome"
}

# Checksums of all files in a folder except the lock and the log of metrics.
folder_sums() {
    (cd "$1" && find . -type f ! -name lock ! -name metrics.jsonl -exec cksum {} + | sort)
}

# A failed start leaves only the lock file in out_dir.
left_nothing() {
    [ ! -e "$1" ] || is "$(find "$1" -type f ! -name lock)" ""
}

resumes() {
    run 0 gpt_train --dataset=tiny --out_dir="$1" --init_from=resume --max_iters="$2"
}

# dataset NAME: a copy of the good data set, to be damaged.
dataset() {
    rm -rf "data/$1"
    cp -r data/tiny "data/$1"
}

# flip FILE OFFSET: inverts one bit of the byte at OFFSET.
flip() {
    byte=$(od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' ')
    # shellcheck disable=SC2059 # the format is the byte
    printf "\\$(printf '%03o' $((byte ^ 16)))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>dd.log
}

cut_to() {
    head -c "$2" "$1" >shorter && cp shorter "$1"
}

check "the data" make_data
check "a good run" run 0 gpt_train --dataset=tiny --out_dir=good --max_iters=6 --eval_interval=3

# ---- data ----
check "missing dataset" refuses 2 "data/nowhere" -- --dataset=nowhere --out_dir=out
check "dataset that is a file" refuses 2 "./text.txt" -- --dataset=./text.txt --out_dir=out
dataset spoilt && rm data/spoilt/val.bin
check "no val.bin" refuses 2 "data/spoilt" "val" -- --dataset=spoilt --out_dir=out
dataset spoilt && : >data/spoilt/train.bin
check "empty train.bin" refuses 2 "data/spoilt/train.bin" "empty" -- --dataset=spoilt --out_dir=out
dataset spoilt && cut_to data/spoilt/train.bin 1001
check "odd size" refuses 2 "data/spoilt/train.bin" "1001" -- --dataset=spoilt --out_dir=out
dataset spoilt && cut_to data/spoilt/val.bin 32
check "as long as the context" refuses 2 "data/spoilt/val.bin" "16" -- --dataset=spoilt --out_dir=out
cut_to data/tiny/val.bin 34 && mv data/tiny/val.bin data/spoilt/val.bin && cp data/spoilt/train.bin data/tiny/train.bin
rm data/spoilt/manifest.json
check "one token more is enough" run 0 gpt_train --dataset=spoilt --out_dir=enough --max_iters=1
check "the data again" make_data
dataset spoilt && printf '\377\377' | dd of=data/spoilt/val.bin bs=2 seek=20 conv=notrunc 2>dd.log && cut_to data/spoilt/val.bin 100
rm data/spoilt/manifest.json
check "token id beyond the vocabulary" refuses_late 2 "data/spoilt/val.bin" "65535" "20" -- --dataset=spoilt --out_dir=late \
    --eval_iters=50
check "no checkpoint of a run that failed at once" [ ! -e late/trainer_state.json ]
dataset spoilt && echo '{"format": "something else"}' >data/spoilt/gpt_tokenizer.json
check "a tokenizer file of another kind" refuses 2 "data/spoilt/gpt_tokenizer.json" "format" -- --dataset=spoilt --out_dir=out
dataset spoilt && rm data/spoilt/gpt_tokenizer.json && printf '\200\004.' >data/spoilt/meta.pkl
check "meta.pkl is not read" run 0 gpt_train --dataset=spoilt --out_dir=pkl --max_iters=0 --vocab_size=100
check "a note names meta.pkl" grep -q "meta.pkl" stderr
check "vocab_size smaller than the dataset's" refuses 2 "vocab_size=5" "data/tiny" -- --dataset=tiny --out_dir=out --vocab_size=5
check "failed starts leave nothing" left_nothing out

# ---- configuration: check_config_*.c have the other values ----
check "unknown flag" refuses 2 "n_layr" "n_layer" -- --n_layr=2 --dataset=tiny --out_dir=out
check "keys that contradict each other" refuses 2 "n_embd" "n_head" -- --n_head=3 --dataset=tiny --out_dir=out
check "missing config file" refuses 2 "absent.py" -- absent.py --dataset=tiny --out_dir=out
printf 'n_layer = 2\nn_hed = 4\n' >bad.py
check "unknown key in a file" refuses 2 "bad.py:2:1" "n_hed" "n_head" -- bad.py --dataset=tiny --out_dir=out
printf 'n_hed = 4\nn_layer = "x"\ndropout = 7\n' >bad.py
check "several errors: status" run 2 gpt_train bad.py --dataset=tiny --out_dir=out --blok_size=4
check "several errors: all at once" is "$(errors stderr)" 4
check "an unknown key and its value" run 2 gpt_train --dataset=tiny --out_dir=out --steps 500
check "an unknown key and its value: one error" is "$(errors stderr)" 1
check "an unknown device" refuses 2 "device" -- --device=toaster --dataset=tiny --out_dir=out
check "torchrun is answered" run 2 env WORLD_SIZE=2 RANK=0 LOCAL_RANK=0 "$GPT_TRAIN" --dataset=tiny
check "the answer to torchrun names --ranks=2" grep -q "error: WORLD_SIZE=2: .*--ranks=2" stderr
check "a budget above the card's memory" refuses 2 "6GB" "has: 4.00 GiB" -- --dataset=tiny --out_dir=out --memory_budget=6GB \
    --device_profile=gtx1650-4g --plan
check "fp16 is float16" run 0 "$GPT_TRAIN" --dataset=tiny --plan --dtype=fp16 --device_profile=t4
check "a note says that fp16 is taken as float16" grep -q "dtype='fp16': taken as float16" stderr
check "gpt-prepare's flags have near names" run 2 "$GPT_PREPARE" --val-fracton=0.1 text.txt
check "gpt-prepare's error names the near flag" grep -q "no such flag; did you mean --val-fraction?" stderr
check "gpt-prepare answers other programs' flags" run 2 "$GPT_PREPARE" --max_seq_length=2048 text.txt
check "gpt-prepare's error names its own flag" grep -q "max_seq_length=2048: no such flag; write --block-size=N" stderr
check "gpt-export answers other programs' flags" run 2 "$GPT_EXPORT" --quantization-method q4_k_m
check "gpt-export's error names its types" grep -q "no such flag; write --format=gguf --dtype=q8_0" stderr
check "gpt-sample knows other programs' names" run 2 "$GPT_SAMPLE" --temp=0 --num_beams=4
check "gpt-sample answers a name that it lacks" grep -q "num_beams (beams are not supported; --temperature=0" stderr
check "gpt-sample refuses only that name" test "$(grep -c 'unknown key' stderr)" = 1
check "gpt-sample's keys are checked too" run 2 "$GPT_SAMPLE" --temperatur=1
check "gpt-sample's error names the key" grep -q "error.*temperatur.*temperature" stderr
check "refused configurations leave nothing" left_nothing out

# ---- folders and disks ----
check "out_dir below a file" refuses 1 "text.txt" -- --dataset=tiny --out_dir=text.txt/out
check "out_dir that is a file" refuses 1 "text.txt" -- --dataset=tiny --out_dir=text.txt
if [ "$(id -u)" -ne 0 ]; then
    mkdir closed && chmod 555 closed
    check "out_dir in a closed folder" refuses 1 "closed/out" "denied" -- --dataset=tiny --out_dir=closed/out
    chmod 755 closed
fi

# A disk that fills up: files may not grow beyond a limit.
cp -r good limited && folder_sums limited >before
limited_run() {
    # shellcheck disable=SC2086
    (ulimit -f 8 && exec "$GPT_TRAIN" $model --dataset=tiny --out_dir=limited --init_from=resume --max_iters=8 --eval_interval=100)
}
if grep -q __tsan_init "$GPT_TRAIN"; then
    skip bad_input_limit "ThreadSanitizer's own memory is a file, which may not grow then"
else
    check "a limit on file sizes: status 1" run 1 limited_run
    check "a limit on file sizes: one error" is "$(errors stderr)" 1
    check "a limit on file sizes: names the file" grep -q "error: limited/model-0000.*safetensors" stderr
    folder_sums limited >after
    check "a limit on file sizes: nothing changed" cmp before after
    check "a limit on file sizes: resumes" resumes limited 8
fi
mkdir full
if mount -t tmpfs -o size=1m tmpfs full 2>/dev/null; then
    mounted=$work/full
    for file in good/model-0* good/optimizer* good/trainer_state.json good/config.json good/*token*; do
        cp "$file" full/ || echo "the disk is too small for the test" >&2
    done
    ln full/model-0* full/model.safetensors
    # Room for the tensors of a checkpoint, which the start checks, but not for all of its files.
    room_pages=$(($(cat full/model-0* full/optimizer* | wc -c) / 4096 + 1))
    free_kib=$(df -kP full | awk 'NR == 2 { print $4 }')
    head -c "$((free_kib * 1024 - room_pages * 4096))" /dev/zero >filler && cp filler full/filler.bin
    folder_sums full >before
    check "a full disk: status 1" run 1 gpt_train --dataset=tiny --out_dir=full --init_from=resume --max_iters=12 --eval_interval=3
    check "a full disk: one error for each try, at 9, 12 and the end" is "$(errors stderr)" 3
    check "a full disk: training goes on" grep -q "^iter 12:" stdout
    check "a full disk: names the file" grep -q "error: full/.*No space left" stderr
    check "a full disk: when it tries again" grep -q "warning: iter 12 could not be saved; the checkpoint of iter 7 stays in full; training continues and tries again in 1 iteration$" stderr
    check "a full disk: what remains" grep -q "warning: iter 13 could not be saved; the checkpoint of iter 7 stays in full$" stderr
    check "a full disk: no report" not grep -q "gpt-train report" stderr
    folder_sums full >after
    check "a full disk: nothing changed" cmp before after
    mkdir room && rm full/filler.bin && cp full/* room/
    umount full && mounted=
    check "a full disk: the checkpoint resumes elsewhere" resumes room 8
else
    skip bad_input_tmpfs "a tmpfs cannot be mounted here (root only)"
fi

# ---- plain mistakes with other programs end with one line too ----
# plain STATUS PROGRAM ARGUMENT...
plain() {
    run "$@" && is "$(errors stderr)" 1 && not grep -q -e "report" -e "^----" stderr
}
check "gpt-sample: no such prompt" plain 2 "$GPT_SAMPLE" --out_dir=good --prompt_file=nix
check "gpt-sample: no such model" plain 2 "$GPT_SAMPLE" --out_dir=nix
check "gpt-prepare: no such input" plain 2 "$GPT_PREPARE" --out-dir=nothing nix.txt
check "gpt-export: a folder that is not there" plain 1 "$GPT_EXPORT" --out_dir=good --format=gguf nix/nix/model.gguf
check "gpt-train: no such file to compare" plain 1 "$GPT_TRAIN" --compare=nix.py
check "a small budget" refuses 3 "not enough memory" -- --dataset=tiny --out_dir=out --memory_budget=1KiB
check "at iteration 7, to 3" run 0 gpt_train --dataset=tiny --out_dir=good --init_from=resume --max_iters=3
check "the iterations that continue" grep -q "nothing to do: good is at iter 7 already; --max_iters=7 or more continues the run" stderr

mkdir -p blocked/gpt_tokenizer.json
check "a tokenizer that cannot be written" run 1 gpt_train --dataset=tiny --out_dir=blocked --max_iters=2 --eval_interval=100
check "the checkpoint is there all the same" grep -q "warning: the checkpoint of iter 3 is complete, but not all files that go with it$" stderr
check "as the folder says" is "$(iter_of blocked)" 3

# ---- checkpoints: tests/reliability/check_flips.c has the other bits and lengths ----
# damaged NAME TEXT...: `damaged` was made from `good`; a resume must refuse it and change nothing.
damaged() {
    damaged_status 2 "$@"
}

damaged_status() {
    folder_sums damaged >before
    refuses_late "$@" -- --dataset=tiny --out_dir=damaged --init_from=resume --max_iters=12 || return 1
    folder_sums damaged >after
    cmp before after
}

fresh() {
    rm -rf damaged
    cp -r good damaged
    rm -f damaged/model.safetensors && ln damaged/model-000007.safetensors damaged/model.safetensors
}

model_file=damaged/model-000007.safetensors optimizer_file=damaged/optimizer-000007.safetensors
fresh
model_bytes=$(wc -c <$model_file)
fresh && flip $model_file $((model_bytes / 2))
check "a flipped bit of the model" damaged "model-000007.safetensors"
fresh && echo >>$model_file
check "a model with a byte too many" damaged "model-000007.safetensors"
fresh && rm $optimizer_file
check "the optimizer is gone" damaged_status 1 "optimizer-000007.safetensors" "No such file"
fresh && sed 's/"iter": 7/"iter": -7/' good/trainer_state.json >damaged/trainer_state.json
check "a negative iteration" damaged "damaged/trainer_state.json" "iter"
fresh && sed 's/"name": "model-000007/"name": "..\/model-000007/' good/trainer_state.json >damaged/trainer_state.json
check "a path in the record" damaged "damaged/trainer_state.json" "name"
fresh && sed 's/"transformer.wpe.weight": "[0-9a-f]*"/"transformer.wpe.weight": "00000000"/; /"record_crc32c"/d' \
    good/trainer_state.json >damaged/trainer_state.json
check "a wrong checksum" damaged "model-000007.safetensors" "wpe.weight"
fresh
check "another n_layer than the checkpoint's" refuses 2 "n_layer" "damaged/trainer_state.json" -- --dataset=tiny --out_dir=damaged \
    --init_from=resume --n_layer=3
check "nothing to resume" refuses 2 "empty-folder" -- --dataset=tiny --out_dir=empty-folder --init_from=resume
check "a folder of weights that is none" refuses 2 "data/tiny" -- --dataset=tiny --out_dir=out --init_from=data/tiny
mkdir weights && cp good/config.json good/model.safetensors weights/
check "weights of a folder" run 0 gpt_train --dataset=tiny --out_dir=tuned --init_from=weights --max_iters=1
sed 's/"n_embd": 16/"n_embd": 32/' good/config.json >weights/config.json
check "a wrong shape" refuses 2 "weights/model.safetensors" "wte.weight" "16" "32" -- --dataset=tiny --out_dir=out2 --init_from=weights
check "nothing is left after a wrong shape" left_nothing out2
check "gpt-sample refuses a wrong shape" run 2 "$GPT_SAMPLE" --out_dir=nowhere --init_from=weights
fresh && flip $model_file $((model_bytes / 2))
check "gpt-sample refuses a flipped bit" run 2 "$GPT_SAMPLE" --out_dir=damaged --max_new_tokens=3 --num_samples=1
check "gpt-sample prints no text then" [ ! -s stdout ]
check "the good checkpoint resumes after all this" resumes good 8
finish
