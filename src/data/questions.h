/* Multiple-choice questions, in the format of llm.c's HellaSwag evaluation.
 *
 *   256 int32    [0] 20240522   [1] version 1   [2] number of questions   [3] bytes of the longest
 * one uint16 ...   for each question: 65535, its bytes, its index, the right answer, the number of
 * answers, then the context and each answer as a count followed by that many tokens
 *
 * Files are untrusted: every count is checked against the bytes of its question, every id against
 * the vocabulary. Source: llm.c, dev/data/data_common.py write_evalfile() and llmc/dataloader.h
 * EvalLoader.
 */
#ifndef GPT_TRAIN_DATA_QUESTIONS_H
#define GPT_TRAIN_DATA_QUESTIONS_H

#include "base/hostmem.h"

#define QUESTIONS_MAGIC 20240522
#define QUESTION_ANSWERS_MAX 16

struct question_tokens {
    const uint16_t *at;
    int32_t count; /* at least 1 */
};

struct question {
    int32_t right; /* index of the right answer */
    int32_t answer_count;
    struct question_tokens context, answers[QUESTION_ANSWERS_MAX]; /* in the reader's buffer */
};

struct questions;

/* Opens a file and checks its header.  Errors: GT_IO, GT_NO_MEMORY, GT_DATA, GT_UNSUPPORTED
 * (another version). */
enum gt_status questions_open(const void *owner, const char *path, int64_t vocab_size,
                              struct questions **out);
int64_t questions_count(const struct questions *questions);

/* Reads the next question.  There are questions_count() of them, and the last one must end the
 * file. Allocates nothing. Errors: GT_IO; GT_DATA naming file and question. */
enum gt_status questions_next(struct questions *questions, struct question *out);

#endif
