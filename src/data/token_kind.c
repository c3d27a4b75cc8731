/* Distinguishes token files from others by their first bytes, and 16-bit ids from other numbers by
 * statistics.
 *
 * A magic number of two or three bytes can be the first id of a good file, so the fields that
 * follow it are compared too.  The statistics count different values, because a repeated value is
 * no new evidence.
 */
#include "data/token_kind.h"

#include <ctype.h>
#include <math.h>
#include <strings.h>

#include "base/file.h"
#include "base/utf8.h"

#define SURE 48            /* numbers that must agree */
#define CONFINED_BITS 48.0 /* of evidence that low bytes are confined to a range */
#define CONFINED_END 240   /* confined low bytes are below this */
#define TEXT_WORDS 24      /* different pairs of bytes of a text */
/* Different second bytes of these pairs; ids of a narrow range have one or two. */
#define TEXT_HIGH_BYTES 8
#define WIDE_ID_END (1 << 18) /* vocabularies are smaller */
#define WIDE_ID_LEAST (-256)  /* ids that mark ignored tokens */
#define REAL_LEAST 0x1p-24    /* the smallest usual real number */

/* ---- headers that are read ---- */

static bool has_bytes(const unsigned char *bytes, size_t count, size_t offset, size_t length,
                      const char *wanted)
{
    return count >= offset + length && memcmp(bytes + offset, wanted, length) == 0;
}

/* llmq's scripts/tokenize_data.py: 8 bytes of magic, then int32: version, bytes of an id, ids,
 * vocabulary, and whether masks follow the ids. */
static bool layout_llmq(const unsigned char *bytes, size_t count, struct token_layout *out)
{
    const size_t head = 1024;
    if (count < head || !has_bytes(bytes, count, 0, 8, "BIN.TOK\n"))
        return false;
    const uint64_t version = le_read(bytes + 8, 4), width = le_read(bytes + 12, 4),
                   masks = le_read(bytes + 24, 4);
    *out = (struct token_layout){"an llmq token file", head, le_read(bytes + 16, 4), (size_t)width};
    return (version == 1 || (version == 2 && masks == 0)) && width == 4;
}

/* NeMo Automodel's nanogpt_dataset.py: int32: magic, version, ids, bytes of an id. */
static bool layout_nemo(const unsigned char *bytes, size_t count, struct token_layout *out)
{
    const size_t head = 1024;
    if (count < head || le_read(bytes, 4) != 278895051 || le_read(bytes + 4, 4) != 1)
        return false;
    const uint64_t width = le_read(bytes + 12, 4);
    *out = (struct token_layout){"a NeMo token file", head, le_read(bytes + 8, 4), (size_t)width};
    return width == 2 || width == 4;
}

/* lit-gpt's packed_dataset.py: 7 bytes of magic, a version in 8 bytes, the code of the type in 1,
 * the ids in 8. */
static bool layout_litgpt(const unsigned char *bytes, size_t count, struct token_layout *out)
{
    if (count < 24 || !has_bytes(bytes, count, 0, 15, "LITPKDS\1\0\0\0\0\0\0\0"))
        return false;
    *out = (struct token_layout){"a lit-gpt token file", 24, le_read(bytes + 16, 8),
                                 bytes[15] == 4 ? 4 : 2};
    return bytes[15] == 4 || bytes[15] == 8;
}

/* numpy/lib/format.py: 6 bytes of magic, 2 of version, the length of the header in 2 bytes (4 from
 * version 2 on), and the header, a Python dictionary. */
