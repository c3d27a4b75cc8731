/* --explain: what the errors that people meet most mean, and what to do.
 *
 * An error line names its identifier, as in "error[no-fit]: ..." (base/log.h).  doc/errors.md has the same texts;
 * tests/e2e/report.py compares them.
 */
#include "train/run.h"

static const struct {
    const char *id, *text;
} errors[] = {
    {"no-fit", "The run needs more memory than there is, even in the smallest plan. The line says how much is needed.\n"
               "Take what others hold away, raise memory_budget, or make the model, block_size or batch_size smaller.\n"
               "gpt-train CONFIG --plan shows what fits.\n"},
    {"unknown-key", "A configuration file or a flag sets a key that does not exist, often a misspelt one.\n"
                    "gpt-train --help=all lists the keys. nanoGPT's own keys are all known.\n"},
    {"bad-value",
     "A key has a value of the wrong type or outside its range. The line says which are allowed, and where the\n"
     "value was set.\n"},
    {"no-data",
     "The dataset's folder does not exist or has no token files. dataset=NAME means data/NAME; a path has a\n"
     "slash in it. gpt-prepare makes the folder from text; nanoGPT's prepare.py works too.\n"},
    {"bad-token",
     "A token file has an id that the model's vocabulary does not have. The file was made with another tokenizer,\n"
     "or is damaged. Leave vocab_size out, or prepare the data again.\n"},
    {"no-checkpoint",
     "The folder has no checkpoint to continue from or to sample. A run saves its first one after eval_interval\n"
     "iterations. Check --out_dir; an earlier run may be in its folder earlier-NNN.\n"},
    {"other-shape",
     "A resumed run cannot change the shape of its model (n_layer, n_head, n_embd, block_size, ...). Leave the\n"
     "key out to continue, or begin anew with another out_dir.\n"},
    {"no-device", "The device that was asked for is not in this machine, or this build has no backend for it.\n"
                  "gpt-train --list_devices shows the devices; leave --device out to use the best of them.\n"},
    {"locked",
     "Another process trains into this folder. Wait for it, end it, or choose another out_dir. The lock goes with\n"
     "the process; the file named lock need not be removed.\n"},
    {"diverged", "The loss is not finite or updates are being skipped. The last good checkpoint stays. Try a smaller\n"
                 "learning_rate, a longer warmup_iters, or dtype=bfloat16 instead of float16.\n"
                 "doc/when_training_goes_wrong.md has more.\n"},
};

enum gt_status error_explain(const char *id)
{
    const size_t count = sizeof errors / sizeof errors[0];
    const char *name = strncmp(id, "error[", 6) == 0 ? id + 6 : id; /* as it stands in the line */
    const int length = (int)strcspn(name, "]");
    char known[256] = "";
    for (size_t i = 0; i < count; i++) {
        if (strncmp(errors[i].id, name, (size_t)length) == 0 && errors[i].id[length] == '\0') {
            fputs(errors[i].text, stdout);
            return GT_OK;
        }
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i > 0 ? ", " : "", errors[i].id);
    }
    return FAIL(GT_USAGE, "--explain=%s: no such error; known are %s", id, known);
}
