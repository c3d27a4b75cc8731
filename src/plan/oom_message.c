/* Reads PyTorch's out-of-memory messages.
 *
 * Finds the last marker of a message.  The text that follows, up to a blank line, is copied into a small buffer with
 * all white space as single blanks, so that wrapped lines read like unwrapped ones.  There each amount is found by the
 * words next to it.  The traceback is the text before the marker, from its last "Traceback" line on.  Nothing here
 * knows a model.
 */
#include "plan/oom_message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_BYTES 4096
#define TRACEBACK_BYTES_MAX ((size_t)64 << 10)
#define FRAMES_MAX 4096
#define NUMBER_BYTES_MAX 24
#define LINE_BYTES 8192
#define TRACEBACK "Traceback (most recent call last)"
/* Plausible sizes: devices from 64 MiB, devices and tensors up to 1 PiB. */
#define TOTAL_MIN 67108864.0
#define AMOUNT_MAX 1125899906842624.0

struct marker {
    const char *text;
    enum oom_allocator allocator;
};

/* Beginnings of messages.  Forms without numbers come last; they are markers all the same. */
static const struct marker markers[] = {
    {"CUDA out of memory. Tried to allocate ", OOM_CUDA},
    {"HIP out of memory. Tried to allocate ", OOM_HIP},
    {"XPU out of memory. Tried to allocate ", OOM_XPU},
    {"XPU out of memory, please use `empty_cache`", OOM_XPU},
    {"MPS backend out of memory", OOM_MPS},
    {"DefaultCPUAllocator: can't allocate memory: you tried to allocate ", OOM_CPU},
    {"DefaultCPUAllocator: not enough memory: you tried to allocate ", OOM_CPU},
    {"CUDA error: out of memory", OOM_CUDA},
    {"HIP error: out of memory", OOM_HIP},
    {"cuda runtime error (2) : out of memory", OOM_CUDA},
    {"CUBLAS_STATUS_ALLOC_FAILED", OOM_CUDA},
};
#define MARKERS (sizeof markers / sizeof markers[0])

static const struct oom_amount unknown = {.known = false};

static const struct {
    const char *name;
    const char *backend; /* that runs on its devices here; NULL: they are no cards */
} allocators[] = {[OOM_CUDA] = {"CUDA", "cuda"},
                  [OOM_HIP] = {"HIP", "opencl"},
                  [OOM_XPU] = {"XPU", "opencl"},
                  [OOM_MPS] = {"MPS", NULL},
                  [OOM_CPU] = {"CPU", NULL}};

const char *oom_allocator_name(enum oom_allocator allocator)
{
    return allocators[allocator].name;
}

const char *oom_allocator_backend(enum oom_allocator allocator)
{
    return allocators[allocator].backend;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\0';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Returns the character as it may be printed: white space as a blank, and what is not printable ASCII as '?'. */
static char shown(char c)
{
    if (is_blank(c))
        return ' ';
    return c > ' ' && c < 0x7f ? c : '?';
}

/* Returns true when `text`, of which `left` bytes remain, begins with `word`.  A blank in `word` matches any white
 * space, as a wrapped line has it. */
static bool begins_with(const char *text, size_t left, const char *word)
{
    size_t at = 0;
    for (; *word != '\0'; word++) {
        if (at >= left)
            return false;
        if (*word == ' ') {
            if (!is_blank(text[at]))
                return false;
            while (at < left && is_blank(text[at]))
                at++;
        } else if (text[at++] != *word) {
            return false;
        }
    }
    return true;
}

/* Returns the beginning of the last message, or NULL. */
static const char *marker_find(const char *text, size_t count, struct oom_message *out)
{
    const char *found = NULL;
    for (size_t at = 0; at < count; at++) {
        for (size_t m = 0; m < MARKERS; m++) {
            if (text[at] != markers[m].text[0] || !begins_with(text + at, count - at, markers[m].text))
                continue;
            found = text + at;
            out->allocator = markers[m].allocator;
            out->count += out->count < INT32_MAX;
            break;
        }
    }
    return found;
}

/* Copies the message up to a blank line, with white space as single blanks. */
static void window_copy(char out[static WINDOW_BYTES], const char *text, size_t count)
{
    size_t used = 0, newlines = 0;
    for (size_t at = 0; at < count && newlines < 2 && used + 1 < WINDOW_BYTES; at++) {
        newlines = text[at] == '\n' ? newlines + 1 : is_blank(text[at]) ? newlines : 0;
        if (!is_blank(text[at]) || (used > 0 && out[used - 1] != ' '))
            out[used++] = shown(text[at]);
    }
    out[used] = '\0';
}

/* Returns the bytes per unit: PyTorch counts in powers of 1,024 under either name.  Returns 0 for an unknown unit. */
static double unit_bytes(const char *text)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = {{"bytes", 1.0},           {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0},
                 {"TiB", 1099511627776.0}, {"KB", 1024.0},  {"MB", 1048576.0},  {"GB", 1073741824.0},
                 {"TB", 1099511627776.0},  {"B", 1.0}};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strncmp(text, units[i].name, strlen(units[i].name)) == 0)
            return units[i].bytes;
    }
    return 0.0;
}

