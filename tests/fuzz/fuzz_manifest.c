/* Fuzzes manifest.json of a data set that gpt-prepare replaces: it lists the tokenizer files to remove.
 *
 * A rejected manifest leaves the folder unchanged.  An accepted one is replaced together with its data set: exactly the
 * tokenizer files that it lists are removed, all other files stay, and the new manifest is accepted.
 */
#include <sys/stat.h>

#include "data/prepare_commit.h"
#include "data/prepare_spec.h"
#include "data/tokenizer.h"
#include "data/tokenizer_export.h"
#include "tests/fuzz/fuzz_folder.h"
#include "tests/fuzz/fuzz_prepare.h"

#define OLD_BYTES 16
#define NEW_BYTES 8

static const char *const inputs[] = {"in.txt"};
static const char *const plain_names[] = {TOKENIZER_FILE_NAME, "train.bin", "val.bin"};
static const char *const partial_names[] = {"train.bin.partial", "val.bin.partial"};

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static void file_put(const char *name, const void *data, size_t size)
{
    char path[FILE_PATH_MAX];
    fuzz_path(path, name);
    fuzz_file_put(path, data, size);
}

/* Returns -1 when there is no such file. */
static int64_t size_of(const char *name)
{
    struct stat status;
    char path[FILE_PATH_MAX];
    fuzz_path(path, name);
    return lstat(path, &status) == 0 ? (int64_t)status.st_size : -1;
}

/* Creates an old data set, and the token files of a new one. */
static void folder_fill(const uint8_t *data, size_t size)
{
    static const char old[OLD_BYTES], new[NEW_BYTES] = {1, 0, 2, 0, 3, 0, 4, 0};
    static bool is_filled;
    file_put(PREPARE_MANIFEST_NAME, data, size);
    for (size_t i = 0; i < COUNT_OF(partial_names); i++)
        file_put(partial_names[i], new, sizeof new);
    if (is_filled && size_of("train.bin") == OLD_BYTES) /* the previous input was rejected */
        return;
    for (size_t i = 0; i < COUNT_OF(plain_names); i++)
        file_put(plain_names[i], old, sizeof old);
    for (int i = TOKENIZER_FILE_JSON; i < TOKENIZER_FILES; i++)
        file_put(tokenizer_file_names[i], old, sizeof old);
    is_filled = true;
}

/* Checks that an accepted list contains no other names. */
static void check_listed(const json_t *manifest)
{
    const json_t *list = json_object_get(manifest, "tokenizer_files");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        FUZZ_CHECK(name != NULL && strchr(name, '/') == NULL && prepare_is_output(name));
    }
}

static bool names_it(const json_t *manifest, const char *name)
{
    const json_t *list = json_object_get(manifest, "tokenizer_files");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        if (text != NULL && strcmp(text, name) == 0)
            return true;
    }
    return false;
}

static void check_untouched(size_t size)
{
    FUZZ_CHECK(size_of(PREPARE_MANIFEST_NAME) == (int64_t)size);
    for (size_t i = 0; i < COUNT_OF(plain_names); i++)
        FUZZ_CHECK(size_of(plain_names[i]) == OLD_BYTES);
    for (int i = TOKENIZER_FILE_JSON; i < TOKENIZER_FILES; i++)
        FUZZ_CHECK(size_of(tokenizer_file_names[i]) == OLD_BYTES);
}

static void check_replaced(const uint8_t *data, size_t size)
{
    json_error_t error;
    json_t *old = json_loadb((const char *)data, size, 0, &error);
    check_listed(old);
    FUZZ_CHECK(size_of("train.bin") == NEW_BYTES && size_of("val.bin") == NEW_BYTES);
    FUZZ_CHECK(size_of("train.bin.partial") < 0 && size_of("manifest.json.partial") < 0);
    for (int i = TOKENIZER_FILE_JSON; i < TOKENIZER_FILES; i++) {
        const char *name = tokenizer_file_names[i];
        FUZZ_CHECK(size_of(name) == (names_it(old, name) ? -1 : OLD_BYTES));
    }
    json_decref(old);
}

static void replace(struct prepare *prep)
{
    struct token_file files[COUNT_OF(partial_names)];
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        files[i] = (struct token_file){
            .split = i == 0 ? TOKEN_TRAIN : TOKEN_VAL, .tokens = NEW_BYTES / 2, .size_bytes = NEW_BYTES};
        memcpy(files[i].partial, partial_names[i], strlen(partial_names[i]) + 1);
        memcpy(files[i].name, plain_names[i + 1], strlen(plain_names[i + 1]) + 1);
    }
    prep->files = files;
    prep->file_count = COUNT_OF(files);
    FUZZ_CHECK(prepare_publish(prep) == GT_OK && prepare_commit(prep) == GT_OK);
    FUZZ_CHECK(prepare_check_old(prep) == GT_OK);
    prep->files = NULL;
}

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    char state_path[FILE_PATH_MAX];
    fuzz_folder_make("");
    const struct prepare_spec spec = {.inputs = inputs,
                                      .input_count = 1,
                                      .out_dir = fuzz_place.folder,
                                      .field = "text",
                                      .tokenizer = TOKENIZER_BYTES,
                                      .val_fraction = 0.25};
    fuzz_path(state_path, PREPARE_STATE_NAME);
    folder_fill(data, size);
    struct fuzz_run *run = fuzz_run_open(&spec, mem, state_path);
    if (prepare_check_old(&run->prep) == GT_OK) {
        fuzz_run_writer(&run->prep);
        replace(&run->prep);
        check_replaced(data, size);
    } else {
        check_untouched(size);
    }
    fuzz_folder_check();
    fuzz_run_close(run);
}
