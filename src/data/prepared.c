/* What a folder that gpt-prepare wrote looks like to the readers of a data set.
 *
 * The commit removes the old manifest first and renames the new one last, so a folder with a manifest is complete.
 */
#include "data/prepared.h"

#include "base/file.h"
#include "base/json.h"

enum gt_status prepared_folder_check(const char *folder)
{
    char manifest[FILE_PATH_MAX], path[FILE_PATH_MAX];
    bool is_whole, has_state;
    json_t *state = NULL;
    int64_t phase = 0;
    TRY(file_join(manifest, folder, PREPARE_MANIFEST_NAME));
    TRY(file_join(path, folder, PREPARE_STATE_NAME));
    TRY(file_look(manifest, &is_whole));
    TRY(file_look(path, &has_state));
    if (is_whole || !has_state)
        return GT_OK;
    TRY(json_parse_file(path, PREPARE_STATE_BYTES_MAX, &state));
    const enum gt_status status =
        json_get_int(state, path, "phase", PREPARE_PHASE_ENCODE, PREPARE_PHASE_COMMIT, &phase);
    json_decref(state);
    if (phase != PREPARE_PHASE_COMMIT)
        return status;
    return FAIL(GT_DATA, "%s: gpt-prepare was stopped while it replaced this data set; give its command again", folder);
}