/* Reads the amount at the beginning of `text`: digits, perhaps a point and digits, a blank, a unit. */
static struct oom_amount amount_at(const char *text)
{
    double value = 0.0, step = 1.0;
    int length = 0;
    bool point = false;
    while (*text == ' ')
        text++;
    if (!is_digit(*text))
        return unknown;
    for (; (is_digit(*text) || (*text == '.' && !point)) && length < NUMBER_BYTES_MAX; text++, length++) {
        if (*text == '.') {
            point = true;
            continue;
        }
        value = 10.0 * value + (*text - '0');
        step = point ? step / 10.0 : step;
    }
    while (*text == ' ')
        text++;
    double unit = unit_bytes(text);
    if (!(unit > 0.0))
        return unknown;
    return (struct oom_amount){true, value * step * unit, point ? 0.5 * step * unit : 0.0};
}

static struct oom_amount amount_after(const char *text, const char *words)
{
    const char *found = strstr(text, words);
    return found ? amount_at(found + strlen(words)) : unknown;
}

/* Reads the amount before `words`, which begin with a blank: goes back over the unit, the blank and the number. */
static struct oom_amount amount_before(const char *text, const char *words)
{
    const char *found = strstr(text, words);
    if (!found)
        return unknown;
    const char *at = found;
    while (at > text && at[-1] != ' ')
        at--;
    while (at > text && at[-1] == ' ')
        at--;
    while (at > text && (is_digit(at[-1]) || at[-1] == '.'))
        at--;
    return amount_at(at);
}

static struct oom_amount first_known(struct oom_amount first, struct oom_amount second)
{
    return first.known ? first : second;
}

static struct oom_amount amount_difference(struct oom_amount from, struct oom_amount less)
{
    if (!from.known || !less.known)
        return unknown;
    double bytes = from.bytes - less.bytes;
    return (struct oom_amount){true, bytes > 0.0 ? bytes : 0.0, from.slack_bytes + less.slack_bytes};
}

static struct oom_amount amount_sum(struct oom_amount a, struct oom_amount b)
{
    if (!a.known || !b.known)
        return a.known ? a : b;
    return (struct oom_amount){true, a.bytes + b.bytes, a.slack_bytes + b.slack_bytes};
}

/* Reads any number of "Process 1234 has 1.97 GiB memory in use". */
static void processes_read(const char *text, struct oom_message *out)
{
    static const char word[] = "Process ";
    const char *at = strstr(text, word);
    for (; at && out->others_count < OOM_PROCESSES_MAX; at = strstr(at + 1, word)) {
        const char *number = at + sizeof word - 1;
        char *end;
        if (!is_digit(*number))
            continue;
        long long pid = strtoll(number, &end, 10);
        struct oom_amount held = amount_after(end, " has ");
        if (held.known && strncmp(end, " has ", 5) == 0)
            out->others[out->others_count++] = (struct oom_process){pid, held};
    }
}

