/* eval_only: the evaluation of a run, without its training.
 *
 * The run starts as one that trains, with the same data, device and weights, but plans the
 * evaluation program alone. Nothing is saved, and metrics.jsonl is left alone.
 */
#include "judge/eval_only.h"

#include "train/evaluate.h"
#include "train/start.h"

/* Evaluates and samples. */
static enum gt_status evaluate_once(struct runner *runner)
{
    struct evaluation_losses losses;
    TRY(evaluate(runner, true, &losses));
    if (runner->samples.generator)
        TRY(samples_print(&runner->samples, runner->run.state.iter));
    (void)evaluate_is_off_course(&runner->run, losses.val);
    return GT_OK;
}

static enum gt_status judge(struct runner *runner)
{
    struct session *session = &runner->run.session;
    const struct data_digests none = {.text = {""}};
    TRY(start_data(runner));
    TRY(start_device(runner, &none));
    TRY(start_weights(runner));
    if (ranks_first(session->dist))
        TRY(samples_open(&runner->samples, session, &runner->feed, runner->tokenizer));
    start_work(runner);
    const enum gt_status status = evaluate_once(runner);
    start_end(runner, status);
    return status;
}

enum gt_status eval_only_run(struct hostmem *mem, struct config *config, struct dist *dist)
{
    struct runner runner = {.run = {.mem = mem, .config = config}};
    enum gt_status status = start_plan(&runner, mem, config, dist);
    THEN(status, judge(&runner));
    start_close(&runner, status);
    return status;
}
