/* Reads multiple-choice questions.
 *
 * A question is at most 65535 bytes long and is read into one buffer.  Its parts are then taken one
 * after the other, and each count is compared with the remaining words.  How a model answers is in
 * judge/judge.c.
 */
#include "data/questions.h"

#include <unistd.h>

#include "base/file.h"

enum { HEADER_BYTES = 1024, WORDS_MAX = 32768, START = 65535, FIRST_WORDS = 3 };

struct questions {
    int fd;
    int64_t vocab_size, count, done;
    uint64_t size_bytes, at_bytes;
    uint16_t words[WORDS_MAX];
    char path[FILE_PATH_MAX];
};

static enum gt_status header_read(struct questions *questions, const char *path)
{
    int32_t header[3];
    TRY(file_open_read(path, &questions->fd, &questions->size_bytes));
    if (questions->size_bytes < HEADER_BYTES)
        return FAIL(GT_DATA, "%s: is %" PRIu64 " bytes long, too short for the header of questions",
                    path, questions->size_bytes);
    TRY(file_read_at(questions->fd, path, 0, header, sizeof header));
    if (header[0] != QUESTIONS_MAGIC || header[1] != 1)
        return FAIL(header[0] == QUESTIONS_MAGIC ? GT_UNSUPPORTED : GT_DATA,
                    "%s: questions with magic %" PRId32 " and version %" PRId32
                    "; %d and 1 are read",
                    path, header[0], header[1], QUESTIONS_MAGIC);
    if (header[2] < 1)
        return FAIL(GT_DATA, "%s: header[2], the number of questions, is %" PRId32, path,
                    header[2]);
    questions->count = header[2];
    questions->at_bytes = HEADER_BYTES;
    return GT_OK;
}

static void file_close(void *object)
{
    struct questions *questions = object;
    if (questions->fd >= 0)
        (void)close(questions->fd);
}

enum gt_status questions_open(const void *owner, const char *path, int64_t vocab_size,
                              struct questions **out)
{
    struct questions *questions;
    TRY(HOSTMEM_NEW(owner, 1, "questions", &questions));
    hostmem_at_free(questions, file_close);
    questions->fd = -1;
    questions->vocab_size = vocab_size;
    (void)snprintf(questions->path, sizeof questions->path, "%s", path);
    const enum gt_status status = header_read(questions, questions->path);
    return FINISH(status, out, questions, hostmem_free);
}

int64_t questions_count(const struct questions *questions)
{
    return questions->count;
}

static enum gt_status malformed(const struct questions *questions, const char *what)
{
    return FAIL(GT_DATA, "%s: question %" PRId64 " at byte %" PRIu64 ": %s", questions->path,
                questions->done, questions->at_bytes, what);
}

/* Reads the question's words into the buffer; *out_count is their number. */
static enum gt_status words_read(struct questions *questions, size_t *out_count)
{
    const uint64_t left = questions->size_bytes - questions->at_bytes;
    uint16_t first[FIRST_WORDS];
    if (left < sizeof first)
        return malformed(questions, "the file ends early");
    TRY(file_read_at(questions->fd, questions->path, questions->at_bytes, first, sizeof first));
    if (first[0] != START || first[2] != (uint16_t)questions->done)
        return malformed(questions, "does not begin with 65535 and its index");
    if (first[1] % 2 != 0 || first[1] < sizeof first || first[1] > left)
        return malformed(questions, "its length is odd, too small, or beyond the end of the file");
    *out_count = first[1] / 2u;
    return file_read_at(questions->fd, questions->path, questions->at_bytes, questions->words,
                        first[1]);
}

/* Takes a count and that many tokens from the buffer. */
static enum gt_status tokens_parse(const struct questions *questions, size_t count, size_t *at,
                                   struct question_tokens *out)
{
    if (*at >= count || questions->words[*at] < 1 || questions->words[*at] > count - *at - 1)
        return malformed(questions,
                         "the number of tokens of its context or of an answer is impossible");
    *out =
        (struct question_tokens){.at = &questions->words[*at + 1], .count = questions->words[*at]};
    for (int32_t i = 0; i < out->count; i++)
        if (out->at[i] >= questions->vocab_size)
            return FAIL(GT_DATA,
                        "%s: question %" PRId64
                        ": token %d is outside of the vocabulary of %" PRId64,
                        questions->path, questions->done, out->at[i], questions->vocab_size);
    *at += (size_t)out->count + 1;
    return GT_OK;
}

enum gt_status questions_next(struct questions *questions, struct question *out)
{
    size_t count, at = FIRST_WORDS + 2;
    assert(questions->done < questions->count);
    TRY(words_read(questions, &count));
    if (count < at || questions->words[4] < 2 || questions->words[4] > QUESTION_ANSWERS_MAX ||
        questions->words[3] >= questions->words[4])
        return malformed(questions, "the number of answers, or of the right one, is impossible");
    struct question question = {.right = questions->words[3], .answer_count = questions->words[4]};
    TRY(tokens_parse(questions, count, &at, &question.context));
    for (int32_t i = 0; i < question.answer_count; i++)
        TRY(tokens_parse(questions, count, &at, &question.answers[i]));
    if (at != count)
        return malformed(questions, "its length is not what its parts add up to");
    if (questions->done + 1 == questions->count &&
        questions->at_bytes + 2 * count != questions->size_bytes)
        return malformed(questions, "the file goes on after the last question");
    questions->at_bytes += 2 * count;
    questions->done++;
    *out = question;
    return GT_OK;
}
