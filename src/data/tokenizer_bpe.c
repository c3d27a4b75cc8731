/* Kind "bpe" in gpt_tokenizer.json: reads it, with every entry checked, and writes it; reads
 * tokenizer.json's pipeline.
 *
 * Errors about the file's fields are logged here; bpe.c logs a missing id or byte.  Each field of
 * the pipeline that could change ids is checked.  Fields that only matter to decoders and to
 * offsets in the text are carried along.
 */
#include "data/tokenizer_bpe.h"

#define ADDED_MAX 65536

static const char *const rank_names[] = {"merge", "token"};

/* ---- the pipeline ---- */

enum gt_status tokenizer_pipeline_refuse_kind(const char *path, const char *kind)
{
    return FAIL(
        GT_UNSUPPORTED,
        "%s: this is a %s vocabulary; only BPE can be read, as GPT-2, Llama, Mistral, Gemma, Qwen and SmolLM "
        "have it; take such a model, or let --tokenizer=train make a vocabulary for a new one",
        path, kind);
}

static enum gt_status field_refuse(const char *path, const char *field, const json_t *value,
                                   const char *expected)
{
    char *text = value != NULL ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    log_error("%s: field \"%s\": %.300s; only %s can be read; ids that another program made can be "
              "trained on: numpy.save(\"data/NAME/train.npy\", ids), of type uint16 or uint32",
              path, field, text != NULL ? text : "missing", expected);
    free(text);
    return GT_UNSUPPORTED;
}

static bool is_absent(const json_t *value)
{
    return value == NULL || json_is_null(value);
}

static bool is_text(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

static bool is_type(const json_t *object, const char *type)
{
    return is_text(json_object_get(object, "type"), type);
}

/* Checks the fields of "model" that change ids; they must be absent, null, false or empty. */
static enum gt_status model_read(const json_t *model, const char *path, struct bpe_pipeline *out)
{
    static const char *const fields[] = {"model.dropout", "model.continuing_subword_prefix",
                                         "model.end_of_word_suffix"};
    const json_t *type = json_object_get(model, "type"),
                 *ignores = json_object_get(model, "ignore_merges");
    const json_t *unknown = json_object_get(model, "unk_token");
    if (json_is_string(type) && strcmp(json_string_value(type), "BPE") != 0)
        return tokenizer_pipeline_refuse_kind(path, json_string_value(type));
    if (!json_is_object(model) || (!is_absent(type) && !json_is_string(type)))
        return field_refuse(path, "model.type", type, "\"BPE\"");
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const json_t *value = json_object_get(model, fields[i] + strlen("model."));
        const bool zero = json_is_number(value) && json_number_value(value) == 0.0;
        if (!is_absent(value) && !is_text(value, "") && !zero)
            return field_refuse(path, fields[i], value, "null");
    }
    if (!is_absent(ignores) && !json_is_boolean(ignores))
        return field_refuse(path, "model.ignore_merges", ignores, "true or false");
    if (!is_absent(unknown) && !json_is_string(unknown))
        return field_refuse(path, "model.unk_token", unknown, "null or a token");
    out->ignore_merges = json_is_true(ignores);
    out->fuse_unknown = json_is_true(json_object_get(model, "fuse_unk"));
    out->characters = json_is_true(json_object_get(model, "byte_fallback"));
    return GT_OK;
}

/* Reads the step before "ByteLevel" in a sequence: each digit alone, or an expression. */
static enum gt_status split_first_read(const json_t *first, const char *path, enum bpe_split *out)
{
    const json_t *regex = json_object_get(json_object_get(first, "pattern"), "Regex");
    if (is_type(first, "Digits") && json_is_true(json_object_get(first, "individual_digits"))) {
        *out = BPE_SPLIT_SMOLLM;
        return GT_OK;
    }
    const bool isolates = is_type(first, "Split") &&
                          is_text(json_object_get(first, "behavior"), "Isolated") &&
                          !json_is_true(json_object_get(first, "invert"));
    for (int i = 0; i < BPE_SPLIT_COUNT && isolates; i++)
        if (bpe_splits[i].regex != NULL && is_text(regex, bpe_splits[i].regex)) {
            *out = (enum bpe_split)i;
            return GT_OK;
        }
    return field_refuse(
        path, "pre_tokenizer", isolates && regex != NULL ? regex : first,
        "the splits of GPT-2, GPT-4o, Llama 3, Mistral Nemo, Qwen2, Qwen3.5 and SmolLM");
}

