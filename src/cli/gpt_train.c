/* gpt-train: trains a GPT.
 *
 * This file reads the command line and chooses the exit status; train/trainer.c does the work.
 */
#include "cli/program.h"
#include "train/run.h"

int main(int argc, char **argv)
{
    static struct config config; /* 30 KiB of paths */
    struct hostmem *mem = NULL;
    bool answered;
    program_spin_limit(argv);
    enum gt_status status = program_start(&config, CONFIG_TRAIN, "gpt-train", argc, argv, &answered);
    if (status == GT_OK && !answered)
        status = hostmem_create(&mem);
    if (status == GT_OK && !answered && config.explain[0] != '\0')
        status = error_explain(config.explain);
    else if (status == GT_OK && !answered && config.compare[0] != '\0')
        status = compare_run(&config);
    else if (status == GT_OK && !answered)
        status = config.eval_data[0] != '\0' || config.hellaswag[0] != '\0' ? judge_run(mem, &config)
                                                                            : trainer_run(mem, &config, stdout);
    else
        report_block_print(&config, NULL, status);
    hostmem_destroy(mem);
    return program_exit_status(status);
}
