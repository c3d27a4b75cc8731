/* Reads the documents of a corpus, one after the other.
 *
 * A document is a text (a file, an archive's member, standard input), a part of a text between
 * blank lines or end marks, or one field of each line of a JSONL file.  The reader holds at most
 * DOCUMENT_BYTES_MAX bytes of a document: a longer one comes in parts, cut where the cut changes no
 * token of a byte-level BPE, see bpe_split_cut().  A JSONL line that is longer is a bad line.
 *
 * With a chat template, every text holds conversations: JSON lines, one JSON list, or CSV with the
 * names of the columns in its first row (records.h).  Files in folders with other names are
 * skipped.
 *
 * In a text, "\r\n" and "\r" are read as "\n", as Python's open() does, and a byte-order mark at
 * the beginning is left out.  A JSONL file's mark is left out, too; line ends that are escaped in
 * its strings stay.  With DOCUMENTS_TEXT and no encoding, and in a text with a zero byte in its
 * first MiB, all bytes stay as they are.
 */
#ifndef GPT_TRAIN_DATA_DOCUMENTS_H
#define GPT_TRAIN_DATA_DOCUMENTS_H

#include "base/hostmem.h"
#include "data/chat.h"
#include "data/chat_forms.h"
#include "data/corpus.h"

#define DOCUMENT_BYTES_MAX ((size_t)16 << 20)

/* JSONL: JSON lines, one JSON list, or a table. */
enum documents_format { DOCUMENTS_BY_NAME, DOCUMENTS_TEXT, DOCUMENTS_JSONL };

/* Where a document inside a text ends. */
enum documents_end {
    DOCUMENTS_END_OF_FILE,
    DOCUMENTS_BLANK_LINE,  /* after "\n\n", which belongs to it (llm.c's tinyshakespeare.py) */
    DOCUMENTS_END_OF_TEXT, /* at "<|endoftext|>", which is dropped with a newline after it
                              (TinyStories' files) */
    DOCUMENTS_END_COUNT
};

/* The words of these enumerators on the command line; the lists end with NULL. */
extern const char *const documents_format_words[], *const documents_end_words[];

/* Totals of one INPUT argument. */
struct documents_input {
    uint64_t size_bytes;
    uint32_t crc32c;
    uint64_t file_count, skipped_count;
};

struct documents_spec {
    const struct corpus *corpus; /* borrowed; outlives the reader */
    struct documents_input
        *inputs; /* borrowed: one per INPUT, each set after the last file of that INPUT */
    enum documents_format format;
    const char *field;       /* for JSONL; borrowed */
    bool has_field;          /* the user chose it */
    struct chat_reader chat; /* with a kind, records are conversations, which are the documents */
    const char *chat_flags;  /* the flags for conversations with this vocabulary: "--chat=llama3";
                                borrowed; NULL: none */
    const char *encoding;   /* of texts without a byte-order mark; borrowed; NULL: UTF-8 or unknown,
                               not converted */
    const char *stdin_path; /* a file with a copy of standard input, or NULL */
    enum documents_end end;
    bool joins_newlines; /* of bpe_split_cut() */
    bool skip_bad_lines; /* JSONL: false makes them an error */
    bool quiet;          /* for a second pass: bad lines are not logged again */
};

#define DOCUMENTS_KINDS_MAX 16
#define DOCUMENTS_KIND_BYTES 16
#define DOCUMENTS_CONVERTED_BYTES 256

/* The number of skipped files with one name extension. */
struct documents_kind {
    char name[DOCUMENTS_KIND_BYTES]; /* ".png"; "no extension"; the last entry may be "other";
                                        padded with zeros */
    uint64_t count;
};

/* What was read up to the last document returned. */
struct documents_state {
    uint64_t file;                /* index in the corpus; file_count at the end */
    uint64_t offset;              /* bytes consumed of the text */
    uint64_t line;                /* lines consumed, for JSONL */
    bool in_document;             /* an unfinished part was returned */
    struct documents_input input; /* totals of the current file's INPUT, without that file */
    uint64_t document_count, empty_count, long_count, bad_line_count;
    uint64_t file_count,
        skipped_count;   /* files read; files and members skipped because they are not text */
    uint64_t text_bytes; /* of all documents */
    uint64_t line_end_count, mark_count;       /* converted ends of lines, and removed marks */
    uint64_t converted_count;                  /* the number of texts that had them */
    char converted[DOCUMENTS_CONVERTED_BYTES]; /* the first of these texts, cut to fit */
    struct documents_kind
        kinds[DOCUMENTS_KINDS_MAX]; /* of the skipped ones; an empty name ends the list */
};

struct document {
    const char *text; /* owned by the reader, valid until the next call */
    size_t count;
    bool continues;    /* an earlier part came before this one */
    bool unfinished;   /* another part follows */
    const char *label; /* of its source, for messages */
    uint64_t place;    /* where it starts: the byte in the text, or with `is_line` the line */
    bool is_line;
};

struct documents;

/* Errors: GT_NO_MEMORY, those of text_encoding_check(). */
enum gt_status documents_create(const void *owner, const struct documents_spec *spec,
                                struct documents **out);

/* Returns the next document; *out_found is false at the end.  Empty documents are counted and
 * skipped.  Texts that the user did not name are skipped when they are not text (text_kind.h, or a
 * zero byte in the first MiB).  Errors: GT_USAGE (a file named by the user that text_kind.h
 * recognises), GT_DATA (a broken archive, a bad line, bytes that are invalid in the encoding: the
 * place is named; a file that changed since it was listed), GT_UNSUPPORTED (UTF-16 without iconv),
 * GT_IO, GT_NO_MEMORY. */
enum gt_status documents_next(struct documents *documents, struct document *out, bool *out_found);

const struct documents_state *documents_state_get(const struct documents *documents);
/* Returns the number of bytes read of all files. */
uint64_t documents_file_bytes(const struct documents *documents);

/* ---- a line of JSONL: one JSON object, one of whose fields is a document ---- */

#define JSONL_REASON_BYTES 512

/* Returns true when the line contains only white space. */
bool jsonl_line_is_blank(const char *line, size_t count);

/* Extracts `field` of the object in line[count], a text, which may contain zero bytes.  The caller
 * releases it with json_decref().  Errors: GT_DATA, with the cause in `reason` and nothing logged,
 * when the line is not one JSON object in UTF-8 without duplicate keys, or when the field is
 * missing or not a text; GT_NO_MEMORY. */
enum gt_status jsonl_line_value(const char *line, size_t count, const char *field, json_t **out,
                                char reason[static JSONL_REASON_BYTES]);

#endif