static bool layout_npy(const unsigned char *bytes, size_t count, struct token_layout *out)
{
    char text[TOKEN_KIND_HEAD_BYTES + 1];
    if (count < 12 || !has_bytes(bytes, count, 0, 6, "\x93NUMPY"))
        return false;
    const size_t length_bytes = bytes[6] == 1 ? 2 : 4, begin = 8 + length_bytes;
    const uint64_t length = le_read(bytes + 8, length_bytes);
    if (length > count - begin)
        return false;
    memcpy(text, bytes + begin, (size_t)length);
    text[length] = '\0';
    const char *descr = strstr(text, "'descr': '<"), *shape = strstr(text, "'shape': (");
    if (descr == NULL || shape == NULL)
        return false;
    char *end = NULL;
    const char *type = descr + strlen("'descr': '<");
    const bool narrow = strncmp(type, "u2'", 3) == 0;
    const bool known = narrow || strncmp(type, "u4'", 3) == 0 || strncmp(type, "i4'", 3) == 0;
    *out = (struct token_layout){"a NumPy array", begin + length,
                                 strtoull(shape + strlen("'shape': ("), &end, 10), narrow ? 2 : 4};
    return known && strncmp(end, ",)", 2) == 0;
}

bool token_layout_find(const unsigned char *bytes, size_t count, struct token_layout *out)
{
    return layout_llmq(bytes, count, out) || layout_nemo(bytes, count, out) ||
           layout_litgpt(bytes, count, out) || layout_npy(bytes, count, out);
}

/* ---- first bytes ---- */

#define TO_TOKENS "gpt-prepare makes token files from it: gpt-prepare --out-dir=data/NAME "
#define UNPACK(ending, program) \
    "unpack it: sh -c 'mv \"$0\" \"$0" ending "\" && " program " \"$0" ending "\"' "

static const struct token_kind gzip = {"compressed by gzip", NULL, UNPACK(".gz", "gunzip"), ""};
static const struct token_kind zip = {"a zip archive", NULL, "unpack it: unzip ", ""};
static const struct token_kind npz = {"a NumPy archive (.npz)", "np.load(p); a = a[a.files[0]]",
                                      NULL, NULL};
static const struct token_kind torch = {"a file of torch.save()",
                                        "__import__(\"torch\").load(p).numpy()", NULL, NULL};
static const struct token_kind pickle = {
    "a Python pickle", "np.asarray(__import__(\"pickle\").load(open(p, \"rb\")))", NULL, NULL};
static const struct token_kind safetensors = {"a model in safetensors", NULL,
                                              "--init_from names a model", NULL};
static const struct token_kind utf16 = {"text in UTF-16", NULL, TO_TOKENS, ""};
static const struct token_kind html = {
    "a web page, such as a server's answer to a wrong address", NULL,
    "download the data again, from the address of the file itself", NULL};
static const struct token_kind json_lines = {"JSON", NULL, TO_TOKENS "--format=jsonl ", ""};
static const struct token_kind text = {"text", NULL, TO_TOKENS, ""};

/* Kinds whose first bytes are enough. */
static const struct {
    size_t length;
    const char *bytes;
    struct token_kind kind;
} heads[] = {
    {8,
     "BIN.TOK\n",
     {"a token file of llmq with a mask, or of a version that is not known", NULL,
      "gpt-prepare --chat makes token files with a mask", NULL}},
    {7,
     "LITPKDS",
     {"a token file of lit-gpt whose ids have neither 16 nor 32 bits", NULL, "write it again",
      NULL}},
    {6,
     "\x93NUMPY",
     {"a NumPy array, but not a list of 16- or 32-bit whole numbers", "np.load(p)", NULL, NULL}},
    {8,
     "MMIDIDX",
     {"the index of a Megatron data set", NULL, "its ids are in the .bin beside it", NULL}},
    {8,
     "TNTIDX\0",
     {"the index of a fairseq data set", NULL, "its ids are in the .bin beside it", NULL}},
    {27,
     "version https://git-lfs.git",
     {"a pointer of Git LFS, without the data", NULL, "git lfs pull fetches the file", NULL}},
    {5,
     "PAR1\x15",
     {"a Parquet file", NULL,
      "python3 -c 'import json, sys, pyarrow.parquet as pq; [print(json.dumps(row)) for part in "
      "pq.ParquetFile(sys.argv[1]).iter_batches(1000, columns=[\"text\"]) for row in part.to_pylist()]' ",
      " | gpt-prepare --format=jsonl --out-dir=data/NAME -"}},
    {8, "ARROW1\0", {"an Arrow file", NULL, "write its text as JSON lines, for gpt-prepare", NULL}},
    {8,
     "\xcb\x99\x9f\x10\1\0\0",
     {"a NeMo token file whose ids have neither 16 nor 32 bits", NULL, "write it again", NULL}},
    {8,
     "\x01\x34\xd8\x88\0\0\0\1",
     {"a token file of llm.c, big-endian", "np.fromfile(p, \">u2\")[512:]", NULL, NULL}},
    {8,
     "\x01\x34\xd9\xa1\0\0\0\7",
     {"a token file of llm.c, big-endian", "np.fromfile(p, \">i4\")[256:]", NULL, NULL}},
    {8, "\x89HDF\r\n\x1a\n", {"an HDF5 file", NULL, "write its ids as 16-bit numbers", NULL}},
    {7, "\3757zXZ\0", {"compressed by xz", NULL, UNPACK(".xz", "unxz"), ""}},
    {10, "BZh91AY&SY", {"compressed by bzip2", NULL, UNPACK(".bz2", "bunzip2"), ""}},
    {16,
     "SQLite format 3",
     {"an SQLite database", NULL, "write its text as JSON lines, for gpt-prepare", NULL}},
};

