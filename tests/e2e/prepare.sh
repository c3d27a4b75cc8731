#!/bin/sh
# shellcheck disable=SC1091,SC2154,SC2317 # e2e.inc has the rest; functions are called through check
# gpt-prepare from the command line: flags, exit statuses, outputs, refusals, and the leftovers of a failed run.
. "${top_srcdir:?}/tests/e2e/e2e.inc"

# prepare STATUS ARGUMENT...: succeeds when gpt-prepare ends with STATUS.
prepare() {
    prepare_status=$1
    shift
    run "$prepare_status" "$GPT_PREPARE" "$@"
}

# refuses STATUS TEXT ARGUMENT...: the same, with nothing on stdout and one line with TEXT on stderr.
refuses() {
    expected=$1 text=$2
    shift 2
    prepare "$expected" "$@" && [ ! -s stdout ] && [ "$(wc -l <stderr)" -eq 1 ] && grep -qF -- "$text" stderr
}

says() {
    grep -qF -- "$1" stdout
}

size_is() {
    [ "$(wc -c <"$1")" -eq "$2" ]
}

only_outputs() {
    [ "$(find "$1" ! -type d | wc -l)" -eq 4 ] && [ -s "$1/manifest.json" ] && [ -s "$1/gpt_tokenizer.json" ] &&
        [ -s "$1/train.bin" ] && [ -s "$1/val.bin" ]
}

printf 'To be, or not to be, that is the question.\n' >hamlet.txt # 43 bytes
mkdir -p tree/b tree/.hidden
printf 'second' >tree/b/two.txt
printf 'first\n' >tree/a.txt
printf 'secret' >tree/.hidden/x
printf '\177ELF\0\0' >tree/program
ln -s ../hamlet.txt tree/link.txt

# The command line.
check help prepare 0 --help
check help_text says 'Usage: gpt-prepare'
check help_lists_flags says '--val-fraction'
check version prepare 0 --version
check version_text says 'gpt-prepare (gpt-train) '
check no_input refuses 2 'no input files given'
check unknown_flag refuses 2 '--frobnicate: no such flag' --frobnicate hamlet.txt
check short_flag refuses 2 '-x: no such flag' -x hamlet.txt
check unknown_tokenizer refuses 2 'gpt5' --tokenizer=gpt5 hamlet.txt
check missing_value refuses 2 '--out-dir: needs a value' hamlet.txt --out-dir
check empty_value refuses 2 '--out-dir' hamlet.txt --out-dir=
check help_takes_no_value refuses 2 'takes no value' --help=yes
for fraction in 1 -1 2 nan inf x 0.1x ''; do
    check "val_fraction_$fraction" refuses 2 '--val-fraction=' --val-fraction="$fraction" hamlet.txt
done
check nameless_input refuses 2 'give --out-dir=DIR' .
check nothing_written test ! -e data

# Bytes, and the default folder.
check bytes prepare 0 hamlet.txt
check bytes_counts says 'train has 38 tokens'
check bytes_names_next_step says 'gpt-train --dataset=hamlet'
check bytes_quiet test ! -s stderr
check bytes_train size_is data/hamlet/train.bin 76
check bytes_val size_is data/hamlet/val.bin 10
check bytes_outputs only_outputs data/hamlet
check bytes_first_token test "$(od -An -tx1 -N4 data/hamlet/train.bin | tr -d ' ')" = 54006f00
check bytes_tokenizer grep -q '"kind": "bytes"' data/hamlet/gpt_tokenizer.json
check manifest_tokens grep -q '"tokens": 38' data/hamlet/manifest.json

# Characters; '_' for '-', a value as a separate word, flags after inputs.
check chars prepare 0 hamlet.txt --tokenizer chars --val_fraction=0.5 --out_dir out/chars
check chars_vocabulary says 'vocab size: 17'
check chars_outputs only_outputs out/chars
check chars_newline_is_0 test "$(od -An -tu2 -j42 -N2 out/chars/val.bin | tr -d ' ')" = 0
cp -R out/chars first
check again prepare 0 --tokenizer=chars --val-fraction=0.5 --out-dir=out/chars -- hamlet.txt
check again_is_identical diff -r first out/chars

# A folder: sorted, joined, hidden and binary files skipped; binary files that are named are used.
check folder prepare 0 --out-dir=out/tree tree
check folder_files says '2 files'
check folder_size size_is out/tree/train.bin 20
check folder_notes_binary grep -q '1 file left out, not text: 1 no extension' stderr
check folder_text test "$(od -An -c -v out/tree/train.bin out/tree/val.bin | tr -d ' \n')" = \
    'f\0i\0r\0s\0t\0\n\0s\0e\0c\0o\0n\0d\0'
check own_output_left_out prepare 0 --out-dir=tree/out tree
check own_output_left_out_again prepare 0 --out-dir=tree/out tree
check own_output_left_out_size size_is tree/out/train.bin 20
named_program_is_refused() {
    prepare 2 --out-dir=out/binary tree/program && [ ! -e out/binary ] && grep -q 'tree/program: this file is a program' stderr
}
check named_program_is_refused named_program_is_refused
check named_binary prepare 0 --format=text --out-dir=out/binary tree/program
check named_binary_size size_is out/binary/train.bin 10

