/* Normalization form C of Unicode (UAX #15): a letter and its accent become one character where there is one. */
#ifndef GPT_TRAIN_DATA_TEXT_NFC_H
#define GPT_TRAIN_DATA_TEXT_NFC_H

#include "base/status.h"

#define TEXT_NFC_GROWTH_MAX 3 /* the factor by which UTF-8 may grow (UAX #15, Maximum Expansion Factors) */

extern const bool text_nfc_possible; /* in this build */
/* Sets *out to NULL when the text is normalized already, else to text that the caller free()s.  Bytes that are not
 * UTF-8 stay.  May run in any thread.  Errors: GT_NO_MEMORY, not logged. */
enum gt_status text_nfc(const char *text, size_t count, char **out, size_t *out_count);

#endif