/* Returns true if few bytes are zero, as in compressed data.  Half the bytes of small ids are zero.
 */
static bool is_dense(const unsigned char *bytes, size_t count)
{
    size_t zeros = 0;
    for (size_t i = 0; i < count; i++)
        zeros += bytes[i] == 0;
    return zeros * 4 < count;
}

/* RFC 1952: magic and method; flags; xfl and the system after the time. */
static bool is_gzip(const unsigned char *bytes, size_t count)
{
    return count > 18 && has_bytes(bytes, count, 0, 3, "\x1f\x8b\x08") && bytes[3] < 32 &&
           (bytes[8] == 0 || bytes[8] == 2 || bytes[8] == 4) &&
           (bytes[9] <= 13 || bytes[9] == 255) && is_dense(bytes + 10, count - 10);
}

/* RFC 8878: the magic is an id above 64,000, and a bit of the descriptor is reserved. */
static bool is_zstd(const unsigned char *bytes, size_t count)
{
    return count > 8 && has_bytes(bytes, count, 0, 4, "\x28\xb5\x2f\xfd") &&
           (bytes[4] & 0x18) == 0 && is_dense(bytes + 5, count - 5);
}

/* Arrow's columnar format, "Encapsulated message format": four bytes of ff, the length of the
 * metadata, a multiple of 8, and the place of their root table. */
static bool is_arrow_stream(const unsigned char *bytes, size_t count)
{
    return count > 16 && has_bytes(bytes, count, 0, 4, "\xff\xff\xff\xff") && bytes[4] % 8 == 0 &&
           has_bytes(bytes, count, 6, 2, "\0\0") && bytes[8] < 64 &&
           has_bytes(bytes, count, 9, 3, "\0\0\0");
}

/* PKWARE's APPNOTE, 4.3.7: a local header with a name in ASCII, of a stored or deflated member. */
static const struct token_kind *zip_kind(const unsigned char *bytes, size_t count)
{
    if (count < 40 || !has_bytes(bytes, count, 0, 4, "PK\3\4") || bytes[5] != 0 || bytes[9] != 0)
        return NULL;
    const size_t length = (size_t)le_read(bytes + 26, 2);
    const char *name = (const char *)bytes + 30;
    if (length == 0 || length > count - 30)
        return NULL;
    for (size_t i = 0; i < length; i++)
        if (!isprint((unsigned char)name[i]))
            return NULL;
    if (length > 4 && memcmp(name + length - 4, ".npy", 4) == 0)
        return &npz;
    return length > 8 && memcmp(name + length - 8, "data.pkl", 8) == 0 ? &torch : &zip;
}

