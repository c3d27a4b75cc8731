/* Recognising and opening a checkpoint.
 *
 * Names in the folder decide what it is; then one file says what the model is (the commit record, or config.json of
 * a folder in Hugging Face's layout), and the headers of the weights must agree with it in every name and shape.  Files
 * of pickles are recognised in order to be refused with a way out; they are never parsed.  Contents are verified while
 * they are loaded, in checkpoint_load.c.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "io/checkpoint.h"
#include "io/checkpoint_publish.h"
#include "io/hf_config.h"
#include "io/hf_layout.h"

#define CONFIG_BYTES_MAX ((size_t)4 << 20)

static enum gt_status open_ours(struct checkpoint *checkpoint, const char *folder, bool with_optimizer);
static enum gt_status open_hf(struct checkpoint *checkpoint, const char *folder);

enum gt_status checkpoint_open(struct hostmem *mem, const char *folder, bool with_optimizer, struct checkpoint **out)
{
    enum checkpoint_kind kind;
    TRY(checkpoint_probe(folder, &kind));
    if (kind == CHECKPOINT_NONE || (with_optimizer && kind == CHECKPOINT_HF)) {
        log_error("%s: holds no checkpoint: %s", folder,
                  with_optimizer ? CHECKPOINT_RECORD_NAME " is not there"
                                 : "neither " CHECKPOINT_RECORD_NAME " nor both " CHECKPOINT_CONFIG_NAME
                                   " and " CHECKPOINT_MODEL_NAME " are there");
        return GT_DATA;
    }
    void *block;
    TRY(hostmem_alloc(mem, 1, sizeof(struct checkpoint), "open checkpoint", &block));
    struct checkpoint *checkpoint = block;
    checkpoint->mem = mem;
    checkpoint->kind = kind;
    enum gt_status status =
        kind == CHECKPOINT_OURS ? open_ours(checkpoint, folder, with_optimizer) : open_hf(checkpoint, folder);
    if (status != GT_OK) {
        checkpoint_close(checkpoint);
        return status;
    }
    *out = checkpoint;
    return GT_OK;
}

void checkpoint_close(struct checkpoint *checkpoint)
{
    if (checkpoint == NULL)
        return;
    safetensors_close(checkpoint->model);
    safetensors_close(checkpoint->optimizer);
    checkpoint_record_release(&checkpoint->record);
    hostmem_free(checkpoint->mem, checkpoint);
}

/* ---- what a folder holds ---- */
static bool holds(const char *folder, const char *name)
{
    char path[FILE_PATH_MAX];
    return file_join(path, folder, name) == GT_OK && file_exists(path);
}

/* Files that others would open and we do not, each with what to do about it. */
static const struct {
    const char *name;
    const char *way_out;
} refused[] = {
    {"ckpt.pt",
     "is nanoGPT's pickle file, which can run code when it is read; doc/checkpoint.md converts it with PyTorch"},
    {"pytorch_model.bin", "is a pickle file, which can run code when it is read; convert it with transformers: "
                          "AutoModelForCausalLM.from_pretrained(IN).save_pretrained(OUT, safe_serialization=True)"},
    {"pytorch_model.bin.index.json",
     "names pickle files, which can run code when they are read; convert them with transformers: "
     "AutoModelForCausalLM.from_pretrained(IN).save_pretrained(OUT, safe_serialization=True)"},
    {"model.safetensors.index.json", "splits the model into several files; join them with transformers: "
                                     "save_pretrained(OUT, max_shard_size='1000GB')"},
};

static enum gt_status refused_check(const char *folder)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        if (holds(folder, refused[i].name)) {
            log_error("%s: %s %s", folder, refused[i].name, refused[i].way_out);
            return GT_UNSUPPORTED;
        }
    }
    return GT_OK;
}

/* A path that is no folder: a pickle file deserves its own words. */
static enum gt_status file_refuse(const char *path)
{
    int fd;
    uint64_t size_bytes;
    unsigned char magic[4] = {0};
    TRY(file_open_read(path, &fd, &size_bytes));
    enum gt_status status = file_read_at(fd, path, 0, magic, size_bytes < sizeof magic ? size_bytes : sizeof magic);
    (void)close(fd);
    TRY(status);
    if (memcmp(magic, "PK\3\4", 4) == 0 || (magic[0] == 0x80 && magic[1] >= 2 && magic[1] <= 5)) {
        log_error("%s: is a PyTorch pickle file, which can run code when it is read, and so is not read here; "
                  "doc/checkpoint.md says how to convert it",
                  path);
        return GT_UNSUPPORTED;
    }
    log_error("%s: is a file; a checkpoint is a folder", path);
    return GT_DATA;
}

