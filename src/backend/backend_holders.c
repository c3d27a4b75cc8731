/* The other processes that use a device's memory: the largest few, their names, and a line of text
 * about them.
 *
 * The backends find them (cpu: by resident set size; cards: from the driver).  This file sorts,
 * names and formats them for out-of-memory errors, --list-devices and failure reports.
 */
#include "backend/backend_holders.h"

#include <dirent.h>

#define PATH_BYTES_MAX 128
#define PROCESSES_MAX 65536 /* limit on entries of /proc */

void backend_holders_insert(struct backend_holders *holders, int64_t pid, uint64_t bytes)
{
    int32_t at = holders->count;
    for (int32_t i = 0; i < holders->count; i++)
        if (holders->list[i].pid == pid)
            return;
    while (at > 0 && holders->list[at - 1].bytes < bytes)
        at--;
    if (at == BACKEND_HOLDERS_MAX)
        return;
    holders->count += holders->count < BACKEND_HOLDERS_MAX;
    for (int32_t i = holders->count - 1; i > at; i--)
        holders->list[i] = holders->list[i - 1];
    holders->list[at] = (struct backend_holder){.pid = pid, .bytes = bytes};
}

void backend_holder_name(struct backend_holder *holder, const char *name)
{
    snprintf(holder->name, sizeof holder->name, "%.*s", (int)sizeof holder->name - 1,
             name[0] != '\0' ? name : "?");
    for (char *at = holder->name; *at != '\0'; at++)
        if (*at < ' ' || *at > '~')
            *at = '?';
}

/* Reads the names from PROC/PID/comm. */
static void names_read(struct backend_holders *holders, const char *proc)
{
    for (int32_t i = 0; i < holders->count; i++) {
        char path[PATH_BYTES_MAX], name[BACKEND_HOLDER_NAME_MAX] = "";
        snprintf(path, sizeof path, "%s/%" PRId64 "/comm", proc, holders->list[i].pid);
        FILE *file = fopen(path, "re");
        if (file == NULL || fgets(name, sizeof name, file) == NULL)
            name[0] = '\0';
        if (file != NULL)
            fclose(file);
        name[strcspn(name, "\n")] = '\0';
        backend_holder_name(&holders->list[i], name);
    }
}

void backend_holders_scan(struct backend_holders *out, const char *proc, int64_t own_pid,
                          backend_usage_fn *usage, const void *context)
{
    DIR *folder = opendir(proc);
    struct dirent *entry;
    out->count = 0;
    for (int32_t seen = 0;
         folder != NULL && seen < PROCESSES_MAX && (entry = readdir(folder)) != NULL; seen++) {
        char *end;
        const int64_t pid = strtoll(entry->d_name, &end, 10);
        const uint64_t bytes =
            pid > 0 && *end == '\0' && pid != own_pid ? usage(context, proc, pid) : 0;
        if (bytes > 0)
            backend_holders_insert(out, pid, bytes);
    }
    if (folder != NULL)
        closedir(folder);
    names_read(out, proc);
}

char *backend_holders_text(char text[static BACKEND_HOLDERS_TEXT_MAX],
                           const struct backend_holders *holders)
{
    size_t used = 0;
    assert(holders->count >= 0 && holders->count <= BACKEND_HOLDERS_MAX);
    text[0] = '\0';
    for (int32_t i = 0; i < holders->count; i++) {
        const struct backend_holder *holder = &holders->list[i];
        int length =
            snprintf(text + used, BACKEND_HOLDERS_TEXT_MAX - used, "%s%s (%" PRId64 ") %s",
                     i > 0 ? ", " : "", holder->name, holder->pid, LOG_BYTES(holder->bytes));
        used += length > 0 ? (size_t)length : 0;
        assert(used < BACKEND_HOLDERS_TEXT_MAX);
    }
    return text;
}