/* Python's pickletools: protocol 4 begins with a frame, whose length has 8 bytes; protocols 2 and 3
 * with the magic number of torch.save(), the name of NumPy's array, or an empty list or dictionary,
 * which is stored as number 0. */
static const struct token_kind *pickle_kind(const unsigned char *bytes, size_t count,
                                            uint64_t size_bytes)
{
    static const struct token_kind dictionary = {"a pickled dictionary of Python", NULL,
                                                 "write its ids as 16-bit numbers", NULL};
    if (count < 12 || bytes[0] != 0x80 || bytes[1] < 2 || bytes[1] > 5)
        return NULL;
    if (bytes[1] >= 4 && bytes[2] == 0x95 && le_read(bytes + 3, 8) < size_bytes)
        return bytes[11] == '}' ? &dictionary : &pickle;
    if (has_bytes(bytes, count, 2, 6, "\x8a\nl\xfc\x9c\x46"))
        return &torch;
    if (has_bytes(bytes, count, 2, 6, "cnumpy"))
        return &pickle;
    const bool listed = has_bytes(bytes, count, 3, 2, "q") && memchr("(KMUX", bytes[5], 5) != NULL;
    if (listed && bytes[2] == '}')
        return &dictionary;
    return listed && bytes[2] == ']' ? &pickle : NULL;
}

/* The length of the header in 8 bytes, then the header, a JSON object. */
static bool is_safetensors(const unsigned char *bytes, size_t count, uint64_t size_bytes)
{
    return count > 16 && le_read(bytes, 8) < size_bytes && has_bytes(bytes, count, 8, 2, "{\"") &&
           memchr(bytes + 10, ':', count - 10) != NULL && bytes[10] >= ' ' && bytes[11] >= ' ' &&
           bytes[12] >= ' ';
}

/* ---- different 16-bit words ---- */

struct words {
    uint64_t seen[(UINT16_MAX + 1) / 64];
    int different;
};

static void words_add(struct words *words, uint64_t word)
{
    uint64_t *seen = &words->seen[word / 64], bit = UINT64_C(1) << word % 64;
    words->different += (*seen & bit) == 0;
    *seen |= bit;
}

static void words_add_all(struct words *words, const unsigned char *bytes, size_t count)
{
    for (size_t at = 0; at + 2 <= count; at += 2)
        words_add(words, le_read(bytes + at, 2));
}

/* Adds every second byte. */
static void words_add_bytes(struct words *words, const unsigned char *bytes, size_t count)
{
    for (size_t at = 0; at < count; at += 2)
        words_add(words, bytes[at]);
}

/* ---- text ---- */

/* Both bytes are letters, digits, signs or the like in one id in five of GPT-2's, so 24 different
 * ids of that kind occur in one file of 10^16.  A file of an odd size is refused anyway.  The block
 * may end within a character. */
static bool is_text(const unsigned char *bytes, size_t count, uint64_t size_bytes)
{
    struct words words = {.different = 0}, highs = {.different = 0};
    for (size_t at = 0; at < count;) {
        uint32_t code_point = 0;
        const int length = utf8_decode(bytes + at, count - at, &code_point);
        if (length == UTF8_INCOMPLETE)
            break;
        if (length <= 0 || (code_point < ' ' && strchr("\t\n\f\r\033", (int)code_point) == NULL) ||
            code_point == 0)
            return false;
        at += (size_t)length;
    }
    words_add_all(&words, bytes, count);
    words_add_bytes(&highs, bytes + 1, count - 1);
    return (words.different >= TEXT_WORDS && highs.different >= TEXT_HIGH_BYTES) ||
           (size_bytes % 2 != 0 && size_bytes > 8);
}

/* Returns true for a byte-order mark, which would be id 65279, and ASCII characters. */
static bool is_utf16(const unsigned char *bytes, size_t count)
{
    struct words words = {.different = 0};
    bool ascii = has_bytes(bytes, count, 0, 2, "\xff\xfe");
    for (size_t at = 2; at + 2 <= count && ascii; at += 2)
        ascii = bytes[at + 1] == 0 && bytes[at] < 0x80 && bytes[at] >= '\t';
    words_add_all(&words, bytes, count);
    return ascii && words.different > 4;
}

