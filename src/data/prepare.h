/* Preparing a data set: text in, token files out (the work of gpt-prepare).
 *
 * Documents (documents.h) are tokenized by several threads and written to token files (token_writer.h), in one reading
 * of the inputs; two where the vocabulary is made from them.  The split is by position, as in nanoGPT's prepare.py: of n
 * characters, the first floor(n * (1 - val_fraction)) train (with the tokenizer bytes: of n bytes); or by document, drawn from the document's checksum and a seed.
 * What is written depends on the inputs and the options only, not on the number of threads.  A run that was stopped
 * goes on where it last saved, and gives the same files.
 */
#ifndef GPT_TRAIN_DATA_PREPARE_H
#define GPT_TRAIN_DATA_PREPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hostmem.h"
#include "base/status.h"
#include "data/documents.h"
#include "data/tokenizer.h"

#define PREPARE_MANIFEST_NAME "manifest.json"
#define PREPARE_THREADS_MAX 256
#define PREPARE_SAVE_EVERY_BYTES ((uint64_t)512 << 20)

/* What stands between documents. */
enum prepare_separator {
    PREPARE_SEPARATOR_AUTO,    /* newline where the tokenizer has no end-of-text token; none for a single text; after */
    PREPARE_SEPARATOR_NONE,    /* nothing */
    PREPARE_SEPARATOR_NEWLINE, /* a newline, where the document does not end in one */
    PREPARE_SEPARATOR_BEFORE,  /* end-of-text before each document (llm.c) */
    PREPARE_SEPARATOR_BETWEEN, /* end-of-text between documents */
    PREPARE_SEPARATOR_AFTER,   /* end-of-text after each document (nanoGPT's openwebtext) */
    PREPARE_SEPARATOR_COUNT
};

enum prepare_split {
    PREPARE_SPLIT_AUTO,     /* by document for JSONL, archives and texts of several documents; else by position */
    PREPARE_SPLIT_POSITION, /* the last part of all tokens is val */
    PREPARE_SPLIT_DOCUMENT, /* each document goes to val with probability val_fraction */
    PREPARE_SPLIT_COUNT
};

#define PREPARE_KINDS_TEXT_BYTES (DOCUMENTS_KINDS_MAX * (DOCUMENTS_KIND_BYTES + 24))
/* "3 .png, 1 .pdf"; returns `text`. */
char *prepare_kinds_text(char text[static PREPARE_KINDS_TEXT_BYTES], const struct documents_kind *kinds);

/* The words of the command line. */
const char *prepare_separator_name(enum prepare_separator separator);
const char *prepare_split_name(enum prepare_split split);

/* Told now and then how far it is; total_bytes is 0 when that is not known. */
typedef void prepare_progress_fn(void *context, uint64_t done_bytes, uint64_t total_bytes);

/* Fields that are zero have their defaults, but for val_fraction. */
struct prepare_spec {
    const char *const *inputs; /* files, folders and "-"; see corpus.h */
    size_t input_count;
    const char *out_dir; /* made if absent */
    enum tokenizer_kind tokenizer;
    const struct tokenizer *given; /* bpe: ready made, borrowed; NULL: trained on the inputs */
    int64_t vocab_size;            /* bpe to be trained */
    double val_fraction;           /* 0 (no validation tokens) or more, below 1 */
    enum documents_format format;
    const char *field;      /* of JSONL; NULL: "text" */
    const char *encoding;   /* of the inputs; NULL: UTF-8, or as a byte-order mark says */
    enum documents_end end; /* of documents of a text */
    bool skip_bad_lines;    /* of JSONL */
    enum prepare_separator separator;
    enum prepare_split split;
    uint64_t seed;                 /* of the split by document */
    bool dedup;                    /* leave exact copies of documents out */
    int64_t shard_tokens;          /* 0: one file per split */
    int threads;                   /* 0: as many as there are processors */
    uint64_t save_every_bytes;     /* of text; 0: PREPARE_SAVE_EVERY_BYTES */
    bool restart;                  /* discard what a stopped run left */
    prepare_progress_fn *progress; /* or NULL */
    void *progress_context;
};

struct prepare_result {
    int64_t train_tokens;
    int64_t val_tokens;
    int64_t vocab_size;
    size_t train_files, val_files;
    size_t file_count;                                /* files that went in */
    size_t skipped_count;                             /* files and members left out because they are no text */
    struct documents_kind kinds[DOCUMENTS_KINDS_MAX]; /* of these */
    uint64_t document_count, empty_count, duplicate_count, long_count, bad_line_count;
    uint64_t forced_cut_count;                           /* places where a token may have been cut */
    uint64_t invalid_byte_count, invalid_document_count; /* bytes that are no UTF-8, and the documents they are in */
    uint64_t zero_document_count;                        /* documents with a zero byte */
    bool many_documents;                                 /* the counts of documents are worth telling */
    bool resumed;
};

/* Writes the token files, gpt_tokenizer.json (with a trained bpe: tokenizer.json, vocab.json and merges.txt too) and
 * manifest.json into out_dir.  All are complete and synced before the first appears under its name; an old manifest goes
 * first and the new one comes last, so a folder with a manifest is whole.  Token files of an earlier data set there are
 * removed.  Memory: below 200 MiB and a few MiB per thread, the list of files, the vocabulary; with dedup up to 768 MiB
 * more; a reader of compressed files its window.  A failed run leaves nothing, but for one that had saved and met a
 * full disk or the like: it can be continued.
 * Errors: GT_USAGE (an input that does not exist; another gpt-prepare at work in out_dir; other options or inputs than
 * those of the stopped run), GT_DATA (no text, too little for two splits, not UTF-8 with chars, a broken archive, a bad
 * line, bytes that the encoding has not: the place is named; a file that changed while it was read), GT_UNSUPPORTED (no
 * libarchive, no iconv; more uint32 tokens
 * than an llm.c header can count), GT_IO, GT_NO_MEMORY. */
enum gt_status prepare_run(struct hostmem *mem, const struct prepare_spec *spec, struct prepare_result *out);

/* For those who read a data set: GT_DATA for a folder in which a run ended between the old one and the new one.  One that no
 * gpt-prepare has seen is none of its business.  Errors: GT_IO, GT_NO_MEMORY. */
enum gt_status prepare_folder_check(const char *folder);

#endif
