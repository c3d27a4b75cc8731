/* Fields of config.json that more than one class of models has. */
#ifndef GPT_TRAIN_IO_HF_CONFIG_FIELDS_H
#define GPT_TRAIN_IO_HF_CONFIG_FIELDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "base/status.h"

#define HF_SIZE_MAX 16777216 /* far beyond any model, and small enough that a product of two fits 64 bits */

/* Returns the double with the fewest digits that rounds to `value`: 0.1 instead of 0.100000001490116. */
double hf_shortest_double(float value);
/* Returns the id of a token, or null if it is unknown. */
json_t *hf_token_json(int32_t token);

/* Returns true when a field is present with a value; null means the default, as in transformers. */
bool hf_has(const json_t *root, const char *name);
/* Checks a flag that must have the value that this program supports, if it is present.  Errors: GT_DATA,
 * GT_UNSUPPORTED. */
enum gt_status hf_flag_expect(const json_t *root, const char *source, const char *name, bool expected);
/* Reads a required size, 1 to HF_SIZE_MAX.  Errors: GT_DATA. */
enum gt_status hf_size_field(const json_t *root, const char *source, const char *name, int32_t *out);
/* Reads a real in [min, max); leaves *value unchanged if the field is absent.  Errors: GT_DATA. */
enum gt_status hf_real_field(const json_t *root, const char *source, const char *name, double min, double max,
                             double *value);
/* Reads the id of a token.  The field may be one id or a list, whose first id is taken.  Sets *out to -1 if the field
 * is absent.  Errors: GT_DATA. */
enum gt_status hf_token_field(const json_t *root, const char *source, const char *name, int32_t *out);

#endif