/* Returns the kind of a text by its first characters. */
static const struct token_kind *text_kind(const unsigned char *bytes, size_t count)
{
    static const char *const pages[] = {"<!doctype", "<html", "<?xml"};
    size_t at = has_bytes(bytes, count, 0, 3, "\xef\xbb\xbf") ? 3 : 0;
    while (at < count && isspace(bytes[at]))
        at++;
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++)
        if (count - at > strlen(pages[i]) &&
            strncasecmp((const char *)bytes + at, pages[i], strlen(pages[i])) == 0)
            return &html;
    return count - at > 1 && bytes[at] == '{' && memchr("\" \r\n}", bytes[at + 1], 5) != NULL
               ? &json_lines
               : &text;
}

const struct token_kind *token_kind_of_head(const unsigned char *bytes, size_t count,
                                            uint64_t size_bytes)
{
    static const struct token_kind zstd = {"compressed by zstd", NULL,
                                           UNPACK(".zst", "unzstd --rm"), ""};
    static const struct token_kind arrow = {
        "a stream of Arrow, as the library datasets caches", NULL,
        "python3 -c 'import json, sys, pyarrow as pa; [print(json.dumps(row)) for part in "
        "pa.ipc.open_stream(sys.argv[1]) for row in part.to_pylist()]' ",
        " | gpt-prepare --format=jsonl --out-dir=data/NAME -"};
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        if (has_bytes(bytes, count, 0, heads[i].length, heads[i].bytes))
            return &heads[i].kind;
    if (is_gzip(bytes, count))
        return &gzip;
    if (is_zstd(bytes, count))
        return &zstd;
    if (is_arrow_stream(bytes, count))
        return &arrow;
    if (pickle_kind(bytes, count, size_bytes) != NULL)
        return pickle_kind(bytes, count, size_bytes);
    if (is_safetensors(bytes, count, size_bytes))
        return &safetensors;
    if (is_utf16(bytes, count))
        return &utf16;
    if (is_text(bytes, count, size_bytes))
        return text_kind(bytes, count);
    return zip_kind(bytes, count);
}

/* ---- numbers of another width ---- */

/* A type of more than 16 bits. */
struct wide {
    struct token_kind kind;
    size_t bytes;
    bool big_endian, is_real, is_whole; /* is_whole: real numbers that are whole ones */
};

#define WHOLE(bits, order, type)                                                                   \
    {                                                                                              \
        "an array of " bits "-bit whole numbers" order, "np.fromfile(p, \"" type "\")", NULL, NULL \
    }
#define REALS                                                           \
    {                                                                   \
        "an array of real numbers", NULL, "ids are whole numbers", NULL \
    }
#define REAL_IDS(bits, type)                                        \
    {                                                               \
        "an array of whole numbers in " bits "-bit floating point", \
            "np.fromfile(p, \"" type "\")", NULL, NULL              \
    }

/* Data that fits two types has the first of them. */
static const struct wide wides[] = {
    {WHOLE("64", "", "<i8"), 8, false, false, true},
    {WHOLE("32", "", "<i4"), 4, false, false, true},
    {REAL_IDS("64", "<f8"), 8, false, true, true},
    {REAL_IDS("32", "<f4"), 4, false, true, true},
    {WHOLE("64", ", big-endian", ">i8"), 8, true, false, true},
    {WHOLE("32", ", big-endian", ">i4"), 4, true, false, true},
    {REALS, 4, false, true, false},
    {REALS, 8, false, true, false},
};

/* Returns the number of a group as an integer; for real numbers, its bits. */
static int64_t group_read(const struct wide *wide, const unsigned char *bytes)
{
    uint64_t value = le_read(bytes, wide->bytes);
    if (wide->big_endian)
        value = wide->bytes == 8 ? __builtin_bswap64(value) : __builtin_bswap32((uint32_t)value);
    return wide->bytes == 8 ? (int64_t)value : (int64_t)(int32_t)(uint32_t)value;
}

