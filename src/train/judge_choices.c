/* Measures how often a model chooses the right answer of a question.
 *
 * An answer's loss is the sum of the losses of its tokens after the context, and its mean loss is that divided by their
 * number.  The model chooses the answer with the smallest mean loss, which is called "accuracy norm" and is what llm.c
 * prints, or the smallest sum.  Ties go to the first answer.  One answer is one sequence; the other rows are ignored.
 */
#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "data/batch.h"
#include "data/choices.h"
#include "train/judge_internal.h"
#include "train/stop.h"

/* Writes context and answer into the first sequence: row t predicts token t + 1, and only the answer's tokens count. */
static enum gt_status row_fill(struct judge *judge, const struct choices_question *question, int64_t number,
                               int32_t answer)
{
    const struct choices_tokens *context = &question->context, *tokens = &question->answers[answer];
    const int64_t count = (int64_t)context->count + tokens->count;
    if (count - 1 > judge->time) {
        log_error("%s: question %" PRId64 " has %" PRId64 " tokens with answer %" PRId32 ", more than the %" PRId64
                  " that the model takes",
                  judge->config->hellaswag, number, count, answer, judge->time + 1);
        return GT_DATA;
    }
    memset(judge->ids, 0, (size_t)(judge->batch * judge->time) * sizeof *judge->ids);
    batch_targets_ignore(judge->targets, judge->batch * judge->time);
    for (int64_t i = 0; i + 1 < count; i++)
        judge->ids[i] = i < context->count ? context->at[i] : tokens->at[i - context->count];
    for (int32_t i = 0; i < tokens->count; i++)
        judge->targets[context->count - 1 + i] = tokens->at[i];
    return GT_OK;
}

/* Finds the answer with the smallest loss per token, and the one with the smallest loss. */
static enum gt_status question_answer(struct judge *judge, const struct choices_question *question, int64_t number,
                                      int32_t *out_mean, int32_t *out_sum)
{
    double least_mean = 0.0, least_sum = 0.0;
    for (int32_t answer = 0; answer < question->answer_count; answer++) {
        double sum = 0.0;
        TRY(row_fill(judge, question, number, answer));
        TRY(judge_batch_add(judge, &sum));
        const double mean = sum / question->answers[answer].count;
        if (answer == 0 || mean < least_mean) {
            least_mean = mean;
            *out_mean = answer;
        }
        if (answer == 0 || sum < least_sum) {
            least_sum = sum;
            *out_sum = answer;
        }
    }
    return GT_OK;
}

static enum gt_status questions_judge(struct judge *judge, struct choices *choices)
{
    const int64_t count = choices_count(choices);
    int64_t right_mean = 0, right_sum = 0;
    for (int64_t i = 0; i < count; i++) {
        struct choices_question question;
        int32_t mean = 0, sum = 0;
        if (stop_requested())
            return GT_STOPPED;
        TRY(choices_next(choices, &question));
        TRY(question_answer(judge, &question, i, &mean, &sum));
        right_mean += mean == question.right;
        right_sum += sum == question.right;
        progress_show(&judge->progress, "questions", i + 1, count, "", -1.0);
    }
    progress_clear(&judge->progress);
    log_result("%s: accuracy norm %" PRId64 "/%" PRId64 " = %.6f, accuracy %" PRId64 "/%" PRId64 " = %.6f",
               judge->config->hellaswag, right_mean, count, (double)right_mean / (double)count, right_sum, count,
               (double)right_sum / (double)count);
    return GT_OK;
}

enum gt_status judge_choices(struct judge *judge)
{
    struct choices *choices;
    TRY(choices_open(judge->mem, judge->config->hellaswag, judge->source.checkpoint->config.vocab_size, &choices));
    enum gt_status status = questions_judge(judge, choices);
    choices_close(choices);
    return status;
}
