/* Recognises and opens a checkpoint.
 *
 * File names in the folder determine its kind.  One file then describes the model: the commit
 * record, config.json of a folder in Hugging Face's layout, or the file of llm.c or nanoGPT itself.
 * The headers of the weights must agree with this file in every name and shape.  A run may replace
 * a checkpoint of ours in the meantime: its files are opened first, and if one is gone, the record
 * is read again.  Pickled weights are recognised so that the error line can say how to convert
 * them.  checkpoint_load.c verifies contents while loading them.
 */
#include "io/checkpoint_open.h"

#include <sys/stat.h>
#include <unistd.h>

#include "io/checkpoint_folder.h"
#include "io/checkpoint_load.h"
#include "io/checkpoint_record.h"
#include "io/gguf_model.h"
#include "io/hf_cache.h"
#include "io/llmc_model.h"
#include "io/nanogpt.h"
#include "io/peft.h"
#include "io/safetensors_table.h"
#include "model/parameters.h"

#define CONFIG_BYTES_MAX ((size_t)4 << 20)
#define CONVERT(class) \
    "convert them with " class ".from_pretrained(IN).save_pretrained(OUT, safe_serialization=True)"
#define HEAD_PIECE 2048 /* numbers compared at a time */
#define RECORDS_MAX 6   /* records tried, in case a run saves faster than we open */

/* ---- the kind of a checkpoint ---- */
/* Refuses pickled weights, which other programs open. */
static enum gt_status pickles_refuse(const char *folder)
{
    static const struct {
        const char *name, *way;
    } files[] = {{"pytorch_model.bin", CONVERT("transformers: AutoModelForCausalLM")},
                 {"pytorch_model.bin.index.json", CONVERT("transformers: AutoModelForCausalLM")},
                 {"adapter_model.bin", CONVERT("PEFT: AutoPeftModelForCausalLM")},
                 {"consolidated.00.pth", "take the model in Hugging Face's form: hf download "
                                         "OWNER/NAME --exclude 'original/*'"},
                 {"lit_model.pth",
                  "litgpt convert_from_litgpt gives them Hugging Face's names, with "
                  "which transformers saves the model"}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (file_exists(FILE_IN(folder, files[i].name)))
            return FAIL(
                GT_UNSUPPORTED,
                "%s: %s: these weights are pickles, which can run code when they are read; %s",
                folder, files[i].name, files[i].way);
    }
    return GT_OK;
}

/* Determines the kind of a path that is not a folder from its first bytes. */
static enum gt_status file_probe(const char *path, enum checkpoint_kind *out)
{
    int fd;
    uint64_t size_bytes;
    unsigned char magic[sizeof FILE_LFS_HEAD] = {0};
    TRY(file_open_read(path, &fd, &size_bytes));
    enum gt_status status =
        file_read_at(fd, path, 0, magic, size_bytes < sizeof magic ? size_bytes : sizeof magic);
    (void)close(fd);
    TRY(status);
    const uint32_t word =
        magic[0] | (uint32_t)magic[1] << 8 | (uint32_t)magic[2] << 16 | (uint32_t)magic[3] << 24;
    if (memcmp(magic, "PK\3\4", 4) == 0 || word == LLMC_MODEL_MAGIC) {
        *out = word == LLMC_MODEL_MAGIC ? CHECKPOINT_LLMC : CHECKPOINT_NANOGPT;
        return GT_OK;
    }
    if (memcmp(magic, GGUF_MAGIC, 4) == 0) {
        *out = CHECKPOINT_GGUF;
        return GT_OK;
    }
    if (magic[0] == 0x80 && magic[1] >= 2 && magic[1] <= 5)
        return FAIL(
            GT_UNSUPPORTED,
            "%s: is a checkpoint of PyTorch before 1.6 (a pickle without a zip archive), which is not "
            "supported" NANOGPT_SAVE_AGAIN,
            path);
    if (size_bytes == 0)
        return FAIL(GT_DATA, "%s: the file is empty", path);
    if (memcmp(magic, FILE_LFS_HEAD, strlen(FILE_LFS_HEAD)) == 0)
        return FAIL(GT_DATA, "%s: " FILE_LFS_ADVICE, path);
    return FAIL(
        GT_DATA,
        "%s: is a file, but neither GGUF, nanoGPT's ckpt.pt nor a model of llm.c; give the folder of other "
        "checkpoints",
        path);
}

