/* Preparing a data set: two passes over a corpus, four files written aside and renamed together.
 *
 * Pass 1 counts tokens, collects the characters in a bitmap over all code points, and records a running checksum of
 * each file; pass 2 encodes and compares the checksums, so that a file that changes meanwhile is noticed.  A file in a
 * folder is looked through for zero bytes first, and left out when it has one.  Tokenizing is tokenizer.c's business,
 * listing and reading corpus.c's.
 */
#include "data/prepare.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "data/corpus.h"
#include "data/tokens.h"
#include "data/utf8.h"

#define CHUNK_BYTES ((size_t)1 << 20)
#define WRITE_BYTES ((size_t)1 << 16)
#define SKIP_NOTES_MAX 10
#define LOCK_NAME ".gpt-prepare.lock"

enum prepare_output { OUTPUT_TOKENIZER, OUTPUT_TRAIN, OUTPUT_VAL, OUTPUT_MANIFEST, OUTPUT_COUNT };

static const char *const output_names[] = {TOKENIZER_FILE_NAME, "train.bin", "val.bin", PREPARE_MANIFEST_NAME};
_Static_assert(sizeof output_names / sizeof output_names[0] == OUTPUT_COUNT, "a name for every output");

/* What pass 1 learns about a file and pass 2 checks. */
struct prepare_file {
    uint64_t size_bytes;
    uint32_t crc32c; /* running over the files of its input */
    bool skipped;
    bool newline_after; /* to be put after it */
};

/* Totals of one INPUT argument, for the manifest. */
struct prepare_input {
    uint64_t size_bytes;
    uint32_t crc32c;
    size_t file_count, skipped_count;
};

struct prepare {
    struct hostmem *mem;
    const struct prepare_spec *spec;
    struct corpus *corpus;
    struct prepare_file *files;   /* one per corpus file */
    struct prepare_input *inputs; /* one per argument */
    struct tokenizer *tokenizer;
    unsigned char *chunk;      /* CHUNK_BYTES */
    unsigned char *code_seen;  /* a bit per code point; chars only */
    unsigned char *write_text; /* WRITE_BYTES of encoded tokens */
    size_t write_count;
    size_t width_bytes; /* of a token in the files */
    int64_t token_count, train_count, written_count;
    uint64_t done_bytes, total_bytes; /* over both passes */
    size_t file_count, skipped_count;
    int lock_fd;
    bool lock_held;
    struct file_replacement outputs[OUTPUT_COUNT];
    bool begun[OUTPUT_COUNT];
};

static enum gt_status prepare_open(struct prepare *prep);
static enum gt_status prepare_scan(struct prepare *prep);
static enum gt_status prepare_make_tokenizer(struct prepare *prep);
static enum gt_status prepare_split(struct prepare *prep);
static enum gt_status prepare_begin_outputs(struct prepare *prep);
static enum gt_status prepare_encode(struct prepare *prep);
static enum gt_status prepare_write_papers(struct prepare *prep);
static enum gt_status prepare_commit(struct prepare *prep);
static void prepare_close(struct prepare *prep);

static enum gt_status prepare_steps(struct prepare *prep)
{
    TRY(prepare_open(prep));
    TRY(prepare_scan(prep));
    TRY(prepare_make_tokenizer(prep));
    TRY(prepare_split(prep));
    TRY(prepare_begin_outputs(prep));
    TRY(prepare_encode(prep));
    TRY(prepare_write_papers(prep));
    return prepare_commit(prep);
}

enum gt_status prepare_run(struct hostmem *mem, const struct prepare_spec *spec, struct prepare_result *out)
{
    assert(spec->input_count > 0 && spec->out_dir != NULL);
    assert(spec->val_fraction > 0 && spec->val_fraction < 1);
    void *memory = NULL;
    TRY(hostmem_alloc(mem, 1, sizeof(struct prepare), "gpt-prepare", &memory));
    struct prepare *prep = memory;
    prep->mem = mem;
    prep->spec = spec;
    const enum gt_status status = prepare_steps(prep);
    if (status == GT_OK)
        *out = (struct prepare_result){.train_tokens = prep->train_count,
                                       .val_tokens = prep->token_count - prep->train_count,
                                       .vocab_size = tokenizer_vocab_size(prep->tokenizer),
                                       .file_count = prep->file_count,
                                       .skipped_count = prep->skipped_count};
    prepare_close(prep);
    hostmem_free(mem, prep);
    return status;
}

/* ---- opening and closing ---- */

