/* gpt-report: makes a page, or TensorBoard's files, of runs' metrics.jsonl.
 *
 * This file reads the command line, opens the runs and chooses the exit status; src/report does the
 * work.
 */
#include "cli/program.h"
#include "report/report_events.h"
#include "report/report_page.h"
#include "report/run_record.h"

#define PROGRAM "gpt-report"
#define RUNS_MAX 16

enum format { FORMAT_HTML, FORMAT_TENSORBOARD };

struct arguments {
    bool help, version;
    enum format format;
    const char *output;
    char **runs; /* the first `count` of argv, moved there */
    int count;
    char output_room[FILE_PATH_MAX];
};

static void print_help(void)
{
    fputs("Usage: gpt-report [OPTION]... RUN...\n"
          "\n"
          "Shows what runs of gpt-train did, from the metrics.jsonl that each RUN's folder\n"
          "holds.  A RUN may also be such a file.\n"
          "\n"
          "Examples\n"
          "  gpt-report out                              write report.html\n"
          "  gpt-report --output=both.html out-a out-b   compare two runs\n"
          "  gpt-report --format=tensorboard out && tensorboard --logdir=tensorboard\n"
          "\n"
          "  --format=html         one page with curves, memory, settings and samples; it\n"
          "                        needs no network and no JavaScript (the default)\n"
          "  --format=tensorboard  a folder with every value for TensorBoard, W&B or aim\n"
          "  --output=PATH         file or folder to write (default report.html or\n"
          "                        tensorboard); an existing file is replaced\n"
          "  -h, --help, --version\n"
          "\n"
          "gpt-train --report keeps such a page in out_dir while it trains.\n"
          "Exit status: 0 done, 1 a failure while running, 2 a bad flag or RUN.\n",
          stdout);
}

static enum gt_status arguments_read(struct arguments *arguments, int argc, char **argv)
{
    static const char *const formats[] = {"html", "tensorboard", NULL};
    const struct flag known[] = {
        {.name = "help", .to = &arguments->help},
        {.name = "version", .to = &arguments->version},
        {.name = "format", .kind = FLAG_WORD, .to = &arguments->format, .words = formats},
        {"output", FLAG_TEXT, &arguments->output, .room = arguments->output_room,
         .expected = "a path"},
        {.name = NULL}};
    arguments->runs = argv;
    TRY(flags_read(PROGRAM, known, NULL, argc, argv, &arguments->count));
    if (arguments->help || arguments->version ||
        (arguments->count > 0 && arguments->count <= RUNS_MAX))
        return GT_OK;
    return FAIL(GT_USAGE, "name the folders of 1 to %d runs; " PROGRAM " --help shows how",
                RUNS_MAX);
}

static enum gt_status page_write(const struct arguments *arguments)
{
    static struct run_record records[RUNS_MAX];
    enum gt_status status = GT_OK;
    if (file_is_folder(arguments->output))
        return FAIL(GT_USAGE, "--output=%s: is a folder; name a file", arguments->output);
    for (int i = 0; status == GT_OK && i < arguments->count; i++) {
        status = run_record_open(&records[i], arguments->runs[i], arguments->runs[i]);
        THEN(status, run_record_update(&records[i]));
        if (status == GT_OK && records[i].last_iter < 0)
            status = FAIL(GT_DATA, "%s: holds no record of training", records[i].file.path);
    }
    THEN(status, report_page_write(records, (size_t)arguments->count, 0, arguments->output));
    if (status == GT_OK)
        log_result("%s", arguments->output);
    for (int i = 0; i < arguments->count; i++)
        run_record_close(&records[i]);
    return status;
}

/* TensorBoard shows each folder below --logdir as a run.  The number keeps runs of one name apart.
 */
static enum gt_status events_write(const struct arguments *arguments)
{
    for (int i = 0; i < arguments->count; i++) {
        const char *name = TEXT(256, "%d-%.200s", i + 1, file_name_of(arguments->runs[i]));
        const char *folder = FILE_IN(arguments->output, name);
        TRY(report_events_write(arguments->runs[i], folder));
        log_result("%s", folder);
    }
    return GT_OK;
}

int main(int argc, char **argv)
{
    struct arguments arguments = {.output = NULL};
    program_begin(PROGRAM);
    enum gt_status status = arguments_read(&arguments, argc, argv);
    const bool is_page = arguments.format == FORMAT_HTML;
    if (!arguments.output)
        arguments.output = is_page ? "report.html" : "tensorboard";
    if (status == GT_OK && !program_answers(PROGRAM, arguments.help, arguments.version, print_help))
        status = is_page ? page_write(&arguments) : events_write(&arguments);
    return program_exit_status(status);
}