static double real_of(const struct wide *wide, int64_t bits)
{
    float single;
    double value;
    const uint32_t low = (uint32_t)bits;
    memcpy(&single, &low, sizeof single);
    memcpy(&value, &bits, sizeof value);
    return wide->bytes == 8 ? value : (double)single;
}

/* Returns true if real numbers of this size are usual. */
static bool size_is_usual(double size)
{
    return size >= REAL_LEAST && size <= 1 / REAL_LEAST;
}

/* Returns true if the file fits a type of real numbers.  A quarter of all 16-bit words are the
 * highest word of a real number of usual size, so the chance of 24 different ones is 2^-48.  The
 * lowest words of real numbers are arbitrary; if at least half of them are such words too, these
 * are ids of a part of the vocabulary.  One word in 25 is the highest word of a whole number that
 * can be an id, so 11 different ones suffice, or a 0, see fits_whole(). */
static bool fits_reals(const struct wide *wide, const unsigned char *bytes, size_t count, bool sure)
{
    const int top_bit = wide->bytes == 8 ? 48 : 16; /* where the highest word begins */
    struct words tops = {.different = 0};
    int numbers = 0, twins = 0;
    bool has_zero = false;
    for (size_t at = 0; at + wide->bytes <= count; at += wide->bytes) {
        const int64_t bits = group_read(wide, bytes + at);
        const double value = real_of(wide, bits);
        has_zero |= bits == 0;
        if (bits == 0)
            continue;
        if (!size_is_usual(fabs(value)))
            return false;
        if (wide->is_whole &&
            (value != floor(value) || value < WIDE_ID_LEAST || value >= WIDE_ID_END))
            return false;
        words_add(&tops, (uint64_t)bits >> top_bit & UINT16_MAX);
        twins += size_is_usual(fabs(real_of(wide, (int64_t)((uint64_t)bits << top_bit))));
        numbers++;
    }
    if (!sure || numbers < SURE)
        return !sure;
    return wide->is_whole ? has_zero || tops.different >= 11
                          : tops.different >= SURE / 2 && twins * 2 < numbers;
}

/* Returns true if the file fits a type of whole numbers.  Words above the largest high word are
 * then all low words.  Among 16-bit ids, words above a limit are at any place, so the chance that n
 * of them are all at every second place is 2^-n.  The exception is text of one character a line,
 * whose newline is often id 0: between the newlines there are few different ids, and none of them
 * is 0. */
static bool fits_whole(const struct wide *wide, const unsigned char *bytes, size_t count, bool sure)
{
    struct words lows = {.different = 0};
    int64_t highest = 0;
    int numbers = 0;
    bool has_zero = false;
    for (size_t at = 0; at + wide->bytes <= count; at += wide->bytes) {
        const int64_t value = group_read(wide, bytes + at);
        if (value < WIDE_ID_LEAST || value >= WIDE_ID_END)
            return false;
        highest = value >> 16 > highest ? value >> 16 : highest;
    }
    for (size_t at = 0; at + wide->bytes <= count; at += wide->bytes) {
        const int64_t value = group_read(wide, bytes + at), low = value & UINT16_MAX;
        numbers += low > highest && (!wide->big_endian || low % 256 != 0);
        has_zero |= value == 0;
        words_add(&lows, (uint64_t)low);
    }
    return !sure || (numbers >= SURE && (has_zero || lows.different >= 16));
}

/* Returns true for -1, which marks what is ignored. */
static bool is_ignored(const unsigned char *word)
{
    return word[0] == 0xFF && word[1] == 0xFF;
}

/* Ids have all low bytes with every high byte, except the highest, where the vocabulary ends.  The
 * chance that n different ids all have low bytes below b is (b / 256)^n.  Multiples of a number
 * also have a largest low byte, but few of the low bytes below it. */