enum gt_status checkpoint_probe(const char *path, enum checkpoint_kind *out)
{
    bool exists, has_record, has_config, has_model, has_index, has_nanogpt, has_peft;
    TRY(file_stat_exists(path, &exists));
    if (exists && !file_is_folder(path))
        return file_probe(path, out);
    TRY(file_stat_exists(FILE_IN(path, CHECKPOINT_RECORD_NAME), &has_record));
    TRY(file_stat_exists(FILE_IN(path, CHECKPOINT_CONFIG_NAME), &has_config));
    TRY(file_stat_exists(FILE_IN(path, CHECKPOINT_MODEL_NAME), &has_model));
    TRY(file_stat_exists(FILE_IN(path, SAFETENSORS_INDEX_NAME), &has_index));
    TRY(file_stat_exists(FILE_IN(path, NANOGPT_CHECKPOINT_NAME), &has_nanogpt));
    TRY(file_stat_exists(FILE_IN(path, PEFT_MODEL_NAME), &has_peft));
    *out = has_record                               ? CHECKPOINT_OURS
           : has_config && (has_model || has_index) ? CHECKPOINT_HF
           : has_nanogpt                            ? CHECKPOINT_NANOGPT
           : has_peft                               ? CHECKPOINT_PEFT
                                                    : CHECKPOINT_NONE;
    return *out == CHECKPOINT_NONE ? pickles_refuse(path) : GT_OK;
}

/* ---- the output layer ---- */

/* Compares two tensors of a file as numbers. */
static enum gt_status tensors_compare(const struct safetensors *file, size_t a, size_t b,
                                      bool *out_equal)
{
    float left[HEAD_PIECE], right[HEAD_PIECE];
    const size_t elements = file->tensors[a].elements;
    bool equal = file->tensors[b].elements == elements;
    for (size_t first = 0; equal && first < elements; first += HEAD_PIECE) {
        const size_t left_over = elements - first,
                     count = left_over < HEAD_PIECE ? left_over : HEAD_PIECE;
        TRY(safetensors_read(file, a, first, count, left, DTYPE_F32, NULL));
        TRY(safetensors_read(file, b, first, count, right, DTYPE_F32, NULL));
        equal = memcmp(left, right, count * sizeof left[0]) == 0;
    }
    *out_equal = equal;
    return GT_OK;
}

/* Names a tied output layer as the token embedding if the file has no other, as
 * safetensors.torch.save_model() writes it. */
static void head_rename(struct safetensors *file, size_t head, const struct parameter_shape *table)
{
    size_t index;
    const bool prefixed = safetensors_find(file, HF_PREFIX "ln_f.weight", &index);
    const char *name =
        TEXT(SAFETENSORS_NAME_MAX, "%s%s", prefixed ? table->prefix : "", table->name);
    if (!safetensors_find(file, name, &index))
        (void)snprintf(file->tensors[head].name, SAFETENSORS_NAME_MAX, "%s", name);
}

/* Decides whether the output layer is the token embedding.  A head in the file that differs from it
 * is used even if tie_word_embeddings is true, as in transformers 5 and llama.cpp; a GPT-2 with one
 * is refused.  A head that equals the embedding stays tied. */
static enum gt_status head_choose(struct checkpoint *checkpoint)
{
    struct safetensors *file = checkpoint->model;
    struct model_config *config = &checkpoint->config;
    struct parameter_shape table;
    size_t head, wte;
    bool equal;
    if (config->untied)
        return GT_OK;
    parameters_shape(config, PARAMETERS_WTE, &table);
    if (safetensors_find(file, HF_HEAD, &head) && checkpoint->rest.tied)
        head_rename(file, head, &table);
    if (!safetensors_find(file, HF_HEAD, &head)) {
        if (checkpoint->rest.tied)
            return GT_OK;
        return FAIL(GT_UNSUPPORTED,
                    "%s: lm_head.weight is missing, but tie_word_embeddings is false", file->path);
    }
    TRY(hf_layout_find(file, &table, &wte));
    TRY(tensors_compare(file, head, wte, &equal));
    if (equal)
        return GT_OK;
    if (model_is_gpt2(config))
        return FAIL(
            GT_UNSUPPORTED,
            "%s: lm_head.weight differs from %s, and GPT-2's output layer is the token embedding here; to train on "
            "with a tied one, remove lm_head.weight from the file",
            safetensors_path(file, head), table.name);
    log_note("%s: lm_head.weight differs from %s and is used, although tie_word_embeddings is true",
             safetensors_path(file, head), table.name);
    config->untied = true;
    checkpoint->rest.tied = false;
    return GT_OK;
}

