/* Encodes the documents: batches of text become tokens in several threads, which one thread writes
 * in order. */
#ifndef GPT_TRAIN_DATA_PREPARE_ENCODE_H
#define GPT_TRAIN_DATA_PREPARE_ENCODE_H

#include "data/prepare_state.h"

/* prepare_encode.c: from text to token files, with a save now and then. */
enum gt_status prepare_encode_open(struct prepare *prep);
enum gt_status prepare_encode(struct prepare *prep);

#endif
