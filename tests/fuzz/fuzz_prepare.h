/* Shared code of the targets that start after gpt-prepare has read its inputs: a run with one input and the byte
 * tokenizer.
 */
#ifndef GPT_TRAIN_FUZZ_PREPARE_H
#define GPT_TRAIN_FUZZ_PREPARE_H

#include <string.h>

#include "data/prepare_spec.h"
#include "data/prepare_state.h"
#include "tests/fuzz/fuzz_common.h"

/* An owner of memory as its first part. */
struct fuzz_run {
    struct prepare prep;
    struct corpus corpus;
    struct corpus_file file;
    struct documents_input input;
};

static inline struct fuzz_run *fuzz_run_open(const struct prepare_spec *spec, void *owner, const char *state_path)
{
    struct fuzz_run *run;
    FUZZ_CHECK(HOSTMEM_NEW(owner, 1, "run", &run) == GT_OK);
    run->file = (struct corpus_file){.path = "in.txt", .size_bytes = 100, .changed_ns = 1};
    run->corpus = (struct corpus){.files = &run->file, .file_count = 1, .size_bytes = 100};
    struct prepare *prep = &run->prep;
    prep->spec = spec;
    prep->corpus = &run->corpus;
    prep->split = PREPARE_SPLIT_POSITION;
    prep->separator = PREPARE_SEPARATOR_NEWLINE;
    prep->inputs = &run->input;
    FUZZ_CHECK(strlen(state_path) < sizeof prep->state_path);
    memcpy(prep->state_path, state_path, strlen(state_path) + 1);
    return run;
}

static inline void fuzz_run_writer(struct prepare *prep)
{
    prep->writer_spec = (struct token_writer_spec){.folder = prep->spec->out_dir,
                                                   .width_bytes = prep->spec->shard_tokens > 0 ? 4 : 2,
                                                   .shard_tokens = prep->spec->shard_tokens};
    FUZZ_CHECK(token_writer_create(prep, &prep->writer_spec, &prep->writer) == GT_OK);
    FUZZ_CHECK(tokenizer_create_bytes(prep, &prep->learned) == GT_OK);
    prep->tokenizer = prep->learned;
}

static inline void fuzz_run_close(struct fuzz_run *run)
{
    json_decref(run->prep.commit);
    json_decref(run->prep.state);
    hostmem_free(run);
}

#endif
