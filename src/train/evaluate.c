/* Evaluation.
 *
 * The program leaves the sum of a batch's losses in the scalars; the mean over batches is taken here in fp64.  The
 * division of samples into batches changes only the order of that sum.  A signal ends the evaluation between batches.
 */
#include "train/evaluate.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/size.h"
#include "train/stop.h"

int64_t evaluation_runs(const struct config *config, const struct model *model)
{
    return size_ceil_div(config->eval_iters * config->batch_size, model->options.choice.evaluate_batch);
}

enum gt_status evaluation_batch_add(struct session *session, double *sum)
{
    session->scalars[SCALAR_LOSS_SUM].f = 0.0f;
    session->scalars[SCALAR_POSITION].i = 0;
    TRY(session_scalars_upload(session));
    TRY(exec_run(session->exec, session->model->evaluate.program));
    TRY(session_scalars_download(session));
    *sum += (double)session->scalars[SCALAR_LOSS_SUM].f;
    return GT_OK;
}

enum gt_status evaluation_split_sum(const struct evaluation *evaluation, enum token_split split, const char *what,
                                    struct evaluation_sum *out)
{
    struct session *session = evaluation->session;
    struct feed *feed = evaluation->feed;
    const bool whole = evaluation->samples == 0;
    const int64_t samples = whole ? sampler_window_count(feed->evaluate_sampler[split], true) : evaluation->samples;
    const int64_t batch = session->model->options.choice.evaluate_batch, start_ns = clock_monotonic_ns();
    struct evaluation_sum sum = {.targets = whole ? 0 : samples * feed->evaluate_time};
    for (int64_t first = 0; first < samples; first += batch) {
        const int64_t count = min_i64(samples - first, batch);
        if (stop_requested())
            return GT_STOPPED;
        if (whole)
            TRY(feed_windows(feed, session, split, first, count, &sum.targets));
        else
            TRY(feed_evaluate(feed, session, split, evaluation->iter, first, count));
        TRY(evaluation_batch_add(session, &sum.loss));
        double each = (double)(clock_monotonic_ns() - start_ns) / 1e9 / (double)(first + count);
        progress_show(evaluation->progress, what, first + count, samples, "", each * (double)(samples - first - count));
    }
    *out = sum;
    return GT_OK;
}