static enum gt_status prepare_allocate(struct prepare *prep)
{
    void *memory = NULL;
    TRY(hostmem_alloc(prep->mem, prep->corpus->file_count, sizeof prep->files[0], "file records", &memory));
    prep->files = memory;
    TRY(hostmem_alloc(prep->mem, prep->spec->input_count, sizeof prep->inputs[0], "input records", &memory));
    prep->inputs = memory;
    TRY(hostmem_alloc(prep->mem, CHUNK_BYTES, 1, "reading", &memory));
    prep->chunk = memory;
    TRY(hostmem_alloc(prep->mem, WRITE_BYTES, 1, "writing", &memory));
    prep->write_text = memory;
    if (prep->spec->tokenizer == TOKENIZER_CHARS) {
        TRY(hostmem_alloc(prep->mem, UTF8_CODE_POINTS / 8, 1, "characters seen", &memory));
        prep->code_seen = memory;
    }
    return GT_OK;
}

static enum gt_status prepare_open(struct prepare *prep)
{
    const struct prepare_spec *spec = prep->spec;
    const struct corpus_spec corpus_spec = {.inputs = spec->inputs,
                                            .input_count = spec->input_count,
                                            .out_dir = spec->out_dir,
                                            .out_names = output_names,
                                            .out_name_count = OUTPUT_COUNT};
    TRY(corpus_create(prep->mem, &corpus_spec, &prep->corpus));
    if (prep->corpus->size_bytes == 0) {
        log_error("INPUT %s%s: no text (%zu files, 0 bytes)", spec->inputs[0], spec->input_count > 1 ? " ..." : "",
                  prep->corpus->file_count);
        return GT_DATA;
    }
    prep->total_bytes = 2 * prep->corpus->size_bytes;
    return prepare_allocate(prep);
}

static void prepare_unlock(struct prepare *prep)
{
    char path[FILE_PATH_MAX];
    if (!prep->lock_held)
        return;
    if (file_join(path, prep->spec->out_dir, LOCK_NAME) == GT_OK)
        unlink(path);
    file_unlock(prep->lock_fd);
}

static void prepare_close(struct prepare *prep)
{
    for (int i = 0; i < OUTPUT_COUNT; i++)
        if (prep->begun[i])
            file_replacement_abort(&prep->outputs[i]);
    prepare_unlock(prep);
    tokenizer_destroy(prep->tokenizer);
    hostmem_free(prep->mem, prep->code_seen);
    hostmem_free(prep->mem, prep->write_text);
    hostmem_free(prep->mem, prep->chunk);
    hostmem_free(prep->mem, prep->inputs);
    hostmem_free(prep->mem, prep->files);
    corpus_destroy(prep->corpus);
}

static void prepare_advance(struct prepare *prep, size_t count)
{
    prep->done_bytes += count;
    if (prep->spec->progress != NULL)
        prep->spec->progress(prep->spec->progress_context, prep->done_bytes, prep->total_bytes);
}

/* ---- pass 1: counting ---- */

/* Where the first zero byte of a file is, or its size when there is none. */
static enum gt_status file_find_zero(struct prepare *prep, const char *path, bool *out_found, uint64_t *out_offset)
{
    struct corpus_reader reader;
    TRY(corpus_reader_open(&reader, path, prep->chunk, CHUNK_BYTES, 0));
    bool found = false;
    enum gt_status status = corpus_reader_fill(&reader);
    while (status == GT_OK && reader.count > 0 && !found) {
        const unsigned char *zero = memchr(reader.bytes, 0, reader.count);
        found = zero != NULL;
        if (found)
            *out_offset = reader.offset + (uint64_t)(zero - reader.bytes);
        reader.used = reader.count;
        if (!found)
            status = corpus_reader_fill(&reader);
    }
    corpus_reader_close(&reader);
    *out_found = found;
    return status;
}

static void prepare_note_skipped(struct prepare *prep, const char *path, uint64_t offset)
{
    prep->skipped_count++;
    if (prep->skipped_count <= SKIP_NOTES_MAX)
        log_note("%s: skipped: byte %" PRIu64 " is zero, so this is no text", path, offset);
}

static enum gt_status text_refuse(const char *path, uint64_t offset, const char *why)
{
    log_error("%s: byte %" PRIu64 " %s; --tokenizer=bytes takes any file", path, offset, why);
    return GT_DATA;
}

static void code_set_seen(struct prepare *prep, uint32_t code_point)
{
    prep->code_seen[code_point / 8] |= (unsigned char)(1u << code_point % 8);
}

