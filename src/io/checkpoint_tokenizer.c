/* The tokenizer that a checkpoint was trained with.
 *
 * tokenizer_hash() hashes the behaviour of the tokenizer, not the file that it was read from.
 */
#include "io/checkpoint_tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

const char *checkpoint_tokenizer_hash(char text[static CHECKPOINT_TOKENIZER_HASH_MAX],
                                      const struct tokenizer *tokenizer)
{
    snprintf(text, CHECKPOINT_TOKENIZER_HASH_MAX, "crc32c:%08" PRIx32, tokenizer_hash(tokenizer));
    return text;
}

enum gt_status checkpoint_tokenizer_check(const struct checkpoint *checkpoint, const struct tokenizer *tokenizer,
                                          const char *what)
{
    const json_t *data = checkpoint && checkpoint->kind == CHECKPOINT_OURS ? checkpoint->record.state.data : NULL;
    const char *stored = json_string_value(json_object_get(data, "tokenizer"));
    char now[CHECKPOINT_TOKENIZER_HASH_MAX];
    if (!stored || !tokenizer || strcmp(stored, checkpoint_tokenizer_hash(now, tokenizer)) == 0)
        return GT_OK;
    log_error("%s: this tokenizer (%s) is not the one that %s was trained with (%s)", what, now, checkpoint->source,
              stored);
    return GT_DATA;
}