static enum gt_status split_read(const json_t *root, const char *path, enum bpe_split *out)
{
    const json_t *steps = json_object_get(root, "pre_tokenizer"), *last = steps;
    *out = BPE_SPLIT_GPT2;
    if (is_type(steps, "Sequence")) {
        const json_t *list = json_object_get(steps, "pretokenizers");
        TRY(split_first_read(json_array_get(list, 0), path, out));
        last = json_array_size(list) == 2 ? json_array_get(list, 1) : NULL;
    }
    const json_t *prefix = json_object_get(last, "add_prefix_space"),
                 *regex = json_object_get(last, "use_regex");
    const bool splits = *out == BPE_SPLIT_GPT2 || *out == BPE_SPLIT_SMOLLM;
    if (!is_type(last, "ByteLevel"))
        return field_refuse(path, "pre_tokenizer", steps,
                            "\"ByteLevel\", alone or behind one other step,");
    if (!json_is_false(prefix))
        return field_refuse(path, "pre_tokenizer.add_prefix_space", prefix, "false");
    if (splits != (is_absent(regex) || json_is_true(regex)))
        return field_refuse(path, "pre_tokenizer.use_regex", regex, splits ? "true" : "false");
    return GT_OK;
}

/* ---- the pipeline of a vocabulary of characters ---- */

static bool is_of(const json_t *step, const char *type, const char *field, const char *value)
{
    return is_type(step, type) && is_text(json_object_get(step, field), value);
}

/* Reads "Prepend", "Replace", or a sequence of the two. */
static bool mark_normalizer_read(const json_t *normalizer, struct bpe_marks *out)
{
    const json_t *list = json_object_get(normalizer, "normalizers");
    const size_t count = is_absent(normalizer)             ? 0
                         : is_type(normalizer, "Sequence") ? json_array_size(list)
                                                           : 1;
    for (size_t i = 0; i < count; i++) {
        const json_t *step = is_type(normalizer, "Sequence") ? json_array_get(list, i) : normalizer;
        const bool space =
            is_text(json_object_get(json_object_get(step, "pattern"), "String"), " ");
        if (is_of(step, "Prepend", "prepend", BPE_MARK) && i == 0)
            out->before = BPE_MARK_EVEN;
        else if (is_of(step, "Replace", "content", BPE_MARK) && space && !out->spaces)
            out->spaces = true;
        else
            return false;
    }
    return true;
}

/* Reads "Metaspace", whose absent fields are "always" and a split. */
static bool metaspace_read(const json_t *step, struct bpe_pipeline *out)
{
    const json_t *scheme = json_object_get(step, "prepend_scheme"),
                 *prefix = json_object_get(step, "add_prefix_space");
    const bool never = is_text(scheme, "never") || (is_absent(scheme) && json_is_false(prefix));
    if (!is_of(step, "Metaspace", "replacement", BPE_MARK) ||
        !(never || is_absent(scheme) || is_text(scheme, "always") || is_text(scheme, "first")))
        return false;
    out->pretokenizer.spaces = true;
    out->pretokenizer.before = never                      ? BPE_MARK_NEVER
                               : is_text(scheme, "first") ? BPE_MARK_FIRST
                                                          : BPE_MARK_ALWAYS;
    out->each = !json_is_false(json_object_get(step, "split"));
    return true;
}

