/* Makes the generation_config.json of an export: the base's, with the tokens that begin and end a
 * text of this model.
 */
#include "io/export_generation.h"

#include "data/chat.h"
#include "data/tokenizer_generation.h"
#include "io/export_weights.h"

#define ENDS_MAX 64 /* tokens that end a text */

/* Adds an id to a list, unless the list has it or it is not a token of the model. */
static int id_add(json_t *list, int64_t id, const struct model_config *config)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_integer_value(json_array_get(list, i)) == id)
            return 0;
    return id >= 0 && id < config->vocab_size ? json_array_append_new(list, json_integer(id)) : 0;
}

/* Returns the tokens that end a text: the template's, the end-of-text token, and those of the base.
 */
static json_t *ends_make(const struct export_options *options, const json_t *base)
{
    const struct model_config *config = &options->checkpoint->config;
    const struct tokenizer *tokenizer = options->tokenizer;
    json_t *list = json_array();
    int failures = id_add(list, export_end_token(options), config);
    if (chat_kind_learnt(tokenizer) != CHAT_NONE)
        failures |= id_add(list, tokenizer_eot(tokenizer), config);
    for (size_t i = 0; i < ENDS_MAX; i++)
        failures |= id_add(list, tokenizer_generation_id(base, "eos_token_id", i), config);
    return json_whole(list, failures);
}

enum gt_status export_generation_make(const struct export_options *options, json_t **out)
{
    const struct tokenizer *tokenizer = options->tokenizer;
    const int32_t bos = tokenizer_pipeline(tokenizer)->bos,
                  eot = tokenizer != NULL ? tokenizer_eot(tokenizer) : -1;
    const int32_t given = bos >= 0 ? bos : eot,
                  begin = given >= 0 ? given : options->checkpoint->rest.bos_token;
    json_t *root, *ends;
    TRY(tokenizer_generation_get(tokenizer, &root));
    int failures = json_object_size(root) == 0
                       ? json_object_set_new(root, "_from_model_config", json_boolean(true))
                       : 0;
    ends = ends_make(options, root);
    failures |=
        json_object_set_new(root, "bos_token_id", begin >= 0 ? json_integer(begin) : json_null());
    if (json_array_size(ends) > 1)
        failures |= json_object_set(root, "eos_token_id", ends);
    else
        failures |= json_object_set_new(
            root, "eos_token_id",
            json_array_size(ends) == 1 ? json_incref(json_array_get(ends, 0)) : json_null());
    json_decref(ends);
    *out = json_whole(root, failures);
    return *out != NULL ? GT_OK : FAIL(GT_NO_MEMORY, "out of memory: " GENERATION_NAME);
}
