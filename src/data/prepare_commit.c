/* The end of a run: renames NAME.partial to NAME.  A kill at any moment leaves the old data set,
 * none, or the new one, and a later run finishes the renames.
 *
 * First everything is written and synced; then the list of renames is saved as the state; only then
 * are old files removed and new ones renamed, the manifest last.  Every step may be repeated.
 */
#include "data/prepare_commit.h"

#include <errno.h>
#include <unistd.h>

#include "data/prepare_manifest.h"
#include "data/tokenizer_export.h"

#define LIST "the list of files"

/* ---- names ---- */

static bool is_partial(const char *name)
{
    const size_t length = strlen(name), ending = strlen(TOKEN_WRITER_PARTIAL);
    return length > ending && strcmp(name + length - ending, TOKEN_WRITER_PARTIAL) == 0;
}

/* Returns true for `known`, with or without TOKEN_WRITER_PARTIAL at the end. */
static bool name_is(const char *name, const char *known)
{
    return strcmp(name, known) == 0 ||
           strcmp(name, TEXT(64, "%s" TOKEN_WRITER_PARTIAL, known)) == 0;
}

/* Returns true for gpt_tokenizer.json and the tokenizer's files for other programs. */
static bool name_is_tokenizer(const char *name)
{
    bool is_one = false;
    for (int i = TOKENIZER_FILE_OURS; i < TOKENIZER_FILES && !is_one; i++)
        is_one = name_is(name, tokenizer_file_names[i]);
    return is_one;
}

bool prepare_is_output(const char *name)
{
    return name_is_tokenizer(name) || name_is(name, PREPARE_MANIFEST_NAME) ||
           token_writer_is_name(name);
}

/* ---- the list ----
 *
 * An entry is [NAME], a file to remove, or [NAME.partial, NAME], a file to rename; for a token
 * file, the numbers of tokens and bytes follow.  The manifest comes last. */

/* Adds the rename of NAME.partial to the list, and sets `out` to the path of NAME.partial. */
static enum gt_status list_add_rename(const struct prepare *prep, const char *name,
                                      char out[static FILE_PATH_MAX])
{
    file_join(out, prep->spec->out_dir, TEXT(64, "%s" TOKEN_WRITER_PARTIAL, name));
    json_t *entry = json_pack("[s, s]", file_name_of(out), name);
    return prepare_json_check(prep->commit, json_array_append_new(prep->commit, entry), LIST);
}

static enum gt_status tokenizer_add(const struct prepare *prep, enum tokenizer_file file)
{
    char path[FILE_PATH_MAX], *text;
    TRY(list_add_rename(prep, tokenizer_file_names[file], path));
    TRY(tokenizer_file_text(prep->tokenizer, file, 0, &text));
    const enum gt_status status = file_replace(path, text, strlen(text));
    free(text);
    return status;
}

static enum gt_status texts_add(const struct prepare *prep)
{
    char path[FILE_PATH_MAX];
    for (int i = TOKENIZER_FILE_OURS; i < prepare_tokenizer_files(prep); i++)
        TRY(tokenizer_add(prep, (enum tokenizer_file)i));
    TRY(list_add_rename(prep, PREPARE_MANIFEST_NAME, path));
    return prepare_manifest_save(prep, path);
}

static enum gt_status files_add(const struct prepare *prep)
{
    int failures = 0;
    for (size_t i = 0; i < prep->file_count + prep->mask_count; i++) {
        const bool is_mask = i >= prep->file_count;
        const struct token_file *file =
            is_mask ? &prep->mask_files[i - prep->file_count] : &prep->files[i];
        failures |= json_array_append_new(
            prep->commit, json_pack("[s, s, I, I]", file->partial, file->name,
                                    (json_int_t)file->tokens, (json_int_t)file->size_bytes));
    }
    return prepare_json_check(prep->commit, failures, LIST);
}

/* Adds the removal of an earlier data set's file, unless the new one has a file of this name. */
static enum gt_status list_add_old(const struct prepare *prep, const char *name)
{
    for (size_t i = 0; i < json_array_size(prep->commit); i++) {
        const char *new = json_string_value(json_array_get(json_array_get(prep->commit, i), 1));
        if (new != NULL && strcmp(new, name) == 0)
            return GT_OK;
    }
    return prepare_json_check(prep->commit,
                              json_array_insert_new(prep->commit, 0, json_pack("[s]", name)), LIST);
}

/* Returns true when a manifest's list of tokenizer files is valid.  Manifests of version 1 and of
 * other programs have none. */