/* Counts the characters of a piece and marks them as seen. */
static enum gt_status scan_chars(struct prepare *prep, struct corpus_reader *reader)
{
    while (reader->used < reader->count) {
        uint32_t code_point = 0;
        const int length = utf8_decode(reader->bytes + reader->used, reader->count - reader->used, &code_point);
        if (length == UTF8_INCOMPLETE && !corpus_reader_at_end(reader))
            return GT_OK;
        const uint64_t offset = reader->offset + reader->used;
        if (length <= 0)
            return text_refuse(reader->path, offset, "is not UTF-8");
        if (code_point == 0)
            return text_refuse(reader->path, offset, "is zero, so this is no text");
        code_set_seen(prep, code_point);
        prep->token_count++;
        reader->used += (size_t)length;
    }
    return GT_OK;
}

static enum gt_status scan_pieces(struct prepare *prep, struct corpus_reader *reader, bool *out_ends_line)
{
    bool ends_line = false;
    TRY(corpus_reader_fill(reader));
    while (reader->count > 0) {
        ends_line = reader->bytes[reader->count - 1] == '\n';
        if (prep->spec->tokenizer == TOKENIZER_CHARS) {
            TRY(scan_chars(prep, reader));
        } else {
            prep->token_count += (int64_t)reader->count;
            reader->used = reader->count;
        }
        prepare_advance(prep, reader->used);
        TRY(corpus_reader_fill(reader));
    }
    *out_ends_line = ends_line;
    return GT_OK;
}

static enum gt_status scan_file(struct prepare *prep, size_t index, bool *out_ends_line)
{
    const struct corpus_file *source = &prep->corpus->files[index];
    struct prepare_file *file = &prep->files[index];
    struct prepare_input *input = &prep->inputs[source->input];
    uint64_t zero_offset = 0;
    if (source->from_folder)
        TRY(file_find_zero(prep, source->path, &file->skipped, &zero_offset));
    if (file->skipped) {
        prepare_note_skipped(prep, source->path, zero_offset);
        prepare_advance(prep, 0);
        prep->total_bytes -= 2 * source->size_bytes;
        input->skipped_count++;
        return GT_OK;
    }
    struct corpus_reader reader;
    TRY(corpus_reader_open(&reader, source->path, prep->chunk, CHUNK_BYTES, input->crc32c));
    const enum gt_status status = scan_pieces(prep, &reader, out_ends_line);
    corpus_reader_close(&reader);
    file->size_bytes = reader.size_bytes;
    file->crc32c = reader.crc32c;
    input->crc32c = reader.crc32c;
    input->size_bytes += reader.size_bytes;
    input->file_count++;
    prep->file_count++;
    return status;
}

/* A newline belongs between two files with text when the first does not end in one. */
static enum gt_status prepare_scan(struct prepare *prep)
{
    struct prepare_file *open_line = NULL; /* the last file with text, if its last line is unfinished */
    for (size_t i = 0; i < prep->corpus->file_count; i++) {
        const int64_t tokens_before = prep->token_count;
        bool ends_line = false;
        TRY(scan_file(prep, i, &ends_line));
        if (prep->token_count == tokens_before)
            continue;
        if (open_line != NULL) {
            open_line->newline_after = true;
            prep->token_count++;
            if (prep->code_seen != NULL)
                code_set_seen(prep, '\n');
        }
        open_line = ends_line ? NULL : &prep->files[i];
    }
    if (prep->skipped_count > SKIP_NOTES_MAX)
        log_note("%zu more files were skipped, because they hold zero bytes", prep->skipped_count - SKIP_NOTES_MAX);
    return GT_OK;
}

/* ---- between the passes ---- */

static bool code_is_seen(const struct prepare *prep, uint32_t code_point)
{
    return ((unsigned)prep->code_seen[code_point / 8] >> code_point % 8 & 1u) != 0;
}

static enum gt_status prepare_make_chars(struct prepare *prep)
{
    size_t count = 0;
    void *memory = NULL;
    for (uint32_t i = 0; i < UTF8_CODE_POINTS; i++)
        count += code_is_seen(prep, i);
    assert(count >= 1);
    TRY(hostmem_alloc(prep->mem, count, sizeof(uint32_t), "characters", &memory));
    uint32_t *code_points = memory;
    size_t next = 0;
    for (uint32_t i = 0; i < UTF8_CODE_POINTS; i++)
        if (code_is_seen(prep, i))
            code_points[next++] = i;
    assert(next == count);
    const enum gt_status status = tokenizer_create_chars(prep->mem, code_points, count, &prep->tokenizer);
    hostmem_free(prep->mem, code_points);
    return status;
}