/* Finds this process among the others.  Inside a container the driver's process numbers differ from the process's own,
 * so PyTorch lists itself among the others: it is the one that uses at least what PyTorch reports as reserved. */
static void own_process_find(struct oom_message *out)
{
    struct oom_amount reserved = amount_sum(out->allocated, out->unallocated);
    if (out->process.known || !out->allocated.known || out->allocated.bytes <= 0.0)
        return;
    for (int32_t i = 0; i < out->others_count; i++) {
        struct oom_amount held = out->others[i].held;
        if (held.bytes + held.slack_bytes + reserved.slack_bytes < reserved.bytes)
            continue;
        out->process = held;
        out->own_by_pid = true;
        out->others_count--;
        for (int32_t k = i; k < out->others_count; k++)
            out->others[k] = out->others[k + 1];
        return;
    }
}

static int32_t device_read(const char *text)
{
    const char *at = strstr(text, "GPU ");
    return at && is_digit(at[4]) ? (int32_t)strtol(at + 4, NULL, 10) : -1;
}

static void amounts_read(const char *text, struct oom_message *out)
{
    out->device = device_read(text);
    out->tried = first_known(amount_after(text, "Tried to allocate "), amount_after(text, "you tried to allocate "));
    out->total = first_known(amount_after(text, "total capacity of "), amount_after(text, "total capacty of "));
    out->total = first_known(out->total, amount_before(text, " total capacity"));
    out->free = first_known(amount_after(text, "of which "), amount_before(text, " free;"));
    out->process = amount_after(text, "this process has ");
    out->allocated =
        first_known(amount_after(text, "Of the allocated memory "), amount_before(text, " already allocated"));
    out->pools = amount_before(text, " allocated in private pools");
    out->allowed = first_known(amount_before(text, " allowed;"), amount_after(text, "max allowed: "));
    out->unallocated = amount_before(text, " is reserved by PyTorch but unallocated");
    struct oom_amount reserved = amount_before(text, " reserved in total by PyTorch");
    out->unallocated = first_known(out->unallocated, amount_difference(reserved, out->allocated));
    /* Before 1.4 the amount called cached is the memory that no tensor uses. */
    out->unallocated = first_known(out->unallocated, amount_before(text, " cached)"));
    if (out->allocator == OOM_MPS) {
        out->allocated = amount_after(text, "MPS allocated: ");
        out->elsewhere = amount_after(text, "other allocations: ");
    }
    processes_read(text, out);
    own_process_find(out);
}

/* ---- the traceback ---- */

/* Copies the next line of *at .. end without blanks around it.  Returns false at the end. */
static bool line_next(const char **at, const char *end, char out[static LINE_BYTES])
{
    size_t used = 0;
    if (*at >= end)
        return false;
    for (; *at < end && **at != '\n'; ++*at) {
        if ((used > 0 || !is_blank(**at)) && used + 1 < LINE_BYTES)
            out[used++] = shown(**at);
    }
    *at += *at < end;
    while (used > 0 && out[used - 1] == ' ')
        used--;
    out[used] = '\0';
    return true;
}

static bool contains_any(const char *line, const char *const *words)
{
    while (*words && !strstr(line, *words))
        words++;
    return *words != NULL;
}

/* Reads `File "/x/model.py", line 187, in forward`. */
static bool frame_read(const char *line, struct oom_frame *out)
{
    static const char head[] = "File \"", middle[] = "\", line ", in[] = ", in ";
    const char *file = line + sizeof head - 1, *end = strchr(line, '\0'), *at = file;
    if (strncmp(line, head, sizeof head - 1) != 0)
        return false;
    for (; at < end && *at != '"'; at++)
        file = *at == '/' || *at == '\\' ? at + 1 : file;
    if (strncmp(at, middle, sizeof middle - 1) != 0)
        return false;
    *out = (struct oom_frame){.line = 0};
    snprintf(out->file, sizeof out->file, "%.*s", (int)(at - file), file);
    for (at += sizeof middle - 1; is_digit(*at) && out->line < INT32_MAX / 10 - 1; at++)
        out->line = 10 * out->line + (*at - '0');
    if (strncmp(at, in, sizeof in - 1) == 0)
        snprintf(out->function, sizeof out->function, "%s", at + sizeof in - 1);
    return true;
}

