/* Fuzzes .gpt-prepare.state: how far a stopped run came, its token files, and the names to rename or remove at the end.
 *
 * Other options or inputs make the reader reject a state before it reads the rest, so the test continues after a
 * rejection.  A restored state can be written, and is then restored as the same.  Files are renamed and removed only in
 * a folder of the target; gpt-prepare must not touch foreign files in it or next to it.
 */
#include "data/prepare_commit.h"
#include "data/prepare_manifest.h"
#include "data/prepare_spec.h"
#include "tests/fuzz/fuzz_folder.h"
#include "tests/fuzz/fuzz_prepare.h"

#define FILE_BYTES 1056 /* a header and as many tokens as a shard has here */

static char beside[FILE_PATH_MAX];
static const char *const made[] = {"train.bin.partial",          "val.bin.partial",          "train_000001.bin.partial",
                                   "train_000002.bin.partial",   "train_000003.bin.partial", "val_000001.bin.partial",
                                   "gpt_tokenizer.json.partial", "manifest.json.partial",    "manifest.json"};
static const char *const inputs[] = {"in.txt"};

static void beside_remove(void)
{
    unlink(beside);
}

/* Recreates the folder of a run that was stopped before its last step. */
static void folder_fill(void)
{
    static const char bytes[FILE_BYTES] = {1, 0, 2, 0, 3, 0, 4, 0};
    char path[FILE_PATH_MAX];
    fuzz_folder_empty();
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++) {
        fuzz_path(path, made[i]);
        fuzz_file_put(path, bytes, sizeof bytes);
    }
}

static void check_written(struct fuzz_run *run)
{
    struct prepare *prep = &run->prep;
    fuzz_path(prep->state_path, PREPARE_STATE_NAME);
    prep->progress.text = prep->stopped;
    if (prep->stopped.parts == 0) /* the state was rejected before */
        prep->progress.text.parts = 1;
    FUZZ_CHECK(prepare_state_save(prep, PREPARE_PHASE_ENCODE) == GT_OK);
    struct fuzz_run *back = fuzz_run_open(prep->spec, prep, prep->state_path);
    fuzz_run_writer(&back->prep);
    FUZZ_CHECK(prepare_state_load(&back->prep) == GT_OK && back->prep.phase == PREPARE_PHASE_ENCODE);
    FUZZ_CHECK(prepare_state_check_tokenizer(&back->prep) == GT_OK);
    FUZZ_CHECK(prepare_state_shards(&back->prep) == GT_OK);
    FUZZ_CHECK(memcmp(&back->prep.stopped, &prep->progress.text, sizeof prep->stopped) == 0);
    for (int split = 0; split < TOKEN_WRITER_SPLITS; split++)
        FUZZ_CHECK(token_writer_tokens(back->prep.writer, (enum token_split)split) ==
                   token_writer_tokens(prep->writer, (enum token_split)split));
    fuzz_run_close(back);
}

static void check_foreign(void)
{
    fuzz_folder_check();
    FUZZ_CHECK(access(beside, F_OK) == 0);
}

/* Checks --restart with such a state: a complete data set stays. */
static void check_discarded(struct prepare *prep, bool is_whole)
{
    char manifest[FILE_PATH_MAX];
    folder_fill();
    fuzz_path(manifest, PREPARE_MANIFEST_NAME);
    if (!is_whole)
        unlink(manifest);
    prepare_discard(prep);
    check_foreign();
    FUZZ_CHECK((access(manifest, F_OK) == 0) == is_whole);
}

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    if (beside[0] == '\0') {
        fuzz_folder_make("set");
        file_join(beside, fuzz_place.above, "set.bin");
        FUZZ_CHECK(atexit(beside_remove) == 0);
        fuzz_file_put(beside, "beside", 6);
    }
    const struct prepare_spec spec = {.inputs = inputs,
                                      .input_count = 1,
                                      .out_dir = fuzz_place.folder,
                                      .field = "text",
                                      .tokenizer = TOKENIZER_BYTES,
                                      .val_fraction = 0.25,
                                      .shard_tokens = size % 2 == 0 ? 0 : 8};
    struct fuzz_run *run = fuzz_run_open(&spec, mem, fuzz_file(data, size));
    (void)prepare_state_load(&run->prep);
    if (run->prep.state != NULL) {
        if (size % 3 == 0)
            check_discarded(&run->prep, size % 6 == 0);
        folder_fill();
        fuzz_run_writer(&run->prep);
        (void)prepare_state_check_tokenizer(&run->prep);
        if (prepare_state_shards(&run->prep) == GT_OK)
            check_written(run);
        run->prep.commit = json_incref(json_object_get(run->prep.state, "commit"));
        (void)prepare_commit(&run->prep);
        check_foreign();
    }
    fuzz_run_close(run);
}
