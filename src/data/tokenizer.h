/* Tokenizers: text to ids and back.
 *
 *   bytes   the 256 bytes themselves; any file can be encoded
 *   chars   the distinct characters of a text, sorted by code point (nanoGPT data/shakespeare_char/prepare.py)
 *   bpe     byte-level byte-pair encoding as GPT-2 has it: bpe.h; any file can be encoded, and comes back byte for byte
 *
 * A tokenizer is kept as `gpt_tokenizer.json` beside its token files:
 *   { "format": "gpt-train-tokenizer", "version": 1, "kind": "chars", "vocab_size": 65,
 *     "vocabulary": [10, 32, 33, ...], "hash": "crc32c:89abcdef" }
 * where id k is the character with code point vocabulary[k]; kind "bytes" has no "vocabulary".  The hash is the CRC-32C
 * of the kind's name and of each code point as 4 little-endian bytes.  Kind "bpe" holds all that decides its ids:
 * tokenizer_bpe.h.  nanoGPT's meta.pkl is recognised here and not read: io/nanogpt_meta.h does.
 */
#ifndef GPT_TRAIN_DATA_TOKENIZER_H
#define GPT_TRAIN_DATA_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hostmem.h"
#include "base/status.h"

#define TOKENIZER_FILE_NAME "gpt_tokenizer.json"
#define TOKENIZER_PICKLE_NAME "meta.pkl"

enum tokenizer_kind { TOKENIZER_BYTES, TOKENIZER_CHARS, TOKENIZER_BPE, TOKENIZER_KIND_COUNT };

struct tokenizer;
struct bpe;

/* "bytes", "chars", "bpe". */
const char *tokenizer_kind_name(enum tokenizer_kind kind);

/* Errors of both: GT_NO_MEMORY.  `code_points` are valid characters, strictly ascending, 1 <= count <= 0x110000. */
enum gt_status tokenizer_create_bytes(struct hostmem *mem, struct tokenizer **out);
enum gt_status tokenizer_create_chars(struct hostmem *mem, const uint32_t *code_points, size_t count,
                                      struct tokenizer **out);
/* Takes `bpe` over, on failure too.  Errors: GT_NO_MEMORY. */
enum gt_status tokenizer_create_bpe(struct hostmem *mem, struct bpe *bpe, struct tokenizer **out);
/* Accepts NULL. */
void tokenizer_destroy(struct tokenizer *tokenizer);

/* Reads a tokenizer file of the form above.  Errors: GT_DATA (not JSON, another format, an unordered or impossible
 * vocabulary, a hash that does not fit), GT_UNSUPPORTED (a pickle; a version or kind that this release lacks), GT_IO,
 * GT_NO_MEMORY. */
enum gt_status tokenizer_open_file(struct hostmem *mem, const char *path, struct tokenizer **out);
/* The tokenizer of a dataset folder: its gpt_tokenizer.json; else *out = NULL, the vocabulary being unknown, with a note
 * that names the way out when there is a meta.pkl.  Errors: those of tokenizer_open_file() and
 * prepare_folder_check(). */
enum gt_status tokenizer_open_dataset(struct hostmem *mem, const char *folder, struct tokenizer **out);

/* The file's content as text to free(), without a final newline; and the file itself, replaced atomically.
 * Errors: GT_NO_MEMORY, GT_IO. */
enum gt_status tokenizer_text(const struct tokenizer *tokenizer, char **out);
enum gt_status tokenizer_save(const struct tokenizer *tokenizer, const char *path);

enum tokenizer_kind tokenizer_kind_of(const struct tokenizer *tokenizer);
int64_t tokenizer_vocab_size(const struct tokenizer *tokenizer);
uint32_t tokenizer_hash(const struct tokenizer *tokenizer);

/* The token that ends a document, <|endoftext|>, or -1 where there is none (bytes, chars). */
int32_t tokenizer_eot(const struct tokenizer *tokenizer);
/* The vocabulary and merges of kind bpe, NULL for the others; the tokenizer's. */
const struct bpe *tokenizer_bpe(const struct tokenizer *tokenizer);

/* The id of a character (chars, and bpe where one token is that character) or byte (bytes), or -1 when it is not in the
 * vocabulary. */
int32_t tokenizer_id_of(const struct tokenizer *tokenizer, uint32_t code_point);

/* out[*out_count] = ids of the text, at most `count` of them, which is what `out` must have room for.  `source` (a path
 * or flag) is for the message.  Special tokens are ordinary text.  For one text; many go through
 * tokenizer_encoder.h or tokenizer_pool.h.  Errors: GT_DATA when a character is not in the vocabulary or the text is not
 * UTF-8 (chars), GT_NO_MEMORY (bpe). */
enum gt_status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t count, const char *source,
                                int32_t *out, size_t *out_count);

/* The same for what the user types: the texts of special tokens become these tokens, as in nanoGPT's sample.py. */
enum gt_status tokenizer_encode_prompt(const struct tokenizer *tokenizer, const char *text, size_t count,
                                       const char *source, int32_t *out, size_t *out_count);

/* The bytes of a token: 1 to 4 with chars, 1 with bytes, at most BPE_TOKEN_BYTES_MAX with bpe; *out is the tokenizer's
 * for bpe, else written to `scratch`.  Returns how many; 0 for an id outside the vocabulary. */
size_t tokenizer_token_bytes(const struct tokenizer *tokenizer, int32_t id, char scratch[static 4], const char **out);

/* Decoding is a stream, so that text can be shown while it is made: with `bytes` a character may take several tokens.
 * Set it to zero to begin. */
struct tokenizer_stream {
    unsigned char held[4]; /* the beginning of a character */
    size_t held_count;
};

/* Three bytes of U+FFFD for each of a token's BPE_TOKEN_BYTES_MAX and of those held, and the terminator. */
#define TOKENIZER_TEXT_MAX 3088

/* Writes what id `id` completes, as valid UTF-8 with a terminator, and returns its length in bytes (0 when the
 * character goes on).  Bytes that are no UTF-8, and ids outside the vocabulary, become U+FFFD. */
size_t tokenizer_stream_push(const struct tokenizer *tokenizer, struct tokenizer_stream *stream, int32_t id,
                             char out[static TOKENIZER_TEXT_MAX]);
/* What is left of an unfinished character, at the end: U+FFFD or nothing. */
size_t tokenizer_stream_end(struct tokenizer_stream *stream, char out[static TOKENIZER_TEXT_MAX]);

#endif
