/* Kind "bpe" in gpt_tokenizer.json: reads it, with every entry checked, and writes it.
 *
 * Errors about the file's fields are logged here; bpe.c logs a missing id or byte.
 */
#include "data/tokenizer_bpe.h"

#include "data/bpe.h"
#include "data/tokenizer_pipeline.h"

static const char *const rank_names[] = {"merge", "token"};

/* ---- reading ---- */

struct bpe_reading {
    const char *path;
    const json_t *vocabulary, *special, *merges, *pipeline; /* pipeline: NULL is GPT-2's */
    size_t vocab_size, special_count, merge_count;
    struct bpe_pipeline steps;
    struct bpe *bpe;
};

static enum gt_status refuse(const struct bpe_reading *reading, const char *field, size_t index, const char *what)
{
    return FAIL(GT_DATA, "%s: field \"%s\": entry %zu %s", reading->path, field, index, what);
}

static enum gt_status array_get(const json_t *root, const char *path, const char *name, size_t max, const json_t **out,
                                size_t *out_count)
{
    const json_t *array = json_object_get(root, name);
    if (!json_is_array(array) || json_array_size(array) > max)
        return FAIL(GT_DATA, "%s: field \"%s\": expected a list of at most %zu, found %s of %zu", path, name, max,
                    json_is_array(array) ? "one" : "none, or something", json_array_size(array));
    *out = array;
    *out_count = json_array_size(array);
    return GT_OK;
}

static enum gt_status token_read(struct bpe_reading *reading, size_t id, bool special)
{
    static const char *const problems[] = {[BPE_ID_TAKEN] = "is no text of 1 to 1024 bytes",
                                           [BPE_TEXT_TAKEN] = "is there twice",
                                           [BPE_TEXT_BAD] = "is no text of 1 to 1024 bytes",
                                           [BPE_TEXT_FOREIGN] = "has a character that is not of GPT-2's alphabet"};
    const json_t *entry = json_array_get(reading->vocabulary, id);
    const enum bpe_add added =
        bpe_add_written(reading->bpe, (int32_t)id, json_string_value(entry), json_string_length(entry), special);
    return added == BPE_ADDED ? GT_OK : refuse(reading, "vocabulary", id, problems[added]);
}

static enum gt_status vocabulary_read(struct bpe_reading *reading)
{
    size_t next = 0; /* index in the list of special tokens, which ascends */
    for (size_t id = 0; id < reading->vocab_size; id++) {
        const json_t *entry = json_array_get(reading->special, next);
        const bool special = json_is_integer(entry) && json_integer_value(entry) == (json_int_t)id;
        next += special;
        TRY(token_read(reading, id, special));
    }
    if (next != reading->special_count)
        return refuse(reading, "special", next, "is no id of the vocabulary above the one before it");
    return GT_OK;
}

static enum gt_status merge_id(const struct bpe_reading *reading, size_t index, int32_t *out)
{
    const json_t *entry = json_array_get(reading->merges, index);
    const json_int_t value = json_is_integer(entry) ? json_integer_value(entry) : -1;
    if (value < 0 || value >= (json_int_t)reading->vocab_size)
        return refuse(reading, "merges", index, "is no id of the vocabulary");
    *out = (int32_t)value;
    return GT_OK;
}

static enum gt_status merges_read(struct bpe_reading *reading)
{
    for (size_t i = 0; i + 1 < reading->merge_count; i += 2) {
        int32_t left = 0, right = 0;
        TRY(merge_id(reading, i, &left));
        TRY(merge_id(reading, i + 1, &right));
        if (!bpe_add_merge(reading->bpe, left, right))
            return refuse(reading, "merges", i, "and the one behind it make no token of the vocabulary");
    }
    if (reading->merge_count % 2 != 0)
        return refuse(reading, "merges", reading->merge_count - 1, "has no other behind it");
    return GT_OK;
}

static enum gt_status contents_read(struct bpe_reading *reading)
{
    TRY(vocabulary_read(reading));
    if (reading->pipeline != NULL)
        TRY(tokenizer_pipeline_set(reading->bpe, reading->pipeline, reading->path, &reading->steps));
    TRY(merges_read(reading));
    return bpe_finish(reading->bpe, reading->path);
}

