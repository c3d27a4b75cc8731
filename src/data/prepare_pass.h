/* A pass over the inputs: the documents, and how far they have been read. */
#ifndef GPT_TRAIN_DATA_PREPARE_PASS_H
#define GPT_TRAIN_DATA_PREPARE_PASS_H

#include "data/prepare_state.h"

/* Calls the progress function of the spec, with `force` also when little was read since the last
 * call. */
void prepare_report(struct prepare *prep, bool force);
/* Opens the documents for the first or the `second` pass. */
enum gt_status prepare_open_documents(struct prepare *prep, bool second);

#endif
