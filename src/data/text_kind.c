/* Examines the first bytes of a file, and converts texts in other encodings.
 *
 * Formats are recognised by the magic numbers in their specifications, if these are so long or
 * unusual that no text begins with them.  The decoder's buffer contains the bytes that are not yet
 * converted; a character that is cut off at its end waits there for the rest.  The shift state of
 * stateful encodings is in iconv's descriptor, new for each text.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "data/text_kind.h"

#include <errno.h>

#ifdef HAVE_ICONV
#include <iconv.h>
#else
/* encoding_open() refuses every encoding, so nothing is converted. */
typedef int iconv_t;
#define iconv(state, in, in_left, out, out_left) \
    ((void)(state), (void)(in), (void)(in_left), (void)(out), (void)(out_left), (size_t)-1)
#define iconv_close(state) ((void)(state))
#endif

/* Fuzzing uses a smaller buffer. */
#ifndef RAW_BYTES
#define RAW_BYTES ((size_t)1 << 20)
#endif
#define CLOSED ((iconv_t)-1)

/* A magic number: `length` bytes at `offset`. */
struct text_magic {
    size_t offset, length;
    const char *bytes;
    struct text_kind kind;
};

#define RENAME "text needs no change, but the name must end in "

#define ARROW(open)                                                                                 \
    "python3 -c 'import json, sys, pyarrow as pa; [print(json.dumps(row, default=str)) for row in " \
    "pa.ipc." open "(sys.argv[1]).read_all().to_pylist()]' "

static const struct text_magic magics[] = {
    {0, 4, "PAR1", {"a Parquet file, which must be given by name", NULL, NULL}},
    {0, 4, "PK\3\4", {"a zip archive (as .docx, .epub and .npz are)", "unzip -d texts ", ""}},
    {0, 5, "%PDF-", {"a PDF document", "pdftotext ", " text.txt"}},
    {0, 4, "\x89PNG", {"a PNG image", NULL, NULL}},
    {0, 3, "\xff\xd8\xff", {"a JPEG image", NULL, NULL}},
    {0, 5, "GIF87", {"a GIF image", NULL, NULL}},
    {0, 5, "GIF89", {"a GIF image", NULL, NULL}},
    {0, 4, "GGUF", {"a model in GGUF", NULL, NULL}},
    {0, 6, "\x93NUMPY", {"a NumPy array", NULL, NULL}},
    {0, 2, "\x80\2", {"a Python pickle", NULL, NULL}},
    {0, 2, "\x80\3", {"a Python pickle", NULL, NULL}},
    {0, 2, "\x80\4", {"a Python pickle", NULL, NULL}},
    {0, 2, "\x80\5", {"a Python pickle", NULL, NULL}},
    {0, 4, "\xff\xff\xff\xff", {"a stream of Arrow", ARROW("open_stream"), " >rows.jsonl"}},
    {0, 6, "ARROW1", {"an Arrow file", ARROW("open_file"), " >rows.jsonl"}},
    {0, 16, "SQLite format 3", {"an SQLite database", NULL, NULL}},
    {0, 4, "\177ELF", {"a program", NULL, NULL}},
    {0, 8, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", {"an old Office document", NULL, NULL}},
    {0, 6, "7z\xbc\xaf\x27\x1c", {"a 7z archive", "7z x -otexts ", ""}},
    {0, 3, "\x1f\x8b\x08", {"compressed by gzip", RENAME ".gz", NULL}},
    {0, 6, "\3757zXZ", {"compressed by xz", RENAME ".xz", NULL}},
    {0, 4, "\x28\xb5\x2f\xfd", {"compressed by zstd", RENAME ".zst", NULL}},
    {4, 6, "1AY&SY", {"compressed by bzip2", RENAME ".bz2", NULL}},
};

static const struct text_kind safetensors = {"a model in safetensors", NULL, NULL};
static const struct text_kind json_list = {"one JSON list, not JSON lines",
                                           "gpt-prepare --format=jsonl ", ""};

/* The file begins with the header's length in eight little-endian bytes, and the header, which is a
 * JSON object. */
static bool is_safetensors(const unsigned char *bytes, size_t count)
{
    return count > 9 && memcmp(bytes + 3, "\0\0\0\0\0{\"", 7) == 0;
}

bool text_begins_with(const unsigned char *bytes, size_t count, char wanted)
{
    size_t at = count >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (at < count && memchr(" \t\r\n", bytes[at], 4) != NULL)
        at++;
    return at < count && bytes[at] == wanted;
}

const struct text_kind *text_kind_of(const unsigned char *bytes, size_t count, bool is_json)
{
    for (size_t i = 0; i < sizeof magics / sizeof magics[0]; i++) {
        const struct text_magic *magic = &magics[i];
        if (count >= magic->offset + magic->length &&
            memcmp(bytes + magic->offset, magic->bytes, magic->length) == 0)
            return &magic->kind;
    }
    if (is_safetensors(bytes, count))
        return &safetensors;
    return is_json && text_begins_with(bytes, count, '[') ? &json_list : NULL;
}

const char *text_guess_latin(const char *text, size_t count)
{
    /* The range 0x80 to 0x9F has control characters in Latin-1; in Windows-1252 these are the euro,
     * quotes, dashes and the like. */
    static const char punctuation[] = "\x80\x82\x84\x85\x8c\x91\x92\x93\x94\x95\x96\x97\x9c";
    const unsigned char *bytes = (const unsigned char *)text;
    size_t high = 0, runs = 0, windows = 0;
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] < 0x80)
            continue;
        high++;
        runs += i == 0 || bytes[i - 1] < 0x80;
        windows += bytes[i] < 0xA0;
        if (bytes[i] < 0xA0 && strchr(punctuation, text[i]) == NULL)
            return NULL;
    }
    if (high == 0 || runs * 10 < high * 6)
        return NULL;
    return windows > 0 ? "windows-1252" : "latin1";
}

