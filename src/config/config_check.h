/* Checks of more than one key, and notes about nanoGPT's keys that have another meaning here. */
#ifndef GPT_TRAIN_CONFIG_CONFIG_CHECK_H
#define GPT_TRAIN_CONFIG_CONFIG_CHECK_H

#include "config/config.h"

/* Returns the bytes per second each way of a `link` such as "10GbE" or "12GB/s"; 0 for any other
 * text. */
double config_link(const char *link);
/* Sets `device` to the item of `devices` for a local rank.  Returns false if there are too few
 * items. */
bool config_device_assign(struct config *config, int32_t rank);

/* What `device` and `backend` mean together. */
struct config_device {
    int backend;      /* enum config_backend */
    const char *word; /* of the backend: "auto", "cpu" */
    int32_t index;    /* of the device; -1: none is given */
    const char
        *name; /* a part of the card's name, borrowed from the configuration; NULL: none is given */
};
struct config_device config_device(const struct config *config);

/* Checks combinations of keys, and sets the keys that other keys stand for (grad_checkpoint,
 * explain_oom).  Skips the keys that a checkpoint is still to fill in (init_from other than
 * scratch); call it again after config_from_json(), which is the last that sets keys.  Errors:
 * GT_USAGE, after every problem has been logged. */
enum gt_status config_check(struct config *config);

/* Warns about schedules that nanoGPT accepts silently, and logs one line for each nanoGPT setting
 * that has no effect here (a PyTorch device, compile, wandb_log).  config_parse_args() calls it
 * once. */
void config_notes(const struct config *config);

#endif
