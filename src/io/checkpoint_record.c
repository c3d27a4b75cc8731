/* Reads and writes trainer_state.json.
 *
 * The record is small, so it is built as one JSON value, which checkpoint_save.c writes in one
 * replacement.  Reading trusts nothing: format and version are checked first, then each field and
 * its range.  A file name must have exactly the form of the names made here, so it cannot refer to
 * a folder or any other file.  Nothing here opens the named files.
 */
#include "io/checkpoint_record.h"

#include <math.h>

#include "base/crc32c.h"

#define ITER_DIGITS_MAX 19

static const char crc_none[] = "00000000";
static const char *const prefixes[] = {
    [CHECKPOINT_FILE_MODEL] = "model-", [CHECKPOINT_FILE_OPTIMIZER] = "optimizer-"};
_Static_assert(sizeof prefixes / sizeof prefixes[0] == CHECKPOINT_FILES, "every file has a name");

bool checkpoint_crc_parse(const char *text, uint32_t *out)
{
    if (strlen(text) != 8 || strspn(text, "0123456789abcdef") != 8)
        return false;
    *out = (uint32_t)strtoul(text, NULL, 16);
    return true;
}

void checkpoint_file_name(char text[static CHECKPOINT_FILE_NAME_MAX], enum checkpoint_file file,
                          int64_t iter, int attempt)
{
    assert(iter >= 0 && attempt >= 1 && attempt <= 9);
    const char *suffix = attempt > 1 ? TEXT(4, "-%d", attempt % 10) : "";
    (void)snprintf(text, CHECKPOINT_FILE_NAME_MAX, "%s%06" PRId64 "%s.safetensors", prefixes[file],
                   iter, suffix);
    assert(checkpoint_file_name_valid(text, file));
}

bool checkpoint_file_name_valid(const char *name, enum checkpoint_file file)
{
    const size_t length = strlen(prefixes[file]);
    if (strlen(name) >= CHECKPOINT_FILE_NAME_MAX || strncmp(name, prefixes[file], length) != 0)
        return false;
    const char *rest = name + length;
    const size_t digits = strspn(rest, "0123456789");
    if (digits < 6 || digits > ITER_DIGITS_MAX)
        return false;
    rest += digits;
    if (rest[0] == '-' && rest[1] >= '2' && rest[1] <= '9')
        rest += 2;
    return strcmp(rest, ".safetensors") == 0;
}

static json_t *file_make(const struct checkpoint_file_record *file)
{
    return json_pack("{s:s, s:I, s:s, s:s, s:O}", "name", file->name, "size_bytes",
                     (json_int_t)file->size_bytes, "crc32c", CHECKPOINT_CRC_TEXT(file->crc32c),
                     "header_crc32c", CHECKPOINT_CRC_TEXT(file->header_crc32c), "tensors",
                     file->tensors);
}

static enum gt_status crc_set(json_t *root, const char *text)
{
    if (json_object_set_new(root, CHECKPOINT_RECORD_CRC, json_string(text)) == 0)
        return GT_OK;
    return FAIL(GT_NO_MEMORY, "out of memory for the checksum of %s", CHECKPOINT_RECORD_NAME);
}

/* Computes the checksum of a record's text in its shortest form, with `crc_none` in place of the
 * checksum.  Leaves `crc_none` there. */
static enum gt_status crc_of(json_t *root, uint32_t *out)
{
    char *text;
    TRY(crc_set(root, crc_none));
    TRY(json_text(root, 0, "", &text));
    *out = file_crc32c(0, text, strlen(text));
    free(text);
    return GT_OK;
}

enum gt_status checkpoint_record_make(const struct checkpoint_record *record, json_t **out)
{
    const struct checkpoint_state *state = &record->state;
    json_t *best = isfinite(state->best_val_loss) ? json_real(state->best_val_loss) : json_null();
    json_t *root = json_pack(
        "{s:s, s:i, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:O?, s:O?, s:O?, s:O?, s:O, s:O*, s:[o, o]}",
        "format", CHECKPOINT_FORMAT, "version", CHECKPOINT_VERSION, CHECKPOINT_RECORD_CRC, crc_none,
        "iter", (json_int_t)state->iter, "adam_step", (json_int_t)state->adam_step, "seed",
        (json_int_t)state->seed, "samples_seen", (json_int_t)state->samples_seen, "tokens_seen",
        (json_int_t)state->tokens_seen, "evaluations", (json_int_t)state->evaluations,
        "best_val_loss", best, "data", state->data, "plan", state->plan, "configuration",
        state->configuration, "loss_scaler", state->loss_scaler, "hf_config", record->hf_config,
        "adapter", record->adapter, "files", file_make(&record->files[CHECKPOINT_FILE_MODEL]),
        file_make(&record->files[CHECKPOINT_FILE_OPTIMIZER]));
    if (root == NULL)
        return FAIL(GT_NO_MEMORY, "out of memory: %s could not be made", CHECKPOINT_RECORD_NAME);
    uint32_t crc = 0;
    enum gt_status status = crc_of(root, &crc);
    THEN(status, crc_set(root, CHECKPOINT_CRC_TEXT(crc)));
    return FINISH(status, out, root, json_decref);
}