/* ---- a folder in Hugging Face's layout ---- */

/* Refuses the state_dict() of a whole model with PEFT's adapters. */
static enum gt_status adapters_refuse(const struct safetensors *file)
{
    for (size_t i = 0; i < file->count; i++)
        if (strstr(file->tensors[i].name, ".base_layer.") != NULL ||
            strstr(file->tensors[i].name, ".lora_A.") != NULL)
            return FAIL(
                GT_UNSUPPORTED,
                "%s: tensor %s belongs to a model that was saved together with its PEFT adapters; "
                "save the adapters alone by model.save_pretrained(OUT), or the merged model "
                "by model.merge_and_unload().save_pretrained(OUT)",
                safetensors_path(file, i), file->tensors[i].name);
    return GT_OK;
}

static enum gt_status open_hf(struct checkpoint *checkpoint, const char *folder)
{
    json_t *root;
    TRY(json_parse_file(file_join(checkpoint->source, folder, CHECKPOINT_CONFIG_NAME),
                        CONFIG_BYTES_MAX, &root));
    enum gt_status status =
        hf_config_parse(root, checkpoint->source, &checkpoint->config, &checkpoint->rest);
    json_decref(root);
    TRY(status);
    bool is_whole; /* all weights are in one file */
    const char *path = FILE_IN(folder, CHECKPOINT_MODEL_NAME);
    TRY(file_stat_exists(path, &is_whole));
    TRY(is_whole ? safetensors_open(checkpoint, path, true, &checkpoint->model)
                 : safetensors_index_open(checkpoint, folder, &checkpoint->model));
    TRY(adapters_refuse(checkpoint->model));
    hf_layout_names_plain(checkpoint->model);
    /* The text part of a Qwen3.5 may be stored alone, and have tensors for multi-token prediction.
     */
    if (checkpoint->rest.is_part || arch_of(&checkpoint->config.shape) == arch_get(ARCH_qwen3_5))
        hf_layout_part_keep(checkpoint->model);
    TRY(head_choose(checkpoint));
    return hf_layout_check(checkpoint->model, &checkpoint->config);
}

/* ---- adapters ---- */
static enum gt_status adapter_describe(struct checkpoint *checkpoint, const json_t *adapter)
{
    const char *base;
    TRY(peft_config_parse(adapter, checkpoint->source, &checkpoint->config.lora, &base));
    return file_trim(checkpoint->base, base);
}

static enum gt_status open_peft(struct checkpoint *checkpoint, const char *folder)
{
    struct checkpoint_record *record = &checkpoint->record;
    TRY(json_parse_file(file_join(checkpoint->source, folder, PEFT_CONFIG_NAME), CONFIG_BYTES_MAX,
                        &record->root));
    record->adapter = record->root; /* base_join() reads the targets */
    TRY(adapter_describe(checkpoint, record->adapter));
    TRY(safetensors_open(checkpoint, FILE_IN(folder, PEFT_MODEL_NAME), true, &checkpoint->model));
    /* PEFT's names in memory include the adapter's name, which save_pretrained() leaves out. */
    for (size_t i = 0; i < checkpoint->model->count; i++) {
        static const char adapter[] = ".default.weight";
        char *name = checkpoint->model->tensors[i].name;
        const size_t length = strlen(name), tail = strlen(adapter);
        if (length > tail && strcmp(name + length - tail, adapter) == 0)
            memcpy(name + length - tail, ".weight", sizeof ".weight");
    }
    return GT_OK;
}

/* ---- files of other trainers ---- */
static enum gt_status open_llmc(struct checkpoint *checkpoint, const char *path)
{
    checkpoint->rest = (struct hf_config_rest){.tied = true, .bos_token = -1, .eos_token = -1};
    TRY(file_trim(checkpoint->source, path));
    TRY(llmc_model_open(checkpoint, path, &checkpoint->config, &checkpoint->model));
    return hf_layout_check(checkpoint->model, &checkpoint->config);
}

static enum gt_status open_gguf(struct checkpoint *checkpoint, const char *path)
{
    TRY(file_trim(checkpoint->source, path));
    TRY(gguf_model_open(checkpoint, checkpoint->source, &checkpoint->config, &checkpoint->rest,
                        &checkpoint->model));
    return hf_layout_check(checkpoint->model, &checkpoint->config);
}