/* Reads the steps that insert marks.  A split at spaces does nothing to text without spaces. */
static enum gt_status marks_read(const json_t *root, const char *path, struct bpe_pipeline *out)
{
    const json_t *normalizer = json_object_get(root, "normalizer"),
                 *split = json_object_get(root, "pre_tokenizer");
    const json_t *decoder = json_object_get(root, "decoder"),
                 *list = json_object_get(decoder, "decoders");
    const json_t *last =
        json_array_size(list) > 0 ? json_array_get(list, json_array_size(list) - 1) : decoder;
    out->split = BPE_SPLIT_MARKS;
    out->growth = 2; /* one mark for each text, which has at least one byte */
    if (!mark_normalizer_read(normalizer, &out->normalizer))
        return field_refuse(path, "normalizer", normalizer,
                            "\"Prepend\" and \"Replace\" of spaces by U+2581");
    const bool idle = is_type(split, "Split") && out->normalizer.spaces &&
                      is_text(json_object_get(json_object_get(split, "pattern"), "String"), " ");
    if (!is_absent(split) && !idle && !metaspace_read(split, out))
        return field_refuse(path, "pre_tokenizer", split, "\"Metaspace\" with U+2581");
    out->strips = is_type(last, "Strip")
                      ? json_integer_value(json_object_get(last, "start")) > 0
                      : is_type(last, "Metaspace") && out->pretokenizer.before != BPE_MARK_NEVER;
    return GT_OK;
}

/* Reads "TemplateProcessing": [BOS, the text], or the text alone. */
static bool template_read(const json_t *template, int32_t *out)
{
    const json_t *single = json_object_get(template, "single");
    const size_t count = json_array_size(single);
    const json_t *text = json_object_get(json_array_get(single, count - 1), "Sequence");
    const json_t *before = json_object_get(json_array_get(single, 0), "SpecialToken");
    const char *name = json_string_value(json_object_get(before, "id"));
    const json_t *ids =
        json_object_get(json_object_get(json_object_get(template, "special_tokens"), name), "ids");
    const json_t *id = json_array_get(ids, 0);
    if (count < 1 || count > 2 || !is_text(json_object_get(text, "id"), "A"))
        return false;
    if (count == 1)
        return true;
    *out = json_is_integer(id) && json_integer_value(id) < BPE_VOCAB_MAX
               ? (int32_t)json_integer_value(id)
               : -1;
    return json_array_size(ids) == 1 && *out >= 0;
}

static enum gt_status bos_read(const json_t *root, const char *path, int32_t *out)
{
    const json_t *all = json_object_get(root, "post_processor"),
                 *list = json_object_get(all, "processors");
    const size_t count = is_absent(all) ? 0 : is_type(all, "Sequence") ? json_array_size(list) : 1;
    *out = -1;
    for (size_t i = 0; i < count; i++) {
        const json_t *step = is_type(all, "Sequence") ? json_array_get(list, i) : all;
        const bool adds = is_type(step, "TemplateProcessing") && *out < 0;
        if (!is_type(step, "ByteLevel") && !(adds && template_read(step, out)))
            return field_refuse(path, "post_processor", step,
                                "\"ByteLevel\" and a template of one token before the text");
    }
    return GT_OK;
}

/* An added token that is found in normalized text must be normalized itself. */
static enum gt_status added_check_normal(const json_t *token, const char *path)
{
    const json_t *content = json_object_get(token, "content");
    size_t count = 0;
    char *normal = NULL;
    if (bpe_nfc(json_string_value(content), json_string_length(content), &normal, &count) != GT_OK)
        return FAIL(GT_NO_MEMORY, "out of memory: the added tokens of %s", path);
    const bool same = normal == NULL || (count == json_string_length(content) &&
                                         memcmp(normal, json_string_value(content), count) == 0);
    free(normal);
    return same ? GT_OK
                : field_refuse(path, "added_tokens", token, "a content that NFC leaves as it is");
}

static enum gt_status added_check(const json_t *root, const char *path, bool nfc)
{
    const json_t *added = json_object_get(root, "added_tokens");
    if (!is_absent(added) && (!json_is_array(added) || json_array_size(added) > ADDED_MAX))
        return field_refuse(path, "added_tokens", added, "a list of at most 65536");
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *token = json_array_get(added, i);
        if (!json_is_string(json_object_get(token, "content")))
            return field_refuse(path, "added_tokens.content", token, "text");
        if (json_is_true(json_object_get(token, "single_word")))
            return field_refuse(path, "added_tokens", token, "single_word false");
        if (nfc && json_is_true(json_object_get(token, "normalized")))
            TRY(added_check_normal(token, path));
    }
    return GT_OK;
}

