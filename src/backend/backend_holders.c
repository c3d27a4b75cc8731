/* Who else holds memory of a device, as one line.
 *
 * The backends find them (cpu: processes by resident set); here they are only written down, for refusals, --list-devices
 * and reports of failures.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "backend/backend.h"
#include "base/log.h"

char *backend_holders_text(char text[static BACKEND_HOLDERS_TEXT_MAX], const struct backend_info *info)
{
    size_t used = 0;
    assert(info->holder_count >= 0 && info->holder_count <= BACKEND_HOLDERS_MAX);
    text[0] = '\0';
    for (int32_t i = 0; i < info->holder_count; i++) {
        const struct backend_holder *holder = &info->holders[i];
        char bytes[24];
        int length = snprintf(text + used, BACKEND_HOLDERS_TEXT_MAX - used, "%s%s (%" PRId64 ") %s", i > 0 ? ", " : "",
                              holder->name, holder->pid, log_bytes(bytes, (double)holder->bytes));
        used += length > 0 ? (size_t)length : 0;
        assert(used < BACKEND_HOLDERS_TEXT_MAX);
    }
    return text;
}
