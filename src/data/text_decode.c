/* Converts texts in other encodings to UTF-8 with iconv(3).
 *
 * A buffer contains the bytes that are not yet converted; a character that is cut off at its end waits there for the
 * rest.  The shift state of stateful encodings is in iconv's descriptor, which is new for each text.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "data/text_decode.h"

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
    return FAIL(GT_USAGE, "--encoding=%s: this system does not know this encoding; iconv -l lists those that it does",
                encoding);
#else
    *out = CLOSED;
    if (input != NULL)
        log_note("%s: this text is %s", input_info_get(input)->label, encoding);
    return FAIL(GT_UNSUPPORTED,
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
    *out_is_ascii = iconv(state, &in, &in_left, &out, &out_left) != (size_t)-1 && converted[0] == 'A';
    iconv_close(state);
    return GT_OK;
}

static void decoder_close(void *object)
{
    struct text_decoder *decoder = object;
    if (decoder->state != CLOSED)
        iconv_close(decoder->state);
}

enum gt_status text_decoder_begin(const void *owner, struct text_decoder **out, const char *encoding,
                                  const struct input *input, const unsigned char *bytes, size_t count, size_t skip)
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

/* Converts as much of the buffer as fits; at the end, flushes iconv.  *out_starved is true when the rest is an
 * incomplete character.  Returns false when the bytes are invalid. */
static bool raw_convert(struct text_decoder *decoder, char **out, size_t *out_left, bool *out_starved)
{
    char *in = (char *)decoder->raw + decoder->raw_used;
    size_t in_left = decoder->raw_count - decoder->raw_used;
    const bool flush = in_left == 0 && decoder->raw_ended;
    const size_t result = iconv(decoder->state, flush ? NULL : &in, flush ? NULL : &in_left, out, out_left);
    const int reason = result == (size_t)-1 ? errno : 0;
    decoder->raw_used = decoder->raw_count - in_left;
    decoder->flushed = flush && reason == 0;
    *out_starved = reason == EINVAL;
    return reason == 0 || reason == E2BIG || (reason == EINVAL && !decoder->raw_ended);
}

enum gt_status text_decoder_read(struct text_decoder *decoder, struct input *input, unsigned char *out, size_t capacity,
                                 size_t *out_count)
{
    char *to = (char *)out;
    size_t left = capacity;
    bool starved = false;
    assert(capacity >= 64);
    while (left == capacity && !decoder->flushed) {
        if ((starved || decoder->raw_used == decoder->raw_count) && !decoder->raw_ended)
            TRY(raw_fill(decoder, input));
        if (!raw_convert(decoder, &to, &left, &starved))
            return FAIL(GT_DATA, "%s: byte %" PRIu64 " is not valid in %s; --encoding names the encoding of the text",
                        input_info_get(input)->label, decoder->raw_offset + decoder->raw_used, decoder->encoding);
    }
    *out_count = capacity - left;
    return GT_OK;
}
