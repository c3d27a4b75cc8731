/* Tokenizers: text to ids and back.
 *
 *   bytes   the 256 bytes themselves; any file can be encoded
 *   chars   the distinct characters of a text, sorted by code point (nanoGPT data/shakespeare_char/prepare.py)
 *   bpe     byte-level byte-pair encoding as in GPT-2: bpe.h; any file can be encoded, and decodes byte for byte unless
 *           the vocabulary lacks some of the bytes
 *
 * A tokenizer is stored as `gpt_tokenizer.json` next to its token files:
 *   { "format": "gpt-train-tokenizer", "version": 1, "kind": "chars", "vocab_size": 65,
 *     "vocabulary": [10, 32, 33, ...], "hash": "crc32c:89abcdef" }
 * where id k is the character with code point vocabulary[k]; kind "bytes" has no "vocabulary".  The hash is the CRC-32C
 * of the kind's name and of each code point as 4 little-endian bytes.  The format of kind "bpe" is in tokenizer_bpe.h.
 * "chat" is a word of chat.h, "chat_template" the model's text in Jinja; neither is in the hash.
 * nanoGPT's meta.pkl is only recognised here; io/nanogpt.h reads it.
 */
#ifndef GPT_TRAIN_DATA_TOKENIZER_H
#define GPT_TRAIN_DATA_TOKENIZER_H

#include "base/hostmem.h"
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
    bool has_template;                /* a chat template belongs to it: of its folder, or of the conversations */
    enum chat_kind chat;              /* its family, or CHAT_NONE: not known, or what the vocabulary implies */
    char *template;                   /* the text in Jinja of the model that it comes from, or NULL */
};

extern const char *const tokenizer_kind_names[TOKENIZER_KIND_COUNT];

/* Gives the tokenizer the template of its model, a text in Jinja, which is copied.  Errors: GT_NO_MEMORY. */
enum gt_status tokenizer_template_set(struct tokenizer *tokenizer, const char *jinja);

/* Errors of both: GT_NO_MEMORY.  `code_points` are valid characters, strictly ascending, 1 <= count <= 0x110000. */
enum gt_status tokenizer_create_bytes(const void *owner, struct tokenizer **out);
enum gt_status tokenizer_create_chars(const void *owner, const uint32_t *code_points, size_t count,
                                      struct tokenizer **out);
/* Takes ownership of `bpe`, even on failure.  Errors: GT_NO_MEMORY. */
enum gt_status tokenizer_create_bpe(const void *owner, struct bpe *bpe, struct tokenizer **out);

/* Reads a tokenizer file of the form above.  Errors: GT_DATA (not JSON, another format, an unordered or impossible
 * vocabulary, a hash that does not match), GT_UNSUPPORTED (a version or kind that this release lacks), GT_IO,
 * GT_NO_MEMORY. */
enum gt_status tokenizer_open_file(const void *owner, const char *path, struct tokenizer **out);
/* Opens the gpt_tokenizer.json of a dataset folder.  Without one, sets *out to NULL, because the vocabulary is unknown;
 * when there is a meta.pkl, a note names the command that makes one.  Errors: those of tokenizer_open_file() and
 * prepared_folder_check(). */
enum gt_status tokenizer_open_dataset(const void *owner, const char *folder, struct tokenizer **out);

/* Return the file's content in *out, which the caller free()s; and write the file, replacing it atomically.  Errors:
 * GT_NO_MEMORY, GT_IO. */
enum gt_status tokenizer_text(const struct tokenizer *tokenizer, char **out);
enum gt_status tokenizer_save(const struct tokenizer *tokenizer, const char *path);

/* The hash as "crc32c:89abcdef". */
#define TOKENIZER_HASH_TEXT_BYTES 24
#define TOKENIZER_HASH_TEXT(tokenizer) TEXT(TOKENIZER_HASH_TEXT_BYTES, "crc32c:%08" PRIx32, (tokenizer)->hash)

/* Returns true when both have the same tokens, though perhaps other merges. */
bool tokenizer_has_same_tokens(const struct tokenizer *a, const struct tokenizer *b);

