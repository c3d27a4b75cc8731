/* Saving a run: its checkpoint, the tokenizer beside it, and what another run left in the folder. */
#ifndef GPT_TRAIN_TRAIN_SAVER_H
#define GPT_TRAIN_TRAIN_SAVER_H

#include "data/tokenizer.h"
#include "io/export_hf_tokens.h"
#include "train/restore.h"
#include "train/resume_check.h"

/* What a save needs beside the state: made once, so that saving allocates nothing of ours. */
struct saver {
    struct session *session;
    struct checkpoint_tensor *tensors; /* the parameters as io/ sees them */
    json_t *configuration;             /* echo */
    json_t *plan;
    struct run_data data;
    char
        *tokens[EXPORT_HF_TOKENS_OF_RUN]; /* the dataset's tokenizer, as the files beside the checkpoint; NULL = none */
    char tokenizer_hash[32];              /* "crc32c:89abcdef", or empty */
    bool tokens_written;
    bool replaces; /* an earlier run, which has a folder of its own since the first save */
    const char
        *metrics;  /* the name under which the lines wait of the run that this one does not go on; NULL where it does */
    int64_t after; /* kept checkpoints beyond this iteration are that run's too */
};
/* `tokenizer` may be NULL.  Errors: GT_NO_MEMORY. */
enum gt_status saver_create(struct session *session, const struct tokenizer *tokenizer, const struct run_data *data,
                            struct saver *out);
void saver_destroy(struct saver *saver);

/* For a run that goes on in its own folder: a kill between a save and the tokenizer may have left out_dir without some of
 * its files, and 0.2.0 put gpt_tokenizer.json there only.
 * Errors: GT_IO. */
enum gt_status saver_repair_tokenizer(struct saver *saver);

/* Saves the run to out_dir.  What another run left there is kept aside before, and the last checkpoints of this one as `keep`
 * says; after the first save of a run the tokenizer is put beside it, for gpt-sample and transformers. */
enum gt_status saver_save(struct saver *saver, const struct run_state *state);

#endif