enum gt_status tokenizer_pipeline_read(const json_t *root, const char *path,
                                       struct bpe_pipeline *out)
{
    const json_t *normalizer = json_object_get(root, "normalizer"),
                 *list = json_object_get(normalizer, "normalizers");
    if (is_type(normalizer, "Sequence") && json_array_size(list) < 2) /* NULL: no step */
        normalizer = json_array_get(list, 0);
    *out = bpe_pipeline_of_gpt2;
    TRY(model_read(json_object_get(root, "model"), path, out));
    const bool nfc = is_type(normalizer, "NFC") && !out->characters;
    if (out->characters) {
        TRY(marks_read(root, path, out));
        TRY(bos_read(root, path, &out->bos));
        return added_check(root, path, false);
    }
    out->growth = nfc ? BPE_NFC_GROWTH_MAX : 1;
    if (!is_absent(normalizer) && !nfc)
        return field_refuse(path, "normalizer", normalizer, "null or \"NFC\"");
    if (nfc && !bpe_nfc_possible)
        return FAIL(
            GT_UNSUPPORTED,
            "%s: the tokenizer normalizes text (NFC), and this program was built without ICU "
            "(Debian: libicu-dev)",
            path);
    TRY(split_read(root, path, &out->split));
    TRY(bos_read(root, path, &out->bos));
    return added_check(root, path, nfc);
}

/* Returns the text of `root` without merges, and with only the added tokens and the unknown token
 * in the vocabulary, if present.  The caller free()s it; NULL: out of memory. */
static char *json_without_vocabulary(const json_t *root)
{
    json_t *copy = json_copy(
        (json_t *)root); /* jansson's copies need a non-const pointer but change nothing */
    json_t *model = json_copy(json_object_get(root, "model")), *vocab = json_object(), *token;
    size_t i;
    json_array_foreach(json_object_get(root, "added_tokens"), i, token)
    {
        const char *text = json_string_value(json_object_get(token, "content"));
        json_object_set(
            vocab, text,
            json_object_get(json_object_get(model, "vocab"), text)); /* fails when not there */
    }
    const char *unknown = json_string_value(json_object_get(model, "unk_token"));
    json_object_set(vocab, unknown,
                    json_object_get(json_object_get(model, "vocab"), unknown)); /* the same */
    json_object_del(model, "merges");
    const int failures =
        json_object_set_new(model, "vocab", vocab) | json_object_set_new(copy, "model", model);
    char *text = failures == 0 ? json_dumps(copy, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(copy);
    return text;
}

/* Returns the id of the unknown token, or -1: if the vocabulary lacks no byte, it never occurs. */
static int32_t unknown_find(const struct bpe *bpe, const json_t *model)
{
    const char *text = json_string_value(json_object_get(model, "unk_token"));
    const json_t *id = json_object_get(json_object_get(model, "vocab"), text);
    const bool valid = json_is_integer(id) && json_integer_value(id) >= 0 &&
                       json_integer_value(id) < (json_int_t)bpe->vocab_size && bpe_lacks_bytes(bpe);
    return valid ? (int32_t)json_integer_value(id) : -1;
}

enum gt_status tokenizer_pipeline_set(struct bpe *bpe, const json_t *root, const char *path,
                                      const struct bpe_pipeline *pipeline)
{
    const json_t *added = json_object_get(root, "added_tokens");
    struct bpe_pipeline whole = *pipeline;
    whole.unknown = unknown_find(bpe, json_object_get(root, "model"));
    bool is_gpt2 = !whole.characters && whole.split == BPE_SPLIT_GPT2 && whole.growth == 1 &&
                   !whole.ignore_merges && whole.bos < 0 && whole.unknown < 0;
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *token = json_array_get(added, i),
                     *content = json_object_get(token, "content");
        const json_int_t id = json_integer_value(json_object_get(token, "id"));
        const char *text = NULL;
        const size_t count = id < BPE_VOCAB_MAX && bpe_is_special(bpe, (int32_t)id)
                                 ? bpe_token(bpe, (int32_t)id, &text)
                                 : 0;
        if (count == 0 || count != json_string_length(content) ||
            memcmp(text, json_string_value(content), count) != 0)
            return FAIL(GT_DATA, "%s: field \"added_tokens\": entry %zu is not the token of its id",
                        path, i);
        const struct bpe_strip strip = {.left = json_is_true(json_object_get(token, "lstrip")),
                                        .right = json_is_true(json_object_get(token, "rstrip"))};
        const bool special = json_is_true(json_object_get(token, "special"));
        bpe_set_strip(bpe, (int32_t)id, strip);
        if (!special)
            bpe_set_literal(bpe, (int32_t)id);
        if (json_is_true(json_object_get(token, "normalized")) && (!special || whole.characters))
            bpe_set_normalized(bpe, (int32_t)id);
        is_gpt2 = is_gpt2 && special && !strip.left && !strip.right;
    }
    if (pipeline->bos >= 0 && !bpe_is_special(bpe, pipeline->bos))
        return FAIL(GT_DATA, "%s: field \"post_processor\": %d is the id of no added token", path,
                    (int)pipeline->bos);
    if (is_gpt2)
        return GT_OK;
    char *text = json_without_vocabulary(root);
    if (text == NULL)
        return FAIL(GT_NO_MEMORY, "out of memory: the pipeline of %s", path);
    whole.json = text;
    const enum gt_status status = bpe_set_pipeline(bpe, &whole);
    free(text);
    return status;
}

