/* The pipeline of tokenizer.json: all that the file says besides the vocabulary and the merges.
 *
 * A text runs through these steps.  What another value of a field would do to ids is not here, and is refused by name:
 *
 *   added_tokens    each is found before all else; one that is not special is found in a corpus too
 *   normalizer      none or NFC
 *   pre_tokenizer   the splits of bpe_split.h; "Split" is recognised by its expression, byte for byte
 *   model           byte-level BPE, with or without ignore_merges
 *   post_processor  none, or one token (BOS) before the text
 *
 * "pipeline" in gpt_tokenizer.json is the file without model.merges and with only the added tokens in model.vocab;
 * GPT-2's pipeline is not written.
 * Source: https://huggingface.co/docs/tokenizers, "The tokenization pipeline".
 */
#ifndef GPT_TRAIN_DATA_TOKENIZER_PIPELINE_H
#define GPT_TRAIN_DATA_TOKENIZER_PIPELINE_H

#include "base/json.h"
#include "data/bpe.h"

/* Reads the pipeline from tokenizer.json or "pipeline".  Errors: GT_UNSUPPORTED, with the field and its value. */
enum gt_status tokenizer_pipeline_read(const json_t *root, const char *path, struct bpe_pipeline *out);
/* Gives the pipeline to an unfinished vocabulary that has all its tokens.  Errors: GT_DATA when an added token is not
 * one of them; GT_NO_MEMORY. */
enum gt_status tokenizer_pipeline_set(struct bpe *bpe, const json_t *root, const char *path,
                                      const struct bpe_pipeline *pipeline);
/* Logs that a tokenizer of this kind ("SentencePiece") cannot be read, and what to do.  Returns GT_UNSUPPORTED. */
enum gt_status tokenizer_pipeline_refuse_kind(const char *path, const char *kind);

#endif
