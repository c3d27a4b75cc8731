/* A helper of the tokenizer tests: the tokenizers without gpt-prepare.
 *
 *   tokenizer_tool encode NAME THREADS RECORDS OUT [REPEATS]   ids of each record; prints the best
 * time tokenizer_tool decode NAME IDS OUT                         texts of each record
 *   tokenizer_tool train VOCAB-SIZE RECORDS FOLDER             trains on the records, saves into
 * FOLDER; prints the time
 *
 * RECORDS contains records of a 32-bit count and that many bytes; IDS, and OUT of encode, a 32-bit
 * count and that many 32-bit ids; everything in the machine's byte order.  NAME is a vocabulary as
 * for gpt-prepare --tokenizer=.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/status.h"
#include "base/thread.h"
#include "data/bpe_train.h"
#include "data/hf_hub.h"
#include "data/tokenizer.h"
#include "data/tokenizer_encoder.h"
#include "data/tokenizer_export.h"

#define INPUT_MAX ((size_t)2 << 30)

enum { THREADS_MAX = 256 };

struct record {
    const char *text;
    size_t count; /* bytes, or ids */
    int32_t *ids;
    size_t id_count;
    enum gt_status status;
    struct tokenizer_fault fault;
};

struct tool {
    struct hostmem *mem;
    struct tokenizer *tokenizer;
    struct tokenizer_encoder *encoders[THREADS_MAX];
    char *input;
    size_t input_count;
    struct record *documents;
    size_t document_count;
    int32_t *ids; /* of all documents; each has room for those of its bytes */
};

static enum gt_status fail(const char *what)
{
    log_error("%s", what);
    return GT_USAGE;
}

/* Fills tool->documents from the records; `unit` is the size of one element. */
static enum gt_status records_list(struct tool *tool, size_t unit)
{
    size_t at = 0;
    TRY(HOSTMEM_NEW(tool->mem, tool->input_count / sizeof(uint32_t) + 1, "records",
                    &tool->documents));
    while (at < tool->input_count) {
        uint32_t count;
        if (tool->input_count - at < sizeof count)
            return fail("a record is cut off");
        memcpy(&count, tool->input + at, sizeof count);
        at += sizeof count;
        if ((tool->input_count - at) / unit < count)
            return fail("a record is cut off");
        tool->documents[tool->document_count++] =
            (struct record){.text = tool->input + at, .count = count};
        at += count * unit;
    }
    return GT_OK;
}

static enum gt_status file_write(FILE *file, const void *bytes, size_t count)
{
    return count == 0 || fwrite(bytes, 1, count, file) == count ? GT_OK : fail("cannot write");
}

static enum gt_status ids_write(const struct tool *tool, const char *path)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        return fail("cannot open the output");
    enum gt_status status = GT_OK;
    for (size_t i = 0; i < tool->document_count && status == GT_OK; i++) {
        const uint32_t count = (uint32_t)tool->documents[i].id_count;
        status = file_write(file, &count, sizeof count);
        if (status == GT_OK)
            status = file_write(file, tool->documents[i].ids, count * sizeof(int32_t));
    }
    return fclose(file) == 0 ? status : fail("cannot write");
}

static void record_encode(void *context, size_t index, int thread)
{
    struct tool *tool = context;
    struct record *record = &tool->documents[index];
    record->status = tokenizer_encoder_run(tool->encoders[thread], record->text, record->count,
                                           TOKENIZER_SPECIAL_AS_TEXT, record->ids,
                                           &record->id_count, &record->fault);
}

/* Encodes all records once. */
static enum gt_status records_encode(struct tool *tool, int threads, const char *source)
{
    thread_for_each(threads, tool->document_count, record_encode, tool);
    for (size_t i = 0; i < tool->document_count; i++) {
        const struct record *record = &tool->documents[i];
        if (record->status == GT_OK)
            continue;
        tokenizer_fault_report(tool->tokenizer, record->status, &record->fault, source);
        return record->status;
    }
    return GT_OK;
}

static enum gt_status tool_encode(struct tool *tool, int argc, char **argv)
{
    size_t ids = 0;
    double best_s = 1e30;
    if (argc < 6)
        return fail("encode NAME THREADS RECORDS OUT [REPEATS]");
    TRY(tokenizer_find(tool->mem, argv[2], &tool->tokenizer));
    const int threads = atoi(argv[3]);
    if (threads < 1 || threads > THREADS_MAX)
        return fail("1 to 256 threads");
    for (int i = 0; i < threads; i++)
        TRY(tokenizer_encoder_create(tool->mem, tool->tokenizer, &tool->encoders[i]));
    TRY(file_read_all(argv[4], INPUT_MAX, &tool->input, &tool->input_count));
    TRY(records_list(tool, 1));
    const size_t most = tokenizer_pipeline(tool->tokenizer)->growth;
    TRY(hostmem_alloc(tool->mem, tool->input_count, most * sizeof(int32_t), "ids", &tool->ids));
    for (size_t i = 0; i < tool->document_count; i++)
        tool->documents[i].ids = tool->ids + (size_t)(tool->documents[i].text - tool->input) * most;
    for (int repeat = argc > 6 ? atoi(argv[6]) : 1; repeat > 0; repeat--) {
        const int64_t begin_ns = clock_monotonic_ns();
        TRY(records_encode(tool, threads, argv[4]));
        const double seconds = (double)(clock_monotonic_ns() - begin_ns) / 1e9;
        best_s = seconds < best_s ? seconds : best_s;
    }
    for (size_t i = 0; i < tool->document_count; i++)
        ids += tool->documents[i].id_count;
    printf(
        "{\"seconds\": %.6f, \"ids\": %zu, \"eot\": %d, \"vocab_size\": %lld, \"hash\": \"%08x\"}\n",
        best_s, ids, tokenizer_eot(tool->tokenizer), (long long)tool->tokenizer->vocab_size,
        (unsigned)tool->tokenizer->hash);
    return ids_write(tool, argv[5]);
}

