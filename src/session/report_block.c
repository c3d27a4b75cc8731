/* The report of a failure.
 *
 * Everything comes from memory: the device, which may be the cause of the failure, is not queried,
 * and nothing is allocated.  Only keys that this invocation set are shown.  The error itself is in
 * the lines above the block.
 */
#include "session/report_block.h"

#include <config.h>
#include <sys/utsname.h>

#include "backend/backend_holders.h"
#include "base/system_memory.h"
#include "config/config_key.h"
#include "plan/plan_alternatives.h"
#include "plan/plan_report.h"

#define KEYS_BYTES_MAX 4096
#define INDENT 10
#define LINE(name, format, ...) \
    plan_line_print(stderr, INDENT, "%-*s" format, INDENT, name, __VA_ARGS__)

static void device_print(const struct session *session)
{
    const struct backend_info *info = &session->device.info;
    char holders[BACKEND_HOLDERS_TEXT_MAX];
    if (!session->device.backend) {
        LINE("backend", "%s", "none was opened");
        return;
    }
    LINE("backend", "%s: %s", session->device.backend->ops->name, info->device);
    LINE("libraries", "%s", info->detail);
    if (backend_holders_read(holders, session->device.backend)[0] != '\0')
        LINE("others", "%s", holders);
}

static void memory_print(const struct session *session)
{
    uint64_t bytes = session ? session->device.machine_budget_bytes : 0;
    if (session && session->device.backend)
        LINE("memory", "%s in all, %s free at the start, budget %s",
             LOG_BYTES(session->device.info.total_bytes),
             LOG_BYTES(session->device.info.free_bytes),
             bytes > 0 && bytes < UINT64_MAX ? LOG_BYTES(bytes) : "not known");
    LINE("process", "%s resident, %s at most", LOG_BYTES(process_rss_bytes()),
         LOG_BYTES(process_rss_bytes_max()));
}

static void plan_print(const struct session *session)
{
    char options[SEARCH_OPTIONS_TEXT_MAX];
    const struct search_result *search = &session->search.result;
    if (search->found.arena_bytes == 0 && !session->plan) {
        LINE("plan", "%s", "none was made");
        return;
    }
    search_options_text(options, &search->found.options);
    if (session->plan)
        LINE("plan", "%s (%" PRIu64 " B), peak in %s; %s", LOG_BYTES(session->plan->arena_bytes),
             session->plan->arena_bytes,
             session->plan->peak_program >= 0
                 ? program_kind_name(
                       session->plan->graph->programs[session->plan->peak_program].kind)
                 : "no program",
             options);
    else
        LINE("plan", "none fits; the smallest needs %s (%" PRIu64 " B): %s",
             LOG_BYTES(search->found.arena_bytes), search->found.arena_bytes, options);
}

/* Prints the keys that were set, as flags. */
static void keys_print(const struct config *config)
{
    char text[KEYS_BYTES_MAX] = "";
    for (int key = 0; key < CONFIG_KEY_COUNT; key++) {
        const size_t used = strlen(text);
        if (config_key_was_set(config, (enum config_key)key))
            snprintf(text + used, sizeof text - used, " --%s=%s",
                     config_key_info_get((enum config_key)key)->name,
                     CONFIG_KEY_TEXT(config, (enum config_key)key));
    }
    LINE("keys", "%s", text[0] != '\0' ? text + 1 : "none");
}

void report_block_print(const struct config *config, const struct session *session,
                        enum gt_status status)
{
    struct utsname system;
    if (status != GT_FAILURE && status != GT_NO_MEMORY && status != GT_DEVICE)
        return;
    fputs("---- gpt-train report, to be pasted where you ask for help ----\n", stderr);
    LINE("version", "gpt-train %s", PACKAGE_VERSION);
    LINE("status", "%s, exit status %d", status_name(status), status_exit_code(status));
    if (uname(&system) == 0)
        LINE("system", "%s %s %s", system.sysname, system.release, system.machine);
    if (session)
        device_print(session);
    memory_print(session);
    keys_print(config);
    if (session)
        plan_print(session);
    fputs("---- end of report ----\n", stderr);
    fflush(stderr);
}