/* Updates the stage from a frame.  Frames come from the outside in, and an inner one wins.  Exceptions: a forward frame
 * does not replace the backward stage, and moving the model counts only while the stage is unknown. */
static void stage_read(const char *line, struct oom_message *out)
{
    static const char *const setup[] = {".to(device", ".cuda()", ", in _apply", ", in convert", NULL};
    static const char *const forward[] = {", in forward", "model(X, Y)", "model(X,Y)", "model(x, y)", NULL};
    static const char *const backward[] = {".backward()", "run_backward", ", in backward", NULL};
    static const char *const update[] = {"optimizer.step", "scaler.step", "_multi_tensor_adam", "_single_tensor_adam",
                                         "_init_group",    ", in adamw",  ", in adam",          NULL};
    static const char *const evaluate[] = {"estimate_loss", ", in evaluate", ", in validate", NULL};
    if (contains_any(line, evaluate))
        out->evaluation = true;
    if (contains_any(line, backward))
        out->stage = OOM_STAGE_BACKWARD;
    else if (contains_any(line, update))
        out->stage = OOM_STAGE_OPTIMIZER;
    else if (contains_any(line, forward) && out->stage != OOM_STAGE_BACKWARD)
        out->stage = OOM_STAGE_FORWARD;
    else if (contains_any(line, setup) && out->stage == OOM_STAGE_UNKNOWN)
        out->stage = OOM_STAGE_SETUP;
}

/* Updates the site from a frame; an inner frame names the place better than an outer one. */
static void site_read(const char *line, struct oom_message *out)
{
    static const char *const words[][6] = {
        [OOM_SITE_LOGITS] = {"lm_head(", NULL},
        [OOM_SITE_LOSS] = {"cross_entropy", "log_softmax", "nll_loss", NULL},
        [OOM_SITE_ATTENTION] = {"att =", "att.", "scaled_dot_product", "c_attn(", "self.attn(", NULL},
        [OOM_SITE_MLP] = {"gelu", "c_fc(", "self.mlp(", NULL},
        [OOM_SITE_EMBEDDING] = {"transformer.wte", "transformer.wpe", NULL},
    };
    for (int site = OOM_SITE_LOGITS; site <= OOM_SITE_EMBEDDING; site++) {
        if (contains_any(line, words[site]))
            out->site = (enum oom_site)site;
    }
}

static bool is_library(const char *line)
{
    static const char *const words[] = {"site-packages", "dist-packages", "/torch/", "\\torch\\", "<frozen", NULL};
    return contains_any(line, words);
}

/* Reads the frames between the last "Traceback" line and the message. */
static void traceback_read(const char *begin, const char *end, struct oom_message *out)
{
    char line[LINE_BYTES];
    struct oom_frame frame;
    bool own = false, inside = false;
    const char *at = begin;
    for (int32_t lines = 0; lines < FRAMES_MAX && line_next(&at, end, line); lines++) {
        if (strncmp(line, TRACEBACK, sizeof TRACEBACK - 1) == 0) {
            out->stage = OOM_STAGE_UNKNOWN;
            out->site = OOM_SITE_UNKNOWN;
            out->evaluation = own = false;
            out->frame = (struct oom_frame){.line = 0};
            inside = true;
            continue;
        }
        if (!inside)
            continue;
        bool head = frame_read(line, &frame);
        if (head)
            own = !is_library(line);
        if (head && own)
            out->frame = frame;
        else if (own && out->frame.source[0] == '\0')
            snprintf(out->frame.source, sizeof out->frame.source, "%.*s", OOM_SOURCE_MAX - 1, line);
        stage_read(line, out);
        site_read(line, out);
    }
    if (out->stage != OOM_STAGE_FORWARD)
        out->site = OOM_SITE_UNKNOWN;
}