/* ---- reading ---- */

struct bpe_reading {
    const char *path;
    const json_t *vocabulary, *special, *merges, *pipeline; /* pipeline: NULL is GPT-2's */
    struct bpe_pipeline steps;
    struct bpe *bpe;
};

static enum gt_status refuse(const struct bpe_reading *reading, const char *field, size_t index,
                             const char *what)
{
    return FAIL(GT_DATA, "%s: field \"%s\": entry %zu %s", reading->path, field, index, what);
}

static enum gt_status array_get(const json_t *root, const char *path, const char *name, size_t max,
                                const json_t **out)
{
    const json_t *array = json_object_get(root, name);
    if (!json_is_array(array) || json_array_size(array) > max)
        return FAIL(GT_DATA, "%s: field \"%s\": expected a list of at most %zu entries, found %s",
                    path, name, max,
                    json_is_array(array) ? TEXT(24, "%zu", json_array_size(array)) : "no list");
    *out = array;
    return GT_OK;
}

static enum gt_status token_read(struct bpe_reading *reading, size_t id, bool special)
{
    static const char *const problems[] = {[BPE_ID_TAKEN] = "is not a text of 1 to 1024 bytes",
                                           [BPE_TEXT_TAKEN] = "occurs twice",
                                           [BPE_TEXT_BAD] = "is not a text of 1 to 1024 bytes",
                                           [BPE_TEXT_FOREIGN] =
                                               "has a character that is not of GPT-2's alphabet"};
    const json_t *entry = json_array_get(reading->vocabulary, id);
    const enum bpe_add added = bpe_add_written(reading->bpe, (int32_t)id, json_string_value(entry),
                                               json_string_length(entry), special);
    return added == BPE_ADDED ? GT_OK : refuse(reading, "vocabulary", id, problems[added]);
}

static enum gt_status vocabulary_read(struct bpe_reading *reading)
{
    size_t next = 0; /* index in the list of special tokens, which ascends */
    for (size_t id = 0; id < json_array_size(reading->vocabulary); id++) {
        const json_t *entry = json_array_get(reading->special, next);
        const bool special = json_is_integer(entry) && json_integer_value(entry) == (json_int_t)id;
        next += special;
        TRY(token_read(reading, id, special));
    }
    if (next != json_array_size(reading->special))
        return refuse(reading, "special", next,
                      "is not an id of the vocabulary above the one before it");
    return GT_OK;
}

static enum gt_status merge_id(const struct bpe_reading *reading, size_t index, int32_t *out)
{
    const json_t *entry = json_array_get(reading->merges, index);
    const json_int_t value = json_is_integer(entry) ? json_integer_value(entry) : -1;
    if (value < 0 || value >= (json_int_t)reading->bpe->vocab_size)
        return refuse(reading, "merges", index, "is not an id of the vocabulary");
    *out = (int32_t)value;
    return GT_OK;
}

