/* nanoGPT's files: ckpt.pt, a run that can be continued here, and meta.pkl, the characters of a data set.
 *
 * torch.save() of { model, optimizer, model_args, iter_num, best_val_loss, config } is a zip archive: NAME/data.pkl, a
 * pickle of everything except the tensors' data, and NAME/data/KEY, the data.  The pickle is parsed as data (pickle.h),
 * never executed.  The optimizer numbers its parameters by group: those with two or more dimensions (which decay) in
 * the order of the model's modules, then the others.  meta.pkl is a pickle of { vocab_size, itos, stoi } that
 * data/NAME/prepare.py writes.  Source: nanoGPT (commit 3adf61e) train.py, model.py, configure_optimizers(), sample.py
 * and data/shakespeare_char/prepare.py; PyTorch, torch/serialization.py and torch/optim/adamw.py.
 */
#ifndef GPT_TRAIN_IO_NANOGPT_H
#define GPT_TRAIN_IO_NANOGPT_H

#include "io/checkpoint.h"

#define NANOGPT_CHECKPOINT_NAME "ckpt.pt"

/* Reads checkpoint->source and sets the fields that describe the model and the progress of its run.  Tensor names may
 * begin with "_orig_mod.", which torch.compile adds.  Peak memory: the pickle's values, a few MiB for 124M parameters,
 * and the archive's directory.  The caller closes the checkpoint, also on failure.  Errors: GT_IO, GT_NO_MEMORY,
 * GT_DATA, GT_UNSUPPORTED; one line that names file and tensor or field. */
enum gt_status nanogpt_open(struct checkpoint *checkpoint, bool with_optimizer);

/* Makes a tokenizer of kind chars with the ids of "itos" in meta.pkl.  Errors: GT_IO, GT_NO_MEMORY, GT_UNSUPPORTED (a
 * pickle that needs to run code), GT_DATA (other content; ids that are not in the order of the characters, as
 * prepare.py's are). */
enum gt_status nanogpt_meta_open(const void *owner, const char *path, struct tokenizer **out);

#endif
