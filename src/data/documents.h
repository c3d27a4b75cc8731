/* The documents of a corpus, one after the other.
 *
 * A document is a text (a file, an archive's member, standard input), or a part of one between blank lines or end marks,
 * or one field of each line of a JSONL file.  At most DOCUMENT_BYTES_MAX bytes of it are held at a time: a longer one comes
 * in parts, cut where that changes no token of a byte-level BPE, see documents_cut().  A longer line of JSONL is a
 * bad line.  Where reading stands is a plain struct, from which a later process can go on.
 */
#ifndef GPT_TRAIN_DATA_DOCUMENTS_H
#define GPT_TRAIN_DATA_DOCUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hostmem.h"
#include "base/status.h"
#include "data/corpus.h"

#define DOCUMENT_BYTES_MAX ((size_t)16 << 20)

enum documents_format { DOCUMENTS_BY_NAME, DOCUMENTS_TEXT, DOCUMENTS_JSONL };

/* Where a document of a text ends. */
enum documents_end {
    DOCUMENTS_END_OF_FILE,
    DOCUMENTS_BLANK_LINE,  /* behind "\n\n", which belongs to it (llm.c's tinyshakespeare.py) */
    DOCUMENTS_END_OF_TEXT, /* at "<|endoftext|>", which is left out with a newline behind it (TinyStories' files) */
    DOCUMENTS_END_COUNT
};

/* "file", "blank-line", "end-of-text". */
const char *documents_end_name(enum documents_end end);

struct documents_spec {
    struct corpus *corpus; /* borrowed; outlives the reader, which keeps a checksum per file in it */
    enum documents_format format;
    const char *field;      /* of JSONL; borrowed */
    const char *encoding;   /* of texts without a byte-order mark; borrowed; NULL: UTF-8, or whatever they are */
    const char *stdin_path; /* a file with what standard input held, or NULL */
    enum documents_end end;
    bool skip_bad_lines; /* JSONL: else they are an error */
    bool quiet;          /* a second reading: what was noted is not noted again */
    bool compare_files;  /* a second reading: a file whose checksum differs is an error */
};

#define DOCUMENTS_KINDS_MAX 16
#define DOCUMENTS_KIND_BYTES 16

/* Files left out that have one ending. */
struct documents_kind {
    char name[DOCUMENTS_KIND_BYTES]; /* ".png"; "no extension"; in the last, "other"; zeros behind it */
    uint64_t count;
};

/* Totals of one INPUT argument. */
struct documents_input {
    uint64_t size_bytes;
    uint32_t crc32c;
    uint64_t file_count, skipped_count;
};

/* Where reading stands, after the document that came last.  Holds no pointers.
 */
struct documents_state {
    uint64_t file;   /* of the corpus; file_count at the end */
    uint64_t text;   /* texts begun in this file */
    uint64_t offset; /* bytes used up of the last one */
    uint64_t line;   /* lines used up, of JSONL */
    uint32_t crc32c; /* of the bytes used up */
    bool in_document;
    struct documents_input input; /* of the INPUT that the file belongs to, up to the file before */
    uint64_t document_count, empty_count, long_count, bad_line_count;
    uint64_t file_count, skipped_count; /* files read; files and members left out because they are no text */
    uint64_t text_bytes;                /* of all documents */
    struct documents_kind kinds[DOCUMENTS_KINDS_MAX]; /* of those left out; as many as have names */
};

struct document {
    const char *text; /* the reader's, until the next one is asked for */
    size_t count;
    bool continues;  /* an earlier part came before */
    bool unfinished; /* another part follows */
};

struct documents;

/* Errors: GT_NO_MEMORY, those of text_encoding_check(). */
enum gt_status documents_create(struct hostmem *mem, const struct documents_spec *spec, struct documents **out);
/* Accepts NULL. */
void documents_destroy(struct documents *documents);

/* Goes on from where an earlier reader of the same corpus stood; to be called before anything was read.  What lies
 * before that place in its file is read once more and compared.  `inputs` are those of documents_inputs() that were
 * complete.  Errors: GT_DATA (the bytes differ), and those of reading. */
enum gt_status documents_resume(struct documents *documents, const struct documents_state *state,
                                const struct documents_input *inputs);

/* *out_found is false at the end.  Documents without a byte are counted and passed over, and so are texts that nobody named
 * and that are none (text_kind.h, or a zero byte in the first MiB).  Errors: GT_USAGE (such a file that was named), GT_DATA
 * (a broken archive, a bad line, bytes that the encoding has not: the place is named; a file that is no longer what was
 * listed), GT_UNSUPPORTED (UTF-16 without iconv), GT_IO, GT_NO_MEMORY. */
enum gt_status documents_next(struct documents *documents, struct document *out, bool *out_found);

const struct documents_state *documents_state_get(const struct documents *documents);
/* One per INPUT; complete up to the INPUT that the state's file belongs to. */
const struct documents_input *documents_inputs(const struct documents *documents);
/* Where the document came from, for messages: the label, and the byte in the text (or the line, with *out_is_line)
 * at which it begins. */
const char *documents_place(const struct documents *documents, uint64_t *out_at, bool *out_is_line);
/* Bytes of all files read so far. */
uint64_t documents_file_bytes(const struct documents *documents);

/* Where text[count], followed by more, is best cut: before a space or newline that follows something else, as late
 * as possible.  GPT-2's split never has a piece across such a place and never looks back over one, so both sides,
 * encoded apart, give the ids of the whole.  Without such a place (*out_forced) between characters if it is UTF-8,
 * else at `count`.  1 <= count; the result is at least 1. */
size_t documents_cut(const char *text, size_t count, bool *out_forced);

#endif