/* Returns the id of the token that ends a document (<|endoftext|> or <|end_of_text|>), or -1 if the vocabulary has no
 * such token: bytes and chars have none. */
int32_t tokenizer_eot(const struct tokenizer *tokenizer);
/* Returns how a text becomes pieces: for bytes, chars and NULL as for GPT-2.  The caller puts the token `bos` before a
 * text; of these functions only tokenizer_encode_prompt() does. */
const struct bpe_pipeline *tokenizer_pipeline(const struct tokenizer *tokenizer);

/* Returns the id of a character (chars, and bpe when the character is a single token) or byte (bytes), or -1 when it is
 * not in the vocabulary. */
int32_t tokenizer_id_of(const struct tokenizer *tokenizer, uint32_t code_point);

/* Sets out[*out_count] to the ids of a text that a user typed, and the pipeline's `bos` before them.  `out` must have
 * room for `count` * the pipeline's `growth` + 1.  `source` (a path or flag) is for the message.  The texts of special
 * tokens become these tokens, as in nanoGPT's sample.py.  To encode other text, or many texts, use an encoder, below.
 * Warns about bytes without a token.  Errors: GT_DATA when a character is not in the vocabulary or the text is not
 * UTF-8 (chars), or when no byte has a token (bpe); GT_NO_MEMORY (bpe). */
enum gt_status tokenizer_encode_prompt(const struct tokenizer *tokenizer, const char *text, size_t count,
                                       const char *source, int32_t *out, size_t *out_count);

/* Returns the number of bytes of a token: 1 to 4 with chars, 1 with bytes, at most BPE_TOKEN_BYTES_MAX with bpe; 0 for
 * an id outside the vocabulary.  *out points into the tokenizer for bpe, else to `scratch`. */
size_t tokenizer_token_bytes(const struct tokenizer *tokenizer, int32_t id, char scratch[static 4], const char **out);

/* Decoding is a stream, so that text can be shown while it is generated: with `bytes` a character may take several
 * tokens.  Initialise to zero. */
struct tokenizer_stream {
    unsigned char held[4]; /* the beginning of a character */
    size_t held_count;
};

/* Three bytes of U+FFFD for each of a token's BPE_TOKEN_BYTES_MAX bytes and of the held ones, and the terminator. */
#define TOKENIZER_TEXT_MAX 3088

/* Writes the text that `id` completes, as valid UTF-8 with a terminator, and returns its length in bytes (0 when the
 * character is incomplete).  Bytes that are not UTF-8, and ids outside the vocabulary, become U+FFFD. */
size_t tokenizer_stream_push(const struct tokenizer *tokenizer, struct tokenizer_stream *stream, int32_t id,
                             char out[static TOKENIZER_TEXT_MAX]);
/* Ends the stream: writes U+FFFD for an incomplete character, or nothing. */
size_t tokenizer_stream_end(struct tokenizer_stream *stream, char out[static TOKENIZER_TEXT_MAX]);

/* Finds a ready-made vocabulary.  `name` is "gpt2", a path, or OWNER/NAME, a model in Hugging Face's cache.  "gpt2" is
 * searched for in $GPT_TRAIN_TOKENIZER_DIR, the Hugging Face cache, the XDG data folders' gpt-train/gpt2 and
 * /usr/share/gpt-train/gpt2; nothing is ever downloaded.  Errors: GT_USAGE when there is none (one line names the
 * places and the command that fetches it), and those of tokenizer_import(). */
enum gt_status tokenizer_find(const void *owner, const char *name, struct tokenizer **out);

/* ---- the files of a folder: gpt_tokenizer.json, and Hugging Face's ---- */

enum tokenizer_file {
    TOKENIZER_FILE_CONFIG, /* tokenizer_config.json; the others are those that gpt-prepare may write */
    TOKENIZER_FILE_OURS,
    TOKENIZER_FILE_JSON, /* tokenizer.json */
    TOKENIZER_FILE_VOCAB,
    TOKENIZER_FILE_MERGES,
    TOKENIZER_FILES
};
#define TOKENIZER_FILES_OF_RUN 3 /* the first ones, which gpt-train writes next to a checkpoint */