# Bad inputs; the earlier data set stays.
printf 'caf\351\n' >latin1.txt
printf '' >empty.txt
cp -R out/chars before
check not_utf8 refuses 2 'latin1.txt: byte 3 is not UTF-8 but looks like Latin-1; give --encoding=latin1' \
    --tokenizer=chars --out-dir=out/chars latin1.txt
check missing_input refuses 2 'none.txt: No such file' --out-dir=out/chars none.txt
check empty_input refuses 2 'no text' --out-dir=out/chars empty.txt
check not_a_file refuses 2 'neither a regular file nor a folder' --out-dir=out/chars /dev/null
check out_dir_is_a_file refuses 1 'hamlet.txt' --out-dir=hamlet.txt/sub hamlet.txt
check refused_leave_the_old diff -r before out/chars

# Everything for training; then gpt-train evaluates training tokens, with a note.
check no_validation prepare 0 --val-fraction=0 --out-dir=out/all hamlet.txt
check no_validation_counts says 'val has 0 tokens'
check no_validation_file test ! -e out/all/val.bin
trains_without_validation() {
    "$GPT_TRAIN" --dataset=out/all --out_dir=out/all-run --n_layer=1 --n_head=1 --n_embd=8 --block_size=8 --batch_size=2 \
        --gradient_accumulation_steps=1 --max_iters=2 --eval_iters=1 --eval_interval=2 --device=cpu >stdout 2>stderr &&
        grep -q 'out/all/* has no val.bin: val loss is measured on training tokens' stderr && says 'step 2: train loss'
}
check trains_without_validation trains_without_validation

# The vocabulary of a folder without a tokenizer: the largest id + 1, or GPT-2's if the ids may come from it.
vocabulary_of() {
    mkdir -p out/ids
    for split in train val; do
        # shellcheck disable=SC2059
        printf "$1" >out/ids/$split.bin
    done
    "$GPT_TRAIN" --dataset=out/ids --out_dir=none --n_layer=1 --n_head=1 --n_embd=8 --block_size=1 --plan \
        --device=cpu >stdout 2>stderr && grep -qF "using vocab_size=$2 (" stderr
}
check vocabulary_small vocabulary_of '\5\0\100\0\1\0' 65
check vocabulary_gpt2 vocabulary_of '\5\0\121\304\1\0' 50304
check vocabulary_large vocabulary_of '\5\0\300\324\1\0' 54465

# The recommended command at the end is valid in a shell, whatever the folder's name, and terminates.
recommended_works() {
    mkdir -p bin && ln -sf "$GPT_TRAIN" bin/gpt-train
    prepare 0 --out-dir="it's mine/x y" hamlet.txt || return 1
    sed -n '/^  gpt-train/,/[^\\]$/p' stdout >next.sh
    echo "[ -s 'out-x y/config.json' ]" >>next.sh
    PATH=$PWD/bin:$PATH sh -e next.sh >stdout 2>stderr
}
check recommended_works recommended_works
check recommended_fits_the_line awk 'length > 80 { exit 1 }' next.sh

# A full disk, simulated by a limit on the size of files: the error, and no temporary file.
dd if=/dev/zero of=big.bin bs=65536 count=32 2>/dev/null
full_disk() {
    (
        ulimit -f 512
        "$GPT_PREPARE" --out-dir=out/chars big.bin >full.out 2>full.err
    )
    status=$?
    cp full.out stdout
    cp full.err stderr
    [ "$status" -eq 1 ] && [ "$(wc -l <stderr)" -eq 1 ] && grep -q 'train.bin' stderr
}
check full_disk full_disk
check full_disk_leaves_the_old diff -r before out/chars
if [ -e /dev/full ]; then
    full_stdout() {
        "$GPT_PREPARE" --help >/dev/full 2>stderr
        [ $? -eq 1 ] && grep -q 'standard output' stderr
    }
    check full_stdout full_stdout
    lost_report() {
        status=0
        "$GPT_PREPARE" --tokenizer=chars --out-dir=out/lost hamlet.txt >/dev/full 2>stderr || status=$?
        [ "$status" -eq 1 ] && [ "$(grep -c 'error: standard output could not be written' stderr)" -eq 1 ]
    }
    check lost_report lost_report
    check lost_report_whole_data test -s out/lost/manifest.json
else
    skip prepare_full_stdout 'no /dev/full'
fi

# The leftovers of a killed run are removed; a second run in the same folder is refused.
: >out/chars/train.bin.tmp-1
check leftovers prepare 0 --tokenizer=chars --val-fraction=0.5 --out-dir=out/chars hamlet.txt
check leftovers_cleared diff -r before out/chars
if command -v flock >/dev/null 2>&1; then
    : >out/chars/.gpt-prepare.lock
    locked() {
        flock out/chars/.gpt-prepare.lock "$GPT_PREPARE" --out-dir=out/chars hamlet.txt >stdout 2>stderr
        [ $? -eq 2 ] && grep -q 'lock' stderr
    }
    check second_run_is_refused locked
else
    skip prepare_second_run_is_refused 'no flock program'
fi

finish
