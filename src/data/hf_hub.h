/* The cache of Hugging Face's tools: its location, and the folder in it with a repository's current
 * files.
 *
 *   HUB/models--OWNER--NAME/refs/main              the name of a snapshot; missing after
 *                                                  hf download --revision=...
 *   HUB/models--OWNER--NAME/snapshots/SNAPSHOT/    the files (symbolic links)
 *
 * HUB is $HF_HUB_CACHE, else $HUGGINGFACE_HUB_CACHE (its older name), else $HF_HOME/hub, else
 * $XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub.  This module only reads the cache
 * and downloads nothing. Source: huggingface_hub, constants.py and "Understand caching".
 */
#ifndef GPT_TRAIN_DATA_HF_HUB_H
#define GPT_TRAIN_DATA_HF_HUB_H

#include "base/file.h"
#include "data/tokenizer.h"

/* Returns false when there is no home folder or the path is too long. */
bool hf_hub_folder(char out[static FILE_PATH_MAX]);
/* Sets `out` to the snapshot folder that refs/main of `repository` ("models--gpt2") points to,
 * which may not exist, or without refs/main to the only snapshot.  Returns false when there is none
 * or several, or when refs/main is not a snapshot's name (hexadecimal). */
bool hf_hub_snapshot(const char *hub, const char *repository, char out[static FILE_PATH_MAX]);
/* Returns true when `name` is OWNER/NAME, the form of the Hub's models, and there is no folder
 * OWNER here. */
bool hf_hub_is_repository(const char *name);
/* Returns true when the cache has a folder of the model OWNER/NAME, complete or not. */
bool hf_hub_holds(const char *name);
/* Sets `out` to the snapshot folder of the model OWNER/NAME.  Errors: GT_DATA with one line that
 * names the place searched and the command that downloads the model, and ends with `more`. */
enum gt_status hf_hub_find(const char *name, const char *more, char out[static FILE_PATH_MAX]);

/* Finds a ready-made vocabulary.  `name` is "gpt2", a path, or OWNER/NAME, a model in Hugging
 * Face's cache.  "gpt2" is searched for in $GPT_TRAIN_TOKENIZER_DIR, the Hugging Face cache, the
 * XDG data folders' gpt-train/gpt2 and /usr/share/gpt-train/gpt2; nothing is ever downloaded.
 * Errors: GT_USAGE when there is none (one line names the places and the command that fetches it),
 * and those of tokenizer_import(). */
enum gt_status tokenizer_find(const void *owner, const char *name, struct tokenizer **out);

#endif