static enum gt_status names_read(const json_t *root, const char *path, enum bpe_split expected, enum bpe_rank *out)
{
    const char *split = NULL, *rank = NULL;
    TRY(json_get_string(root, path, "split", &split));
    TRY(json_get_string(root, path, "rank", &rank));
    const bool merge = strcmp(rank, rank_names[BPE_RANK_MERGE]) == 0;
    if (strcmp(split, bpe_splits[expected].name) != 0 || (!merge && strcmp(rank, rank_names[BPE_RANK_TOKEN]) != 0))
        return FAIL(GT_UNSUPPORTED,
                    "%s: split \"%s\", rank \"%s\"; this file needs split \"%s\", and rank \"merge\" or \"token\"",
                    path, split, rank, bpe_splits[expected].name);
    *out = merge ? BPE_RANK_MERGE : BPE_RANK_TOKEN;
    return GT_OK;
}

enum gt_status tokenizer_bpe_read(const void *owner, const json_t *root, const char *path, struct bpe **out)
{
    struct bpe_reading reading = {.path = path, .pipeline = json_object_get(root, "pipeline")};
    enum bpe_rank rank = BPE_RANK_MERGE;
    size_t text_bytes = 0;
    if (reading.pipeline != NULL)
        TRY(tokenizer_pipeline_read(reading.pipeline, path, &reading.steps));
    TRY(names_read(root, path, reading.steps.split, &rank));
    TRY(array_get(root, path, "vocabulary", BPE_VOCAB_MAX, &reading.vocabulary, &reading.vocab_size));
    TRY(array_get(root, path, "special", BPE_VOCAB_MAX, &reading.special, &reading.special_count));
    if (rank == BPE_RANK_MERGE)
        TRY(array_get(root, path, "merges", 2 * (size_t)BPE_MERGES_MAX, &reading.merges, &reading.merge_count));
    if (reading.vocab_size == 0)
        return refuse(&reading, "vocabulary", 0, "is missing");
    for (size_t i = 0; i < reading.vocab_size; i++)
        text_bytes += json_string_length(json_array_get(reading.vocabulary, i));
    if (text_bytes > BPE_TEXT_BYTES_MAX)
        return FAIL(GT_DATA, "%s: field \"vocabulary\": %zu bytes of text, at most %zu", path, text_bytes,
                    BPE_TEXT_BYTES_MAX);
    const struct bpe_spec spec = {.vocab_size = reading.vocab_size,
                                  .text_bytes = text_bytes,
                                  .merge_count = reading.merge_count / 2,
                                  .rank = rank};
    TRY(bpe_create(owner, &spec, &reading.bpe));
    const enum gt_status status = contents_read(&reading);
    return FINISH(status, out, reading.bpe, hostmem_free);
}

/* ---- writing ---- */

json_t *tokenizer_bpe_token(const struct bpe *bpe, int32_t id)
{
    const char *bytes = NULL;
    char text[2 * BPE_TOKEN_BYTES_MAX];
    const size_t count = bpe_token(bpe, id, &bytes);
    if (bpe_is_special(bpe, id))
        return json_stringn(bytes, count);
    return json_stringn(text, bpe_alphabet_write(bytes, count, text));
}

bool tokenizer_bpe_write(const struct bpe *bpe, json_t *root)
{
    json_t *vocabulary = json_array(), *special = json_array(), *pairs = json_array();
    int failures = json_object_set_new(root, "split", json_string(bpe_splits[bpe->pipeline.split].name));
    failures |= json_object_set_new(root, "rank", json_string(rank_names[bpe->rank]));
    for (size_t id = 0; id < bpe->vocab_size; id++)
        failures |= json_array_append_new(vocabulary, tokenizer_bpe_token(bpe, (int32_t)id));
    for (size_t i = 0; i < bpe->special_count; i++)
        failures |= json_array_append_new(special, json_integer(bpe->specials[i]));
    for (size_t i = 0; i < bpe->merge_count; i++) {
        failures |= json_array_append_new(pairs, json_integer(bpe->merges[i].left));
        failures |= json_array_append_new(pairs, json_integer(bpe->merges[i].right));
    }
    failures |= json_object_set_new(root, "vocabulary", vocabulary);
    failures |= json_object_set_new(root, "special", special);
    if (bpe->rank == BPE_RANK_MERGE)
        failures |= json_object_set_new(root, "merges", pairs);
    else
        json_decref(pairs);
    if (bpe->pipeline.json != NULL)
        failures |= json_object_set_new(root, "pipeline", json_loads(bpe->pipeline.json, 0, NULL));
    return failures == 0;
}