static enum gt_status crc_field(const json_t *object, const char *source, const char *name,
                                uint32_t *out)
{
    const char *text;
    TRY(json_get_string(object, source, name, &text));
    if (checkpoint_crc_parse(text, out))
        return GT_OK;
    return FAIL(GT_DATA, "%s: field \"%s\": expected 8 hexadecimal digits, found \"%.32s\"", source,
                name, text);
}

static enum gt_status file_parse(const json_t *entry, const char *source,
                                 enum checkpoint_file which, struct checkpoint_file_record *out)
{
    const char *name;
    int64_t size_bytes;
    TRY(json_get_string(entry, source, "name", &name));
    if (!checkpoint_file_name_valid(name, which))
        return FAIL(GT_DATA,
                    "%s: field \"files\": \"%.64s\" is not a name of the form %sNNNNNN.safetensors",
                    source, name, prefixes[which]);
    TRY(json_get_int(entry, source, "size_bytes", 0, INT64_MAX, &size_bytes));
    TRY(crc_field(entry, source, "crc32c", &out->crc32c));
    TRY(crc_field(entry, source, "header_crc32c", &out->header_crc32c));
    TRY(json_get_object(entry, source, "tensors", &out->tensors));
    memcpy(out->name, name, strlen(name) + 1);
    out->size_bytes = (uint64_t)size_bytes;
    return GT_OK;
}

static enum gt_status files_parse(const json_t *root, const char *source,
                                  struct checkpoint_record *out)
{
    const json_t *files = json_object_get(root, "files");
    if (!json_is_array(files) || json_array_size(files) != CHECKPOINT_FILES)
        return FAIL(GT_DATA, "%s: field \"files\": expected a list of %d files", source,
                    CHECKPOINT_FILES);
    for (int i = 0; i < CHECKPOINT_FILES; i++)
        TRY(file_parse(json_array_get(files, (size_t)i), source, (enum checkpoint_file)i,
                       &out->files[i]));
    return GT_OK;
}

/* Gets a member that is an object or null.  A missing member is an error, so that a truncated
 * record is noticed. */
static enum gt_status object_or_null(const json_t *root, const char *source, const char *name,
                                     const json_t **out)
{
    if (json_is_null(json_object_get(root, name))) {
        *out = NULL;
        return GT_OK;
    }
    return json_get_object(root, source, name, out);
}

static enum gt_status state_parse(const json_t *root, const char *source,
                                  struct checkpoint_state *state)
{
    TRY(json_get_int(root, source, "iter", 0, INT32_MAX, &state->iter));
    TRY(json_get_int(root, source, "adam_step", 0, INT32_MAX, &state->adam_step));
    TRY(json_get_int(root, source, "seed", 0, INT64_MAX, &state->seed));
    TRY(json_get_int(root, source, "samples_seen", 0, INT64_MAX, &state->samples_seen));
    TRY(json_get_int(root, source, "tokens_seen", 0, INT64_MAX, &state->tokens_seen));
    TRY(json_get_int(root, source, "evaluations", 0, UINT32_MAX, &state->evaluations));
    state->best_val_loss = (double)INFINITY;
    if (!json_is_null(json_object_get(root, "best_val_loss")))
        TRY(json_get_real(root, source, "best_val_loss", &state->best_val_loss));
    TRY(object_or_null(root, source, "data", &state->data));
    TRY(object_or_null(root, source, "plan", &state->plan));
    TRY(object_or_null(root, source, "configuration", &state->configuration));
    return object_or_null(root, source, "loss_scaler", &state->loss_scaler);
}

/* Without a checksum, a flipped bit in a number would go unnoticed.  Records of earlier releases
 * have none. */
static enum gt_status crc_check(json_t *root, const char *source)
{
    uint32_t stored, now;
    if (json_object_get(root, CHECKPOINT_RECORD_CRC) == NULL)
        return GT_OK;
    TRY(crc_field(root, source, CHECKPOINT_RECORD_CRC, &stored));
    TRY(crc_of(root, &now));
    if (stored == now)
        return GT_OK;
    return FAIL(GT_DATA,
                "%s: field \"%s\" is %08" PRIx32 ", but the record's checksum is %08" PRIx32
                "; the file was changed or damaged",
                source, CHECKPOINT_RECORD_CRC, stored, now);
}

enum gt_status checkpoint_record_parse(json_t *root, const char *source,
                                       struct checkpoint_record *out)
{
    const char *format;
    int64_t version;
    TRY(json_get_string(root, source, "format", &format));
    if (strcmp(format, CHECKPOINT_FORMAT) != 0)
        return FAIL(GT_DATA, "%s: field \"format\": expected \"%s\", found \"%.64s\"", source,
                    CHECKPOINT_FORMAT, format);
    TRY(json_get_int(root, source, "version", 1, INT32_MAX, &version));
    if (version != CHECKPOINT_VERSION)
        return FAIL(
            GT_UNSUPPORTED,
            "%s: field \"version\": this program reads version %d, the checkpoint has %" PRId64
            "; resume it with a newer gpt-train",
            source, CHECKPOINT_VERSION, version);
    struct checkpoint_record record = {.root = root};
    TRY(state_parse(root, source, &record.state));
    TRY(json_get_object(root, source, "hf_config", &record.hf_config));
    if (json_object_get(root, "adapter") != NULL)
        TRY(json_get_object(root, source, "adapter", &record.adapter));
    TRY(files_parse(root, source, &record));
    TRY(crc_check(root, source)); /* last, since an error in a field is more specific */
    *out = record;
    return GT_OK;
}

