/* Preparing a data set: text in, token files out (the work of gpt-prepare).
 *
 * The inputs are read twice: once to count and to collect the vocabulary, once to encode.  The first part of the tokens
 * becomes train.bin and the rest val.bin, as in nanoGPT's data/shakespeare_char/prepare.py: with n tokens,
 * floor(n * (1 - val_fraction)) train.  Between two files a newline is put where the first does not end in one.
 * The token files are nanoGPT's headerless uint16; a vocabulary above 65,535 gives llm.c's uint32 shards.
 */
#ifndef GPT_TRAIN_DATA_PREPARE_H
#define GPT_TRAIN_DATA_PREPARE_H

#include <stddef.h>
#include <stdint.h>

#include "base/hostmem.h"
#include "base/status.h"
#include "data/tokenizer.h"

#define PREPARE_MANIFEST_NAME "manifest.json"

/* Told now and then how far the two passes are. */
typedef void prepare_progress_fn(void *context, uint64_t done_bytes, uint64_t total_bytes);

struct prepare_spec {
    const char *const *inputs; /* files and folders; see corpus.h */
    size_t input_count;
    const char *out_dir; /* made if absent */
    enum tokenizer_kind tokenizer;
    double val_fraction;           /* above 0, below 1 */
    prepare_progress_fn *progress; /* or NULL */
    void *progress_context;
};

struct prepare_result {
    int64_t train_tokens;
    int64_t val_tokens;
    int64_t vocab_size;
    size_t file_count;    /* files that went in */
    size_t skipped_count; /* files in folders left out as binary (they hold a zero byte) */
};

/* Writes train.bin, val.bin, gpt_tokenizer.json and manifest.json into out_dir.  All four are complete and synced before
 * the first appears under its name; an old manifest goes first and the new one comes last, so a folder with a manifest
 * is whole.  Memory: 2 MiB and the list of files; the text is never held.  Of a failed run nothing stays.
 * Errors: GT_USAGE (an input that does not exist; another gpt-prepare at work in out_dir), GT_DATA (no text, too little
 * for two splits, not UTF-8 with chars: file and byte are named; a file that changed between the passes),
 * GT_UNSUPPORTED (more uint32 tokens than an llm.c header can count), GT_IO, GT_NO_MEMORY. */
enum gt_status prepare_run(struct hostmem *mem, const struct prepare_spec *spec, struct prepare_result *out);

#endif