static enum gt_status open_nanogpt(struct checkpoint *checkpoint, const char *path,
                                   bool with_optimizer)
{
    TRY(file_trim(checkpoint->source,
                  file_is_folder(path) ? FILE_IN(path, NANOGPT_CHECKPOINT_NAME) : path));
    TRY(nanogpt_open(checkpoint, with_optimizer));
    TRY(head_choose(checkpoint));
    return with_optimizer ? checkpoint_arrays_check(checkpoint->optimizer, &checkpoint->config)
                          : GT_OK;
}

/* ---- a checkpoint of ours ---- */
static enum gt_status file_verify(const struct safetensors *table,
                                  const struct checkpoint_file_record *record)
{
    const struct safetensors_file *file = &table->files[0];
    if (file->size_bytes != record->size_bytes)
        return FAIL(GT_DATA,
                    "%s: is %" PRIu64 " bytes long, but " CHECKPOINT_RECORD_NAME " says %" PRIu64,
                    file->path, file->size_bytes, record->size_bytes);
    if (file->header_crc32c != record->header_crc32c)
        return FAIL(GT_DATA,
                    "%s: the header's checksum is %08" PRIx32 ", but " CHECKPOINT_RECORD_NAME
                    " says %08" PRIx32 "; the file is damaged",
                    file->path, file->header_crc32c, record->header_crc32c);
    return GT_OK;
}

/* Opens the first `count` files that the record names.  If one is gone, closes the others; that is
 * an error only if `must`. */
static enum gt_status files_open(struct checkpoint *checkpoint, const char *folder, int count,
                                 bool must, bool *out_whole)
{
    struct safetensors **const tables[] = {&checkpoint->model, &checkpoint->optimizer};
    *out_whole = true;
    for (int i = 0; i < count && *out_whole; i++) {
        TRY(safetensors_open(checkpoint, FILE_IN(folder, checkpoint->record.files[i].name), must,
                             tables[i]));
        *out_whole = *tables[i] != NULL;
    }
    if (!*out_whole)
        hostmem_free(checkpoint->model);
    return GT_OK;
}

static enum gt_status open_ours(struct checkpoint *checkpoint, const char *folder,
                                bool with_optimizer)
{
    const struct checkpoint_record *record = &checkpoint->record;
    const int count = with_optimizer ? CHECKPOINT_FILES : CHECKPOINT_FILE_OPTIMIZER;
    bool is_whole = false;
    file_join(checkpoint->source, folder, CHECKPOINT_RECORD_NAME);
    for (int left = RECORDS_MAX; !is_whole; left--) {
        checkpoint_record_release(&checkpoint->record);
        TRY(checkpoint_record_read(folder, &checkpoint->record));
        TRY(files_open(checkpoint, folder, count, left == 1, &is_whole));
    }
    TRY(hf_config_parse(record->hf_config, checkpoint->source, &checkpoint->config,
                        &checkpoint->rest));
    if (record->adapter != NULL) {
        TRY(adapter_describe(checkpoint, record->adapter));
        TRY(peft_config_targets(record->adapter, checkpoint->source, &checkpoint->config,
                                &checkpoint->config.lora.targets));
    }
    TRY(file_verify(checkpoint->model, &record->files[CHECKPOINT_FILE_MODEL]));
    if (record->adapter == NULL) /* else base_join() checks */
        TRY(hf_layout_check(checkpoint->model, &checkpoint->config));
    if (!with_optimizer)
        return GT_OK;
    TRY(file_verify(checkpoint->optimizer, &record->files[CHECKPOINT_FILE_OPTIMIZER]));
    return checkpoint_arrays_check(checkpoint->optimizer, &checkpoint->config);
}

static enum gt_status open_kind(struct checkpoint *checkpoint, const char *path,
                                bool with_optimizer)
{
    switch (checkpoint->kind) {
    case CHECKPOINT_OURS:
        return open_ours(checkpoint, path, with_optimizer);
    case CHECKPOINT_NANOGPT:
        return open_nanogpt(checkpoint, path, with_optimizer);
    case CHECKPOINT_LLMC:
        return open_llmc(checkpoint, path);
    case CHECKPOINT_GGUF:
        return open_gguf(checkpoint, path);
    case CHECKPOINT_PEFT:
        return open_peft(checkpoint, path);
    default:
        return open_hf(checkpoint, path);
    }
}

