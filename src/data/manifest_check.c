/* Compares a data set with its manifest.
 *
 * The number of tokens detects files that were cut, extended, added or removed.  The hash detects a different
 * tokenizer, whose ids would mean other text.  The contents of token files are not hashed, because that would read all
 * of them at each start.
 */
#include "data/manifest_check.h"

#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "data/prepare_internal.h"
#include "data/tokens.h"

#define MANIFEST_BYTES_MAX ((size_t)64 << 20)
#define REMEDY "run gpt-prepare again, or delete " PREPARE_MANIFEST_NAME " if you meant to change it"

static enum gt_status content_check(const json_t *root, const char *path, const int64_t tokens[static 2],
                                    const struct tokenizer *tokenizer)
{
    char now[TOKENIZER_HASH_TEXT_BYTES];
    for (int split = TOKEN_TRAIN; split <= TOKEN_VAL; split++) {
        const char *name = token_split_name((enum token_split)split);
        const json_t *said = json_object_get(json_object_get(root, name), "tokens");
        if (json_is_integer(said) && json_integer_value(said) != tokens[split]) {
            log_error("%s lists %" JSON_INTEGER_FORMAT " tokens for the %s split, but its files hold %" PRId64
                      ": the data set has changed since it was made; " REMEDY,
                      path, json_integer_value(said), name, tokens[split]);
            return GT_DATA;
        }
    }
    const char *hash = json_string_value(json_object_get(root, "tokenizer_hash"));
    if (hash == NULL || tokenizer == NULL)
        return GT_OK;
    if (strcmp(hash, tokenizer_hash_text(tokenizer, now)) == 0)
        return GT_OK;
    log_error("%s names tokenizer %.32s, but " TOKENIZER_FILE_NAME
              " beside it is %s: its ids would stand for other text; " REMEDY,
              path, hash, now);
    return GT_DATA;
}

enum gt_status manifest_check(const char *folder, const int64_t tokens[static 2], const struct tokenizer *tokenizer)
{
    char path[FILE_PATH_MAX];
    json_t *root;
    bool exists;
    TRY(file_join(path, folder, PREPARE_MANIFEST_NAME));
    TRY(file_look(path, &exists));
    if (!exists)
        return GT_OK;
    TRY(json_parse_file(path, MANIFEST_BYTES_MAX, &root));
    const char *format = json_string_value(json_object_get(root, "format"));
    const bool ours = format != NULL && strcmp(format, PREPARE_MANIFEST_FORMAT) == 0;
    const enum gt_status status = ours ? content_check(root, path, tokens, tokenizer) : GT_OK;
    json_decref(root);
    return status;
}