/* ---- decoding ---- */

struct text_decoder {
    iconv_t state;
    const char *encoding;
    size_t raw_count, raw_used;
    uint64_t raw_offset; /* offset of raw[0] in the text */
    bool raw_ended;      /* the input has ended */
    bool flushed;
    unsigned char raw[RAW_BYTES];
};

/* `input` is the text that is in this encoding, or NULL. */
static enum gt_status encoding_open(const char *encoding, const struct input *input, iconv_t *out)
{
#ifdef HAVE_ICONV
    (void)input;
    *out = iconv_open("UTF-8", encoding);
    if (*out != CLOSED)
        return GT_OK;
    return FAIL(
        GT_USAGE,
        "--encoding=%s: this system does not know this encoding; iconv -l lists those that it does",
        encoding);
#else
    *out = CLOSED;
    if (input != NULL)
        log_note("%s: this text is %s", input_info_get(input)->label, encoding);
    return FAIL(
        GT_UNSUPPORTED,
        "this gpt-prepare was built without iconv and reads UTF-8 only; convert the text first: "
        "iconv -f %s -t UTF-8 FILE >text.txt",
        encoding);
#endif
}

enum gt_status text_encoding_check(const char *encoding, bool *out_is_ascii)
{
    char letter[] = "A", converted[8] = "", *in = letter, *out = converted;
    size_t in_left = 1, out_left = sizeof converted;
    iconv_t state;
    TRY(encoding_open(encoding, NULL, &state));
    *out_is_ascii =
        iconv(state, &in, &in_left, &out, &out_left) != (size_t)-1 && converted[0] == 'A';
    iconv_close(state);
    return GT_OK;
}

static void decoder_close(void *object)
{
    struct text_decoder *decoder = object;
    if (decoder->state != CLOSED)
        iconv_close(decoder->state);
}

enum gt_status text_decoder_begin(const void *owner, struct text_decoder **out,
                                  const char *encoding, const struct input *input,
                                  const unsigned char *bytes, size_t count, size_t skip)
{
    assert(count <= RAW_BYTES && skip <= count);
    if (*out == NULL)
        TRY(HOSTMEM_NEW(owner, 1, "decoding", out));
    else if ((*out)->state != CLOSED)
        iconv_close((*out)->state);
    struct text_decoder *decoder = *out;
    hostmem_at_free(decoder, decoder_close);
    decoder->state = CLOSED;
    TRY(encoding_open(encoding, input, &decoder->state));
    decoder->encoding = encoding;
    memcpy(decoder->raw, bytes, count);
    decoder->raw_count = count;
    decoder->raw_used = skip;
    decoder->raw_offset = 0;
    decoder->raw_ended = decoder->flushed = false;
    return GT_OK;
}

/* Reads more bytes after those that are left in the buffer. */
static enum gt_status raw_fill(struct text_decoder *decoder, struct input *input)
{
    size_t got = 0;
    decoder->raw_count -= decoder->raw_used;
    memmove(decoder->raw, decoder->raw + decoder->raw_used, decoder->raw_count);
    decoder->raw_offset += decoder->raw_used;
    decoder->raw_used = 0;
    TRY(input_read(input, decoder->raw + decoder->raw_count, RAW_BYTES - decoder->raw_count, &got));
    decoder->raw_count += got;
    decoder->raw_ended = got == 0;
    return GT_OK;
}

/* Converts as much of the buffer as fits; at the end, flushes iconv.  *out_starved is true when the
 * rest is an incomplete character.  Returns false when the bytes are invalid. */
static bool raw_convert(struct text_decoder *decoder, char **out, size_t *out_left,
                        bool *out_starved)
{
    char *in = (char *)decoder->raw + decoder->raw_used;
    size_t in_left = decoder->raw_count - decoder->raw_used;
    const bool flush = in_left == 0 && decoder->raw_ended;
    const size_t result =
        iconv(decoder->state, flush ? NULL : &in, flush ? NULL : &in_left, out, out_left);
    const int reason = result == (size_t)-1 ? errno : 0;
    decoder->raw_used = decoder->raw_count - in_left;
    decoder->flushed = flush && reason == 0;
    *out_starved = reason == EINVAL;
    return reason == 0 || reason == E2BIG || (reason == EINVAL && !decoder->raw_ended);
}

enum gt_status text_decoder_read(struct text_decoder *decoder, struct input *input,
                                 unsigned char *out, size_t capacity, size_t *out_count)
{
    char *to = (char *)out;
    size_t left = capacity;
    bool starved = false;
    assert(capacity >= 64);
    while (left == capacity && !decoder->flushed) {
        if ((starved || decoder->raw_used == decoder->raw_count) && !decoder->raw_ended)
            TRY(raw_fill(decoder, input));
        if (!raw_convert(decoder, &to, &left, &starved))
            return FAIL(GT_DATA,
                        "%s: byte %" PRIu64
                        " is not valid in %s; --encoding names the encoding of the text",
                        input_info_get(input)->label, decoder->raw_offset + decoder->raw_used,
                        decoder->encoding);
    }
    *out_count = capacity - left;
    return GT_OK;
}
