/* Reads multiple-choice questions.
 *
 * A question is at most 65535 bytes long and is read into one buffer.  Its parts are then taken one
 * after the other, and each count is compared with the remaining words.  How a model answers is in
 * judge/judge.c.
 */
#include "data/choices.h"

#include <unistd.h>

#include "base/file.h"

enum { HEADER_BYTES = 1024, WORDS_MAX = 32768, START = 65535, FIRST_WORDS = 3 };

struct choices {
    int fd;
    int64_t vocab_size, count, done;
    uint64_t size_bytes, at_bytes;
    uint16_t words[WORDS_MAX];
    char path[FILE_PATH_MAX];
};

static enum gt_status header_read(struct choices *choices, const char *path)
{
    int32_t header[3];
    TRY(file_open_read(path, &choices->fd, &choices->size_bytes));
    if (choices->size_bytes < HEADER_BYTES)
        return FAIL(GT_DATA, "%s: is %" PRIu64 " bytes long, too short for the header of questions",
                    path, choices->size_bytes);
    TRY(file_read_at(choices->fd, path, 0, header, sizeof header));
    if (header[0] != CHOICES_MAGIC || header[1] != 1)
        return FAIL(header[0] == CHOICES_MAGIC ? GT_UNSUPPORTED : GT_DATA,
                    "%s: questions with magic %" PRId32 " and version %" PRId32
                    "; %d and 1 are read",
                    path, header[0], header[1], CHOICES_MAGIC);
    if (header[2] < 1)
        return FAIL(GT_DATA, "%s: header[2], the number of questions, is %" PRId32, path,
                    header[2]);
    choices->count = header[2];
    choices->at_bytes = HEADER_BYTES;
    return GT_OK;
}

static void file_close(void *object)
{
    struct choices *choices = object;
    if (choices->fd >= 0)
        (void)close(choices->fd);
}

enum gt_status choices_open(const void *owner, const char *path, int64_t vocab_size,
                            struct choices **out)
{
    struct choices *choices;
    TRY(HOSTMEM_NEW(owner, 1, "questions", &choices));
    hostmem_at_free(choices, file_close);
    choices->fd = -1;
    choices->vocab_size = vocab_size;
    (void)snprintf(choices->path, sizeof choices->path, "%s", path);
    const enum gt_status status = header_read(choices, choices->path);
    return FINISH(status, out, choices, hostmem_free);
}

int64_t choices_count(const struct choices *choices)
{
    return choices->count;
}

static enum gt_status malformed(const struct choices *choices, const char *what)
{
    return FAIL(GT_DATA, "%s: question %" PRId64 " at byte %" PRIu64 ": %s", choices->path,
                choices->done, choices->at_bytes, what);
}

/* Reads the question's words into the buffer; *out_count is their number. */
static enum gt_status words_read(struct choices *choices, size_t *out_count)
{
    const uint64_t left = choices->size_bytes - choices->at_bytes;
    uint16_t first[FIRST_WORDS];
    if (left < sizeof first)
        return malformed(choices, "the file ends early");
    TRY(file_read_at(choices->fd, choices->path, choices->at_bytes, first, sizeof first));
    if (first[0] != START || first[2] != (uint16_t)choices->done)
        return malformed(choices, "does not begin with 65535 and its index");
    if (first[1] % 2 != 0 || first[1] < sizeof first || first[1] > left)
        return malformed(choices, "its length is odd, too small, or beyond the end of the file");
    *out_count = first[1] / 2u;
    return file_read_at(choices->fd, choices->path, choices->at_bytes, choices->words, first[1]);
}

/* Takes a count and that many tokens from the buffer. */
static enum gt_status tokens_take(const struct choices *choices, size_t count, size_t *at,
                                  struct choices_tokens *out)
{
    if (*at >= count || choices->words[*at] < 1 || choices->words[*at] > count - *at - 1)
        return malformed(choices,
                         "the number of tokens of its context or of an answer is impossible");
    *out = (struct choices_tokens){.at = &choices->words[*at + 1], .count = choices->words[*at]};
    for (int32_t i = 0; i < out->count; i++)
        if (out->at[i] >= choices->vocab_size)
            return FAIL(GT_DATA,
                        "%s: question %" PRId64
                        ": token %d is outside of the vocabulary of %" PRId64,
                        choices->path, choices->done, out->at[i], choices->vocab_size);
    *at += (size_t)out->count + 1;
    return GT_OK;
}

enum gt_status choices_next(struct choices *choices, struct choices_question *out)
{
    size_t count, at = FIRST_WORDS + 2;
    assert(choices->done < choices->count);
    TRY(words_read(choices, &count));
    if (count < at || choices->words[4] < 2 || choices->words[4] > CHOICES_ANSWERS_MAX ||
        choices->words[3] >= choices->words[4])
        return malformed(choices, "the number of answers, or of the right one, is impossible");
    struct choices_question question = {.right = choices->words[3],
                                        .answer_count = choices->words[4]};
    TRY(tokens_take(choices, count, &at, &question.context));
    for (int32_t i = 0; i < question.answer_count; i++)
        TRY(tokens_take(choices, count, &at, &question.answers[i]));
    if (at != count)
        return malformed(choices, "its length is not what its parts add up to");
    if (choices->done + 1 == choices->count && choices->at_bytes + 2 * count != choices->size_bytes)
        return malformed(choices, "the file goes on after the last question");
    choices->at_bytes += 2 * count;
    choices->done++;
    *out = question;
    return GT_OK;
}
