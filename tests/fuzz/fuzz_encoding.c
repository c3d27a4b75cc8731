/* Fuzzes the detection of binary data and the decoder of other encodings.  Small and large reads
 * must give the same result, in valid UTF-8; a build without iconv rejects every input.  The first
 * byte selects the encoding. */
#include <string.h>

#include "base/utf8.h"
#include "data/text_kind.h"
#include "data/text_mark.h"
#include "tests/fuzz/fuzz_common.h"

enum { TEXT_BYTES = 1 << 16 };

static const char *const encodings[] = {"UTF-16LE",     "UTF-16BE",  "UTF-32LE", "latin1",
                                        "windows-1252", "SHIFT_JIS", "EUC-JP",   "ISO-2022-JP",
                                        "GB18030",      "UTF-8"};

static enum gt_status decode(struct hostmem *mem, const char *path, const char *encoding,
                             size_t capacity, unsigned char text[static TEXT_BYTES],
                             size_t *out_count)
{
    const struct corpus_file file = {.path = path};
    struct text_decoder *decoder = NULL;
    struct input *input = NULL;
    bool found = false;
    size_t got = 1;
    *out_count = 0;
    FUZZ_CHECK(input_open(mem, &file, NULL, 0, false, &input) == GT_OK &&
               input_next(input, &found) == GT_OK);
    enum gt_status status = text_decoder_begin(mem, &decoder, encoding, input, text, 0, 0);
    while (status == GT_OK && got > 0 && *out_count + capacity <= TEXT_BYTES) {
        status = text_decoder_read(decoder, input, text + *out_count, capacity, &got);
        *out_count += status == GT_OK ? got : 0;
    }
    hostmem_free(decoder);
    hostmem_free(input);
    return status;
}

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    static unsigned char large[TEXT_BYTES], small[TEXT_BYTES];
    size_t mark = 0, large_count = 0, small_count = 0;
    if (size == 0 || size > 4096)
        return;
    const char *encoding = encodings[data[0] % (sizeof encodings / sizeof encodings[0])];
    const struct text_kind *kind = text_kind_of(data + 1, size - 1, data[0] % 2 == 0);
    FUZZ_CHECK(kind == NULL || kind->name[0] != '\0');
    FUZZ_CHECK((text_mark_of(data + 1, size - 1, &mark) != NULL) == (mark > 0) && mark < size);
    (void)text_guess_latin((const char *)data + 1, size - 1);
    const char *path = fuzz_file(data + 1, size - 1);
    const enum gt_status status = decode(mem, path, encoding, TEXT_BYTES / 2, large, &large_count);
    FUZZ_CHECK(decode(mem, path, encoding, 64, small, &small_count) == status);
    if (status == GT_OK)
        FUZZ_CHECK(small_count == large_count && memcmp(small, large, large_count) == 0 &&
                   utf8_count_invalid(large, large_count) == 0);
}
