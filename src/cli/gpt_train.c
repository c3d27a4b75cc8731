/* gpt-train: trains a GPT.
 *
 * This file reads the command line, starts or joins ranks, and chooses the exit status; train/trainer.c does the work.
 */
#include "base/size.h"
#include "cli/program.h"
#include "dist/comm_module.h"
#include "dist/comm_shm.h"
#include "dist/dist.h"
#include "train/run.h"

/* Does what the command line asks for.  `dist` has no ranks if this process is the only one. */
static enum gt_status run(struct config *config, bool judges, struct dist *dist)
{
    struct hostmem *mem = NULL;
    enum gt_status status = hostmem_create(&mem);
    if (dist->ranks > 0) {
        config->local_rank = dist->local_rank;
        config->local_ranks = dist->local_ranks;
        if (config->devices[0] != '\0' && !config_device_take(config, config->local_ranks - 1))
            status = FAIL(GT_USAGE, "devices='%s' names fewer cards than the %" PRId32 " ranks of this machine",
                          config->devices, config->local_ranks);
        else if (config->devices[0] != '\0')
            (void)config_device_take(config, config->local_rank);
    }
    if (status == GT_OK && config->explain[0] != '\0')
        status = error_explain(config->explain);
    else if (status == GT_OK && config->compare[0] != '\0')
        status = compare_run(config);
    else if (status == GT_OK)
        status = judges ? judge_run(mem, config) : trainer_run(mem, config, dist->ranks > 0 ? dist : NULL, stdout);
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
    const bool judges = config.eval_data[0] != '\0' || config.hellaswag[0] != '\0';
    const bool asks = config.plan != CONFIG_PLAN_OFF || config.print_program || config.explain[0] || config.compare[0];
    const int64_t sharers = dist.ranks > 0 ? dist.local_ranks : config.ranks;
    if (sharers > 1 && !judges && config.threads == 0 && getenv("OMP_NUM_THREADS") == NULL)
        config.threads = max_i64(thread_count_cores(THREAD_CORES_FOLDER) / sharers, 1);
    if (status == GT_OK && !answered && tasks == 1 && config.ranks > 1 && !judges && !asks &&
        dist_launch((int32_t)config.ranks, config.rank_timeout, &dist, &exit_status))
        return exit_status;
    dist.timeout_s = config.rank_timeout;
    answered = answered || (dist.rank > 0 && (judges || asks)); /* rank 0 does it alone */
    if (status == GT_OK && !answered)
        status = run(&config, judges, &dist);
    else if (dist.rank == 0)
        report_block_print(&config, NULL, status);
    exit_status = program_exit_status(status);
    dist_leave(&dist, exit_status, status == GT_STOPPED);
    return status == GT_STOPPED && dist.close != NULL && dist.rank > 0 ? 0 : exit_status; /* rank 0 has it */
}
