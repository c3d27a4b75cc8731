/* gpt-train: trains a GPT.
 *
 * This file reads the command line and chooses the exit status; train/trainer.c does the work.
 */
#include "base/size.h"
#include "cli/program.h"
#include "train/run.h"

int main(int argc, char **argv)
{
    static struct config config; /* 30 KiB of paths */
    struct hostmem *mem = NULL;
    static struct dist dist; /* 40 KiB of moves */
    bool answered;
    int exit_status;
    program_spin_limit(argv);
    enum gt_status status = program_start(&config, CONFIG_TRAIN, "gpt-train", argc, argv, &answered);
    const bool judges = config.eval_data[0] != '\0' || config.hellaswag[0] != '\0';
    const bool asks = config.plan != CONFIG_PLAN_OFF || config.print_program || config.explain[0] || config.compare[0];
    if (config.ranks > 1 && !judges && config.threads == 0 && getenv("OMP_NUM_THREADS") == NULL)
        config.threads = max_i64(thread_count_cores(THREAD_CORES_FOLDER) / config.ranks, 1);
    if (status == GT_OK && !answered && config.ranks > 1 && !judges && !asks &&
        dist_launch((int32_t)config.ranks, config.rank_timeout, &dist, &exit_status))
        return exit_status;
    config.rank = dist.rank;
    if (status == GT_OK && !answered)
        status = hostmem_create(&mem);
    if (status == GT_OK && !answered && config.explain[0] != '\0')
        status = error_explain(config.explain);
    else if (status == GT_OK && !answered && config.compare[0] != '\0')
        status = compare_run(&config);
    else if (status == GT_OK && !answered)
        status =
            judges ? judge_run(mem, &config) : trainer_run(mem, &config, dist.shared != NULL ? &dist : NULL, stdout);
    else
        report_block_print(&config, NULL, status);
    hostmem_destroy(mem);
    return program_exit_status(status);
}
