/* Compares an export's tensors with the model's, block by block in the order of the file.
 *
 * Both are read as float32 through the buffers of an export, in the order of the file: the model's
 * as a writer reads it, with its adapters added, and the file's with its blocks decoded.
 */
#include "io/export_compare.h"

#include <math.h>

#include "base/size.h"
#include "io/checkpoint_load.h"
#include "io/checkpoint_open.h"
#include "io/export_weights.h"
#include "io/gguf_model.h"

struct comparison {
    const struct export_weights *weights;
    const struct checkpoint *written;
    double shares; /* sum of squares, of the matrices so far */
    size_t matrices;
};

/* A tensor as the file stores it. */
struct stored {
    struct safetensors table; /* of this tensor alone */
    struct safetensors_tensor tensor;
    enum ggml_type type;
    bool turned;
    size_t columns;
};

static enum gt_status stored_find(const struct comparison *comparison,
                                  const struct parameter_shape *shape, struct stored *out)
{
    size_t index;
    out->table = *comparison->written->model;
    TRY(hf_layout_find(&out->table, shape, &index));
    out->tensor = out->table.tensors[index];
    out->turned = out->tensor.transposed;
    out->tensor.order.unit = 0; /* in the form of the file */
    out->tensor.map = NULL;
    if (out->turned) {
        out->tensor.transposed = false;
        out->tensor.dims[0] = shape->dims[1];
        out->tensor.dims[1] = shape->dims[0];
    }
    out->table.tensors = &out->tensor;
    out->table.count = 1;
    out->type = out->tensor.block != NULL ? (enum ggml_type)(out->tensor.block - ggml_blocks)
                                          : ggml_type_of(out->tensor.dtype);
    out->columns = shape->rank == 2 ? (size_t)shape->dims[!out->turned] : parameter_elements(shape);
    return GT_OK;
}

static enum gt_status tensor_compare(struct comparison *comparison,
                                     const struct parameter_shape *shape)
{
    const struct export_weights *weights = comparison->weights;
    const size_t elements = parameter_elements(shape), capacity = weights->capacity;
    struct stored stored;
    struct gguf_form form = {.rank = 0};
    double squares = 0.0, errors = 0.0;
    if (comparison->written->kind == CHECKPOINT_GGUF)
        gguf_form_get(&weights->checkpoint->config, shape, &form);
    TRY(stored_find(comparison, shape, &stored));
    const size_t unit =
        stored.columns <= capacity ? stored.columns : ggml_blocks[stored.type].values;
    for (size_t first = 0, count; first < elements; first += count) {
        count = size_min(elements - first, capacity / unit * unit);
        TRY(export_weights_gather(weights, shape, stored.turned, &form.file, first, count,
                                  DTYPE_F32));
        TRY(safetensors_read(&stored.table, 0, first, count, weights->values, DTYPE_F32, NULL));
        if (!ggml_is_near(stored.type, weights->turned, weights->values, count))
            return FAIL(GT_FAILURE,
                        "%s: tensor %s is not the model's: it differs by more than %s explains; do "
                        "not use this file, and report it with the model's config.json",
                        comparison->written->source, shape->name, ggml_blocks[stored.type].name);
        for (size_t i = 0; i < count; i++) {
            const double value = (double)weights->turned[i],
                         error = (double)weights->values[i] - value;
            squares += value * value;
            errors += error * error;
        }
    }
    comparison->matrices += shape->rank == 2;
    if (shape->rank == 2 && squares > 0.0)
        comparison->shares += errors / squares;
    return GT_OK;
}

static enum gt_status tensors_compare(struct comparison *comparison)
{
    struct model_config config = comparison->weights->checkpoint->config;
    config.lora.rank = 0; /* the adapters are added to what they adapt */
    for (size_t i = 0; i < parameters_file_count(&config); i++) {
        struct parameter_shape shape;
        parameters_file_shape(&config, i, &shape);
        TRY(tensor_compare(comparison, &shape));
    }
    return GT_OK;
}

enum gt_status export_compare(const struct export_options *options, const char *exported,
                              double *out_share)
{
    struct export_weights weights;
    struct checkpoint *written = NULL;
    TRY(export_weights_open(options->mem, options->checkpoint, &weights));
    struct comparison comparison = {.weights = &weights};
    enum gt_status status = checkpoint_open(options->mem, exported, false, &written);
    comparison.written = written;
    THEN(status, tensors_compare(&comparison));
    hostmem_free(written);
    hostmem_free(weights.values);
    *out_share =
        comparison.matrices > 0 ? sqrt(comparison.shares / (double)comparison.matrices) : 0.0;
    return status;
}
