/* A run of gpt-train, from a configuration to a plan.
 *
 * Everything that can be refused is refused before memory is taken.  Nothing here trains, prints a
 * plan or knows of other ranks.
 */
#include "session/run.h"

#include <math.h>

#include "base/size.h"
#include "config/config_key.h"
#include "data/hf_hub.h"
#include "data/tokens.h"
#include "session/resume_check.h"
#include "session/session_open.h"
#include "session/session_plan.h"
#include "session/session_start.h"

/* Refuses a missing data set before anything else is logged about the run.  A resumed run may read
 * the name of its data from the checkpoint. */
static enum gt_status data_check(const struct run *run)
{
    const struct config *config = run->config;
    const bool named =
        config_key_was_set(config, CONFIG_KEY_dataset) || strcmp(config->init_from, "scratch") == 0;
    struct token_source *source = NULL;
    for (int i = 0; i < run->mixture.count && named; i++) {
        const struct mixture_source *part = &run->mixture.parts[i];
        const struct token_source_spec spec = {.folder = part->folder, .split = TOKEN_TRAIN};
        const char *name = TEXT(FILE_PATH_MAX, "%.*s", part->name_length, part->name);
        bool exists;
        TRY(token_split_exists(spec.folder, spec.split, &exists));
        if (!exists && !file_exists(spec.folder) && hf_hub_is_repository(name))
            return FAIL(
                GT_DATA,
                ERROR_NO_DATA
                "%s: there is no such folder here; a data set of Hugging Face's Hub is prepared "
                "first: hf download --repo-type=dataset %s, then gpt-prepare --out-dir=data/%s FILE",
                name, name, strchr(name, '/') + 1);
        if (!exists)
            TRY(token_source_open(run->mem, &spec, &source));
        hostmem_free(source);
        source = NULL;
    }
    return GT_OK;
}

/* Applies `hours`.  It decides the length, unless only max_iters was typed, while `hours` is from a
 * file or the checkpoint.  The schedule of the part that has been trained stays. */
static void hours_apply(struct run *run)
{
    struct config *config = run->config;
    const int64_t max_iters = config->max_iters, decay = config->lr_decay_iters;
    const bool typed = config_key_is_typed(config, CONFIG_KEY_max_iters),
               yields = typed && !config_key_is_typed(config, CONFIG_KEY_hours);
    if (typed)
        log_note("%s has no effect because of %s",
                 CONFIG_KEY_DESCRIBED(config, yields ? CONFIG_KEY_hours : CONFIG_KEY_max_iters),
                 CONFIG_KEY_DESCRIBED(config, yields ? CONFIG_KEY_max_iters : CONFIG_KEY_hours));
    if (run->state.length > 0)
        run_length_set(config, run->state.length);
    else if (!yields)
        config->max_iters = RUN_LENGTH_MAX - 1; /* until the first updates have been timed */
    if (!yields)
        return;
    config->hours = 0.0;
    config->max_iters = max_iters;
    if (config_key_was_set(config, CONFIG_KEY_lr_decay_iters))
        config->lr_decay_iters = decay;
}

enum gt_status run_resolve(struct run *run, struct hostmem *mem, struct config *config, bool trains)
{
    run->mem = mem;
    run->config = config;
    TRY(mixture_parse(config->dataset, &run->mixture));
    if (trains)
        TRY(data_check(run));
    TRY(restore_open(mem, config, &run->mixture, &run->source, &run->state, &run->model));
    TRY(mixture_parse(config->dataset, &run->mixture)); /* the checkpoint may have named another */
    if (config->hours > 0.0)
        hours_apply(run);
    return GT_OK;
}

bool run_length_is_known(const struct run *run)
{
    return run->config->hours == 0.0 || run->state.length > 0;
}

void run_length_set(struct config *config, int64_t length)
{
    const double factor = (double)(length - 1) / (double)max_i64(config->lr_decay_iters, 1);
    config->cooldown_iters = llround((double)config->cooldown_iters * factor);
    config->max_iters = config->lr_decay_iters = length - 1;
}

double run_tokens_per_update(const struct config *config)
{
    return (double)(config->batch_size * config->gradient_accumulation_steps * config->block_size);
}

enum gt_status run_open(struct run *run)
{
    return session_open(run->mem, run->config, &run->session);
}

enum gt_status run_plan(struct run *run)
{
    struct model_options options;
    if (run->source.resume)
        TRY(resume_algorithms_choose(&run->session, run->source.checkpoint));
    session_train_options(&run->session, &run->state.saved, &run->model, &options);
    return options.train ? session_plan(&run->session, &options)
                         : session_plan_evaluation(&run->session, &options);
}

enum gt_status run_watch(struct run *run)
{
    return watchdog_start(&run->watchdog, run->mem, run->session.device.backend,
                          run->config->out_dir, run->config->watchdog);
}

void run_close(struct run *run)
{
    session_close(&run->session);
    ticker_stop(run->watchdog.ticker);
}
