/* The report of a failure.
 *
 * Everything comes from memory: nothing is asked of the device, which may be the cause of the failure, and nothing is
 * allocated.  Only keys that this invocation set are shown.  The error itself is in the lines above the block.
 */
#include "train/run.h"

#include <config.h>
#include <stdarg.h>
#include <sys/utsname.h>

#include "base/system_memory.h"
#include "config/config_key.h"

#define LINE_BYTES_MAX 512
#define KEYS_WIDTH 80
#define KEYS_INDENT 10

/* Prints one line, with control characters replaced. */
static void line_print(const char *name, const char *format, ...) LOG_PRINTF(2, 3);
static void line_print(const char *name, const char *format, ...)
{
    char line[LINE_BYTES_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    for (char *at = line; *at != '\0'; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = '?';
    fprintf(stderr, "%-*s%s\n", KEYS_INDENT, name, line);
}

static void device_print(const struct session *session)
{
    const struct backend_info *info = &session->device.info;
    char holders[BACKEND_HOLDERS_TEXT_MAX];
    if (!session->device.backend) {
        line_print("backend", "none was opened");
        return;
    }
    line_print("backend", "%s: %s", session->device.backend->ops->name, info->device);
    line_print("libraries", "%s", info->detail);
    if (backend_holders_read(holders, session->device.backend)[0] != '\0')
        line_print("others", "%s", holders);
}

static void memory_print(const struct session *session)
{
    uint64_t bytes = session ? session->device.budget_bytes : 0;
    if (session && session->device.backend)
        line_print("memory", "%s in all, %s free at the start, budget %s", LOG_BYTES(session->device.info.total_bytes),
                   LOG_BYTES(session->device.info.free_bytes),
                   bytes > 0 && bytes < UINT64_MAX ? LOG_BYTES(bytes) : "not known");
    line_print("process", "%s resident, %s at most", LOG_BYTES(process_rss_bytes()),
               LOG_BYTES(process_rss_bytes_max()));
}

static void plan_print(const struct session *session)
{
    char options[SEARCH_OPTIONS_TEXT_MAX];
    const struct search_result *search = &session->search.result;
    if (search->arena_bytes == 0 && !session->plan) {
        line_print("plan", "none was made");
        return;
    }
    search_options_text(options, &search->options);
    if (session->plan)
        line_print("plan", "%s (%" PRIu64 " B), peak in %s; %s", LOG_BYTES(session->plan->arena_bytes),
                   session->plan->arena_bytes,
                   session->plan->peak_program >= 0 ? session->plan->graph->programs[session->plan->peak_program].name
                                                    : "no program",
                   options);
    else
        line_print("plan", "none fits; the smallest needs %s%s (%" PRIu64 " B): %s",
                   search->arena_least ? "at least " : "", LOG_BYTES(search->arena_bytes), search->arena_bytes,
                   options);
}

/* Prints the keys that were set, as flags, in lines of KEYS_WIDTH. */
static void keys_print(const struct config *config)
{
    int column = fprintf(stderr, "%-*s", KEYS_INDENT, "keys");
    bool any = false;
    for (int key = 0; key < CONFIG_KEY_COUNT; key++) {
        char value[CONFIG_VALUE_TEXT_MAX];
        const char *name = config_key_info_get((enum config_key)key)->name;
        if (!config_key_was_set(config, (enum config_key)key))
            continue;
        config_key_text(value, config, (enum config_key)key);
        int length = (int)(strlen(name) + strlen(value)) + 4;
        if (any && column + length > KEYS_WIDTH)
            column = fprintf(stderr, "\n%-*s", KEYS_INDENT - 1, "") - 1;
        column += fprintf(stderr, any ? " --%s=%s" : "--%s=%s", name, value);
        any = true;
    }
    fprintf(stderr, "%s\n", any ? "" : "none");
}

void report_block_print(const struct config *config, const struct session *session, enum gt_status status)
{
    struct utsname system;
    int exit_code = status_exit_code(status);
    if (status == GT_STOPPED || (exit_code != 1 && exit_code != 3))
        return;
    if ((status == GT_NO_FIT || status == GT_IO) && config->plan != CONFIG_PLAN_OFF)
        return; /* the plan was the answer, or its reader is gone */
    fprintf(stderr, "%s\n", REPORT_BLOCK_BEGIN);
    line_print("version", "gpt-train %s", PACKAGE_VERSION);
    line_print("status", "%s, exit status %d", status_name(status), exit_code);
    if (uname(&system) == 0)
        line_print("system", "%s %s %s", system.sysname, system.release, system.machine);
    if (session)
        device_print(session);
    memory_print(session);
    keys_print(config);
    if (session)
        plan_print(session);
    fprintf(stderr, "%s\n", REPORT_BLOCK_END);
    fflush(stderr);
}
