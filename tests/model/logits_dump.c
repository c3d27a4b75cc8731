/* Writes logits to a file, for a comparison with another implementation; prints nothing.
 *
 * Usage: logits_dump FOLDER IDS OUT.  IDS is raw int32; OUT becomes raw fp32 [count, V]: the logits
 * after each prefix of the ids, computed token by token through the key-value cache as gpt-sample
 * does.  At most block_size ids.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/hostmem.h"
#include "base/status.h"
#include "config/config.h"
#include "config/config_key.h"
#include "session/restore.h"
#include "session/restore_weights.h"
#include "session/session.h"
#include "session/session_open.h"
#include "session/session_start.h"

#define IDS_BYTES_MAX ((size_t)1 << 20)

struct dump {
    struct hostmem *mem;
    struct config config;
    struct restore_source source;
    struct session session;
    float *logits;
};

static enum gt_status dump_open(struct dump *dump, const char *folder, int64_t count)
{
    void *array;
    config_defaults(&dump->config, CONFIG_SAMPLE);
    snprintf(dump->config.init_from, sizeof dump->config.init_from, "%s", folder);
    TRY(restore_open_weights(dump->mem, &dump->config, &dump->source));
    struct model_options options = {.config = dump->source.checkpoint->config,
                                    .generate = true,
                                    .generate_batch = 1,
                                    .prefill_time = 1};
    if (options.config.position == POSITION_ROPE && count > options.config.block_size)
        options.config.block_size = (int32_t)count;
    TRY(session_open(dump->mem, &dump->config, &dump->session));
    TRY(session_plan(&dump->session, &options));
    TRY(session_start(&dump->session));
    TRY(restore_weights(&dump->session, &dump->source, 0));
    TRY(hostmem_alloc(dump->mem, (size_t)options.config.vocab_size, sizeof(float), "logits",
                      &array));
    dump->logits = array;
    return GT_OK;
}

static enum gt_status dump_write(struct dump *dump, const int32_t *ids, int64_t count, FILE *out)
{
    const struct program_io *io = &dump->session.model->decode;
    int64_t vocab = dump->session.model->options.config.vocab_size;
    for (int64_t i = 0; i < count; i++) {
        dump->session.scalars[SCALAR_POSITION].i = (int32_t)i;
        TRY(session_scalars_upload(&dump->session));
        TRY(exec_upload(dump->session.exec, io->ids, 0, &ids[i], 1));
        TRY(exec_run(dump->session.exec, io->program));
        TRY(exec_download(dump->session.exec, io->logits, 0, dump->logits, vocab));
        if (fwrite(dump->logits, sizeof(float), (size_t)vocab, out) != (size_t)vocab)
            return GT_IO;
    }
    return GT_OK;
}

int main(int argc, char **argv)
{
    static struct dump dump;
    char *ids = NULL;
    size_t bytes = 0;
    log_program_set("logits_dump");
    if (argc != 4 || hostmem_create(&dump.mem) != GT_OK)
        return EXIT_FAILURE;
    enum gt_status status = file_read_all(argv[2], IDS_BYTES_MAX, &ids, &bytes);
    FILE *out = status == GT_OK ? fopen(argv[3], "wb") : NULL;
    if (out)
        status = dump_open(&dump, argv[1], (int64_t)(bytes / sizeof(int32_t)));
    if (out && status == GT_OK)
        status = dump_write(&dump, (const int32_t *)(const void *)ids,
                            (int64_t)(bytes / sizeof(int32_t)), out);
    if (!out || fclose(out) != 0)
        status = GT_IO;
    hostmem_phase_set(dump.mem, HOSTMEM_CLOSE);
    free(ids);
    hostmem_free(dump.logits);
    if (dump.session.mem)
        session_close(&dump.session);
    restore_close(&dump.source);
    hostmem_destroy(dump.mem);
    return status == GT_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