extern const char *const tokenizer_file_names[TOKENIZER_FILES];

/* Returns false for a vocabulary with ranks but no merges (tiktoken's), which other programs cannot read. */
bool tokenizer_can_merge(const struct tokenizer *tokenizer);
/* *out = the content of a file, to be released with free(), or NULL if this tokenizer has no such file.
 * gpt_tokenizer.json always exists; tokenizer.json unless the vocabulary has ranks without merges;
 * tokenizer_config.json always, since without tokenizer.json it makes transformers reject the folder; vocab.json and
 * merges.txt for kind bytes, and kind bpe with GPT-2's pipeline, because they cannot say another.  Only
 * tokenizer_config.json uses `block_size`, the longest input.  Errors: GT_NO_MEMORY. */
enum gt_status tokenizer_file_text(const struct tokenizer *tokenizer, enum tokenizer_file file, int32_t block_size,
                                   char **out);
/* Writes all files to `folder`.  Errors: GT_IO, GT_NO_MEMORY. */
enum gt_status tokenizer_files_save(const struct tokenizer *tokenizer, int32_t block_size, const char *folder);

/* ---- vocabularies of other projects: byte-level BPE, and nothing else ----
 *
 *   tokenizer.json                Hugging Face tokenizers
 *   vocab.bpe + encoder.json      OpenAI's GPT-2
 *   merges.txt + vocab.json       the same, under Hugging Face's names
 *   NAME.tiktoken                 lines "BASE64 RANK"; <|endoftext|> gets the id after the last
 *
 * Every file is untrusted: sizes are limited, every entry is checked, and the error names the file and the field or
 * line.
 */
#define TOKENIZER_IMPORT_BYTES_MAX ((size_t)64 << 20)

/* `path` is one of these files (either half of a pair finds the other), a gpt_tokenizer.json, or a folder that contains
 * one of them; in a folder gpt_tokenizer.json comes first, then the order above.  Errors: GT_USAGE (no such file, or a
 * folder without any), GT_DATA, GT_UNSUPPORTED (another kind of tokenizer: the field is named), GT_IO, GT_NO_MEMORY. */
enum gt_status tokenizer_import(const void *owner, const char *path, struct tokenizer **out);
/* Sets *out to true when the folder contains a file for tokenizer_import(), and to false when it does not exist.
 * Errors: GT_IO. */
enum gt_status tokenizer_import_folder(const char *folder, bool *out);
/* Gives the tokenizer the chat template of a folder, if there is one: that of tokenizer_config.json (of several the one
 * named "default"), or a file of its own.  Errors: GT_IO, GT_NO_MEMORY. */
enum gt_status tokenizer_template_read(const char *folder, struct tokenizer *tokenizer);
/* Sets *out to true if the folder has one.  Errors: as above. */
enum gt_status tokenizer_folder_has_template(const char *folder, bool *out);

/* The content of a file; `path` is for messages. */
struct tokenizer_source {
    const char *path, *text;
    size_t count;
};

/* The steps of tokenizer_import() after it has read the files. */
enum gt_status tokenizer_import_json(const void *owner, const struct tokenizer_source *json, struct tokenizer **out);
enum gt_status tokenizer_import_pair(const void *owner, const struct tokenizer_source *vocab,
                                     const struct tokenizer_source *merges, struct tokenizer **out);
/* Adds the merges of vocab.bpe or merges.txt to an unfinished vocabulary with room for all of them.  Errors:
 * GT_DATA. */
enum gt_status tokenizer_import_merges(struct bpe *bpe, const struct tokenizer_source *merges);
enum gt_status tokenizer_import_tiktoken(const void *owner, const struct tokenizer_source *ranks,
                                         struct tokenizer **out);

/* ---- encoding text in one thread: the per-thread state of a tokenizer (scratch memory, a cache of pieces) ----
 *
 * The tokenizer is shared and constant; every thread has its own encoder.  The ids depend only on the tokenizer, the
 * text and `special`, not on the cache or on earlier calls. */

