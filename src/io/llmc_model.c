/* Reads llm.c's model files.
 *
 * The offset of every parameter follows from six sizes in the header.  The last parameter must end at the end of the
 * file, so that a wrong field cannot go unnoticed or turn a short file into thousands of layers.  Layers of one kind
 * are adjacent in the file and become separate tensors of the table.  Moments (llm.c's state files) are not read: they
 * contain the order of its own data loader.
 */
#include "io/llmc_model.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/size.h"
#include "io/array_table.h"
#include "io/hf_layout.h"

enum { HEADER_WORDS = 8, FIELD_MAX = 16777216, LAYERS_MAX = 4096 };

/* The parameters in the file's order, with the names that they have inside or outside a block. */
static const struct {
    const char *name;
    bool in_block;
} kinds[] = {
    {"wte.weight", false},        {"wpe.weight", false},      {"ln_1.weight", true},        {"ln_1.bias", true},
    {"attn.c_attn.weight", true}, {"attn.c_attn.bias", true}, {"attn.c_proj.weight", true}, {"attn.c_proj.bias", true},
    {"ln_2.weight", true},        {"ln_2.bias", true},        {"mlp.c_fc.weight", true},    {"mlp.c_fc.bias", true},
    {"mlp.c_proj.weight", true},  {"mlp.c_proj.bias", true},  {"ln_f.weight", false},       {"ln_f.bias", false},
};
#define KIND_COUNT (sizeof kinds / sizeof kinds[0])

/* Gets a header field in [1, max]. */
static enum gt_status field_get(const char *path, const int32_t *header, int index, const char *name, int32_t max,
                                int32_t *out)
{
    if (header[index] < 1 || header[index] > max) {
        log_error("%s: header[%d], %s, is %" PRId32 "; expected 1 to %" PRId32, path, index, name, header[index], max);
        return GT_DATA;
    }
    *out = header[index];
    return GT_OK;
}

static enum gt_status header_parse(const char *path, const int32_t *header, struct model_config *out, int32_t *padded,
                                   enum dtype *dtype)
{
    struct model_config config = {.bias = true, .gelu = GELU_TANH, .layernorm_epsilon = 1e-5f};
    if (header[0] != LLMC_MODEL_MAGIC || (header[1] != 3 && header[1] != 5)) {
        log_error("%s: llm.c model with magic %" PRId32 " and version %" PRId32
                  "; only magic %d with version 3 (float32) or 5 (bfloat16) is read",
                  path, header[0], header[1], LLMC_MODEL_MAGIC);
        return header[0] == LLMC_MODEL_MAGIC ? GT_UNSUPPORTED : GT_DATA;
    }
    TRY(field_get(path, header, 2, "max_seq_len", FIELD_MAX, &config.block_size));
    TRY(field_get(path, header, 3, "vocab_size", FIELD_MAX, &config.vocab_size));
    TRY(field_get(path, header, 4, "num_layers", LAYERS_MAX, &config.n_layer));
    TRY(field_get(path, header, 5, "num_heads", FIELD_MAX, &config.n_head));
    TRY(field_get(path, header, 6, "channels", FIELD_MAX, &config.n_embd));
    TRY(field_get(path, header, 7, "padded_vocab_size", FIELD_MAX, padded));
    if (*padded < config.vocab_size || config.n_embd % config.n_head != 0) {
        log_error("%s: header: padded_vocab_size %" PRId32 " is below vocab_size %" PRId32 ", or num_heads %" PRId32
                  " does not divide channels %" PRId32,
                  path, *padded, config.vocab_size, config.n_head, config.n_embd);
        return GT_DATA;
    }
    config.n_kv_head = config.n_head;
    config.padded_vocab_size = config.vocab_size;
    *dtype = header[1] == 5 ? DTYPE_BF16 : DTYPE_F32;
    *out = config;
    return GT_OK;
}

/* Gives the layout's tensor of this kind and layer.  Returns the number of elements in the file, where wte is padded.
 * All products are below 2^50: sizes are at most 2^24 each, and no tensor has more than 4 C^2 or V C elements. */
static size_t tensor_of(const struct model_config *config, size_t kind, int32_t layer, int32_t padded,
                        struct hf_tensor *out)
{
    const size_t blocks = kinds[kind].in_block ? 2 + 12 * (size_t)layer : kind >= 2 ? 12 * (size_t)config->n_layer : 0;
    hf_layout_tensor(config, kinds[kind].in_block ? blocks + kind - 2 : kind >= 2 ? blocks + kind - 12 : kind, out);
    assert(strstr(out->name, kinds[kind].name) != NULL);
    return kind == 0 ? (size_t)padded * (size_t)config->n_embd : hf_tensor_elements(out);
}