static enum gt_status prepare_make_tokenizer(struct prepare *prep)
{
    if (prep->token_count == 0) {
        log_error("INPUT %s%s: no text (%zu files skipped as binary)", prep->spec->inputs[0],
                  prep->spec->input_count > 1 ? " ..." : "", prep->skipped_count);
        return GT_DATA;
    }
    if (prep->spec->tokenizer == TOKENIZER_CHARS)
        return prepare_make_chars(prep);
    return tokenizer_create_bytes(prep->mem, &prep->tokenizer);
}

static enum gt_status prepare_split(struct prepare *prep)
{
    prep->width_bytes = tokenizer_vocab_size(prep->tokenizer) > UINT16_MAX ? 4 : 2;
    prep->train_count = (int64_t)floor((double)prep->token_count * (1.0 - prep->spec->val_fraction));
    const int64_t val_count = prep->token_count - prep->train_count;
    if (prep->train_count < 1 || val_count < 1) {
        log_error("INPUT %s%s: %" PRId64 " tokens with --val-fraction=%g give %" PRId64 " to train on and %" PRId64
                  " to validate; each needs at least 1",
                  prep->spec->inputs[0], prep->spec->input_count > 1 ? " ..." : "", prep->token_count,
                  prep->spec->val_fraction, prep->train_count, val_count);
        return GT_DATA;
    }
    if (prep->width_bytes == 4 && (prep->train_count > INT32_MAX || val_count > INT32_MAX)) {
        log_error(
            "INPUT %s%s: %" PRId64 " train and %" PRId64 " val tokens of %" PRId64
            " distinct characters; an llm.c token file counts up to %d, and gpt-prepare writes one file per split",
            prep->spec->inputs[0], prep->spec->input_count > 1 ? " ..." : "", prep->train_count, val_count,
            tokenizer_vocab_size(prep->tokenizer), INT32_MAX);
        return GT_UNSUPPORTED;
    }
    return GT_OK;
}

/* ---- pass 2: writing ---- */

static void bytes_put_u32(unsigned char out[static 4], uint32_t value)
{
    for (int i = 0; i < 4; i++)
        out[i] = (unsigned char)(value >> 8 * i & 0xFF);
}

static enum gt_status output_begin(struct prepare *prep, enum prepare_output output)
{
    char path[FILE_PATH_MAX];
    TRY(file_join(path, prep->spec->out_dir, output_names[output]));
    TRY(file_replacement_begin(&prep->outputs[output], path));
    prep->begun[output] = true;
    return GT_OK;
}

static enum gt_status output_write_header(struct prepare *prep, enum prepare_output output, int64_t count)
{
    unsigned char header[TOKEN_SHARD_HEADER_BYTES] = {0};
    bytes_put_u32(header, TOKEN_SHARD_MAGIC_U32);
    bytes_put_u32(header + 4, TOKEN_SHARD_VERSION_U32);
    bytes_put_u32(header + 8, (uint32_t)count);
    return file_replacement_write(&prep->outputs[output], header, sizeof header);
}

static enum gt_status prepare_begin_outputs(struct prepare *prep)
{
    char lock_path[FILE_PATH_MAX];
    TRY(file_make_folders(prep->spec->out_dir));
    TRY(file_join(lock_path, prep->spec->out_dir, LOCK_NAME));
    TRY(file_lock(lock_path, &prep->lock_fd));
    prep->lock_held = true;
    file_remove_leftovers(prep->spec->out_dir);
    for (int i = 0; i < OUTPUT_COUNT; i++)
        TRY(output_begin(prep, (enum prepare_output)i));
    if (prep->width_bytes == 2)
        return GT_OK;
    TRY(output_write_header(prep, OUTPUT_TRAIN, prep->train_count));
    return output_write_header(prep, OUTPUT_VAL, prep->token_count - prep->train_count);
}

/* Writes the buffer to the split that its last token belongs to; a buffer never spans both. */
static enum gt_status write_flush(struct prepare *prep)
{
    const enum prepare_output output = prep->written_count <= prep->train_count ? OUTPUT_TRAIN : OUTPUT_VAL;
    const size_t count = prep->write_count;
    prep->write_count = 0;
    return count == 0 ? GT_OK : file_replacement_write(&prep->outputs[output], prep->write_text, count);
}

