/* A folder that gpt-prepare wrote: the names of its files that readers of a data set know, and its state. */
#ifndef GPT_TRAIN_DATA_PREPARED_H
#define GPT_TRAIN_DATA_PREPARED_H

#include "base/status.h"

#define PREPARE_MANIFEST_NAME "manifest.json"
#define PREPARE_STATE_NAME ".gpt-prepare.state"
#define PREPARE_STATE_BYTES_MAX ((size_t)256 << 20)
/* How far a run is, as its state file says it. */
enum prepare_phase { PREPARE_PHASE_NEW, PREPARE_PHASE_ENCODE, PREPARE_PHASE_COMMIT };

/* For readers of a data set: returns GT_DATA for a folder in which a run was stopped between removing the old data set
 * and completing the new one.  Folders without gpt-prepare's state pass.  Errors: GT_IO, GT_NO_MEMORY. */
enum gt_status prepared_folder_check(const char *folder);

#endif