static bool exports_are_listed(const json_t *manifest)
{
    const json_t *list = json_object_get(manifest, "tokenizer_files");
    const char *format = json_string_value(json_object_get(manifest, "format"));
    if (list == NULL)
        return format == NULL || strcmp(format, PREPARE_MANIFEST_FORMAT) != 0 ||
               json_integer_value(json_object_get(manifest, "version")) == 1;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (name == NULL || is_partial(name) || !name_is_tokenizer(name))
            return false;
    }
    return json_is_array(list);
}

/* Reads a file if it is there; *out is NULL when it is not, or is not JSON. */
static enum gt_status json_open(const char *path, size_t limit, bool *out_exists, json_t **out)
{
    char *text = NULL;
    size_t count = 0;
    json_error_t error;
    *out = NULL;
    TRY(file_stat_exists(path, out_exists));
    if (!*out_exists)
        return GT_OK;
    TRY(file_read_all(path, limit, &text, &count));
    const enum gt_status status = json_load(text, count, 0, &error, out);
    free(text);
    return status == GT_DATA ? GT_OK : status;
}

/* Reads the manifest of the existing data set; *out is NULL when there is none. */
static enum gt_status old_manifest_open(const struct prepare *prep, json_t **out)
{
    bool exists;
    const char *path = FILE_IN(prep->spec->out_dir, PREPARE_MANIFEST_NAME);
    TRY(json_open(path, PREPARE_MANIFEST_BYTES_MAX, &exists, out));
    if (!exists || (*out != NULL && exports_are_listed(*out)))
        return GT_OK;
    json_decref(*out);
    *out = NULL;
    return FAIL(
        GT_DATA,
        "%s: gpt-prepare did not write this manifest, so nothing says which files belong to the data set there; "
        "move them away",
        path);
}

enum gt_status prepare_check_old(const struct prepare *prep)
{
    json_t *old = NULL;
    TRY(old_manifest_open(prep, &old));
    json_decref(old);
    return GT_OK;
}

/* Lists the tokenizer files of an earlier data set, from its manifest. */
static enum gt_status old_add_exports(const struct prepare *prep)
{
    json_t *old = NULL;
    TRY(old_manifest_open(prep, &old));
    const json_t *list = json_object_get(old, "tokenizer_files");
    enum gt_status status = GT_OK;
    for (size_t i = 0; i < json_array_size(list) && status == GT_OK; i++)
        status = list_add_old(prep, json_string_value(json_array_get(list, i)));
    json_decref(old);
    return status;
}

/* Lists existing token files that would be read together with the new ones, or instead of them. */
static enum gt_status old_add_tokens(const struct prepare *prep)
{
    DIR *dir = NULL;
    enum gt_status status = GT_OK;
    for (const char *name; (name = file_next(prep->spec->out_dir, &dir, &status)) != NULL;)
        if (token_writer_is_name(name) && !is_partial(name))
            status = list_add_old(prep, name);
    return status;
}

enum gt_status prepare_publish(struct prepare *prep)
{
    prep->commit = json_array();
    TRY(files_add(prep));
    TRY(texts_add(prep));
    TRY(old_add_exports(prep));
    TRY(old_add_tokens(prep));
    return prepare_state_save(prep, PREPARE_PHASE_COMMIT);
}

/* ---- carrying it out ---- */

/* Checks a name from the state file: only names of our outputs, without a folder, are accepted. */
static bool name_is_ours(const char *name)
{
    return name != NULL && strchr(name, '/') == NULL && prepare_is_output(name);
}

static enum gt_status commit_remove(const struct prepare *prep, const char *name)
{
    const char *path = FILE_IN(prep->spec->out_dir, name);
    return unlink(path) == 0 || errno == ENOENT ? GT_OK : file_error(path, "remove");
}

static enum gt_status commit_rename(const struct prepare *prep, const char *partial,
                                    const char *name, const json_t *entry)
{
    const json_int_t tokens = json_integer_value(json_array_get(entry, 2));
    const json_int_t size_bytes = json_integer_value(json_array_get(entry, 3));
    struct token_file file = {.tokens = tokens, .size_bytes = (uint64_t)size_bytes};
    const bool is_tokens = token_writer_is_name(name);
    if (strlen(partial) >= sizeof file.partial || strlen(name) >= sizeof file.name ||
        is_tokens != (json_array_size(entry) == 4) || tokens < 0 || size_bytes < tokens)
        return prepare_state_refuse(prep, "commit");
    memcpy(file.partial, partial, strlen(partial) + 1);
    memcpy(file.name, name, strlen(name) + 1);
    const struct token_writer_spec *spec =
        strstr(name, ".mask") != NULL ? &prep->mask_spec : &prep->writer_spec;
    return token_file_finish(spec, &file);
}