static enum gt_status record_decode(const struct tool *tool, size_t index, FILE *file)
{
    const struct record *document = &tool->documents[index];
    char scratch[4];
    const char *bytes = NULL;
    uint32_t total = 0;
    for (size_t i = 0; i < document->count; i++) {
        int32_t id;
        memcpy(&id, document->text + i * sizeof id, sizeof id);
        total += (uint32_t)tokenizer_token_bytes(tool->tokenizer, id, scratch, &bytes);
    }
    TRY(file_write(file, &total, sizeof total));
    for (size_t i = 0; i < document->count; i++) {
        int32_t id;
        memcpy(&id, document->text + i * sizeof id, sizeof id);
        const size_t count = tokenizer_token_bytes(tool->tokenizer, id, scratch, &bytes);
        TRY(file_write(file, bytes, count));
    }
    return GT_OK;
}

static enum gt_status tool_decode(struct tool *tool, int argc, char **argv)
{
    if (argc < 5)
        return fail("decode NAME IDS OUT");
    TRY(tokenizer_find(tool->mem, argv[2], &tool->tokenizer));
    TRY(file_read_all(argv[3], INPUT_MAX, &tool->input, &tool->input_count));
    TRY(records_list(tool, sizeof(int32_t)));
    FILE *file = fopen(argv[4], "wb");
    if (file == NULL)
        return fail("cannot open the output");
    enum gt_status status = GT_OK;
    for (size_t i = 0; i < tool->document_count && status == GT_OK; i++)
        status = record_decode(tool, i, file);
    return fclose(file) == 0 ? status : fail("cannot write");
}

static enum gt_status train_records(struct tool *tool, struct bpe_trainer *trainer,
                                    int64_t vocab_size, const char *folder)
{
    const int64_t begin_ns = clock_monotonic_ns();
    for (size_t i = 0; i < tool->document_count; i++)
        TRY(bpe_trainer_add(trainer, tool->documents[i].text, tool->documents[i].count));
    const int64_t counted_ns = clock_monotonic_ns();
    TRY(bpe_trainer_finish(trainer, tool->mem, vocab_size, &tool->tokenizer));
    const int64_t end_ns = clock_monotonic_ns();
    printf("{\"count_seconds\": %.4f, \"merge_seconds\": %.4f}\n",
           (double)(counted_ns - begin_ns) / 1e9, (double)(end_ns - counted_ns) / 1e9);
    return tokenizer_files_save(tool->tokenizer, 1, folder);
}

static enum gt_status tool_train(struct tool *tool, int argc, char **argv)
{
    struct bpe_trainer *trainer = NULL;
    if (argc < 5)
        return fail("train VOCAB-SIZE RECORDS FOLDER");
    TRY(file_read_all(argv[3], INPUT_MAX, &tool->input, &tool->input_count));
    TRY(records_list(tool, 1));
    TRY(bpe_trainer_create(tool->mem, NULL, &trainer));
    const enum gt_status status = train_records(tool, trainer, atoll(argv[2]), argv[4]);
    hostmem_free(trainer);
    return status;
}

static enum gt_status tool_run(struct tool *tool, int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    if (strcmp(word, "encode") == 0)
        return tool_encode(tool, argc, argv);
    if (strcmp(word, "decode") == 0)
        return tool_decode(tool, argc, argv);
    if (strcmp(word, "train") == 0)
        return tool_train(tool, argc, argv);
    return fail("encode, decode or train");
}

int main(int argc, char **argv)
{
    struct tool tool = {.mem = NULL};
    log_program_set("tokenizer_tool");
    enum gt_status status = hostmem_create(&tool.mem);
    if (status == GT_OK)
        status = tool_run(&tool, argc, argv);
    for (int i = 0; i < THREADS_MAX; i++)
        hostmem_free(tool.encoders[i]);
    hostmem_free(tool.tokenizer);
    free(tool.input);
    hostmem_free(tool.documents);
    hostmem_free(tool.ids);
    hostmem_phase_set(tool.mem, HOSTMEM_CLOSE);
    hostmem_destroy(tool.mem);
    return status_exit_code(status);
}
