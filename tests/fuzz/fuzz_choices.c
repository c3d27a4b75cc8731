/* Fuzzes the reader of multiple-choice questions: the header, and every question of an accepted file. */
#include "data/choices.h"
#include "tests/fuzz/fuzz_common.h"

enum { VOCAB_SIZE = 50257 };

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    struct choices *choices = NULL;
    struct choices_question question;
    if (choices_open(mem, fuzz_file(data, size), VOCAB_SIZE, &choices) != GT_OK)
        return;
    const int64_t count = choices_count(choices);
    for (int64_t i = 0; i < count && choices_next(choices, &question) == GT_OK; i++) {
        FUZZ_CHECK(question.right >= 0 && question.right < question.answer_count);
        for (int32_t a = 0; a < question.answer_count; a++)
            for (int32_t t = 0; t < question.answers[a].count; t++)
                FUZZ_CHECK(question.answers[a].at[t] < VOCAB_SIZE);
    }
    hostmem_free(choices);
}