static enum gt_status merges_read(struct bpe_reading *reading)
{
    const size_t count = json_array_size(reading->merges);
    for (size_t i = 0; i + 1 < count; i += 2) {
        int32_t left = 0, right = 0;
        TRY(merge_id(reading, i, &left));
        TRY(merge_id(reading, i + 1, &right));
        if (!bpe_add_merge(reading->bpe, left, right))
            return refuse(reading, "merges", i,
                          "and the one behind it make no token of the vocabulary");
    }
    if (count % 2 != 0)
        return refuse(reading, "merges", count - 1, "has no other behind it");
    return GT_OK;
}

static enum gt_status contents_read(struct bpe_reading *reading)
{
    TRY(vocabulary_read(reading));
    if (reading->pipeline != NULL)
        TRY(tokenizer_pipeline_set(reading->bpe, reading->pipeline, reading->path,
                                   &reading->steps));
    TRY(merges_read(reading));
    return bpe_finish(reading->bpe, reading->path);
}

static enum gt_status names_read(const json_t *root, const char *path, enum bpe_split expected,
                                 enum bpe_rank *out)
{
    const char *split = NULL, *rank = NULL;
    TRY(json_get_string(root, path, "split", &split));
    TRY(json_get_string(root, path, "rank", &rank));
    const bool merge = strcmp(rank, rank_names[BPE_RANK_MERGE]) == 0;
    if (strcmp(split, bpe_splits[expected].name) != 0 ||
        (!merge && strcmp(rank, rank_names[BPE_RANK_TOKEN]) != 0))
        return FAIL(
            GT_UNSUPPORTED,
            "%s: split \"%s\", rank \"%s\"; this file needs split \"%s\", and rank \"merge\" or \"token\"",
            path, split, rank, bpe_splits[expected].name);
    *out = merge ? BPE_RANK_MERGE : BPE_RANK_TOKEN;
    return GT_OK;
}

enum gt_status tokenizer_bpe_read(const void *owner, const json_t *root, const char *path,
                                  struct bpe **out)
{
    struct bpe_reading reading = {.path = path, .pipeline = json_object_get(root, "pipeline")};
    enum bpe_rank rank = BPE_RANK_MERGE;
    size_t text_bytes = 0;
    if (reading.pipeline != NULL)
        TRY(tokenizer_pipeline_read(reading.pipeline, path, &reading.steps));
    TRY(names_read(root, path, reading.steps.split, &rank));
    TRY(array_get(root, path, "vocabulary", BPE_VOCAB_MAX, &reading.vocabulary));
    TRY(array_get(root, path, "special", BPE_VOCAB_MAX, &reading.special));
    if (rank == BPE_RANK_MERGE)
        TRY(array_get(root, path, "merges", 2 * (size_t)BPE_MERGES_MAX, &reading.merges));
    const size_t vocab_size = json_array_size(reading.vocabulary);
    if (vocab_size == 0)
        return refuse(&reading, "vocabulary", 0, "is missing");
    for (size_t i = 0; i < vocab_size; i++)
        text_bytes += json_string_length(json_array_get(reading.vocabulary, i));
    if (text_bytes > BPE_TEXT_BYTES_MAX)
        return FAIL(GT_DATA, "%s: field \"vocabulary\": %zu bytes of text, at most %zu", path,
                    text_bytes, BPE_TEXT_BYTES_MAX);
    const struct bpe_spec spec = {.vocab_size = vocab_size,
                                  .text_bytes = text_bytes,
                                  .merge_count = json_array_size(reading.merges) / 2,
                                  .rank = rank,
                                  .characters = reading.steps.characters};
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
    if (bpe_is_special(bpe, id) || bpe->pipeline.characters)
        return json_stringn(bytes, count);
    return json_stringn(text, bpe_alphabet_write(bytes, count, text));
}

bool tokenizer_bpe_write(const struct bpe *bpe, json_t *root)
{
    json_t *vocabulary = json_array(), *special = json_array(), *pairs = json_array();
    int failures =
        json_object_set_new(root, "split", json_string(bpe_splits[bpe->pipeline.split].name));
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