enum gt_status checkpoint_probe(const char *folder, enum checkpoint_kind *out)
{
    enum checkpoint_kind kind = CHECKPOINT_NONE;
    if (file_exists(folder) && !file_is_folder(folder))
        return file_refuse(folder);
    if (holds(folder, CHECKPOINT_RECORD_NAME))
        kind = CHECKPOINT_OURS;
    else if (holds(folder, CHECKPOINT_CONFIG_NAME) && holds(folder, CHECKPOINT_MODEL_NAME))
        kind = CHECKPOINT_HF;
    else
        TRY(refused_check(folder));
    *out = kind;
    return GT_OK;
}

/* ---- a folder in Hugging Face's layout ---- */
static enum gt_status model_describe(struct checkpoint *checkpoint, const json_t *hf_config)
{
    struct hf_config_rest rest;
    TRY(hf_config_parse(hf_config, checkpoint->source, &checkpoint->config, &rest));
    checkpoint->tied = rest.tied;
    checkpoint->bos_token = rest.bos_token;
    checkpoint->eos_token = rest.eos_token;
    return GT_OK;
}

static enum gt_status open_hf(struct checkpoint *checkpoint, const char *folder)
{
    char path[FILE_PATH_MAX];
    json_t *root;
    TRY(file_join(checkpoint->source, folder, CHECKPOINT_CONFIG_NAME));
    TRY(json_parse_file(checkpoint->source, CONFIG_BYTES_MAX, &root));
    enum gt_status status = model_describe(checkpoint, root);
    json_decref(root);
    TRY(status);
    TRY(file_join(path, folder, CHECKPOINT_MODEL_NAME));
    TRY(safetensors_open(checkpoint->mem, path, &checkpoint->model));
    return hf_layout_check(checkpoint->model, &checkpoint->config);
}

/* ---- a checkpoint of ours ---- */
static enum gt_status file_verify(const struct safetensors *file, const struct checkpoint_file_record *record)
{
    if (file->size_bytes != record->size_bytes) {
        log_error("%s: is %" PRIu64 " bytes long, " CHECKPOINT_RECORD_NAME " says %" PRIu64, file->path,
                  file->size_bytes, record->size_bytes);
        return GT_DATA;
    }
    if (file->header_crc32c != record->header_crc32c) {
        log_error("%s: the header's checksum is %08" PRIx32 ", " CHECKPOINT_RECORD_NAME " says %08" PRIx32
                  ": the file is damaged",
                  file->path, file->header_crc32c, record->header_crc32c);
        return GT_DATA;
    }
    return GT_OK;
}

static enum gt_status file_open(struct checkpoint *checkpoint, const char *folder, enum checkpoint_file which,
                                struct safetensors **out)
{
    char path[FILE_PATH_MAX];
    const struct checkpoint_file_record *record = &checkpoint->record.files[which];
    TRY(file_join(path, folder, record->name));
    TRY(safetensors_open(checkpoint->mem, path, out)); /* closed with the checkpoint from here on */
    return file_verify(*out, record);
}

/* m. and v. of every parameter that the model has, and nothing else. */
static enum gt_status optimizer_check(const struct checkpoint *checkpoint)
{
    static const char *const prefixes[] = {"m." HF_PREFIX, "v." HF_PREFIX};
    const struct safetensors *file = checkpoint->optimizer;
    size_t found = 0, index;
    for (size_t i = 0; i < 2 * hf_layout_count(&checkpoint->config); i++) {
        struct hf_tensor tensor, moment;
        hf_layout_tensor(&checkpoint->config, i / 2, &tensor);
        if (tensor.bias && !checkpoint->config.bias)
            continue;
        moment = tensor;
        moment.position_table = false;
        (void)snprintf(moment.name, sizeof moment.name, "%s%.100s", prefixes[i % 2], tensor.name);
        TRY(hf_layout_find(file, false, &moment, &index));
        found++;
    }
    if (found == file->count)
        return GT_OK;
    log_error("%s: has %zu tensors, the model needs %zu", file->path, file->count, found);
    return GT_DATA;
}

static enum gt_status open_ours(struct checkpoint *checkpoint, const char *folder, bool with_optimizer)
{
    TRY(file_join(checkpoint->source, folder, CHECKPOINT_RECORD_NAME));
    TRY(checkpoint_record_read(folder, &checkpoint->record));
    TRY(model_describe(checkpoint, checkpoint->record.hf_config));
    TRY(file_open(checkpoint, folder, CHECKPOINT_FILE_MODEL, &checkpoint->model));
    TRY(hf_layout_check(checkpoint->model, &checkpoint->config));
    if (!with_optimizer)
        return GT_OK;
    TRY(file_open(checkpoint, folder, CHECKPOINT_FILE_OPTIMIZER, &checkpoint->optimizer));
    return optimizer_check(checkpoint);
}