static size_t layers_of(const struct model_config *config, size_t kind)
{
    return kinds[kind].in_block ? (size_t)config->n_layer : 1;
}

/* Advances *at past a parameter of `elements`.  Returns false when the result does not fit 64 bits. */
static bool advance(size_t elements, enum dtype dtype, uint64_t *at)
{
    size_t bytes, end;
    if (!size_mul(elements, dtype_size_bytes(dtype), &bytes) || !size_add((size_t)*at, bytes, &end))
        return false;
    *at = end;
    return true;
}

/* Compares the length that the header implies with the file's, before anything is allocated. */
static enum gt_status length_check(const char *path, const struct model_config *config, int32_t padded,
                                   enum dtype dtype, uint64_t size_bytes)
{
    uint64_t end = LLMC_MODEL_HEADER_BYTES;
    for (size_t kind = 0; kind < KIND_COUNT; kind++) {
        struct hf_tensor tensor;
        size_t elements;
        if (!size_mul(tensor_of(config, kind, 0, padded, &tensor), layers_of(config, kind), &elements) ||
            !advance(elements, dtype, &end)) {
            log_error("%s: header: the sizes of the parameters do not fit 64 bits", path);
            return GT_DATA;
        }
    }
    if (end == size_bytes)
        return GT_OK;
    log_error("%s: is %" PRIu64 " bytes long, but its header says %" PRIu64, path, size_bytes, end);
    return GT_DATA;
}

static enum gt_status kind_add(struct safetensors *table, const struct model_config *config, size_t kind,
                               int32_t padded, enum dtype dtype, uint64_t *at)
{
    for (size_t layer = 0; layer < layers_of(config, kind); layer++) {
        struct hf_tensor tensor;
        const size_t stored = tensor_of(config, kind, (int32_t)layer, padded, &tensor);
        const struct array_place place = {.transposed = tensor.rank == 2 && kinds[kind].in_block, .offset_bytes = *at};
        struct safetensors_tensor entry = {
            .dtype = dtype, .rank = tensor.rank, .dims = {tensor.dims[0], tensor.dims[1]}};
        memcpy(entry.name, tensor.name, sizeof entry.name);
        TRY(array_table_add(table, &entry, &place));
        const bool fits = advance(stored, dtype, at);
        assert(fits);
        (void)fits;
    }
    return GT_OK;
}

/* length_check() has verified that the header's sizes fit the file. */
static enum gt_status parameters_add(struct safetensors *table, const struct model_config *config, int32_t padded,
                                     enum dtype dtype)
{
    uint64_t at = LLMC_MODEL_HEADER_BYTES;
    for (size_t kind = 0; kind < KIND_COUNT; kind++)
        TRY(kind_add(table, config, kind, padded, dtype, &at));
    return GT_OK;
}

static enum gt_status header_read(const char *path, int32_t header[static HEADER_WORDS], uint64_t *out_size_bytes)
{
    int fd;
    TRY(file_open_read(path, &fd, out_size_bytes));
    enum gt_status status = GT_DATA;
    if (*out_size_bytes >= LLMC_MODEL_HEADER_BYTES)
        status = file_read_at(fd, path, 0, header, HEADER_WORDS * sizeof *header);
    else
        log_error("%s: is %" PRIu64 " bytes long, too short for llm.c's header", path, *out_size_bytes);
    (void)close(fd);
    return status;
}

enum gt_status llmc_model_open(struct hostmem *mem, const char *path, struct model_config *out_config,
                               struct safetensors **out)
{
    int32_t header[HEADER_WORDS], padded, file;
    uint64_t size_bytes;
    enum dtype dtype;
    struct model_config config;
    struct safetensors *table;
    TRY(header_read(path, header, &size_bytes));
    TRY(header_parse(path, header, &config, &padded, &dtype));
    TRY(length_check(path, &config, padded, dtype, size_bytes));
    TRY(array_table_create(mem, path, 1, hf_layout_count(&config), &table));
    enum gt_status status = array_table_file_add(table, path, &file);
    if (status == GT_OK)
        status = parameters_add(table, &config, padded, dtype);
    if (status != GT_OK) {
        safetensors_close(table);
        return status;
    }
    *out_config = config;
    *out = table;
    return GT_OK;
}
