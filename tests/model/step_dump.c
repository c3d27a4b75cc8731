/* Runs single training steps on request, for a comparison with another implementation.
 *
 * Usage: step_dump [ARGUMENTS OF gpt-train].  Opens the session that gpt-train would open for the
 * same arguments, then obeys one command per line of standard input and answers each with one line
 * on standard output: describe            one line per parameter "NAME ELEMENTS", before the answer
 *   put PART PATH       fills a part (weights, m, v) of all parameters from raw fp32, in the order
 * of `describe` get PART PATH       writes a part (weights, gradients, m, v) the same way step ITER
 * LR ADAM PATH   one update as the iteration ITER after ADAM updates; the ids, then the targets, of
 * each micro-step go to PATH as int32; answers "ok LOSS NORM CLIP MICRO_STEPS" Gradients are the
 * accumulated ones, before clipping.  It does not evaluate, log or save.  Answers begin with "ok";
 * any error ends the program with status 1.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hostmem.h"
#include "base/size.h"
#include "base/status.h"
#include "config/config.h"
#include "config/config_args.h"
#include "config/config_key.h"
#include "session/restore.h"
#include "session/restore_weights.h"
#include "session/session.h"
#include "session/session_open.h"
#include "session/session_plan.h"
#include "session/session_start.h"
#include "train/feed.h"

struct dump {
    struct hostmem *mem;
    struct config config;
    struct mixture mixture;
    struct restore_source source;
    struct session session;
    struct feed feed;
};

static enum gt_status dump_run(struct dump *dump, int argc, char **argv);

int main(int argc, char **argv)
{
    struct dump *dump = calloc(1, sizeof *dump);
    enum gt_status status = dump ? hostmem_create(&dump->mem) : GT_NO_MEMORY;
    log_program_set("step_dump");
    if (status == GT_OK)
        status = dump_run(dump, argc, argv);
    if (dump) {
        hostmem_phase_set(dump->mem, HOSTMEM_CLOSE);
        if (dump->session.mem)
            session_close(&dump->session);
        restore_close(&dump->source);
        hostmem_destroy(dump->mem);
    }
    free(dump);
    return status == GT_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int32_t part_tensor(const struct parameter *parameter, const char *part)
{
    if (strcmp(part, "gradients") == 0)
        return parameter->gradient;
    if (strcmp(part, "m") == 0)
        return parameter->m;
    if (strcmp(part, "v") == 0)
        return parameter->v;
    return strcmp(part, "weights") == 0 ? parameter->tensor : TENSOR_NONE;
}

/* Copies one tensor between the device and a file, through the staging buffer. */
static enum gt_status tensor_copy(struct dump *dump, int32_t tensor, bool put, FILE *file)
{
    struct session *session = &dump->session;
    int64_t total =
        tensor == TENSOR_NONE ? -1 : graph_tensor_elements(session->model->graph, tensor);
    for (int64_t first = 0; first < total; first += SESSION_STAGING_FLOATS) {
        int64_t count = min_i64(total - first, SESSION_STAGING_FLOATS);
        if (put && fread(session->staging, sizeof(float), (size_t)count, file) != (size_t)count)
            return GT_IO;
        if (put)
            TRY(exec_upload(session->exec, tensor, first, session->staging, count));
        else
            TRY(exec_download(session->exec, tensor, first, session->staging, count));
        if (!put && fwrite(session->staging, sizeof(float), (size_t)count, file) != (size_t)count)
            return GT_IO;
    }
    return total < 0 ? GT_USAGE : GT_OK;
}

static enum gt_status part_copy(struct dump *dump, const char *part, bool put, const char *path)
{
    const struct parameter_list *parameters = &dump->session.model->parameters;
    FILE *file = fopen(path, put ? "rb" : "wb");
    if (!file)
        return GT_IO;
    enum gt_status status = GT_OK;
    for (int32_t i = 0; i < parameters->count && status == GT_OK; i++)
        status = tensor_copy(dump, part_tensor(&parameters->at[i], part), put, file);
    if (put && status == GT_OK && fgetc(file) != EOF)
        status = GT_DATA;
    return fclose(file) == 0 ? status : GT_IO;
}