enum gt_status checkpoint_record_read(const char *folder, struct checkpoint_record *out)
{
    json_t *root;
    const char *path = FILE_IN(folder, CHECKPOINT_RECORD_NAME);
    TRY(json_parse_file(path, CHECKPOINT_RECORD_BYTES_MAX, &root));
    enum gt_status status = checkpoint_record_parse(root, path, out);
    if (status != GT_OK)
        json_decref(root);
    return status;
}

void checkpoint_record_release(struct checkpoint_record *record)
{
    json_decref(record->root);
    record->root = NULL;
}

enum gt_status checkpoint_record_tensor_crc(const struct checkpoint_file_record *file,
                                            const char *source, const char *tensor, uint32_t *out)
{
    const char *text = json_string_value(json_object_get(file->tensors, tensor));
    if (text != NULL && checkpoint_crc_parse(text, out))
        return GT_OK;
    return FAIL(GT_DATA, "%s: field \"files\": no checksum for tensor %s in %s", source, tensor,
                file->name);
}

/* ---- the choices of a plan: releases up to 0.2.0 wrote the numbers of two recompute levels, and
 * how many of the first blocks have the first one ---- */

bool plan_choice_write(json_t *object, const struct plan_choice *choice, int32_t layers)
{
    char text[RECOMPUTE_TEXT_MAX];
    struct recompute_mix mix = choice->recompute;
    recompute_swap(&mix, RECOMPUTE_OFFLOAD, RECOMPUTE_FULL,
                   INT32_MAX); /* offload is not part of the record */
    recompute_text(text, &mix, layers, ":", ",");
    return json_object_update_new(
               object, json_pack("{s:i, s:i, s:i, s:i, s:s}", "micro_batch", choice->micro_batch,
                                 "remainder_batch", choice->remainder_batch, "loss_chunk_rows",
                                 choice->loss_chunk_rows, "evaluate_batch", choice->evaluate_batch,
                                 "recompute", text)) == 0;
}

/* Reads {"first_layers": 6, "first": 4, "rest": 0}, with the numbers that levels had in 0.2.0. */
static enum gt_status numbers_read(const json_t *mix, const char *source, int32_t layers,
                                   struct recompute_mix *out)
{
    static const enum recompute_level numbered[] = {
        RECOMPUTE_NONE, RECOMPUTE_GELU, RECOMPUTE_LAYERNORM, RECOMPUTE_MLP, RECOMPUTE_FULL};
    const int64_t last = sizeof numbered / sizeof numbered[0] - 1;
    int64_t blocks, first, rest;
    TRY(json_get_int(mix, source, "first_layers", 0, layers, &blocks));
    TRY(json_get_int(mix, source, "first", 0, last, &first));
    TRY(json_get_int(mix, source, "rest", 0, last, &rest));
    *out = recompute_two(numbered[first], (int32_t)blocks, numbered[rest], layers);
    return GT_OK;
}

static enum gt_status recompute_from(const json_t *value, const char *source, int32_t layers,
                                     struct recompute_mix *out)
{
    const char *text = json_string_value(value), *why;
    if (json_is_object(value))
        return numbers_read(value, source, layers, out);
    if (text == NULL)
        text = "";
    if (recompute_read(text, layers, out, &why))
        return GT_OK;
    return FAIL(GT_DATA, "%s: recompute '%.80s' %s", source, text, why);
}

enum gt_status plan_choice_read(const json_t *object, const char *source, int32_t layers,
                                struct plan_choice *out)
{
    int64_t micro, chunk, evaluate;
    const json_t *recompute = json_object_get(object, "recompute");
    struct recompute_mix mix = {{0}};
    TRY(json_get_int(object, source, "micro_batch", 1, INT32_MAX, &micro));
    TRY(json_get_int(object, source, "loss_chunk_rows", 1, INT32_MAX, &chunk));
    TRY(json_get_int(object, source, "evaluate_batch", 1, INT32_MAX, &evaluate));
    if (recompute != NULL) /* records of 0.1.0 lack it */
        TRY(recompute_from(recompute, source, layers, &mix));
    recompute_swap(&mix, RECOMPUTE_OFFLOAD, RECOMPUTE_FULL, INT32_MAX);
    *out = (struct plan_choice){.micro_batch = (int32_t)micro,
                                .loss_chunk_rows = (int32_t)chunk,
                                .evaluate_batch = (int32_t)evaluate,
                                .recompute = mix};
    return GT_OK;
}
