/* Tokenizers: text to ids and back.
 *
 *   bytes   the 256 bytes themselves; any file can be encoded
 *   chars   the distinct characters of a text, sorted by code point (nanoGPT data/shakespeare_char/prepare.py)
 *
 * A tokenizer is kept as `gpt_tokenizer.json` beside its token files:
 *   { "format": "gpt-train-tokenizer", "version": 1, "kind": "chars", "vocab_size": 65,
 *     "vocabulary": [10, 32, 33, ...], "hash": "crc32c:89abcdef" }
 * where id k is the character with code point vocabulary[k]; kind "bytes" has no "vocabulary".  The hash is the CRC-32C
 * of the kind's name and of each code point as 4 little-endian bytes.  nanoGPT's meta.pkl is recognised and never read:
 * a Python pickle is a program.
 */
#ifndef GPT_TRAIN_DATA_TOKENIZER_H
#define GPT_TRAIN_DATA_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "base/hostmem.h"
#include "base/status.h"

#define TOKENIZER_FILE_NAME "gpt_tokenizer.json"
#define TOKENIZER_PICKLE_NAME "meta.pkl"

enum tokenizer_kind { TOKENIZER_BYTES, TOKENIZER_CHARS, TOKENIZER_KIND_COUNT };

struct tokenizer;

/* "bytes", "chars". */
const char *tokenizer_kind_name(enum tokenizer_kind kind);

/* Errors of both: GT_NO_MEMORY.  `code_points` are valid characters, strictly ascending, 1 <= count <= 0x110000. */
enum gt_status tokenizer_create_bytes(struct hostmem *mem, struct tokenizer **out);
enum gt_status tokenizer_create_chars(struct hostmem *mem, const uint32_t *code_points, size_t count,
                                      struct tokenizer **out);
/* Accepts NULL. */
void tokenizer_destroy(struct tokenizer *tokenizer);

/* Reads a tokenizer file of the form above.  Errors: GT_DATA (not JSON, another format, an unordered or impossible
 * vocabulary, a hash that does not fit), GT_UNSUPPORTED (a pickle; a version or kind that this release lacks), GT_IO,
 * GT_NO_MEMORY. */
enum gt_status tokenizer_open_file(struct hostmem *mem, const char *path, struct tokenizer **out);
/* The tokenizer of a dataset folder: its gpt_tokenizer.json; else *out = NULL, the vocabulary being unknown, with a note
 * that names the way out when there is a meta.pkl.  Errors: those of tokenizer_open_file(). */
enum gt_status tokenizer_open_dataset(struct hostmem *mem, const char *folder, struct tokenizer **out);

/* The file's content as text to free(), without a final newline; and the file itself, replaced atomically.
 * Errors: GT_NO_MEMORY, GT_IO. */
enum gt_status tokenizer_text(const struct tokenizer *tokenizer, char **out);
enum gt_status tokenizer_save(const struct tokenizer *tokenizer, const char *path);

enum tokenizer_kind tokenizer_kind_of(const struct tokenizer *tokenizer);
int64_t tokenizer_vocab_size(const struct tokenizer *tokenizer);
uint32_t tokenizer_hash(const struct tokenizer *tokenizer);

/* The id of a character (chars) or byte (bytes), or -1 when it is not in the vocabulary. */
int32_t tokenizer_id_of(const struct tokenizer *tokenizer, uint32_t code_point);

/* out[*out_count] = ids of the text, at most `count` of them, which is what `out` must have room for.  `source` (a path
 * or flag) is for the message.  Errors: GT_DATA when a character is not in the vocabulary or the text is not UTF-8
 * (chars). */
enum gt_status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t count, const char *source,
                                int32_t *out, size_t *out_count);

/* Decoding is a stream, so that text can be shown while it is made: with `bytes` a character may take several tokens.
 * Set it to zero to begin. */
struct tokenizer_stream {
    unsigned char held[4]; /* the beginning of a character */
    size_t held_count;
};

#define TOKENIZER_TEXT_MAX 16

/* Writes what id `id` completes, as valid UTF-8 with a terminator, and returns its length in bytes (0 when the
 * character goes on).  Bytes that are no UTF-8, and ids outside the vocabulary, become U+FFFD. */
size_t tokenizer_stream_push(const struct tokenizer *tokenizer, struct tokenizer_stream *stream, int32_t id,
                             char out[static TOKENIZER_TEXT_MAX]);
/* What is left of an unfinished character, at the end: U+FFFD or nothing. */
size_t tokenizer_stream_end(struct tokenizer_stream *stream, char out[static TOKENIZER_TEXT_MAX]);

#endif
