/* Reads manifest.json of a data set.
 *
 * Readers compare a data set with it.  The number of tokens detects files that were cut, extended,
 * added or removed. The hash detects a different tokenizer, whose ids would mean other text.  The
 * contents of token files are not hashed, because that would read all of them at each start.
 */
#include "data/manifest.h"

#include "base/file.h"
#include "base/json.h"

#define REMEDY \
    "run gpt-prepare again, or delete " PREPARE_MANIFEST_NAME " if you meant to change it"

static enum gt_status content_check(const json_t *root, const char *path,
                                    const int64_t tokens[static 2],
                                    const struct tokenizer *tokenizer)
{
    for (int split = TOKEN_TRAIN; split <= TOKEN_VAL; split++) {
        const char *name = token_split_name((enum token_split)split);
        const json_t *said = json_object_get(json_object_get(root, name), "tokens");
        if (json_is_integer(said) && json_integer_value(said) != tokens[split])
            return FAIL(GT_DATA,
                        "%s lists %" JSON_INTEGER_FORMAT
                        " tokens for the %s split, but its files hold %" PRId64
                        ": the data set has changed since it was made; " REMEDY,
                        path, json_integer_value(said), name, tokens[split]);
    }
    const char *hash = json_string_value(json_object_get(root, "tokenizer_hash"));
    const char *now = tokenizer != NULL ? TOKENIZER_HASH_TEXT(tokenizer) : "";
    if (hash == NULL || tokenizer == NULL || strcmp(hash, now) == 0)
        return GT_OK;
    return FAIL(GT_DATA,
                "%s names tokenizer %.32s, but " TOKENIZER_FILE_NAME
                " beside it is %s: its ids would stand for other text; " REMEDY,
                path, hash, now);
}

/* Opens the manifest that gpt-prepare wrote to a folder; *out is NULL without one. */
static enum gt_status manifest_open(const char *folder, json_t **out)
{
    bool exists;
    const char *path = FILE_IN(folder, PREPARE_MANIFEST_NAME);
    *out = NULL;
    TRY(file_stat_exists(path, &exists));
    if (!exists)
        return GT_OK;
    TRY(json_parse_file(path, PREPARE_MANIFEST_BYTES_MAX, out));
    const char *format = json_string_value(json_object_get(*out, "format"));
    if (format != NULL && strcmp(format, PREPARE_MANIFEST_FORMAT) == 0)
        return GT_OK;
    json_decref(*out);
    *out = NULL;
    return GT_OK;
}

enum gt_status manifest_check(const char *folder, const int64_t tokens[static 2],
                              const struct tokenizer *tokenizer)
{
    json_t *root;
    TRY(manifest_open(folder, &root));
    const char *path = FILE_IN(folder, PREPARE_MANIFEST_NAME);
    const enum gt_status status =
        root != NULL ? content_check(root, path, tokens, tokenizer) : GT_OK;
    json_decref(root);
    return status;
}

enum gt_status manifest_is_chat(const char *folder, bool *out)
{
    json_t *root;
    TRY(manifest_open(folder, &root));
    *out = json_string_length(json_object_get(json_object_get(root, "options"), "chat")) > 0;
    json_decref(root);
    return GT_OK;
}