bool oom_message_parse(const char *text, size_t count, struct oom_message *out)
{
    struct oom_message message = {.device = -1};
    char window[WINDOW_BYTES];
    const char *found = marker_find(text, count, &message);
    if (!found)
        return false;
    size_t before = (size_t)(found - text);
    window_copy(window, found, count - before);
    amounts_read(window, &message);
    traceback_read(before > TRACEBACK_BYTES_MAX ? found - TRACEBACK_BYTES_MAX : text, found, &message);
    *out = message;
    return true;
}

/* ---- sums ---- */

struct oom_amount oom_others_bytes(const struct oom_message *message)
{
    struct oom_amount sum = message->elsewhere;
    for (int32_t i = 0; i < message->others_count; i++)
        sum = amount_sum(sum, message->others[i].held);
    return sum;
}

struct oom_amount oom_context_bytes(const struct oom_message *message)
{
    if (!message->process.known || !message->allocated.known || !message->unallocated.known)
        return unknown;
    /* A driver that spills into the host's memory counts that too; another one reports 17179869184.00 GiB for
     * "unknown". */
    bool spilled = message->total.known && message->process.bytes > message->total.bytes + message->total.slack_bytes;
    if (spilled || message->process.bytes > AMOUNT_MAX)
        return unknown;
    return amount_difference(message->process, amount_sum(message->allocated, message->unallocated));
}

struct oom_amount oom_process_most(const struct oom_message *message)
{
    struct oom_amount others = oom_others_bytes(message);
    if (!message->total.known || !others.known)
        return message->total;
    return amount_difference(message->total, others);
}

static struct oom_amount amount_least(struct oom_amount a, struct oom_amount b)
{
    return b.known && (!a.known || b.bytes < a.bytes) ? b : a;
}

struct oom_amount oom_budget_bytes(const struct oom_message *message)
{
    struct oom_amount context = oom_context_bytes(message), most = oom_process_most(message);
    struct oom_amount budget = unknown;
    if (message->allocator == OOM_MPS)
        return amount_difference(message->allowed, message->elsewhere);
    if (most.known && context.known)
        most = amount_difference(most, context);
    if (message->free.known && message->allocated.known)
        budget = amount_least(amount_sum(message->free, amount_sum(message->allocated, message->unallocated)), most);
    else if (context.known)
        budget = most;
    return budget.known ? amount_least(budget, message->allowed) : budget;
}

const char *oom_impossible(const struct oom_message *message)
{
    if (message->tried.known && !(message->tried.bytes >= 1.0 && message->tried.bytes <= AMOUNT_MAX))
        return "no tensor has the size that could not be allocated";
    if (message->total.known && !(message->total.bytes >= TOTAL_MIN && message->total.bytes <= AMOUNT_MAX))
        return "no device has that total capacity";
    if (message->total.known && message->free.known &&
        message->free.bytes > message->total.bytes + message->total.slack_bytes + message->free.slack_bytes)
        return "more is free than the total capacity";
    if (message->total.known && oom_others_bytes(message).bytes > message->total.bytes + message->total.slack_bytes)
        return "other processes hold more than the total capacity";
    if (message->free.known && !(message->free.bytes <= AMOUNT_MAX))
        return "no device has that much free";
    return NULL;
}

uint64_t oom_segment_bytes(enum oom_allocator allocator, uint64_t bytes)
{
    if (allocator == OOM_CPU || allocator == OOM_MPS)
        return bytes;
    if (bytes <= (uint64_t)1 << 20)
        return OOM_SEGMENT_SMALL_BYTES;
    if (bytes < (uint64_t)10 << 20)
        return OOM_SEGMENT_MIDDLE_BYTES;
    return (bytes + OOM_SEGMENT_SMALL_BYTES - 1) / OOM_SEGMENT_SMALL_BYTES * OOM_SEGMENT_SMALL_BYTES;
}
