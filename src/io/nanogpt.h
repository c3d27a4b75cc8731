/* nanoGPT's files: ckpt.pt, a run that can be continued here, and meta.pkl, the characters of a
 * data set.
 *
 * torch.save() of { model, optimizer, model_args, iter_num, best_val_loss, config } is a zip
 * archive: NAME/data.pkl, a pickle of everything except the tensors' data, and NAME/data/KEY, the
 * data.  The pickle is parsed as data (pickle.h), never executed.  The optimizer numbers its
 * parameters by group: those with two or more dimensions (which decay) in the order of the model's
 * modules, then the others.  meta.pkl is a pickle of { vocab_size, itos, stoi } that
 * data/NAME/prepare.py writes.  Source: nanoGPT (commit 3adf61e) train.py, model.py,
 * configure_optimizers(), sample.py and data/shakespeare_char/prepare.py; PyTorch,
 * torch/serialization.py and torch/optim/adamw.py.
 */
#ifndef GPT_TRAIN_IO_NANOGPT_H
#define GPT_TRAIN_IO_NANOGPT_H

#include "io/checkpoint.h"

#define NANOGPT_CHECKPOINT_NAME "ckpt.pt"

/* Ends an error line: a program for PyTorch, which does run what a pickle asks for, that reduces a
 * checkpoint to the parts that are read here.  Arrays become float32 and contiguous, other objects
 * numbers, lists, dicts and texts. */
#define NANOGPT_SAVE_AGAIN                                                                                            \
    "; if you trust the file, let PyTorch save its plain content again: python3 -c 'import sys,torch;"                \
    "p=lambda v:{k:p(x)for k,x in v.items()}if hasattr(v,\"items\")else[p(x)for x in v]if type(v)in(list,tuple)else " \
    "v.detach().float().contiguous()if torch.is_tensor(v)and v.dim()else v.tolist()if hasattr(v,\"tolist\")else "     \
    "v if type(v)in(int,float,bool,str,type(None))else p(vars(v))if hasattr(v,\"__dict__\")else str(v);"              \
    "c=torch.load(sys.argv[1],\"cpu\",weights_only=False);torch.save({k:p(c[k])for k in\"model optimizer model_args " \
    "iter_num best_val_loss config\".split()if k in c},sys.argv[2])' IN.pt OUT.pt"

/* Reads checkpoint->source and sets the fields that describe the model and, with the optimizer, the
 * progress of its run.  Parts of tensor names that torch.compile(), DistributedDataParallel and
 * FSDP add ("_orig_mod.", "module.") are left out.  A warning names the fields of model_args that
 * are not known here.  Peak memory: the pickle's values, a few MiB for 124M parameters, and the
 * archive's directory.  The caller closes the checkpoint, also on failure. Errors: GT_IO,
 * GT_NO_MEMORY, GT_DATA, GT_UNSUPPORTED; one line that names file and tensor or field. */
enum gt_status nanogpt_open(struct checkpoint *checkpoint, bool with_optimizer);

/* Makes a tokenizer of kind chars with the ids of "itos" in meta.pkl.  Errors: GT_IO, GT_NO_MEMORY,
 * GT_UNSUPPORTED (a pickle that needs to run code), GT_DATA (other content; ids that are not in the
 * order of the characters, as prepare.py's are). */
enum gt_status nanogpt_meta_open(const void *owner, const char *path, struct tokenizer **out);

#endif
