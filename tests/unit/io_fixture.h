/* Shared by the tests of src/io: a scratch folder, a tiny model with known values, and ways to
 * damage files.
 *
 * Every value is a function of (salt, part, index, element), so that a save, a load and a
 * comparison need no store except the destination of the load.
 */
#ifndef GPT_TRAIN_UNIT_IO_FIXTURE_H
#define GPT_TRAIN_UNIT_IO_FIXTURE_H

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hostmem.h"
#include "io/checkpoint.h"
#include "io/checkpoint_load.h"
#include "io/checkpoint_open.h"
#include "io/checkpoint_save.h"
#include "model/parameters.h"
#include "tests/unit/log_capture.h"
#include "tests/unit/scratch.h"
#include "tests/unit/unit_main.h"

#define IO_TENSORS_MAX 64
#define IO_ELEMENTS_MAX 512
#define IO_STAGING 16 /* floats: few, so that every tensor takes several pieces */

/* ---- folders and files ---- */
static inline void io_path(char out[static FILE_PATH_MAX], const char *folder, const char *name)
{
    file_join(out, folder, name);
}

/* Returns the path; valid until the next call. */
static inline const char *io_at(const char *folder, const char *name)
{
    static char path[FILE_PATH_MAX];
    io_path(path, folder, name);
    return path;
}

static inline void io_folder_empty(const char *folder)
{
    DIR *dir = opendir(folder);
    ck_assert_ptr_nonnull(dir);
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            ck_assert_int_eq(unlinkat(dirfd(dir), entry->d_name, 0), 0);
    }
    (void)closedir(dir);
}

/* Returns the number of files of a folder whose name contains `part` ("" counts all). */
static inline int io_folder_count(const char *folder, const char *part)
{
    int count = 0;
    DIR *dir = opendir(folder);
    ck_assert_ptr_nonnull(dir);
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL)
        count += entry->d_name[0] != '.' && strstr(entry->d_name, part) != NULL;
    (void)closedir(dir);
    return count;
}

static inline char *io_file_read(const char *path, size_t *out_count)
{
    char *bytes;
    ck_assert_int_eq(file_read_all(path, (size_t)1 << 26, &bytes, out_count), GT_OK);
    return bytes;
}

/* Inverts one bit of a file in place; the same call again restores it. */
static inline void io_file_flip(const char *path, size_t bit)
{
    unsigned char byte;
    const int fd = open(path, O_RDWR);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pread(fd, &byte, 1, (off_t)(bit / 8)), 1);
    byte ^= (unsigned char)(1u << (bit % 8));
    ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)(bit / 8)), 1);
    (void)close(fd);
}

/* Writes "length, header, data" as a safetensors file, with `data_bytes` zero bytes of data. */
static inline void io_safetensors_write(const char *path, const char *header, size_t data_bytes)
{
    const size_t length = strlen(header), total = 8 + length + data_bytes;
    unsigned char *bytes = calloc(total, 1);
    ck_assert_ptr_nonnull(bytes);
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)length >> (8 * i) & 255u);
    memcpy(bytes + 8, header, length);
    scratch_write(path, bytes, total);
    free(bytes);
}

/* ---- a tiny model ---- */
struct io_model {
    struct model_config config;
    struct parameter_shape layout[IO_TENSORS_MAX];
    struct checkpoint_tensor tensors[IO_TENSORS_MAX];
    size_t tensor_count;
    uint32_t salt;
    float staging[IO_STAGING];
    float loaded[3][IO_TENSORS_MAX][IO_ELEMENTS_MAX];
    float poison; /* not 0: replaces the last element of the last tensor's v */
};

static inline struct model_config io_config(int32_t n_layer, int32_t n_embd, int32_t n_head,
                                            bool bias)
{
    const struct model_config config = {.n_layer = n_layer,
                                        .n_head = n_head,
                                        .n_kv_head = n_head,
                                        .n_embd = n_embd,
                                        .block_size = 4,
                                        .vocab_size = 5,
                                        .padded_vocab_size = 5,
                                        .bias = bias,
                                        .dropout = 0.1f,
                                        .gelu = GELU_ERF,
                                        .norm_epsilon = 1e-5};
    return config;
}