/* Joins the arrays of the base and those of the adapters in one table. */
static enum gt_status base_join(struct checkpoint *checkpoint, struct checkpoint *base)
{
    const struct lora_config lora = checkpoint->config.lora;
    if (base->base[0] != '\0' || (base->kind != CHECKPOINT_HF && base->kind != CHECKPOINT_GGUF &&
                                  base->kind != CHECKPOINT_OURS))
        return FAIL(GT_UNSUPPORTED, CHECKPOINT_BASE_FORM, base->source);
    checkpoint->rest = base->rest;
    if (checkpoint->kind == CHECKPOINT_PEFT) {
        checkpoint->config = base->config;
        checkpoint->config.lora = lora;
        TRY(peft_config_targets(checkpoint->record.adapter, checkpoint->source, &checkpoint->config,
                                &checkpoint->config.lora.targets));
    }
    TRY(safetensors_join(base->model, checkpoint->model));
    hostmem_free(checkpoint->model);
    checkpoint->model = base->model;
    hostmem_give(base->model, checkpoint);
    return hf_layout_check(checkpoint->model, &checkpoint->config);
}

static void record_close(void *object)
{
    checkpoint_record_release(&((struct checkpoint *)object)->record);
}

static enum gt_status checkpoint_new(const void *owner, struct checkpoint **out)
{
    TRY(HOSTMEM_NEW(owner, 1, "open checkpoint", out));
    hostmem_at_free(*out, record_close);
    return GT_OK;
}

static enum gt_status base_open(struct checkpoint *checkpoint)
{
    char path[FILE_PATH_MAX];
    struct checkpoint *base;
    TRY(hf_cache_model_find(checkpoint->base, path));
    TRY(checkpoint_new(checkpoint, &base));
    TRY(checkpoint_probe(path, &base->kind));
    if (base->kind == CHECKPOINT_NONE)
        return FAIL(GT_DATA,
                    ERROR_NO_CHECKPOINT "%s: the base of its adapters is not in %s; put it there%s",
                    checkpoint->source, path,
                    checkpoint->kind == CHECKPOINT_PEFT
                        ? ", or write where it is as base_model_name_or_path"
                        : "");
    TRY(open_kind(base, path, false));
    TRY(base_join(checkpoint, base));
    hostmem_free(base);
    return GT_OK;
}

/* Finds a GGUF file in a folder and writes its path to `out`.  Returns false if there is none. */
static bool gguf_find(const char *folder, char out[static FILE_PATH_MAX])
{
    DIR *dir = NULL;
    bool found = false;
    for (const char *name; (name = file_next(folder, &dir, NULL)) != NULL;) {
        const char *ending = strrchr(name, '.');
        if (found || ending == NULL || strcmp(ending, ".gguf") != 0)
            continue;
        file_join(out, folder, name);
        found = true;
    }
    return found;
}

/* Refuses a folder with a half of a published model.  Returns GT_OK for another one. */
static enum gt_status half_refuse(const char *path)
{
    bool has_config, has_model;
    TRY(file_stat_exists(FILE_IN(path, CHECKPOINT_CONFIG_NAME), &has_config));
    TRY(file_stat_exists(FILE_IN(path, CHECKPOINT_MODEL_NAME), &has_model));
    if (has_config && !has_model)
        return FAIL(GT_DATA,
                    ERROR_NO_CHECKPOINT "%s: has " CHECKPOINT_CONFIG_NAME
                                        ", but neither " CHECKPOINT_MODEL_NAME
                                        " nor the index " CHECKPOINT_MODEL_NAME
                                        ".index.json; hf download OWNER/NAME fetches all files",
                    path);
    if (has_model && !has_config)
        return FAIL(GT_DATA,
                    ERROR_NO_CHECKPOINT
                    "%s: has " CHECKPOINT_MODEL_NAME " without its " CHECKPOINT_CONFIG_NAME
                    "; hf download OWNER/NAME " CHECKPOINT_CONFIG_NAME " fetches it",
                    path);
    return GT_OK;
}

/* Says what to do about a checkpoint of which files are missing, cut or damaged.  Without its
 * optimizer, a run can begin from the weights. */
static void broken_note(const struct checkpoint *checkpoint, const char *folder,
                        bool with_optimizer)
{
    const struct checkpoint_file_record *model = &checkpoint->record.files[CHECKPOINT_FILE_MODEL];
    struct stat info;
    char word[FILE_PATH_MAX];
    const bool has_model = with_optimizer && model->name[0] != '\0' &&
                           stat(FILE_IN(folder, model->name), &info) == 0 &&
                           (uint64_t)info.st_size == model->size_bytes;
    file_shell_quote(word, sizeof word, folder);
    log_note("the folder is not as its last save left it; copy all of it again%s%s%s",
             has_model ? ", or begin a new run from its weights: --init_from=" : "",
             has_model ? word : "", has_model ? " --out_dir=NEW" : "");
}

