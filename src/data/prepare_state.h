/* Shared by prepare*.c: the state of one run of gpt-prepare. */
#ifndef GPT_TRAIN_DATA_PREPARE_STATE_H
#define GPT_TRAIN_DATA_PREPARE_STATE_H

#include "base/file.h"
#include "base/json.h"
#include "data/corpus.h"
#include "data/dedup.h"
#include "data/documents.h"
#include "data/manifest.h"
#include "data/prepare_spec.h"
#include "data/token_writer.h"
#include "data/tokenizer.h"
#include "data/tokenizer_encoder.h"

#define PREPARE_STDIN_NAME ".gpt-prepare.stdin"
#define PREPARE_LOCK_NAME ".gpt-prepare.lock"

#define BATCH_BYTES DOCUMENT_BYTES_MAX
#define BATCH_PIECES_MAX ((size_t)65536)
#define PIECE_BYTES ((size_t)256 << 10)

/* A part of a document for one thread: its text and the results of encoding it. */
struct prepare_piece {
    size_t offset, count; /* in the batch's text */
    enum token_split split;
    bool first, last; /* piece of its document */
    uint64_t file;    /* index in the corpus, for messages */
    uint64_t place; /* where it starts in the file: a byte of the text, or with `is_line` a line */
    bool is_line;
    int64_t tokens;
    uint64_t unknown_count; /* bytes without a token */
    size_t invalid_count;
    int64_t weight; /* of its tokens */
    bool has_zero;
    enum gt_status status;
    struct tokenizer_fault fault;
};

/* What documents_next() has returned. */
struct prepare_text {
    int64_t parts;
    int64_t bytes, crc32c;
};

/* Facts about the text up to the last document that was written. */
struct prepare_progress {
    struct prepare_text text;
    struct documents_state documents;
    struct prepare_counts counts;
    uint64_t split_documents[TOKEN_WRITER_SPLITS];
    int64_t weight;                       /* of the tokens of both splits; see prepare.weights */
    enum token_split long_split;          /* split of the current long document's parts */
    bool document_invalid, document_zero; /* about the document that is being written */
    bool open_line[TOKEN_WRITER_SPLITS];  /* the split's last document does not end in a newline */
    bool has_document[TOKEN_WRITER_SPLITS];
};

struct prepare {
    const struct prepare_spec *spec; /* complete: no defaults are left open */
    struct corpus *corpus;
    enum prepare_split split;         /* resolved, never AUTO */
    enum prepare_separator separator; /* resolved, never AUTO */
    bool learns; /* the vocabulary comes from the inputs, which are read twice */
    bool many;   /* see PREPARE_SPLIT_AUTO */
    bool folder_made;
    int lock_fd;              /* -1: not locked */
    bool owns_files;          /* temporary files in out_dir belong to this run */
    enum prepare_phase saved; /* of the saved state; a state with the list of renames is removed
                                 only after they are complete */
    char stdin_path[FILE_PATH_MAX], state_path[FILE_PATH_MAX];
    bool stdin_copied;
    uint64_t stdin_bytes; /* of its copy */

    enum prepare_phase phase;    /* in which the continued run was stopped */
    json_t *state;               /* the stopped run's state, or NULL */
    struct prepare_text stopped; /* the text whose tokens that run has written */
    bool replays;                /* that text is read again; its tokens are not written */
    struct prepare_progress progress;
    struct documents_input *inputs; /* one per INPUT; complete at the end of a pass */

    struct tokenizer *learned;
    const struct tokenizer *tokenizer; /* `learned`, or the given one */
    struct documents *documents;
    struct dedup *dedup;
    struct token_writer *writer;
    struct token_writer_spec writer_spec;
    struct token_writer *masks; /* of conversations, or NULL */
    struct token_writer_spec mask_spec;
    struct tokenizer_encoder **encoders; /* one per thread */
    struct chat_encoder **chats;         /* instead of these, for conversations */
    int32_t **ids;                       /* for each thread, those of PIECE_BYTES of text */
    char *text;                          /* of the batch: BATCH_BYTES bytes */
    size_t text_count;
    unsigned char
        *packed;      /* tokens of the batch; a piece's tokens start at its offset * packed_width */
    bool lacks_bytes; /* the vocabulary has no token for some bytes */
    size_t packed_width; /* bytes for the tokens of a byte of text */
    struct prepare_piece *pieces;
    size_t piece_count;
    uint64_t saved_at_bytes; /* bytes of text at the last save */
    /* For a split by position with a bpe: the characters of each token; else NULL. */
    int32_t *weights;
    bool latin_said;
    char unknown_first[FILE_PATH_MAX + 32]; /* where the first byte without a token is */

    uint64_t done_before_bytes; /* for progress: bytes of finished passes */
    uint64_t reported_bytes;
    const struct token_file *files;
    size_t file_count;
    const struct token_file *mask_files;
    size_t mask_count;
    json_t *commit; /* the list of files to rename and remove */
};

#endif
