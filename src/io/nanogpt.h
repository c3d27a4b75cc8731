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

#include "base/hostmem.h"
#include "base/json.h"
#include "data/tokenizer.h"
#include "io/safetensors.h"
#include "model/model.h"

#define NANOGPT_CHECKPOINT_NAME "ckpt.pt"

struct nanogpt {
    struct model_config config;    /* with nanoGPT's erf GELU */
    struct safetensors *model;     /* a table in Hugging Face's layout; release it with safetensors_close() */
    struct safetensors *optimizer; /* "m." and "v." of every parameter, or NULL */
    int64_t iter;                  /* the next iteration */
    int64_t adam_step;             /* updates applied */
    double best_val_loss;
    json_t *configuration; /* the keys of train.py that define a run; release it with json_decref() */
};

/* Opens the checkpoint at `path`.  Tensor names may begin with "_orig_mod.", which torch.compile adds.  Peak memory:
 * the pickle's values, a few MiB for 124M parameters, and the archive's directory.  Errors: GT_IO,
 * GT_NO_MEMORY, GT_DATA, GT_UNSUPPORTED; one line that names file and tensor or field. */
enum gt_status nanogpt_open(struct hostmem *mem, const char *path, bool with_optimizer, struct nanogpt *out);
/* Releases the objects that the fields own.  Accepts a zeroed struct. */
void nanogpt_release(struct nanogpt *nanogpt);

/* Makes a tokenizer of kind chars with the ids of "itos" in meta.pkl.  Errors: GT_IO, GT_NO_MEMORY, GT_UNSUPPORTED (a
 * pickle that needs to run code), GT_DATA (other content; ids that are not in the order of the characters, as
 * prepare.py's are). */
enum gt_status nanogpt_meta_open(struct hostmem *mem, const char *path, struct tokenizer **out);

#endif
