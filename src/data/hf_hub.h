/* The cache of Hugging Face's tools: where it is, and which folder of it holds a repository's current files.
 *
 *   HUB/models--OWNER--NAME/refs/main              the name of a snapshot
 *   HUB/models--OWNER--NAME/snapshots/SNAPSHOT/    the files (symbolic links)
 *
 * HUB is $HF_HUB_CACHE, else $HUGGINGFACE_HUB_CACHE (its older name), else $HF_HOME/hub, else
 * $XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub.  The cache is read and never changed; nothing is fetched.
 * Source: huggingface_hub, constants.py and "Understand caching".
 */
#ifndef GPT_TRAIN_DATA_HF_HUB_H
#define GPT_TRAIN_DATA_HF_HUB_H

#include <stdbool.h>

#include "base/file.h"

/* False without a home or where the path is too long. */
bool hf_hub_folder(char out[static FILE_PATH_MAX]);
/* The folder of the snapshot that refs/main of `repository` ("models--gpt2") names; it may not exist.  False where there is
 * no such reference, or it is no snapshot's name (hexadecimal). */
bool hf_hub_snapshot(const char *hub, const char *repository, char out[static FILE_PATH_MAX]);

#endif