static enum gt_status write_token(struct prepare *prep, int32_t id)
{
    assert(id >= 0 && id < tokenizer_vocab_size(prep->tokenizer));
    unsigned char *at = prep->write_text + prep->write_count;
    if (prep->width_bytes == 4) {
        bytes_put_u32(at, (uint32_t)id);
    } else {
        at[0] = (unsigned char)(id & 0xFF);
        at[1] = (unsigned char)(id >> 8 & 0xFF);
    }
    prep->write_count += prep->width_bytes;
    prep->written_count++;
    if (prep->write_count == WRITE_BYTES || prep->written_count == prep->train_count)
        return write_flush(prep);
    return GT_OK;
}

static enum gt_status file_report_change(const char *path)
{
    log_error("%s: the file changed while it was read", path);
    return GT_DATA;
}

/* One token from the unused bytes of a piece, or none when they end inside a character. */
static enum gt_status encode_one(struct prepare *prep, struct corpus_reader *reader, bool *out_more)
{
    uint32_t code_point = reader->bytes[reader->used];
    int length = 1;
    if (prep->spec->tokenizer == TOKENIZER_CHARS)
        length = utf8_decode(reader->bytes + reader->used, reader->count - reader->used, &code_point);
    *out_more = length != UTF8_INCOMPLETE || corpus_reader_at_end(reader);
    if (!*out_more)
        return GT_OK;
    /* Pass 1 has seen every character and counted every token: anything else is a change in between. */
    const int32_t id = length > 0 ? tokenizer_id_of(prep->tokenizer, code_point) : -1;
    if (id < 0 || prep->written_count >= prep->token_count)
        return file_report_change(reader->path);
    reader->used += (size_t)length;
    return write_token(prep, id);
}

static enum gt_status encode_pieces(struct prepare *prep, struct corpus_reader *reader)
{
    TRY(corpus_reader_fill(reader));
    while (reader->count > 0) {
        bool more = true;
        while (more && reader->used < reader->count)
            TRY(encode_one(prep, reader, &more));
        prepare_advance(prep, reader->used);
        TRY(corpus_reader_fill(reader));
    }
    return GT_OK;
}

static enum gt_status encode_file(struct prepare *prep, size_t index, uint32_t *input_crc32c)
{
    const struct prepare_file *file = &prep->files[index];
    struct corpus_reader reader;
    TRY(corpus_reader_open(&reader, prep->corpus->files[index].path, prep->chunk, CHUNK_BYTES, *input_crc32c));
    enum gt_status status = GT_OK;
    if (reader.size_bytes == file->size_bytes)
        status = encode_pieces(prep, &reader);
    corpus_reader_close(&reader);
    if (status != GT_OK)
        return status;
    if (reader.size_bytes != file->size_bytes || reader.crc32c != file->crc32c)
        return file_report_change(reader.path);
    *input_crc32c = reader.crc32c;
    if (file->newline_after)
        return write_token(prep, tokenizer_id_of(prep->tokenizer, '\n'));
    return GT_OK;
}

static enum gt_status prepare_encode(struct prepare *prep)
{
    uint32_t input_crc32c = 0;
    for (size_t i = 0; i < prep->corpus->file_count; i++) {
        if (i > 0 && prep->corpus->files[i].input != prep->corpus->files[i - 1].input)
            input_crc32c = 0;
        if (!prep->files[i].skipped)
            TRY(encode_file(prep, i, &input_crc32c));
    }
    TRY(write_flush(prep));
    assert(prep->written_count == prep->token_count);
    return GT_OK;
}

/* ---- gpt_tokenizer.json, manifest.json ---- */

/* "crc32c:89abcdef" */
static json_t *json_crc(uint32_t crc32c)
{
    char text[24];
    snprintf(text, sizeof text, "crc32c:%08" PRIx32, crc32c);
    return json_string(text);
}

/* A path need not be UTF-8, JSON must: other bytes become '?'. */
static json_t *json_path(const char *path)
{
    char text[FILE_PATH_MAX];
    size_t count = 0, at = 0;
    const size_t length = strlen(path);
    while (at < length && count + 4 < sizeof text) {
        uint32_t code_point = 0;
        const int used = utf8_decode((const unsigned char *)path + at, length - at, &code_point);
        count += utf8_encode(used > 0 ? code_point : '?', text + count);
        at += used > 0 ? (size_t)used : 1;
    }
    text[count] = '\0';
    return json_string(text);
}