/* The caller's indices differ from the layout's, to expose a mix-up. */
static inline void io_model_init(struct io_model *model, const struct model_config *config,
                                 uint32_t salt)
{
    memset(model, 0, sizeof *model);
    model->config = *config;
    model->salt = salt;
    for (size_t i = 0; i < parameters_count(config); i++) {
        struct parameter_shape *tensor = &model->layout[model->tensor_count];
        ck_assert_uint_lt(model->tensor_count, IO_TENSORS_MAX);
        parameters_shape(config, i, tensor);
        ck_assert_uint_le(parameter_elements(tensor), IO_ELEMENTS_MAX);
        if (tensor->bias && !config->bias)
            continue;
        struct checkpoint_tensor *entry = &model->tensors[model->tensor_count];
        entry->name = tensor->name;
        entry->index = (int32_t)(IO_TENSORS_MAX - 1 - model->tensor_count);
        model->tensor_count++;
    }
}

static inline float io_value(uint32_t salt, enum checkpoint_array part, int32_t index,
                             size_t element)
{
    uint32_t x = salt * 2654435761u + (uint32_t)part * 40503u + (uint32_t)index * 9176u +
                 (uint32_t)element * 69069u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return (float)(int32_t)x * 0x1p-31f;
}

static inline enum gt_status io_read(void *context, enum checkpoint_array part, int32_t index,
                                     size_t first, size_t count, void *out)
{
    struct io_model *model = context;
    float *values = out;
    for (size_t i = 0; i < count; i++)
        values[i] = io_value(model->salt, part, index, first + i);
    if (model->poison != 0.0f && part == CHECKPOINT_V)
        values[count - 1] = model->poison;
    return GT_OK;
}

static inline enum gt_status io_write(void *context, enum checkpoint_array part, int32_t index,
                                      size_t first, size_t count, const void *values,
                                      enum dtype dtype)
{
    struct io_model *model = context;
    ck_assert_int_eq(dtype, DTYPE_F32);
    ck_assert(index >= 0 && index < IO_TENSORS_MAX && first + count <= IO_ELEMENTS_MAX);
    memcpy(&model->loaded[part][index][first], values, count * sizeof(float));
    return GT_OK;
}

static inline struct checkpoint_save_options io_save_options(struct io_model *model,
                                                             const char *folder, int64_t iter)
{
    const struct checkpoint_save_options options = {
        .out_dir = folder,
        .config = &model->config,
        .state = {.iter = iter, .adam_step = iter, .seed = 7, .best_val_loss = 2.5},
        .tensors = model->tensors,
        .tensor_count = model->tensor_count,
        .read = io_read,
        .read_context = model,
        .staging = model->staging,
        .staging_bytes = sizeof model->staging,
    };
    return options;
}

static inline enum gt_status io_save(struct io_model *model, const char *folder, int64_t iter)
{
    const struct checkpoint_save_options options = io_save_options(model, folder, iter);
    return checkpoint_save(&options);
}

static inline enum gt_status io_load(struct io_model *model, const struct checkpoint *checkpoint)
{
    const struct checkpoint_load_options options = {
        .config = &model->config,
        .tensors = model->tensors,
        .tensor_count = model->tensor_count,
        .write = io_write,
        .write_context = model,
        .staging = model->staging,
        .staging_bytes = sizeof model->staging,
    };
    return checkpoint_load(checkpoint, &options);
}

/* Opens and loads everything; on success *out_iter is the record's iteration. */
static inline enum gt_status io_open_load(struct io_model *model, const char *folder,
                                          bool with_optimizer, int64_t *out_iter)
{
    struct hostmem *mem;
    struct checkpoint *checkpoint;
    ck_assert_int_eq(hostmem_create(&mem), GT_OK);
    enum gt_status status = checkpoint_open(mem, folder, with_optimizer, &checkpoint);
    if (status == GT_OK) {
        status = io_load(model, checkpoint);
        *out_iter = checkpoint->record.state.iter;
        hostmem_free(checkpoint);
    }
    struct hostmem_counters counters;
    hostmem_counters_get(mem, &counters);
    ck_assert_uint_eq(counters.live_bytes, 0);
    hostmem_destroy(mem);
    return status;
}

/* Returns true when the loaded values are those that a model with `salt` saves, bit for bit. */
static inline bool io_loaded_is(const struct io_model *model, uint32_t salt, bool with_optimizer)
{
    for (size_t t = 0; t < model->tensor_count; t++) {
        const struct checkpoint_tensor *tensor = &model->tensors[t];
        const size_t elements = parameter_elements(&model->layout[t]);
        for (size_t i = 0; i < elements; i++) {
            for (int part = 0; part <= (with_optimizer ? CHECKPOINT_V : CHECKPOINT_PARAMETER);
                 part++) {
                if (model->loaded[part][tensor->index][i] !=
                    io_value(salt, (enum checkpoint_array)part, tensor->index, i))
                    return false;
            }
        }
    }
    return true;
}

#endif
