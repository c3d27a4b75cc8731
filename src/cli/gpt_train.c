/* gpt-train: trains a GPT.
 *
 * This file reads the command line, starts or joins ranks, chooses what is done, and the exit
 * status.  train/, judge/ and answer/ do the work.
 */
#include "answer/answer.h"
#include "answer/compare.h"
#include "answer/explain_error.h"
#include "base/size.h"
#include "cli/program.h"
#include "cli/program_start.h"
#include "cli/restart.h"
#include "config/config_args.h"
#include "config/config_check.h"
#include "dist/comm_module.h"
#include "dist/comm_shm.h"
#include "dist/dist.h"
#include "judge/eval_only.h"
#include "judge/judge.h"
#include "session/report_block.h"
#include "train/train.h"

/* What the command line requests. */
enum mode { MODE_EXPLAIN, MODE_COMPARE, MODE_PLAN, MODE_JUDGE, MODE_EVALUATE, MODE_TRAIN };

static enum mode mode_of(const struct config *config)
{
    if (config->explain[0] != '\0')
        return MODE_EXPLAIN;
    if (config->compare[0] != '\0')
        return MODE_COMPARE;
    if (config->eval_data[0] != '\0' || config->hellaswag[0] != '\0')
        return MODE_JUDGE;
    if (config->plan != CONFIG_PLAN_OFF || config->print_program)
        return MODE_PLAN;
    return config->eval_only ? MODE_EVALUATE : MODE_TRAIN;
}

/* Returns true for the modes that all ranks of a run execute. */
static bool is_shared(enum mode mode)
{
    return mode == MODE_EVALUATE || mode == MODE_TRAIN;
}

/* Gives a rank its device of `devices`. */
static enum gt_status rank_set(struct config *config, const struct dist *dist)
{
    config->local_rank = dist->local_rank;
    config->local_ranks = dist->local_ranks;
    if (config->devices[0] == '\0')
        return GT_OK;
    if (!config_device_assign(config, config->local_ranks - 1))
        return FAIL(GT_USAGE,
                    "devices='%s' names fewer cards than the %" PRId32 " ranks of this machine",
                    config->devices, config->local_ranks);
    (void)config_device_assign(config, config->local_rank);
    return GT_OK;
}

/* `dist` is NULL if this process is the only one. */
static enum gt_status mode_run(enum mode mode, struct hostmem *mem, struct config *config,
                               struct dist *dist)
{
    if (is_shared(mode) && config->device_profile[0] != '\0')
        return FAIL(
            GT_USAGE,
            "device_profile='%s' is only for planning; add --plan, or leave it out to train",
            config->device_profile);
    switch (mode) {
    case MODE_EXPLAIN:
        return explain_error(config->explain);
    case MODE_COMPARE:
        return compare_run(config);
    case MODE_JUDGE:
        return judge_run(mem, config);
    case MODE_PLAN:
        return answer_run(mem, config);
    case MODE_EVALUATE:
        return eval_only_run(mem, config, dist);
    default:
        return train_run(mem, config, dist);
    }
}

/* Does what the command line requests.  `dist` has no ranks if this process is the only one. */
static enum gt_status work(enum mode mode, struct config *config, struct dist *dist)
{
    struct hostmem *mem = NULL;
    enum gt_status status = hostmem_create(&mem);
    if (status == GT_OK && dist->ranks > 0)
        status = rank_set(config, dist);
    THEN(status, mode_run(mode, mem, config, dist->ranks > 0 ? dist : NULL));
    hostmem_destroy(mem);
    return status;
}

int main(int argc, char **argv)
{
    static struct config config; /* 30 KiB of paths */
    static struct dist dist;     /* 40 KiB of moves */
    bool answered = false, first;
    int exit_status;
    program_spin_limit(argv);
    program_begin("gpt-train");
    const int64_t tasks = config_tasks(&first);
    enum gt_status status = tasks > 1 ? dist_join(tasks, first, &dist) : GT_OK;
    if (status != GT_OK)
        return status_exit_code(status);
    status = program_start(&config, CONFIG_TRAIN, "gpt-train", argc, argv, &answered);
    const enum mode mode = mode_of(&config);
    const int64_t sharers = dist.ranks > 0 ? dist.local_ranks : config.ranks;
    if (sharers > 1 && mode != MODE_JUDGE && config.threads == 0 &&
        getenv("OMP_NUM_THREADS") == NULL)
        config.threads = max_i64(thread_count_cores(THREAD_CORES_FOLDER) / sharers, 1);
    if (status == GT_OK && !answered && tasks == 1 && config.ranks > 1 && is_shared(mode) &&
        dist_launch((int32_t)config.ranks, config.rank_timeout, &dist, &exit_status))
        return exit_status;
    dist.timeout_s = config.rank_timeout;
    answered = answered || (dist.rank > 0 && !is_shared(mode)); /* only rank 0 does these */
    if (status == GT_OK && !answered)
        status = work(mode, &config, &dist);
    else if (dist.rank == 0)
        report_block_print(&config, NULL, status);
    exit_status = program_exit_status(status);
    dist_leave(&dist, exit_status, status == GT_STOPPED);
    return status == GT_STOPPED && dist.close != NULL && dist.rank > 0
               ? 0
               : exit_status; /* rank 0 returns the status */
}
