/* --lora_targets: the names of the layers that adapters change, as PEFT writes them. */
#ifndef GPT_TRAIN_IO_PEFT_TARGETS_H
#define GPT_TRAIN_IO_PEFT_TARGETS_H

#include "model/parameters.h"

#define PEFT_TARGETS_TEXT_MAX 128

/* Returns the bit of the target that `text` names up to its first comma, or 0 if no target has that
 * name. */
uint32_t peft_target_find(const char *text);
/* Writes the names of the targets with these bits, separated by commas.  Returns `text`. */
char *peft_targets_words(char text[static PEFT_TARGETS_TEXT_MAX], uint32_t targets);

/* Reads the names of targets, separated by commas, or all-linear: all that the model's blocks have.
 * Errors: GT_USAGE, with the names that the model has. */
enum gt_status peft_targets_read(const char *text, const struct model_config *config,
                                 uint32_t *out);
/* Writes what peft_targets_read() reads.  Returns `text`. */
char *peft_targets_text(char text[static PEFT_TARGETS_TEXT_MAX], const struct model_config *config);

#endif
