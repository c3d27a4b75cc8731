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
#ifndef GPT_TRAIN_DATA_CHOICES_H
#define GPT_TRAIN_DATA_CHOICES_H

#include "base/hostmem.h"

#define CHOICES_MAGIC 20240522
#define CHOICES_ANSWERS_MAX 16

struct choices_tokens {
    const uint16_t *at;
    int32_t count; /* at least 1 */
};

struct choices_question {
    int32_t right; /* index of the right answer */
    int32_t answer_count;
    struct choices_tokens context, answers[CHOICES_ANSWERS_MAX]; /* in the reader's buffer */
};

struct choices;

/* Opens a file and checks its header.  Errors: GT_IO, GT_NO_MEMORY, GT_DATA, GT_UNSUPPORTED
 * (another version). */
enum gt_status choices_open(const void *owner, const char *path, int64_t vocab_size,
                            struct choices **out);
int64_t choices_count(const struct choices *choices);

/* Reads the next question.  There are choices_count() of them, and the last one must end the file.
 * Allocates nothing. Errors: GT_IO; GT_DATA naming file and question. */
enum gt_status choices_next(struct choices *choices, struct choices_question *out);

#endif
