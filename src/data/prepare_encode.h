/* Encodes the documents: batches of text become tokens in several threads, which one thread writes
 * in order. */
#ifndef GPT_TRAIN_DATA_PREPARE_ENCODE_H
#define GPT_TRAIN_DATA_PREPARE_ENCODE_H

#include "data/prepare_state.h"

/* Turn text into token files, and save the state from time to time. */
enum gt_status prepare_encode_open(struct prepare *prep);
enum gt_status prepare_encode(struct prepare *prep);

#endif
