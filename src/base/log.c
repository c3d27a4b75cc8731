/* The log: formats one line, escapes it, counts it and passes it to the sink.
 *
 * A line is formatted into a buffer on the stack, then copied.  Every byte that belongs to a
 * control character (C0, DEL or C1) or is not valid UTF-8 is escaped.  A line longer than the
 * buffer ends in "...".  Nothing is allocated, so out-of-memory errors can always be logged.  The
 * default sink folds lines at a terminal's width, continues after a write error, and remembers one
 * on standard output.  SIGPIPE is not handled here; main() ignores that signal.
 */
#include "base/log.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/terminal.h"
#include "base/utf8.h"

#define HANGING_INDENT 4

enum { LOG_LINE_BYTES = 4096, LOG_LEVEL_COUNT = LOG_RESULT + 1 };

static void default_sink(void *context, enum log_level level, const char *line);

static struct {
    log_sink_fn *sink;
    void *context;
    const char *program;
    atomic_size_t counts[LOG_LEVEL_COUNT];
    atomic_int output_error; /* errno of a failed write to standard output */
} log_state = {.sink = default_sink};

void log_program_set(const char *name)
{
    log_state.program = name;
}

void log_sink_set(log_sink_fn *sink, void *context)
{
    log_state.sink = sink != NULL ? sink : default_sink;
    log_state.context = sink != NULL ? context : NULL;
}

int log_output_error(void)
{
    struct pollfd output = {STDOUT_FILENO, POLLOUT, 0};
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return atomic_load(&log_state.output_error);
    if (errno == 0) /* an earlier write failed; poll() still detects a pipe without a reader */
        errno = poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0 ? EPIPE : EIO;
    return errno;
}

size_t log_count(enum log_level level)
{
    assert((int)level >= 0 && (int)level < LOG_LEVEL_COUNT);
    return atomic_load(&log_state.counts[level]);
}

/* Returns true for results that scripts parse or that users paste, which stay one line on a
 * terminal too. */
static bool is_verbatim(enum log_level level, const char *line)
{
    static const char *const beginnings[] = {
        "iter ", "step ", "Try it: ", "Continue: ", "  gpt-train ", "    --"};
    bool found = false;
    for (size_t i = 0; i < sizeof beginnings / sizeof beginnings[0] && level == LOG_RESULT; i++)
        found = found || strncmp(line, beginnings[i], strlen(beginnings[i])) == 0;
    return found;
}

static void default_sink(void *context, enum log_level level, const char *line)
{
    (void)context;
    FILE *stream = level == LOG_RESULT ? stdout : stderr;
    terminal_fold(stream, line, is_verbatim(level, line) ? 0 : terminal_columns(stream),
                  HANGING_INDENT);
    errno = EIO;
    if ((fflush(stream) != 0 || ferror(stream)) && stream == stdout)
        atomic_store(&log_state.output_error, errno);
    clearerr(stream); /* the next line may find room */
}

size_t log_character_length(const char *text)
{
    uint32_t code_point;
    const int length = utf8_decode((const unsigned char *)text, strnlen(text, 4), &code_point);
    const bool is_control =
        length > 0 && (code_point < 0x20 || (code_point >= 0x7f && code_point < 0xa0));
    return length > 0 && !is_control ? (size_t)length : 0;
}

/* Writes the escaped form of `byte` to `unit`; returns its length. */
static size_t escape_byte(unsigned char byte, char unit[static 5])
{
    if (byte == '\n' || byte == '\r' || byte == '\t')
        return (size_t)snprintf(unit, 5, "\\%c", byte == '\n' ? 'n' : byte == '\r' ? 'r' : 't');
    return (size_t)snprintf(unit, 5, "\\x%02x", byte);
}

