/* Writes a run's checkpoints. */
#ifndef GPT_TRAIN_TRAIN_SAVER_H
#define GPT_TRAIN_TRAIN_SAVER_H

#include "data/tokenizer.h"
#include "data/tokenizer_export.h"
#include "io/checkpoint.h"
#include "session/resume_check.h"
#include "session/session.h"

/* Everything that a save needs besides the state.  It is created once, so that saving allocates
 * nothing of ours. */
struct saver {
    struct session *session;
    struct model_config model; /* what is saved; in a run with adapters, only these */
    struct checkpoint_tensor *tensors;
    size_t tensor_count; /* the parameters as io/ sees them */
    json_t *configuration;
    json_t *plan;
    struct data_digests data;
    char *tokens[TOKENIZER_FILES_OF_RUN]; /* tokenizer files to write next to the checkpoint; NULL =
                                             none */
    char tokenizer_hash[32];              /* "crc32c:89abcdef", or empty */
    bool tokens_written;
    bool replaces;       /* the first save replaces an earlier run, which got its own folder */
    const char *metrics; /* set-aside metrics of the run that this one replaces; NULL if it
                            continues that run */
    int64_t after;       /* kept checkpoints beyond this iteration also belong to that run */
};
/* `tokenizer` may be NULL.  Errors: GT_NO_MEMORY. */
enum gt_status saver_create(struct session *session, const struct tokenizer *tokenizer,
                            const struct data_digests *data, struct saver *out);
void saver_destroy(struct saver *saver);

/* Writes the tokenizer's files unless they already have this content.  With `repairs`, restores
 * those of a run that continues in its own folder, with a note: a kill between a save and the
 * tokenizer may have left out_dir without some of them, and 0.2.0 wrote only gpt_tokenizer.json.
 * Errors: GT_IO. */
enum gt_status saver_tokenizer_write(struct saver *saver, bool repairs);

/* Saves the run to out_dir.  First moves aside what another run left there, and keeps as many of
 * this run's last checkpoints as `keep` says.  After the first save of a run, writes the tokenizer
 * next to it, for gpt-sample and transformers. */
enum gt_status saver_save(struct saver *saver, const struct run_state *state);

/* Called by the other ranks while rank 0 saves: sends it the states that only they have.  Returns
 * what saver_save() returns there. */
enum gt_status saver_serve(struct session *session);

/* To be called before the first step, once the session has a plan.  A save writes the new
 * checkpoint next to the ones that are kept.  Warns when the disk may become too full for that.
 * `in_place`: out_dir already contains checkpoints of this run.  Errors: GT_IO when there is no
 * room even for the first save. */
enum gt_status saver_room_check(const struct session *session, bool in_place);

#endif