/* How to encode the text of special tokens, such as <|endoftext|>.  Literal tokens (bpe_set_literal()) are always
 * found. */
enum tokenizer_special {
    TOKENIZER_SPECIAL_AS_TEXT, /* as ordinary text: for all text from outside */
    TOKENIZER_SPECIAL_ALLOWED, /* as their ids, wherever their text occurs */
};

struct tokenizer_encoder;

/* Borrows the tokenizer, which outlives the encoder.  About 4 MiB for bpe.  Main thread only.  Errors: GT_NO_MEMORY. */
enum gt_status tokenizer_encoder_create(const void *owner, const struct tokenizer *tokenizer,
                                        struct tokenizer_encoder **out);

/* The bytes of text that the vocabulary has no token for (bpe only). */
struct tokenizer_unknown {
    uint64_t total, counts[256];
};
/* Returns those of all texts that the encoder has encoded. */
const struct tokenizer_unknown *tokenizer_encoder_unknown(const struct tokenizer_encoder *encoder);
/* Warns that these bytes are left out or became the unknown token, unless there are none.  The line begins with
 * `where`. */
void tokenizer_unknown_warn(const struct tokenizer *tokenizer, const struct tokenizer_unknown *unknown,
                            const char *where);

/* The place where encoding failed. */
struct tokenizer_fault {
    size_t at;           /* byte offset */
    uint32_t code_point; /* the character that is not in the vocabulary; UTF8_CODE_POINTS: the byte is not UTF-8 */
};

/* Sets out[*out_count] to the ids of one document.  There are at most `count` * the pipeline's `growth`, and `out` must
 * have room for that many.  Logs nothing and writes only to its arguments, so that it may run in any thread.  Errors:
 * GT_DATA, with *fault (chars only); GT_NO_MEMORY when there is no memory for a long piece of text, 40 bytes per byte
 * of the piece (bpe only). */
enum gt_status tokenizer_encoder_run(struct tokenizer_encoder *encoder, const char *text, size_t count,
                                     enum tokenizer_special special, int32_t *out, size_t *out_count,
                                     struct tokenizer_fault *fault);
/* Logs the GT_DATA or GT_NO_MEMORY that a run returned.  The message starts with `source` (a file, a flag). */
void tokenizer_fault_report(const struct tokenizer *tokenizer, enum gt_status status,
                            const struct tokenizer_fault *fault, const char *source);

/* ---- training a byte-pair encoding on text ----
 *
 * The trainer first counts the pieces of GPT-2's split, then repeatedly turns the most frequent adjacent pair into a
 * token.  Among equally frequent pairs the one with the smaller ids wins, left id first, as in BpeTrainer of Hugging
 * Face's tokenizers with a ByteLevel pre-tokenizer.  Ids: the 256 bytes in GPT-2's order, the merges in order, further
 * special tokens, <|endoftext|> last. */

#define BPE_TRAIN_VOCAB_MIN 257 /* the bytes and <|endoftext|> */
#define BPE_TRAIN_VOCAB_MAX 1000000

struct bpe_trainer;

/* `specials` are the special tokens besides <|endoftext|>, a constant list that ends with NULL; NULL: none.  Errors:
 * GT_NO_MEMORY. */
enum gt_status bpe_trainer_create(const void *owner, const char *const *specials, struct bpe_trainer **out);

/* Counts the pieces of a document, or of a part that was cut by bpe_split_cut().  Memory: about 40 bytes
 * plus the text for each distinct piece.  Errors: GT_NO_MEMORY. */
enum gt_status bpe_trainer_add(struct bpe_trainer *trainer, const char *text, size_t count);

/* Creates the tokenizer, with at most `vocab_size` tokens (BPE_TRAIN_VOCAB_MIN to _MAX); fewer when the text has no
 * more pairs.  Consumes the counts, so it must be called only once.  Errors: GT_NO_MEMORY. */
enum gt_status bpe_trainer_finish(struct bpe_trainer *trainer, const void *owner, int64_t vocab_size,
                                  struct tokenizer **out);

#endif