/* Copies `raw` to `line`, escaped.  `cut` means that `raw` is truncated. */
static void line_escape(char line[static LOG_LINE_BYTES], const char *raw, bool cut)
{
    const size_t limit = LOG_LINE_BYTES - sizeof "...";
    size_t used = 0;
    const char *s = raw;
    while (*s != '\0') {
        char unit[5];
        size_t taken = log_character_length(s);
        size_t given = taken;
        if (taken != 0) {
            memcpy(unit, s, taken);
        } else {
            taken = 1;
            given = escape_byte((unsigned char)*s, unit);
        }
        if (used + given > limit) {
            cut = true;
            break;
        }
        memcpy(line + used, unit, given);
        used += given;
        s += taken;
    }
    memcpy(line + used, cut ? "..." : "", cut ? sizeof "..." : 1);
}

static void emit(enum log_level level, const char *format, va_list args) LOG_PRINTF(2, 0);

static void emit(enum log_level level, const char *format, va_list args)
{
    static const char *const words[LOG_LEVEL_COUNT] = {"error", "warning", "", ""};
    char raw[LOG_LINE_BYTES];
    raw[0] = '\0';
    int prefix = 0;
    const int id_length = format[0] == '\1' ? (int)strcspn(format, "\2") - 1 : 0;
    if (level != LOG_RESULT) {
        const char *program = log_state.program;
        prefix = snprintf(raw, 256, "%s%s%s%s%.*s%s%s", program != NULL ? program : "",
                          program != NULL ? ": " : "", words[level], id_length > 0 ? "[" : "",
                          id_length, format + (id_length > 0), id_length > 0 ? "]" : "",
                          words[level][0] != '\0' ? ": " : "");
        prefix = prefix < 0 ? 0 : prefix > 255 ? 255 : prefix;
    }
    format += id_length > 0 ? id_length + 2 : 0;
    const size_t room = sizeof raw - (size_t)prefix;
    int length = vsnprintf(raw + prefix, room, format, args);
    if (length < 0)
        (void)snprintf(raw + prefix, room, "(this line could not be formatted: %s)", format);
    /* A character that was cut in half is in the last bytes, which the dots replace in any case. */
    bool cut = length >= 0 && (size_t)length >= room;
    char line[LOG_LINE_BYTES];
    line_escape(line, raw, cut);
    atomic_fetch_add(&log_state.counts[level], 1);
    log_state.sink(log_state.context, level, line);
}

#define LOG_FUNCTION(name, level)      \
    void name(const char *format, ...) \
    {                                  \
        va_list args;                  \
        va_start(args, format);        \
        emit(level, format, args);     \
        va_end(args);                  \
    }
LOG_FUNCTION(log_error, LOG_ERROR)
LOG_FUNCTION(log_warning, LOG_WARNING)
LOG_FUNCTION(log_note, LOG_NOTE)
LOG_FUNCTION(log_result, LOG_RESULT)

char *log_text(char *text, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, size, format, args);
    va_end(args);
    return text;
}

double log_number(double value)
{
    return isnan(value) ? copysign(value, 1.0) : value;
}

char *log_bytes(char text[24], double bytes)
{
    static const struct {
        const char *name;
        int decimals;
        double carry; /* from this many units on, the rounded number would read 1024 */
    } units[] = {
        {"B", 0, 1023.5},     {"KiB", 1, 1023.95},  {"MiB", 1, 1023.95}, {"GiB", 2, 1023.995},
        {"TiB", 2, 1023.995}, {"PiB", 2, 1023.995}, {"EiB", 2, 1e9},
    };
    const size_t count = sizeof units / sizeof units[0];
    size_t i = 0;
    double value = bytes;
    while (i + 1 < count && fabs(value) >= units[i].carry) {
        value /= 1024.0;
        i++;
    }
    if (fabs(value) < 1e9)
        (void)snprintf(text, 24, "%.*f %s", units[i].decimals, value, units[i].name);
    else
        (void)snprintf(text, 24, "%.4g %s", value, units[i].name);
    return text;
}