static const struct token_kind *confined_kind(const unsigned char *bytes, size_t count, bool sure)
{
    static const struct token_kind narrow = {"an array of 8-bit numbers", "np.fromfile(p, \"u1\")",
                                             NULL, NULL};
    static const struct token_kind swapped = {"an array of 16-bit numbers, big-endian",
                                              "np.fromfile(p, \">u2\")", NULL, NULL};
    struct words words = {.different = 0}, lows = {.different = 0};
    unsigned top = 0, largest = 0;
    for (size_t at = 0; at + 2 <= count; at += 2)
        top = bytes[at + 1] > top && !is_ignored(bytes + at) ? bytes[at + 1] : top;
    for (size_t at = 0; at + 2 <= count; at += 2) {
        if (bytes[at + 1] == 0 || bytes[at + 1] == top || is_ignored(bytes + at))
            continue;
        largest = bytes[at] > largest ? bytes[at] : largest;
        words_add(&lows, bytes[at]);
        words_add(&words, le_read(bytes + at, 2));
    }
    const double bits = words.different * log2(256.0 / (largest + 1.0));
    if (largest >= CONFINED_END || (unsigned)lows.different * 2 < largest + 1)
        return NULL;
    if (!(bits >= (sure ? CONFINED_BITS : CONFINED_BITS / 8)))
        return NULL;
    return top > largest + largest / 16 + 1 ? &swapped : &narrow;
}

/* Whole numbers in 16-bit floating point are not small words, and those below 0x6400, which is
 * 1024, end in zero bits.  One word in 25 does, so the chance of 11 different ones is 2^-50. */
static const struct token_kind *half_kind(const unsigned char *bytes, size_t count, bool sure)
{
    static const struct token_kind halves = {
        "an array of 16-bit floating point, which rounds ids above 2048", NULL,
        "write the ids again, as uint16", NULL};
    struct words words = {.different = 0};
    for (size_t at = 0; at + 2 <= count; at += 2) {
        const uint64_t word = le_read(bytes + at, 2);
        const int fraction_bits = 25 - (int)(word >> 10);
        if (word == 0)
            continue;
        if (word < 0x3C00 || word >= 0x7C00 ||
            (fraction_bits > 0 && (word & ((UINT64_C(1) << fraction_bits) - 1)) != 0))
            return NULL;
        if (fraction_bits > 0)
            words_add(&words, word);
    }
    return !sure || words.different >= 11 ? &halves : NULL;
}

const struct token_kind *token_kind_of_numbers(const unsigned char *bytes, size_t count, bool sure)
{
    for (size_t i = 0; i < sizeof wides / sizeof wides[0]; i++) {
        const struct wide *wide = &wides[i];
        if (wide->is_real ? fits_reals(wide, bytes, count, sure)
                          : fits_whole(wide, bytes, count, sure))
            return &wide->kind;
    }
    const struct token_kind *half = half_kind(bytes, count, sure);
    return half != NULL ? half : confined_kind(bytes, count, sure);
}

/* ---- refusing ---- */

enum gt_status token_kind_refuse(const struct token_kind *kind, const char *path)
{
    char quoted[FILE_PATH_MAX];
    file_shell_quote(quoted, sizeof quoted, path);
    if (kind->load == NULL)
        return FAIL(GT_DATA, "%s: this file is %s, not 16-bit token ids; %s%s%s", path, kind->name,
                    kind->advice, kind->tail != NULL ? quoted : "",
                    kind->tail != NULL ? kind->tail : "");
    return FAIL(
        GT_DATA,
        "%s: this file is %s, not 16-bit token ids; this command replaces it with llm.c's "
        "32-bit tokens: python3 -c "
        "'import numpy as np, os, sys; p = sys.argv[1]; a = %s; h = np.zeros(256, \"<i4\"); h[:3] = %d, %d, "
        "a.size; open(p + \".new\", \"wb\").write(h.tobytes() + a.ravel().astype(\"<i4\").tobytes()); "
        "os.replace(p + \".new\", p)' %s",
        path, kind->name, kind->load, TOKEN_SHARD_MAGIC_U32, TOKEN_SHARD_VERSION_U32, quoted);
}
