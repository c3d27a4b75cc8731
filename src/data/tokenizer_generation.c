/* A model's generation_config.json: the end tokens, the padding token and the sampling settings.
 * It accompanies the tokenizer into data, runs and exports.
 */
#include "data/tokenizer_generation.h"

#include "base/file.h"

/* Of Hugging Face's tokenizers; it has the chat template. */
#define CONFIG_NAME "tokenizer_config.json"
#define CONFIG_BYTES_MAX ((size_t)64 << 20)

/* Returns the id of the padding token of tokenizer_config.json, a text or an object with its
 * content; -1: none. */
static int32_t padding_find(const json_t *config, const struct tokenizer *tokenizer)
{
    const json_t *value = json_object_get(config, "pad_token");
    const json_t *text = json_is_object(value) ? json_object_get(value, "content") : value;
    return json_is_string(text) && tokenizer->bpe != NULL
               ? bpe_special_find(tokenizer->bpe, json_string_value(text))
               : -1;
}

enum gt_status tokenizer_generation_read(const char *folder, struct tokenizer *tokenizer)
{
    json_t *root = NULL, *config = NULL;
    json_error_t error;
    if (tokenizer->generation != NULL)
        return GT_OK;
    TRY(json_parse_optional(FILE_IN(folder, GENERATION_NAME), GENERATION_BYTES_MAX, &error, &root));
    enum gt_status status =
        json_parse_optional(FILE_IN(folder, CONFIG_NAME), CONFIG_BYTES_MAX, &error, &config);
    const int32_t padding = padding_find(config, tokenizer);
    if (!json_is_object(root) || json_is_true(json_object_get(root, "_from_model_config"))) {
        json_decref(root);
        root = json_object();
    }
    if (padding >= 0 && !json_is_integer(json_object_get(root, "pad_token_id")))
        (void)json_object_set_new(root, "pad_token_id", json_integer(padding));
    THEN(status, tokenizer_generation_set(tokenizer, root));
    json_decref(root);
    json_decref(config);
    return status;
}

enum gt_status tokenizer_generation_get(const struct tokenizer *tokenizer, json_t **out)
{
    const char *text = tokenizer != NULL ? tokenizer->generation : NULL;
    if (text != NULL)
        return json_parse(text, strlen(text), GENERATION_NAME, out);
    *out = json_object();
    return *out != NULL ? GT_OK : FAIL(GT_NO_MEMORY, "out of memory: " GENERATION_NAME);
}

int64_t tokenizer_generation_id(const json_t *object, const char *field, size_t index)
{
    const json_t *value = json_object_get(object, field);
    if (json_is_array(value))
        value = json_array_get(value, index);
    else if (index > 0)
        return -1;
    return json_is_integer(value) ? json_integer_value(value) : -1;
}
