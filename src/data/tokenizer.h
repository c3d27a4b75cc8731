/* Tokenizers: text to ids and back.
 *
 *   bytes   the 256 bytes themselves; any file can be encoded
 *   chars   the distinct characters of a text, sorted by code point (nanoGPT
 *           data/shakespeare_char/prepare.py)
 *   bpe     byte-level byte-pair encoding as in GPT-2: bpe.h; any file can be encoded, and decodes
 *           byte for byte unless the vocabulary lacks some of the bytes
 *
 * A tokenizer is stored as `gpt_tokenizer.json` next to its token files:
 *   { "format": "gpt-train-tokenizer", "version": 1, "kind": "chars", "vocab_size": 65,
 *     "vocabulary": [10, 32, 33, ...], "hash": "crc32c:89abcdef" }
 * where id k is the character with code point vocabulary[k]; kind "bytes" has no "vocabulary".  The
 * hash is the CRC-32C of the kind's name and of each code point as 4 little-endian bytes.  The
 * format of kind "bpe" is in tokenizer_bpe.h.  "chat" is a word of chat.h, "chat_template" the
 * model's template in Jinja, "generation" its generation_config.json.  The hash covers none of
 * these.  nanoGPT's meta.pkl is only recognised here; io/nanogpt.h reads it.
 */
#ifndef GPT_TRAIN_DATA_TOKENIZER_H
#define GPT_TRAIN_DATA_TOKENIZER_H

#include "base/hostmem.h"
#include "base/json.h"
#include "data/bpe.h"
#include "data/chat_kind.h"

#define TOKENIZER_FILE_NAME "gpt_tokenizer.json"
#define TOKENIZER_PICKLE_NAME "meta.pkl"

enum tokenizer_kind { TOKENIZER_BYTES, TOKENIZER_CHARS, TOKENIZER_BPE, TOKENIZER_KIND_COUNT };

#define TOKENIZER_DIRECT 128

/* The fields are read-only. */
struct tokenizer {
    enum tokenizer_kind kind;
    int64_t vocab_size;
    uint32_t hash;
    struct bpe *bpe;                  /* NULL for bytes and chars */
    uint32_t *code_points;            /* [vocab_size]; NULL for bytes and bpe */
    int32_t direct[TOKENIZER_DIRECT]; /* ids of U+0000 to U+007F, or -1 */
    bool has_template;   /* a chat template belongs to it: its folder's, or the conversations' */
    enum chat_kind chat; /* its family; CHAT_NONE: unknown, or implied by the vocabulary */
    char *template;      /* the template in Jinja of the tokenizer's model, or NULL */
    char *generation;    /* the model's generation_config.json, or NULL */
};

extern const char *const tokenizer_kind_names[TOKENIZER_KIND_COUNT];

/* Gives the tokenizer the template of its model, a text in Jinja, which is copied.  Errors:
 * GT_NO_MEMORY. */
enum gt_status tokenizer_template_set(struct tokenizer *tokenizer, const char *jinja);
#define GENERATION_NAME "generation_config.json"
/* Gives the tokenizer the object of its model's generation_config.json, without the fields that
 * name its writer.  Errors: GT_NO_MEMORY. */
enum gt_status tokenizer_generation_set(struct tokenizer *tokenizer, const json_t *object);

/* Errors of both: GT_NO_MEMORY.  `code_points` are valid characters, strictly ascending, 1 <= count
 * <= 0x110000. */
enum gt_status tokenizer_create_bytes(const void *owner, struct tokenizer **out);
enum gt_status tokenizer_create_chars(const void *owner, const uint32_t *code_points, size_t count,
                                      struct tokenizer **out);
/* Takes ownership of `bpe`, even on failure.  Errors: GT_NO_MEMORY. */
enum gt_status tokenizer_create_bpe(const void *owner, struct bpe *bpe, struct tokenizer **out);

/* Reads a tokenizer file of the form above.  Errors: GT_DATA (not JSON, another format, an
 * unordered or impossible vocabulary, a hash that does not match), GT_UNSUPPORTED (a version or
 * kind that this release lacks), GT_IO, GT_NO_MEMORY. */
enum gt_status tokenizer_open_file(const void *owner, const char *path, struct tokenizer **out);
/* Opens the gpt_tokenizer.json of a dataset folder.  Without one, sets *out to NULL, because the
 * vocabulary is unknown; when there is a meta.pkl, a note names the command that makes one. Errors:
 * those of tokenizer_open_file() and prepared_folder_check(). */
enum gt_status tokenizer_open_dataset(const void *owner, const char *folder,
                                      struct tokenizer **out);

/* Return the file's content in *out, which the caller free()s; and write the file, replacing it
 * atomically.  Errors: GT_NO_MEMORY, GT_IO. */
enum gt_status tokenizer_text(const struct tokenizer *tokenizer, char **out);
enum gt_status tokenizer_save(const struct tokenizer *tokenizer, const char *path);

/* The hash as "crc32c:89abcdef". */
#define TOKENIZER_HASH_TEXT_BYTES 24
#define TOKENIZER_HASH_TEXT(tokenizer) \
    TEXT(TOKENIZER_HASH_TEXT_BYTES, "crc32c:%08" PRIx32, (tokenizer)->hash)

/* Returns true when both have the same tokens, though perhaps other merges. */
bool tokenizer_has_same_tokens(const struct tokenizer *a, const struct tokenizer *b);

/* Returns the id of the token that ends a document (<|endoftext|> or <|end_of_text|>), or -1 if the
 * vocabulary has no such token: bytes and chars have none. */
int32_t tokenizer_eot(const struct tokenizer *tokenizer);
/* Returns the pipeline, which turns a text into pieces: GPT-2's for bytes, chars and NULL.  The
 * caller puts the token `bos` before a text; only tokenizer_encode_prompt() does so itself. */
const struct bpe_pipeline *tokenizer_pipeline(const struct tokenizer *tokenizer);

/* Returns the id of a character (chars, and bpe when the character is a single token) or byte
 * (bytes), or -1 when it is not in the vocabulary. */
int32_t tokenizer_id_of(const struct tokenizer *tokenizer, uint32_t code_point);

/* Returns the number of bytes of a token: 1 to 4 with chars, 1 with bytes, at most
 * BPE_TOKEN_BYTES_MAX with bpe; 0 for an id outside the vocabulary.  *out points into the tokenizer
 * for bpe, else to `scratch`. */
size_t tokenizer_token_bytes(const struct tokenizer *tokenizer, int32_t id, char scratch[static 4],
                             const char **out);

/* Decoding is a stream, so that text can be shown while it is generated: with `bytes` a character
 * may take several tokens.  Initialise to zero. */
struct tokenizer_stream {
    unsigned char held[4]; /* the beginning of a character */
    size_t held_count;
    bool begun; /* the text has a token */
};

/* Three bytes of U+FFFD for each of a token's BPE_TOKEN_BYTES_MAX bytes and of the held ones, and
 * the terminator. */
#define TOKENIZER_TEXT_MAX 3088

/* Writes the text that `id` completes, as valid UTF-8 with a terminator, and returns its length in
 * bytes (0 when the character is incomplete).  Bytes that are not UTF-8, and ids outside the
 * vocabulary, become U+FFFD. */
size_t tokenizer_stream_push(const struct tokenizer *tokenizer, struct tokenizer_stream *stream,
                             int32_t id, char out[static TOKENIZER_TEXT_MAX]);
/* Ends the stream: writes U+FFFD for an incomplete character, or nothing. */
size_t tokenizer_stream_end(struct tokenizer_stream *stream, char out[static TOKENIZER_TEXT_MAX]);

#endif