static enum gt_status step_run(struct dump *dump, int64_t iter, double rate, int32_t adam,
                               FILE *file)
{
    struct session *session = &dump->session;
    const struct config *config = &dump->config;
    double tokens =
        (double)(config->batch_size * config->gradient_accumulation_steps * config->block_size);
    double loss = 0.0;
    session->scalars[SCALAR_LEARNING_RATE].f = (float)rate;
    session->scalars[SCALAR_LOSS_GRADIENT].f = (float)(1.0 / tokens);
    session->scalars[SCALAR_UNSCALE].f = 1.0f;
    session->scalars[SCALAR_ADAM_STEP].i = adam;
    session->scalars[SCALAR_STEP].i = (int32_t)iter;
    session->scalars[SCALAR_SEED_LO].u = (uint32_t)config->seed;
    session->scalars[SCALAR_SEED_HI].u = (uint32_t)((uint64_t)config->seed >> 32);
    for (int64_t left = (int64_t)tokens, k = 0; left > 0; k++) {
        const int64_t rows =
            min_i64(left, session->model->options.choice.micro_batch * config->block_size);
        TRY(feed_micro_step(&dump->feed, session, iter, (int32_t)k));
        TRY(session_scalars_download(session));
        if (fwrite(dump->feed.tensors.ids, sizeof(int32_t), (size_t)rows, file) != (size_t)rows ||
            fwrite(dump->feed.tensors.targets, sizeof(int32_t), (size_t)rows, file) != (size_t)rows)
            return GT_IO;
        loss += (double)session->scalars[SCALAR_LOSS_SUM].f;
        left -= rows;
    }
    TRY(exec_run(session->exec, session->model->update.program));
    TRY(session_scalars_download(session));
    printf("ok %.17g %.9g %.9g %" PRId32 "\n", loss / tokens,
           (double)session->scalars[SCALAR_GRAD_NORM].f, (double)session->scalars[SCALAR_CLIP].f,
           session->model->options.micro_steps);
    return GT_OK;
}

static enum gt_status describe(const struct dump *dump)
{
    const struct model *model = dump->session.model;
    for (int32_t i = 0; i < model->parameters.count; i++) {
        const struct parameter *parameter = &model->parameters.at[i];
        printf("%s %" PRId64 "\n", parameter->name,
               graph_tensor_elements(model->graph, parameter->tensor));
    }
    puts("ok");
    return GT_OK;
}

static enum gt_status obey(struct dump *dump, const char *line)
{
    char part[16], path[512];
    int64_t iter;
    double rate;
    int32_t adam;
    if (strcmp(line, "describe\n") == 0)
        return describe(dump);
    bool put = sscanf(line, "put %15s %511s", part, path) == 2;
    if (put || sscanf(line, "get %15s %511s", part, path) == 2) {
        TRY(part_copy(dump, part, put, path));
        puts("ok");
        return GT_OK;
    }
    if (sscanf(line, "step %" SCNd64 " %lf %" SCNd32 " %511s", &iter, &rate, &adam, path) != 4)
        return GT_USAGE;
    FILE *file = fopen(path, "wb");
    if (!file)
        return GT_IO;
    enum gt_status status = step_run(dump, iter, rate, adam, file);
    return fclose(file) == 0 ? status : GT_IO;
}

static enum gt_status dump_open(struct dump *dump, int argc, char **argv)
{
    struct run_state state;
    struct model_config model;
    struct model_options options;
    config_defaults(&dump->config, CONFIG_TRAIN);
    TRY(config_parse_args(&dump->config, argc, argv));
    TRY(mixture_parse(dump->config.dataset, &dump->mixture));
    TRY(restore_open(dump->mem, &dump->config, &dump->mixture, &dump->source, &state, &model));
    TRY(session_open(dump->mem, &dump->config, &dump->session));
    session_train_options(&dump->session, &(struct session_saved){0}, &model, &options);
    TRY(session_plan(&dump->session, &options));
    TRY(feed_open(dump->mem, &dump->config, &dump->mixture, model.vocab_size,
                  options.choice.micro_batch, &dump->feed));
    TRY(session_start(&dump->session));
    TRY(restore_weights(&dump->session, &dump->source, (uint64_t)dump->config.seed));
    return session_scalars_upload(&dump->session);
}

static enum gt_status dump_run(struct dump *dump, int argc, char **argv)
{
    char line[1024];
    enum gt_status status = dump_open(dump, argc, argv);
    while (status == GT_OK && fgets(line, (int)sizeof line, stdin)) {
        status = obey(dump, line);
        if (status != GT_OK)
            log_error("%s: %.*s", status_name(status), (int)strcspn(line, "\n"), line);
        fflush(stdout);
    }
    return status;
}
