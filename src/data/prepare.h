/* Prepares a data set: text in, token files out (the work of gpt-prepare).
 *
 * Documents (documents.h) are tokenized by several threads and written to token files
 * (token_writer.h).  The inputs are read once, or twice when the vocabulary is made from them.  The
 * split is by position, as in nanoGPT's prepare.py: of n characters, the first floor(n * (1 -
 * val_fraction)) are for training (with the tokenizer bytes: of n bytes).  Or it is by document,
 * drawn from the document's checksum and a seed.  The output depends only on the inputs and the
 * options, not on the number of threads.  A run that was stopped continues from its last save and
 * produces the same files.
 */
#ifndef GPT_TRAIN_DATA_PREPARE_H
#define GPT_TRAIN_DATA_PREPARE_H

#include "data/prepare_spec.h"

/* Writes the token files, gpt_tokenizer.json (with a trained bpe: tokenizer.json, vocab.json and
 * merges.txt too) and manifest.json into out_dir.  All are complete and synced before the first
 * gets its final name.  The old manifest is removed first and the new one comes last, so a folder
 * with a manifest is complete.  Token files of an earlier data set in the folder are removed.
 * Memory: below 200 MiB plus a few MiB per thread, the list of files and the vocabulary; with dedup
 * up to 768 MiB more; a reader of compressed files needs its window.  A failed run leaves nothing
 * behind, except after a save and an error such as a full disk; such a run can be continued.
 * Errors: GT_USAGE (an input that does not exist; another gpt-prepare at work in out_dir; options
 * or inputs that differ from the stopped run's), GT_DATA (no text, too little for two splits, not
 * UTF-8 with chars, a broken archive, a bad line, bytes that are invalid in the encoding: the place
 * is named; a file that changed while it was read), GT_UNSUPPORTED (no libarchive, no iconv; more
 * uint32 tokens than an llm.c header can count), GT_IO, GT_NO_MEMORY. */
enum gt_status prepare_run(const void *owner, const struct prepare_spec *spec,
                           struct prepare_result *out);

/* "3 .png, 1 .pdf"; returns `text`. */
char *prepare_kinds_text(char text[static PREPARE_KINDS_TEXT_BYTES],
                         const struct documents_kind *kinds);

#endif
