/* Converts the pickle of meta.pkl to a tokenizer of characters.
 *
 * Only "itos" is used: its keys must be 0, 1, 2, ... in this order, and the characters must ascend, as
 * sorted(set(text)) and enumerate() make them.  Other tables are rejected rather than sorted, since sorting would
 * change the ids.
 */
#include "io/nanogpt_meta.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/log.h"
#include "data/utf8.h"
#include "io/pickle.h"

/* Gets the character of an item.  Returns false if the item is not a character with this id. */
static bool item_character(const struct pickle *pickle, uint32_t item, int64_t id, uint32_t *out)
{
    const struct pickle_value *key = &pickle->values[pickle->items[item].key];
    const struct pickle_value *value = &pickle->values[pickle->items[item].value];
    return key->kind == PICKLE_INT && key->as.integer == id && value->kind == PICKLE_TEXT && value->as.text.count > 0 &&
           utf8_decode((const unsigned char *)value->as.text.bytes, value->as.text.count, out) ==
               (int)value->as.text.count;
}

/* Fills code_points[] from the items of a dict; the array has room for all of them. */
static enum gt_status characters_read(const struct pickle *pickle, uint32_t dict, const char *path,
                                      uint32_t *code_points)
{
    uint32_t count = 0;
    for (uint32_t i = pickle->values[dict].as.items.first; i != PICKLE_END; i = pickle->items[i].next) {
        if (!item_character(pickle, i, count, &code_points[count]) ||
            (count > 0 && code_points[count - 1] >= code_points[count])) {
            log_error("%s: field \"itos\": item %" PRIu32 " is not the next id with a character above the one before",
                      path, count);
            return GT_DATA;
        }
        count++;
    }
    return GT_OK;
}

static enum gt_status meta_read(struct hostmem *mem, const struct pickle *pickle, const char *path,
                                struct tokenizer **out)
{
    void *code_points;
    uint32_t itos;
    if (!pickle_find(pickle, pickle->root, "itos", &itos) || pickle->values[itos].kind != PICKLE_DICT ||
        pickle->values[itos].as.items.count == 0) {
        log_error("%s: has no \"itos\", so it is not the meta.pkl of a nanoGPT data set", path);
        return GT_DATA;
    }
    const size_t count = pickle->values[itos].as.items.count;
    TRY(hostmem_alloc(mem, count, sizeof(uint32_t), "characters of meta.pkl", &code_points));
    enum gt_status status = characters_read(pickle, itos, path, code_points);
    if (status == GT_OK)
        status = tokenizer_create_chars(mem, code_points, count, out);
    hostmem_free(mem, code_points);
    return status;
}

enum gt_status nanogpt_meta_read(struct hostmem *mem, const unsigned char *bytes, size_t count, const char *path,
                                 struct tokenizer **out)
{
    struct pickle *pickle;
    TRY(pickle_read(mem, bytes, count, path, &pickle));
    const enum gt_status status = meta_read(mem, pickle, path, out);
    pickle_destroy(pickle);
    return status;
}

enum gt_status nanogpt_meta_open(struct hostmem *mem, const char *path, struct tokenizer **out)
{
    char *text;
    size_t count;
    TRY(file_read_all(path, PICKLE_BYTES_MAX, &text, &count));
    const enum gt_status status = nanogpt_meta_read(mem, (const unsigned char *)text, count, path, out);
    free(text);
    return status;
}