static enum gt_status commit_entry(const struct prepare *prep, const json_t *entry)
{
    const char *from = json_string_value(json_array_get(entry, 0)),
               *to = json_string_value(json_array_get(entry, 1));
    const size_t parts = json_array_size(entry);
    if (!name_is_ours(from) || (parts > 1 && !name_is_ours(to)))
        return prepare_state_refuse(prep, "commit");
    if (parts == 1)
        return commit_remove(prep, from);
    return commit_rename(prep, from, to, entry);
}

/* Removes the old manifest, unless the new one is already in place, and syncs: a power cut must not
 * bring it back among new files. */
static enum gt_status commit_begin(const struct prepare *prep)
{
    bool exists;
    TRY(file_stat_exists(FILE_IN(prep->spec->out_dir, PREPARE_MANIFEST_NAME TOKEN_WRITER_PARTIAL),
                         &exists));
    if (!exists)
        return GT_OK;
    TRY(commit_remove(prep, PREPARE_MANIFEST_NAME));
    return file_sync_folder(prep->spec->out_dir);
}

enum gt_status prepare_commit(struct prepare *prep)
{
    const size_t count = json_array_size(prep->commit);
    if (count < 2)
        return prepare_state_refuse(prep, "commit");
    TRY(commit_begin(prep));
    for (size_t i = 0; i < count; i++) {
        if (i + 1 == count)
            TRY(file_sync_folder(prep->spec->out_dir));
        TRY(commit_entry(prep, json_array_get(prep->commit, i)));
    }
    return file_sync_folder(prep->spec->out_dir);
}

/* Removes the finished outputs if `whole`, else as many of the partial ones as possible.  A folder
 * with such a name is not part of a data set and is ignored. */
static enum gt_status outputs_remove(const struct prepare *prep, bool whole)
{
    DIR *dir = NULL;
    enum gt_status status = GT_OK;
    for (const char *name;
         (name = file_next(prep->spec->out_dir, &dir, whole ? &status : NULL)) != NULL;)
        if (prepare_is_output(name) && whole != is_partial(name) &&
            unlinkat(dirfd(dir), name, 0) != 0 && whole && errno != EISDIR)
            status = file_error(FILE_IN(prep->spec->out_dir, name),
                                "remove what a stopped run has half replaced");
    return status;
}

/* Sets *begun when a file that the list renames or removes no longer exists. */
static enum gt_status list_is_begun(const struct prepare *prep, const json_t *list, bool *begun)
{
    for (size_t i = 0; !*begun && i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(json_array_get(list, i), 0));
        bool exists = true;
        if (!name_is_ours(name))
            return GT_OK; /* a name that is not ours: the list is not ours either */
        TRY(file_stat_exists(FILE_IN(prep->spec->out_dir, name), &exists));
        *begun = !exists;
    }
    return GT_OK;
}

/* Removes the outputs of a commit that was stopped halfway.  They are removed before the state,
 * because only the state shows that they are half a data set.  If the commit had not started, the
 * old data set is complete and stays. */
static enum gt_status half_commit_remove(const struct prepare *prep)
{
    bool exists, begun = false, whole = true;
    json_t *state = NULL;
    enum gt_status status = GT_OK;
    TRY(json_open(prep->state_path, PREPARE_STATE_BYTES_MAX, &exists, &state));
    if (json_integer_value(json_object_get(state, "phase")) == PREPARE_PHASE_COMMIT)
        status = list_is_begun(prep, json_object_get(state, "commit"), &begun);
    json_decref(state);
    if (status != GT_OK || !begun)
        return status;
    TRY(file_stat_exists(FILE_IN(prep->spec->out_dir, PREPARE_MANIFEST_NAME), &whole));
    if (whole)
        return GT_OK;
    TRY(outputs_remove(prep, true));
    return file_sync_folder(prep->spec->out_dir);
}

bool prepare_clean(struct prepare *prep)
{
    if (unlink(prep->state_path) != 0 && errno != ENOENT)
        return false;
    unlink(prep->stdin_path);
    file_remove_leftovers(prep->spec->out_dir, true);
    (void)outputs_remove(prep, false);
    prep->saved = PREPARE_PHASE_NEW;
    return true;
}

enum gt_status prepare_discard(struct prepare *prep)
{
    TRY(half_commit_remove(prep));
    return prepare_clean(prep) ? GT_OK : file_error(prep->state_path, "remove");
}
