/* Reads llm.c's model files.
 *
 * The offset of every parameter follows from six sizes in the header.  The last parameter must end
 * at the end of the file, so that a wrong field cannot go unnoticed or turn a short file into
 * thousands of layers.  Layers of one kind are adjacent in the file and become separate tensors of
 * the table.  Moments (llm.c's state files) are not read: they contain the order of its own data
 * loader.
 */
#include "io/llmc_model.h"

#include "base/size.h"
#include "io/safetensors_table.h"
#include "model/parameters.h"

enum { HEADER_WORDS = 8, FIELD_MAX = 16777216, LAYERS_MAX = 4096 };

size_t llmc_model_index(const struct model_config *config, size_t position)
{
    const size_t layers = (size_t)config->n_layer, in_blocks = position - 2,
                 per_block = GPT2_BLOCK_PARAMETERS;
    if (position < 2 || in_blocks >= per_block * layers)
        return position;
    return 2 + in_blocks % layers * per_block + in_blocks / layers;
}

/* Gets a header field in [1, max]. */
static enum gt_status field_get(const char *path, const int32_t *header, int index,
                                const char *name, int32_t max, int32_t *out)
{
    if (header[index] < 1 || header[index] > max)
        return FAIL(GT_DATA, "%s: header[%d], %s, is %" PRId32 "; expected 1 to %" PRId32, path,
                    index, name, header[index], max);
    *out = header[index];
    return GT_OK;
}

static enum gt_status header_parse(const char *path, const int32_t *header,
                                   struct model_config *out, enum dtype *dtype)
{
    struct model_config config = {.bias = true, .gelu = GELU_TANH, .norm_epsilon = 1e-5};
    if (header[0] != LLMC_MODEL_MAGIC ||
        (header[1] != LLMC_MODEL_F32 && header[1] != LLMC_MODEL_BF16))
        return FAIL(header[0] == LLMC_MODEL_MAGIC ? GT_UNSUPPORTED : GT_DATA,
                    "%s: llm.c model with magic %" PRId32 " and version %" PRId32
                    "; only magic %d with version 3 (float32) or 5 (bfloat16) is read",
                    path, header[0], header[1], LLMC_MODEL_MAGIC);
    TRY(field_get(path, header, 2, "max_seq_len", FIELD_MAX, &config.block_size));
    TRY(field_get(path, header, 3, "vocab_size", FIELD_MAX, &config.vocab_size));
    TRY(field_get(path, header, 4, "num_layers", LAYERS_MAX, &config.n_layer));
    TRY(field_get(path, header, 5, "num_heads", FIELD_MAX, &config.n_head));
    TRY(field_get(path, header, 6, "channels", FIELD_MAX, &config.n_embd));
    TRY(field_get(path, header, 7, "padded_vocab_size", FIELD_MAX, &config.padded_vocab_size));
    if (config.padded_vocab_size < config.vocab_size || config.n_embd % config.n_head != 0)
        return FAIL(GT_DATA,
                    "%s: header: padded_vocab_size %" PRId32 " is below vocab_size %" PRId32
                    ", or num_heads %" PRId32 " does not divide channels %" PRId32,
                    path, config.padded_vocab_size, config.vocab_size, config.n_head,
                    config.n_embd);
    config.n_kv_head = config.n_head;
    *dtype = header[1] == LLMC_MODEL_BF16 ? DTYPE_BF16 : DTYPE_F32;
    *out = config;
    return GT_OK;
}

/* Walks over the parameters in the file's order and adds them to `table`, unless it is NULL.
 * *out_end is where the last one ends.  In the file wte is padded.  All products are below 2^50:
 * sizes are at most 2^24 each, and no parameter has more than 4 C^2 or V C elements. */
static enum gt_status parameters_walk(const char *path, const struct model_config *config,
                                      enum dtype dtype, struct safetensors *table,
                                      uint64_t *out_end)
{
    size_t at = LLMC_MODEL_HEADER_BYTES;
    for (size_t position = 0; position < parameters_count(config); position++) {
        struct parameter_shape shape;
        parameters_shape(config, llmc_model_index(config, position), &shape);
        struct safetensors_tensor entry = {.dtype = dtype,
                                           .rank = shape.rank,
                                           .dims = {shape.dims[0], shape.dims[1]},
                                           .transposed = shape.linear,
                                           .offset_bytes = at};
        memcpy(entry.name, shape.name, sizeof entry.name);
        if (table != NULL)
            TRY(safetensors_add(table, &entry));
        const size_t stored = position == 0
                                  ? (size_t)config->padded_vocab_size * (size_t)config->n_embd
                                  : parameter_elements(&shape);
        if (!size_add(at, stored * dtype_size_bytes(dtype), &at))
            return FAIL(GT_DATA, "%s: header: the sizes of the parameters do not fit 64 bits",
                        path);
    }
    *out_end = at;
    return GT_OK;
}

/* Reads the header of the table's file.  The length that it implies is compared with the file's,
 * before anything of that size is allocated. */
static enum gt_status header_read(const struct safetensors_file *file, struct model_config *config,
                                  enum dtype *dtype)
{
    int32_t header[HEADER_WORDS];
    uint64_t end;
    if (file->size_bytes < LLMC_MODEL_HEADER_BYTES)
        return FAIL(GT_DATA, "%s: is %" PRIu64 " bytes long, too short for llm.c's header",
                    file->path, file->size_bytes);
    TRY(file_read_at(file->fd, file->path, 0, header, sizeof header));
    TRY(header_parse(file->path, header, config, dtype));
    TRY(parameters_walk(file->path, config, *dtype, NULL, &end));
    if (end == file->size_bytes)
        return GT_OK;
    return FAIL(GT_DATA, "%s: is %" PRIu64 " bytes long, but its header says %" PRIu64, file->path,
                file->size_bytes, end);
}

enum gt_status llmc_model_open(const void *owner, const char *path, struct model_config *out_config,
                               struct safetensors **out)
{
    uint64_t end;
    enum dtype dtype;
    struct safetensors *table;
    TRY(safetensors_create(owner, path, &table));
    enum gt_status status = safetensors_file_add(table, path);
    THEN(status, header_read(&table->files[0], out_config, &dtype));
    THEN(status, parameters_walk(path, out_config, dtype, table, &end));
    if (status == GT_OK)
        out_config->padded_vocab_size =
            out_config->vocab_size; /* the table is without the padding */
    return FINISH(status, out, table, hostmem_free);
}
