/* The options of a run of gpt-prepare, and its results. */
#ifndef GPT_TRAIN_DATA_PREPARE_SPEC_H
#define GPT_TRAIN_DATA_PREPARE_SPEC_H

#include "base/hostmem.h"
#include "data/chat_kind.h"
#include "data/documents.h"
#include "data/tokenizer.h"
#include "data/tokens.h"

#define PREPARE_THREADS_MAX 256
#define PREPARE_SAVE_EVERY_BYTES ((uint64_t)512 << 20)

/* The text or token between documents. */
enum prepare_separator {
    PREPARE_SEPARATOR_AUTO, /* no end-of-text token: newline (given bpe: none); a single text: none;
                               else after */
    PREPARE_SEPARATOR_NONE, /* nothing */
    PREPARE_SEPARATOR_NEWLINE, /* a newline, unless the document ends in one */
    PREPARE_SEPARATOR_BEFORE,  /* end-of-text before each document (llm.c) */
    PREPARE_SEPARATOR_BETWEEN, /* end-of-text between documents */
    PREPARE_SEPARATOR_AFTER,   /* end-of-text after each document (nanoGPT's openwebtext) */
    PREPARE_SEPARATOR_COUNT
};

enum prepare_split {
    PREPARE_SPLIT_AUTO, /* by document for JSONL, archives and texts of several documents; else by
                           position */
    PREPARE_SPLIT_POSITION, /* the last part of all tokens is val */
    PREPARE_SPLIT_DOCUMENT, /* each document goes to val with probability val_fraction */
    PREPARE_SPLIT_COUNT
};

#define PREPARE_KINDS_TEXT_BYTES (DOCUMENTS_KINDS_MAX * (DOCUMENTS_KIND_BYTES + 24))

/* The words of these enumerators on the command line; the lists end with NULL. */
extern const char *const prepare_separator_words[], *const prepare_split_words[];

/* Called from time to time with the progress; total_bytes is 0 when it is unknown. */
typedef void prepare_progress_fn(void *context, uint64_t done_bytes, uint64_t total_bytes);

/* Zero fields mean their defaults, except val_fraction. */
struct prepare_spec {
    const char *const *inputs; /* files, folders and "-"; see corpus.h */
    size_t input_count;
    const char *out_dir; /* created if absent */
    enum tokenizer_kind tokenizer;
    const struct tokenizer *given; /* bpe: an existing one, borrowed; NULL: trained on the inputs */
    int64_t vocab_size;            /* for training a bpe */
    double val_fraction;           /* 0 (no validation tokens) or more, below 1 */
    enum documents_format format;
    const char *field;           /* for JSONL; NULL: "text", or for conversations any field */
    enum chat_kind chat;         /* the documents are conversations; each split gets a mask */
    const char *system;          /* the system message for conversations that have none, or NULL */
    enum chat_train_on train_on; /* what counts in conversations */
    /* For conversations: tokens of a row, a multiple of 8.  Longer conversations are cut. */
    int64_t block_size;
    const char *encoding;   /* of the inputs; NULL: UTF-8, or that of the byte-order mark */
    enum documents_end end; /* of documents inside a text */
    bool skip_bad_lines;    /* for JSONL */
    enum prepare_separator separator;
    enum prepare_split split;
    uint64_t seed;                 /* for the split by document */
    bool dedup;                    /* drop exact copies of documents */
    int64_t shard_tokens;          /* 0: one file per split */
    int threads;                   /* 0: one per processor */
    uint64_t save_every_bytes;     /* bytes of text between saves; 0: PREPARE_SAVE_EVERY_BYTES */
    bool restart;                  /* discard the state of a stopped run */
    prepare_progress_fn *progress; /* or NULL */
    void *progress_context;
};

struct prepare_counts {
    uint64_t duplicates;  /* documents left out */
    uint64_t forced_cuts; /* places where the cut may have split a token */
    uint64_t invalid_bytes,
        invalid_documents;   /* bytes that are not UTF-8, and documents with such */
    uint64_t zero_documents; /* documents with a zero byte */
    uint64_t unknown_bytes;  /* bytes that have no token in the vocabulary */
    uint64_t cut_conversations, answer_tokens; /* conversations longer than a row or 256 KiB; tokens
                                                  that count as targets */
    uint64_t targetless; /* conversations left out: none of their tokens in a row counts */
    /* The shortest row in which one of them would have a target; 0: none. */
    int64_t targetless_needs;
};

struct prepare_result {
    int64_t train_tokens;
    int64_t val_tokens;
    int64_t vocab_size;
    int64_t row_tokens;               /* of packed conversations, or 0 */
    struct documents_state documents; /* after the last one */
    struct prepare_counts counts;
    bool many_documents; /* the document counts are worth reporting */
    bool by_position;    /* the split is */
    bool resumed;
};

#endif