enum gt_status checkpoint_open(const void *owner, const char *path, bool with_optimizer,
                               struct checkpoint **out)
{
    enum checkpoint_kind kind;
    TRY(checkpoint_probe(path, &kind));
    if (kind == CHECKPOINT_NONE ||
        (with_optimizer && kind != CHECKPOINT_OURS && kind != CHECKPOINT_NANOGPT)) {
        char earlier[FILE_PATH_MAX];
        bool exists;
        TRY(file_stat_exists(path, &exists));
        if (!exists)
            return FAIL(GT_DATA, ERROR_NO_CHECKPOINT "%s: no such file or folder%s", path,
                        with_optimizer ? ""
                                       : "; init_from is scratch, resume, a folder or file of a "
                                         "model, or OWNER/NAME");
        const bool has_earlier = checkpoint_keep_earlier_last(path, earlier);
        if (!with_optimizer && checkpoint_folder_of_trainer(path, earlier))
            return FAIL(GT_DATA,
                        ERROR_NO_CHECKPOINT
                        "%s: holds no model, only checkpoints; name one of them, such as %s",
                        path, earlier);
        if (!with_optimizer && gguf_find(path, earlier))
            return FAIL(GT_DATA,
                        ERROR_NO_CHECKPOINT
                        "%s: holds no checkpoint, only a model in GGUF; name the file: %s",
                        path, earlier);
        if (!with_optimizer)
            TRY(half_refuse(path));
        if (with_optimizer && kind == CHECKPOINT_HF && !has_earlier)
            return FAIL(GT_DATA,
                        ERROR_NO_CHECKPOINT "%s: holds no checkpoint: " CHECKPOINT_RECORD_NAME
                                            " is not there; "
                                            "--init_from=%s --out_dir=NEW begins from its weights",
                        path, path);
        return FAIL(GT_DATA, ERROR_NO_CHECKPOINT "%s: holds no checkpoint: %s%s%s", path,
                    with_optimizer ? CHECKPOINT_RECORD_NAME " is not there"
                                   : "neither " CHECKPOINT_RECORD_NAME
                                     " nor both " CHECKPOINT_CONFIG_NAME
                                     " and " CHECKPOINT_MODEL_NAME " are there",
                    has_earlier ? "; an earlier run is in " : "", has_earlier ? earlier : "");
    }
    struct checkpoint *checkpoint;
    TRY(checkpoint_new(owner, &checkpoint));
    checkpoint->kind = kind;
    enum gt_status status = open_kind(checkpoint, path, with_optimizer);
    if (kind == CHECKPOINT_OURS && (status == GT_DATA || status == GT_IO))
        broken_note(checkpoint, path, with_optimizer);
    if (checkpoint->base[0] != '\0')
        THEN(status, base_open(checkpoint));
    return FINISH(status, out, checkpoint, hostmem_free);
}

void checkpoint_blocks_log(const struct checkpoint *checkpoint)
{
    const struct safetensors *model = checkpoint->model;
    const struct ggml_block *first = NULL;
    size_t count = 0;
    for (size_t i = 0; i < model->count; i++) {
        const struct ggml_block *block = model->tensors[i].block;
        count += block != NULL;
        first = first != NULL ? first : block;
    }
    if (first != NULL)
        log_note("%s: %zu of %zu tensors are quantised (%s ...); loading dequantises them",
                 model->path, count, model->count, first->name);
}

/* ---- the tokenizer ---- */
enum gt_status checkpoint_tokenizer_check(const struct checkpoint *checkpoint,
                                          const struct tokenizer *tokenizer, const char *what)
{
    const json_t *data =
        checkpoint && checkpoint->kind == CHECKPOINT_OURS ? checkpoint->record.state.data : NULL;
    const char *stored = json_string_value(json_object_get(data, "tokenizer"));
    const char *now = tokenizer ? TOKENIZER_HASH_TEXT(tokenizer) : "";
    if (!stored || !tokenizer || strcmp(stored, now) == 0)
        return GT_OK;
    return FAIL(GT_DATA, "%s: this tokenizer (%s) is not the one that %s was trained with (%s)",
                what, now, checkpoint->source, stored);
}