static json_t *manifest_input(const char *path, const struct prepare_input *input)
{
    json_t *object = json_object();
    int failures = json_object_set_new(object, "path", json_path(path));
    failures |= json_object_set_new(object, "files", json_integer((json_int_t)input->file_count));
    failures |= json_object_set_new(object, "skipped", json_integer((json_int_t)input->skipped_count));
    failures |= json_object_set_new(object, "size_bytes", json_integer((json_int_t)input->size_bytes));
    failures |= json_object_set_new(object, "hash", json_crc(input->crc32c));
    if (failures == 0)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *manifest_output(const struct prepare *prep, enum prepare_output output, int64_t tokens)
{
    json_t *object = json_object();
    int failures = json_object_set_new(object, "file", json_string(output_names[output]));
    failures |= json_object_set_new(object, "tokens", json_integer(tokens));
    failures |= json_object_set_new(object, "dtype", json_string(prep->width_bytes == 4 ? "uint32" : "uint16"));
    failures |= json_object_set_new(object, "size_bytes", json_integer((json_int_t)prep->outputs[output].size_bytes));
    failures |= json_object_set_new(object, "hash", json_crc(prep->outputs[output].crc32c));
    if (failures == 0)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *manifest_make(const struct prepare *prep)
{
    const struct prepare_spec *spec = prep->spec;
    json_t *root = json_object(), *inputs = json_array();
    int failures = 0;
    for (size_t i = 0; i < spec->input_count; i++)
        failures |= json_array_append_new(inputs, manifest_input(spec->inputs[i], &prep->inputs[i]));
    failures |= json_object_set_new(root, "format", json_string("gpt-train-manifest"));
    failures |= json_object_set_new(root, "version", json_integer(1));
    failures |= json_object_set_new(root, "tokenizer", json_string(tokenizer_kind_name(spec->tokenizer)));
    failures |= json_object_set_new(root, "tokenizer_hash", json_crc(tokenizer_hash(prep->tokenizer)));
    failures |= json_object_set_new(root, "vocab_size", json_integer(tokenizer_vocab_size(prep->tokenizer)));
    failures |= json_object_set_new(root, "val_fraction", json_real(spec->val_fraction));
    failures |= json_object_set_new(root, "inputs", inputs);
    failures |= json_object_set_new(root, "train", manifest_output(prep, OUTPUT_TRAIN, prep->train_count));
    failures |=
        json_object_set_new(root, "val", manifest_output(prep, OUTPUT_VAL, prep->token_count - prep->train_count));
    if (failures == 0)
        return root;
    json_decref(root);
    return NULL;
}

static enum gt_status output_write_text(struct prepare *prep, enum prepare_output output, char *text)
{
    enum gt_status status = file_replacement_write(&prep->outputs[output], text, strlen(text));
    if (status == GT_OK)
        status = file_replacement_write(&prep->outputs[output], "\n", 1);
    free(text);
    return status;
}

static enum gt_status prepare_write_papers(struct prepare *prep)
{
    char *text = NULL;
    TRY(tokenizer_text(prep->tokenizer, &text));
    TRY(output_write_text(prep, OUTPUT_TOKENIZER, text));
    json_t *manifest = manifest_make(prep);
    if (manifest == NULL) {
        log_error("out of memory for the manifest of %zu inputs", prep->spec->input_count);
        return GT_NO_MEMORY;
    }
    const enum gt_status status = json_text(manifest, 2, &text);
    json_decref(manifest);
    if (status != GT_OK)
        return status;
    return output_write_text(prep, OUTPUT_MANIFEST, text);
}

/* A full disk may show only here, before anything was renamed. */
static enum gt_status prepare_sync(struct prepare *prep)
{
    for (int i = 0; i < OUTPUT_COUNT; i++)
        if (fsync(prep->outputs[i].fd) != 0) {
            log_error("%s: fsync: %s", prep->outputs[i].aside, strerror(errno));
            return GT_IO;
        }
    return GT_OK;
}

static enum gt_status prepare_commit(struct prepare *prep)
{
    _Static_assert(OUTPUT_MANIFEST == OUTPUT_COUNT - 1, "the manifest is renamed last");
    char manifest_path[FILE_PATH_MAX];
    TRY(file_join(manifest_path, prep->spec->out_dir, output_names[OUTPUT_MANIFEST]));
    TRY(prepare_sync(prep));
    unlink(manifest_path);
    for (int i = 0; i < OUTPUT_COUNT; i++) {
        prep->begun[i] = false; /* a failed commit has removed its own file */
        TRY(file_replacement_commit(&prep->outputs[i]));
    }
    return GT_OK;
}
