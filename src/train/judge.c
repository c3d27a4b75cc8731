/* Opens a model for judging.
 *
 * The session has only the evaluation program, with eval_batch_size sequences at once.  Questions are evaluated one
 * answer at a time, each in a sequence of its own.  The evaluations themselves are in judge_text.c and judge_choices.c.
 */
#include "train/judge.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "train/evaluate.h"
#include "train/judge_internal.h"
#include "train/stop.h"

/* Default number of sequences at once.  More gain little, since one sequence is already a whole matrix of rows. */
#define BATCH_DEFAULT 4
#define LOSS_CHUNK_ROWS 256

bool judge_is_wanted(const struct config *config)
{
    return config->eval_data[0] != '\0' || config->hellaswag[0] != '\0';
}

enum gt_status judge_batch_add(struct judge *judge, double *sum)
{
    const struct program_io *io = &judge->session.model->evaluate;
    TRY(exec_upload(judge->session.exec, io->ids, 0, judge->ids, judge->batch * judge->time));
    TRY(exec_upload(judge->session.exec, io->targets, 0, judge->targets, judge->batch * judge->time));
    return evaluation_batch_add(&judge->session, sum);
}

/* Sets the length of the context that the model is given. */
static enum gt_status time_choose(struct judge *judge, const struct model_config *model)
{
    const int64_t asked = judge->config->eval_block_size;
    judge->time = asked > 0 ? asked : model->block_size;
    if (judge->time <= model->block_size)
        return GT_OK;
    log_error("eval_block_size=%" PRId64 " is larger than the model's block_size, %" PRId32, asked, model->block_size);
    return GT_USAGE;
}

static enum gt_status batch_alloc(struct judge *judge)
{
    void *array;
    const size_t rows = (size_t)(judge->batch * judge->time);
    TRY(hostmem_alloc(judge->mem, rows, sizeof(int32_t), "token ids", &array));
    judge->ids = array;
    TRY(hostmem_alloc(judge->mem, rows, sizeof(int32_t), "targets", &array));
    judge->targets = array;
    return GT_OK;
}

static enum gt_status model_load(struct judge *judge)
{
    const struct config *config = judge->config;
    if (strcmp(config->init_from, "scratch") == 0) {
        log_error("%s measures a trained model; add --init_from=resume, or --init_from with a folder or file",
                  config->eval_data[0] != '\0' ? "eval_data" : "hellaswag");
        return GT_USAGE;
    }
    TRY(restore_open_weights(judge->mem, config, &judge->source));
    const struct model_config *model = &judge->source.checkpoint->config;
    TRY(time_choose(judge, model));
    judge->batch = config->hellaswag[0] != '\0' ? 1 : BATCH_DEFAULT;
    if (config->eval_batch_size > 0)
        judge->batch = config->eval_batch_size;
    TRY(session_open(judge->mem, config, &judge->session));
    const int64_t rows = judge->batch * judge->time;
    const struct model_options options = {.config = *model,
                                          .dtype = judge->session.device.dtype,
                                          .evaluate = true,
                                          .choice.evaluate_batch = (int32_t)judge->batch,
                                          .evaluate_time = (int32_t)judge->time,
                                          .choice.loss_chunk_rows =
                                              (int32_t)(rows < LOSS_CHUNK_ROWS ? rows : LOSS_CHUNK_ROWS)};
    TRY(session_plan(&judge->session, &options));
    TRY(watchdog_start(&judge->watchdog, judge->mem, judge->session.device.backend, judge->folder, config->watchdog));
    TRY(session_start(&judge->session));
    exec_timing_set(judge->session.exec, config->watchdog > 0); /* op by op, so that the watchdog can name one */
    TRY(batch_alloc(judge));
    return restore_weights(&judge->session, &judge->source, 0);
}

static enum gt_status judge_all(struct judge *judge)
{
    TRY(model_load(judge));
    stop_install();
    if (judge->config->eval_data[0] != '\0')
        TRY(judge_text(judge));
    return judge->config->hellaswag[0] != '\0' ? judge_choices(judge) : GT_OK;
}

enum gt_status judge_run(struct hostmem *mem, const struct config *config)
{
    struct judge judge = {.mem = mem, .config = config};
    const bool resume = strcmp(config->init_from, "resume") == 0;
    snprintf(judge.folder, sizeof judge.folder, "%s", resume ? config->out_dir : config->init_from);
    progress_init(&judge.progress);
    enum gt_status status = judge_all(&judge);
    progress_clear(&judge.progress);
    hostmem_phase_set(mem, HOSTMEM_CLOSE);
    if (judge.session.mem)
        session_close(&judge.session);
    watchdog_stop(&judge.watchdog);
    restore_close(&judge.source);
    hostmem_free(mem, judge.ids);
    hostmem_free(mem, judge.targets);
    return status;
}
