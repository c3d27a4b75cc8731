/* Reads PyTorch's out-of-memory messages, and compares their sizes with those of nanoGPT's tensors.
 *
 * One table has the beginnings of all messages.  The text that follows, up to a blank line, is
 * copied into a small buffer with all white space as single blanks and without the prefixes of a
 * logger, so that wrapped lines read like unwrapped ones.  There each amount is found by the words
 * next to it.  The traceback is the text before the message, from its last "Traceback" line on.
 *
 * A second table describes the tensors: the exponents of batch, block, channels, heads and
 * vocabulary, a factor, and the stages in which a tensor of that size is created.  Both 16-bit and
 * 32-bit forms are tried, since the dtype of the failed run is not always known.
 */
#include "plan/oom_message.h"

#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "plan/oom_text.h"

#define WINDOW_BYTES 4096
#define TRACEBACK_BYTES_MAX ((size_t)64 << 10)
#define FRAMES_MAX 4096
#define LINE_BYTES 8192
#define TRACEBACK "Traceback (most recent call last)"
/* Plausible sizes: devices from 64 MiB, devices and tensors up to 1 PiB. */
#define TOTAL_MIN 67108864.0
#define AMOUNT_MAX 1125899906842624.0
#define STAGE(name) (1u << OOM_STAGE_##name)
#define ANY_PASS (STAGE(FORWARD) | STAGE(BACKWARD))
/* A batch is only inferred if the size of one sequence exceeds the error of the printed number by
 * this factor. */
#define BATCH_CERTAINTY 8.0
#define THEN_BYTES_MAX 256

#define DRIVER "The driver refused memory to PyTorch's allocator, as with expandable_segments."
#define LIBRARY "A library of the driver had no room for its handle or workspace."
#define NCCL "NCCL had no room for its buffers, which lie outside of PyTorch's memory."
#define LLMC "llm.c allocates everything at its start; its log lists the parts."
#define BLOCK "A block of this device may have 4 GiB at most, however much is free."
#define XLA "JAX and TensorFlow take most of a card at their start, so free memory says little."
#define GGML "llama.cpp and Ollama allocate the whole model at once."
#define SERVER "vLLM reserves a share of the card for its cache: gpu_memory_utilization."
#define WEIGHTS "The card has less room than the weights, which device_map would have divided."
#define PAGING "The host's memory and Windows' paging file ran out, not the card's memory."
#define HOST "The host's memory ran out, not the card's."
#define KILLED                                                                    \
    "The host's memory ran out, not the card's, unless somebody sent signal 9;\n" \
    "  if it did, dmesg has the line \"Out of memory: Killed process\"."

/* A message with sizes says more than one without.  Both say more than a note that a process was
 * killed, because the death of one rank also ends the others. */
enum rank { SIZES, PLAIN, KILL, RANKS };

/* Beginnings of messages.  A blank stands for any white space, '~' for blanks, colons and equal
 * signs. */
static const struct form {
    enum rank rank;
    enum oom_allocator allocator;
    const char *text;
    const char *then;    /* follows within THEN_BYTES_MAX; NULL: nothing need follow */
    const char *meaning; /* NULL: nothing beyond the numbers */
} forms[] = {
    {SIZES, OOM_CUDA, "CUDA out of memory. Tried to allocate ", NULL, NULL},
    {SIZES, OOM_HIP, "HIP out of memory. Tried to allocate ", NULL, NULL},
    {SIZES, OOM_XPU, "XPU out of memory. Tried to allocate ", NULL, NULL},
    {SIZES, OOM_XPU, "Current platform can NOT allocate memory block", "Tried to allocate ", BLOCK},
    {SIZES, OOM_NPU, "NPU out of memory. Tried to allocate ", NULL, NULL},
    {SIZES, OOM_ASYNC, "Allocation on device ", "Requested~", NULL},
    {SIZES, OOM_MPS, "MPS backend out of memory", NULL, NULL},
    {SIZES, OOM_CPU, "DefaultCPUAllocator: can't allocate memory: you tried to allocate ", NULL,
     NULL},
    {SIZES, OOM_CPU, "DefaultCPUAllocator: not enough memory: you tried to allocate ", NULL, NULL},
    {SIZES, OOM_CPU, "Torch: not enough memory: you tried to allocate ", NULL, NULL},
    {SIZES, OOM_NCCL, "NCCL WARN Failed to CUDA ", " bytes", NCCL},
    {SIZES, OOM_OTHER, "ut of memory while trying to allocate ", NULL, XLA},
    {SIZES, OOM_OTHER, "ran out of memory trying to allocate ", NULL, XLA},
    {SIZES, OOM_OTHER, "MUSA out of memory. Tried to allocate ", NULL, NULL},
    {SIZES, OOM_CPU, "Unable to allocate ", " for an array with shape", NULL},
    {SIZES, OOM_OTHER, "allocating ", " MiB on device", GGML},
    {SIZES, OOM_METAL, "[metal::malloc] Attempting to allocate ", " bytes", NULL},
    {SIZES, OOM_OTHER, "Out of memory error on GPU ", "Cannot allocate ", NULL},
    {SIZES, OOM_HOST, "memory allocation of ", " bytes failed", HOST},
    {PLAIN, OOM_CUDA, "OutOfMemoryError", NULL, NULL},
    {PLAIN, OOM_CUDA, "CUDA out of memory", NULL, NULL},
    {PLAIN, OOM_HIP, "HIP out of memory", NULL, NULL},
    {PLAIN, OOM_XPU, "XPU out of memory", NULL, NULL},
    {PLAIN, OOM_NPU, "NPU out of memory", NULL, NULL},
    {PLAIN, OOM_ASYNC, "Allocation on device ", "exceed allowed memory", NULL},
    {PLAIN, OOM_CUDA, "GPU has ", " total, ", NULL}, /* shortened by hand */
    {PLAIN, OOM_CUDA, "CUDA error: out of memory", NULL, NULL},
    {PLAIN, OOM_CUDA, "CUDA driver error: out of memory", NULL, DRIVER},
    {PLAIN, OOM_CUDA, "CUDA_ERROR_OUT_OF_MEMORY", NULL, NULL},
    {PLAIN, OOM_CUDA, "cudaErrorMemoryAllocation", NULL, NULL},
    {PLAIN, OOM_CUDA, "cuda runtime error (2) : out of memory", NULL, NULL},
    {PLAIN, OOM_CUDA, "CUDA failed with error out of memory", NULL, NULL},
    {PLAIN, OOM_CUDA, "cudaMalloc failed: out of memory", NULL, NULL},
    {PLAIN, OOM_CUDA, "Triton Error [CUDA]: out of memory", NULL, NULL},
    {PLAIN, OOM_CUDA, "Error out of memory at line ", NULL, NULL},
    {PLAIN, OOM_CUDA, "CUBLAS_STATUS_ALLOC_FAILED", NULL, LIBRARY},
    {PLAIN, OOM_CUDA, "CUDNN_STATUS_ALLOC_FAILED", NULL, LIBRARY},
    {PLAIN, OOM_CUDA, "CUSPARSE_STATUS_ALLOC_FAILED", NULL, LIBRARY},
    {PLAIN, OOM_CUDA, "CUSOLVER_STATUS_ALLOC_FAILED", NULL, LIBRARY},
    {PLAIN, OOM_CUDA, "CUFFT_ALLOC_FAILED", NULL, LIBRARY},
    {PLAIN, OOM_HIP, "HIP error: out of memory", NULL, NULL},
    {PLAIN, OOM_HIP, "hipErrorOutOfMemory", NULL, NULL},
    {PLAIN, OOM_HIP, "HIPBLAS_STATUS_ALLOC_FAILED", NULL, LIBRARY},
    {PLAIN, OOM_XPU, "ERROR_OUT_OF_DEVICE_MEMORY", NULL, NULL},
    {PLAIN, OOM_XPU, "ERROR_OUT_OF_RESOURCES", NULL, NULL},
    {PLAIN, OOM_NCCL, "Cuda failure", "'out of memory'", NCCL},
    {PLAIN, OOM_CUDA, "[CUDA ERROR] at file ", "out of memory", LLMC},
    {PLAIN, OOM_CUDA, "[cuBLAS ERROR]: 3 ", NULL, LLMC},
    {PLAIN, OOM_METAL, "Command buffer execution failed: Insufficient Memory", NULL, NULL},
    {PLAIN, OOM_METAL, "kIOGPUCommandBufferCallbackErrorOutOfMemory", NULL, NULL},
    {PLAIN, OOM_OTHER, "OOM when allocating tensor", NULL, XLA},
    {PLAIN, OOM_OTHER, "RESOURCE_EXHAUSTED", NULL, XLA},
    {PLAIN, OOM_OTHER, "No available memory for the cache blocks", NULL, SERVER},
    {PLAIN, OOM_OTHER, "desired GPU memory utilization", NULL, SERVER},
    {PLAIN, OOM_OTHER, "available KV cache memory", NULL, SERVER},
    {PLAIN, OOM_OTHER, "that can be stored in KV cache", NULL, SERVER},
    {PLAIN, OOM_OTHER, "enough GPU RAM to fit", NULL, WEIGHTS},
    {PLAIN, OOM_CUDA, "unable to find an engine to execute", NULL, LIBRARY},
    {PLAIN, OOM_CUDA, "CUDA error 2 at ", "out of memory", NULL},
    {PLAIN, OOM_CUDA, "CUDA Error: out of memory", NULL, NULL},
    {PLAIN, OOM_OTHER, "ErrorOutOfDeviceMemory", NULL, NULL},
    {PLAIN, OOM_OTHER, "There is not enough GPU video memory available", NULL, NULL},
    {PLAIN, OOM_OTHER, "MEM_OBJECT_ALLOCATION_FAILURE", NULL, NULL},
    {KILL, OOM_HOST, "[WinError 1455]", NULL, PAGING},
    {KILL, OOM_HOST, "std::bad_alloc", NULL, HOST},
    {PLAIN, OOM_HOST, "model requires more system memory", NULL, HOST},
    {KILL, OOM_HOST, "Cannot allocate memory", NULL, HOST},
    {KILL, OOM_HOST, "after using all available RAM", NULL, HOST},
    {KILL, OOM_HOST, "MemoryError", NULL, HOST},
    {KILL, OOM_HOST, "exitcode~-9", NULL, KILLED},
    {KILL, OOM_HOST, "exit code~-9", NULL, KILLED},
    {KILL, OOM_HOST, "return code~-9", NULL, KILLED},
    {KILL, OOM_HOST, "exit code~137", NULL, KILLED},
    {KILL, OOM_HOST, "Exit Code~137", NULL, KILLED},
    {KILL, OOM_HOST, "exit status~137", NULL, KILLED},
    {KILL, OOM_HOST, "SIGKILL", NULL, KILLED},
    {KILL, OOM_HOST, "oom-kill event", NULL, KILLED},
    {KILL, OOM_HOST, "oom_kill event", NULL, KILLED},
    {KILL, OOM_HOST, "signal 9", NULL, KILLED},
    {KILL, OOM_HOST, "signal: Killed", NULL, KILLED},
    {KILL, OOM_HOST, "Killed", NULL, KILLED},
    {KILL, OOM_HOST, "OOMKilled", NULL, KILLED},
};
#define FORMS (sizeof forms / sizeof forms[0])

static const struct oom_amount unknown = {.known = false};

const struct oom_allocator_info oom_allocators[] = {
    [OOM_CUDA] = {"CUDA", "cuda", true, true},
    [OOM_ASYNC] = {"CUDA, cudaMallocAsync", "cuda", false, true},
    [OOM_HIP] = {"HIP", "opencl", true, true},
    [OOM_XPU] = {"XPU", "opencl", true, true},
    [OOM_NPU] = {"NPU", NULL, true, true},
    [OOM_MPS] = {"MPS", NULL, false, true},
    [OOM_METAL] = {"Metal", NULL, false, false},
    [OOM_CPU] = {"CPU", NULL, false, true},
    [OOM_NCCL] = {"NCCL", "cuda", false, false},
    [OOM_OTHER] = {"another framework", NULL, false, false},
    [OOM_HOST] = {"host", NULL, false, false},
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\0';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Returns the character as it may be printed: white space as a blank, and what is not printable
 * ASCII as '?'. */
static char shown(char c)
{
    if (is_blank(c))
        return ' ';
    return c > ' ' && c < 0x7f ? c : '?';
}

/* The place of a message in its log.  The text before it on its line shows the prefix of the lines
 * that follow. */
struct place {
    const char *line, *at,
        *end; /* the beginnings of its line and of the message, the end of the log */
};

/* Returns the length of the logger's prefix at the beginning of a line. */
static size_t prefix_at(const struct place *place, const char *line)
{
    return oom_text_prefix(place->line, (size_t)(place->at - place->line), line,
                           (size_t)(place->end - line));
}

/* Skips white space, and the prefixes of the lines that it begins. */
static const char *blanks_skip(const struct place *place, const char *at)
{
    while (at < place->end && is_blank(*at)) {
        const bool newline = *at++ == '\n';
        if (newline)
            at += prefix_at(place, at);
    }
    return at;
}

/* Returns where the text goes on after `word` (of a form), or NULL if it does not begin with it. */
static const char *begins_with(const struct place *place, const char *at, const char *word)
{
    const char *begin = at, *next;
    for (; *word != '\0'; word++) {
        next = *word == ' ' || *word == '~' ? blanks_skip(place, at) : at;
        while (*word == '~' && next < place->end &&
               (is_blank(*next) || *next == ':' || *next == '='))
            next++;
        if (*word != ' ' && *word != '~' && at < place->end && *at == *word)
            next++;
        if (next == at)
            return NULL;
        at = next;
    }
    /* A number must end here: "signal 9" does not match "signal 90". */
    return at > begin && is_digit(at[-1]) && at < place->end && is_digit(*at) ? NULL : at;
}

/* Returns true if the form is at place->at. */
static bool form_is_at(const struct form *form, const struct place *place)
{
    const char *at = begins_with(place, place->at, form->text);
    if (at == NULL || form->then == NULL)
        return at != NULL;
    for (int bytes = 0; bytes < THEN_BYTES_MAX && at < place->end; bytes++, at++)
        if (begins_with(place, at, form->then) != NULL)
            return true;
    return false;
}

/* Finds the last message of the best rank.  Two forms on a line are one message, which the last
 * form describes. */
static bool message_find(const char *text, size_t count, struct place *out,
                         struct oom_message *message)
{
    bool first[256] = {false};
    const struct form *best = NULL;
    struct place place = {text, text, text + count};
    for (size_t i = 0; i < FORMS; i++)
        first[(unsigned char)forms[i].text[0]] = true;
    for (; place.at < place.end; place.at++) {
        for (size_t i = 0; i < FORMS && first[(unsigned char)*place.at]; i++) {
            const struct form *form = &forms[i];
            if (form->text[0] != *place.at || (best != NULL && form->rank > best->rank) ||
                !form_is_at(form, &place))
                continue;
            message->count = best == NULL || form->rank < best->rank
                                 ? 1
                                 : message->count + (place.line != out->line);
            best = form;
            *out = place;
            break;
        }
        if (*place.at == '\n')
            place.line = place.at + 1;
    }
    if (best != NULL) {
        message->allocator = best->allocator;
        message->meaning = best->meaning;
    }
    return best != NULL;
}

/* Copies the paragraph that begins at place->at, without prefixes.  White space, the frames of
 * boxes and characters outside ASCII become single blanks. */
static void paragraph_copy(char out[static WINDOW_BYTES], const struct place *place)
{
    size_t used = 0;
    int newlines = 0;
    for (const char *at = place->at; at < place->end && newlines < 2;) {
        const char c = *at++;
        const bool blank = is_blank(c) || c == '|' || (unsigned char)c >= 0x7f;
        newlines = c == '\n' ? newlines + 1 : is_blank(c) ? newlines : 0;
        if (!(blank && (used == 0 || out[used - 1] == ' ')) && used + 1 < WINDOW_BYTES)
            out[used++] = blank ? ' ' : shown(c);
        if (c == '\n')
            at += prefix_at(place, at);
    }
    out[used] = '\0';
}

/* Copies a line without blanks around it.  Returns where the next one begins. */
static const char *line_copy(char *out, size_t size, const char *at, const char *end)
{
    size_t used = 0;
    bool more = true;
    for (; at < end && more; at++) {
        more = *at != '\n';
        if ((!is_blank(*at) || used > 0) && used + 1 < size)
            out[used++] = shown(*at);
    }
    while (used > 0 && out[used - 1] == ' ')
        used--;
    out[used] = '\0';
    return at;
}

/* Finds the first match of an extended regular expression in a text.  Sets groups[count]. */
static bool matches(const char *text, const char *pattern, regmatch_t *groups, size_t count)
{
    regex_t regex;
    if (regcomp(&regex, pattern, REG_EXTENDED) != 0)
        return false;
    const bool found = regexec(&regex, text, count, groups, 0) == 0;
    regfree(&regex);
    return found;
}

/* An amount: digits, an optional fraction after a point (or the comma of a program's locale), and a
 * unit.  PyTorch counts in powers of 1,024, whether it prints MB or MiB. */
#define AMOUNT "([0-9]{1,24})(\\.[0-9]{0,24}|,[0-9]{1,2})? ?(bytes|[kKMGTPE]i?B|B)"
/* A driver reports an amount that it does not count, as under WSL2 and for virtual devices, as -1,
 * which is printed as 2^64 bytes.  "No limit" is printed as 2^64 or 2^63.  Negative differences are
 * printed as a little less. */
#define NOT_COUNTED 18446744073709551616.0
#define NOT_COUNTED_SLACK 1099511627776.0

static bool is_not_counted(double bytes)
{
    return fabs(bytes - NOT_COUNTED) <= NOT_COUNTED_SLACK ||
           fabs(bytes - NOT_COUNTED / 2.0) <= NOT_COUNTED_SLACK;
}

/* Reads the first amount that the pattern finds; AMOUNT must be its first three groups. */
static struct oom_amount amount_find(const char *text, const char *pattern)
{
    static const char prefixes[] = "KMGTPE";
    regmatch_t groups[4];
    if (!matches(text, pattern, groups, 4))
        return unknown;
    const char letter = text[groups[3].rm_so],
               *prefix = strchr(prefixes, letter == 'k' ? 'K' : letter);
    const double unit = prefix != NULL ? ldexp(1024.0, 10 * (int)(prefix - prefixes)) : 1.0;
    const int decimals = (int)(groups[2].rm_eo - groups[2].rm_so) - 1;
    double number = strtod(text + groups[1].rm_so, NULL);
    if (groups[2].rm_so >= 0 && text[groups[2].rm_so] == ',')
        number += strtod(text + groups[2].rm_so + 1, NULL) * pow(10.0, -decimals);
    const double bytes = number * unit;
    if (is_not_counted(bytes))
        return (struct oom_amount){.not_counted = true};
    return (struct oom_amount){.known = true,
                               .bytes = bytes,
                               .slack_bytes =
                                   groups[2].rm_so >= 0 ? 0.5 * pow(10.0, -decimals) * unit : 0.0};
}

static struct oom_amount amount_difference(struct oom_amount from, struct oom_amount less)
{
    if (!from.known || !less.known)
        return unknown;
    double bytes = from.bytes - less.bytes;
    return (struct oom_amount){true, false, bytes > 0.0 ? bytes : 0.0,
                               from.slack_bytes + less.slack_bytes};
}

static struct oom_amount amount_sum(struct oom_amount a, struct oom_amount b)
{
    if (!a.known || !b.known)
        return a.known ? a : b;
    return (struct oom_amount){true, false, a.bytes + b.bytes, a.slack_bytes + b.slack_bytes};
}

/* Returns true if `a` is more than `b`, however both were rounded. */
static bool amount_exceeds(struct oom_amount a, struct oom_amount b)
{
    return a.known && b.known && a.bytes - a.slack_bytes > b.bytes + b.slack_bytes;
}

static struct oom_amount reserved(const struct oom_message *message)
{
    return message->allocated.known ? amount_sum(message->allocated, message->unallocated)
                                    : unknown;
}

/* Reads any number of "Process 1234 has 1.97 GiB memory in use". */
static void processes_read(const char *text, struct oom_message *out)
{
    regmatch_t at;
    while (out->others_count < OOM_PROCESSES_MAX &&
           matches(text, "Process [0-9]+ has " AMOUNT, &at, 1)) {
        text += at.rm_so;
        out->others[out->others_count++] = (struct oom_process){
            strtoll(text + sizeof "Process", NULL, 10), amount_find(text, AMOUNT)};
        text++;
    }
}

/* Returns true if a device of this total had room for all that the message names and PyTorch's
 * memory. */
static bool processes_fit(const struct oom_message *message)
{
    struct oom_amount sum = amount_sum(reserved(message), message->free);
    for (int32_t i = 0; i < message->others_count; i++)
        sum = amount_sum(sum, message->others[i].held);
    return message->total.known && message->free.known && !amount_exceeds(sum, message->total);
}

/* Finds this process among the others.  Inside a container the driver's process numbers differ from
 * the process's own, so PyTorch lists itself among the others: it is the one that uses little more
 * than what PyTorch reports as reserved, if both cannot be on the device. */
static void own_process_find(struct oom_message *out)
{
    const struct oom_amount reported = reserved(out);
    int32_t found = -1;
    if (out->process.known || !reported.known || out->allocated.bytes <= 0.0 || processes_fit(out))
        return;
    for (int32_t i = 0; i < out->others_count; i++) {
        const struct oom_amount held = out->others[i].held;
        if (held.known && !amount_exceeds(reported, held) &&
            (found < 0 || held.bytes < out->others[found].held.bytes))
            found = i;
    }
    if (found < 0)
        return;
    out->process = out->others[found].held;
    out->own_by_pid = true;
    memmove(&out->others[found], &out->others[found + 1],
            (size_t)(--out->others_count - found) * sizeof out->others[0]);
}

/* The patterns that find a message's amounts, in the wordings of several years.  The first row that
 * matches counts. */
static const struct {
    size_t offset; /* in struct oom_message */
    const char *pattern;
} places[] = {
    {offsetof(struct oom_message, tried), "[Tt]ried to allocate " AMOUNT},
    {offsetof(struct oom_message, tried), "Requested ?: ?" AMOUNT},
    {offsetof(struct oom_message, tried), "Failed to CUDA [a-z ]*" AMOUNT},
    {offsetof(struct oom_message, tried), "ing to allocate " AMOUNT},
    {offsetof(struct oom_message, tried), "Unable to allocate " AMOUNT},
    {offsetof(struct oom_message, tried), "Cannot allocate " AMOUNT " memory on GPU"},
    {offsetof(struct oom_message, tried), "allocating " AMOUNT},
    {offsetof(struct oom_message, tried), "memory allocation of " AMOUNT},
    {offsetof(struct oom_message, total), "total capaci?ty of " AMOUNT},
    {offsetof(struct oom_message, total), AMOUNT " total capacity"},
    {offsetof(struct oom_message, total), "Device limit ?: ?" AMOUNT},
    {offsetof(struct oom_message, total), "GPU has " AMOUNT " total"},
    {offsetof(struct oom_message, free), "of which " AMOUNT},
    {offsetof(struct oom_message, free), AMOUNT " free;"},
    {offsetof(struct oom_message, free), "available memory is only " AMOUNT},
    {offsetof(struct oom_message, free), "according to CUDA\\) ?: ?" AMOUNT},
    {offsetof(struct oom_message, free), " total, " AMOUNT " free"},
    {offsetof(struct oom_message, process), "this process has " AMOUNT},
    {offsetof(struct oom_message, process), AMOUNT " in use by this process"},
    {offsetof(struct oom_message, allocated), "Of the allocated memory " AMOUNT},
    {offsetof(struct oom_message, allocated), AMOUNT " already allocated"},
    {offsetof(struct oom_message, allocated), AMOUNT " memory has been allocated"},
    {offsetof(struct oom_message, allocated), "Currently allocated ?: ?" AMOUNT},
    {offsetof(struct oom_message, allocated), "MPS allocated: " AMOUNT},
    {offsetof(struct oom_message, elsewhere), "other allocations: " AMOUNT},
    {offsetof(struct oom_message, pools), AMOUNT " allocated in private pools"},
    {offsetof(struct oom_message, allowed), AMOUNT " allowed;"},
    {offsetof(struct oom_message, allowed), "max allowed: " AMOUNT},
    {offsetof(struct oom_message, allowed), "memory fraction\\) ?: ?" AMOUNT},
    {offsetof(struct oom_message, unallocated), AMOUNT " is reserved by PyTorch but unallocated"},
    /* Before 1.4 the amount called cached is the memory that no tensor uses. */
    {offsetof(struct oom_message, unallocated), AMOUNT " cached\\)"},
};

static void amounts_read(const char *text, struct oom_message *out)
{
    regmatch_t device[3];
    if (matches(text, "(GPU|NPU|on device) ([0-9]{1,4})", device, 3))
        out->device = (int32_t)strtol(text + device[2].rm_so, NULL, 10);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        struct oom_amount *amount = (struct oom_amount *)(void *)((char *)out + places[i].offset);
        if (!amount->known && !amount->not_counted)
            *amount = amount_find(text, places[i].pattern);
    }
    if (!out->unallocated.known)
        out->unallocated = amount_difference(
            amount_find(text, AMOUNT " reserved in total by PyTorch"), out->allocated);
    if (amount_exceeds(reserved(out), out->process)) /* "0 bytes", as in containers */
        out->process = unknown;
    processes_read(text, out);
    own_process_find(out);
}

/* ---- the traceback ---- */

static bool contains_any(const char *line, const char *const *words)
{
    while (*words && !strstr(line, *words))
        words++;
    return *words != NULL;
}

/* Reads `File "/x/model.py", line 187, in forward`. */
static bool frame_read(const char *line, struct oom_frame *out)
{
    regmatch_t groups[5];
    if (!matches(line, "^File \"([^\"]*[/\\])?([^\"]*)\", line ([0-9]{0,9})[0-9]*(, in )?", groups,
                 5))
        return false;
    *out = (struct oom_frame){.line = (int32_t)strtol(line + groups[3].rm_so, NULL, 10)};
    snprintf(out->file, sizeof out->file, "%.*s", (int)(groups[2].rm_eo - groups[2].rm_so),
             line + groups[2].rm_so);
    if (groups[4].rm_so >= 0)
        snprintf(out->function, sizeof out->function, "%s", line + groups[4].rm_eo);
    return true;
}

/* Updates the stage from a frame.  Frames come from the outside in, and an inner one wins.
 * Exceptions: a forward frame does not replace the backward stage, and moving the model counts only
 * while the stage is unknown. */
static void stage_read(const char *line, struct oom_message *out)
{
    static const char *const setup[] = {".to(device", ".cuda()", ", in _apply", ", in convert",
                                        NULL};
    static const char *const forward[] = {", in forward", "model(X, Y)", "model(X,Y)",
                                          "model(x, y)", NULL};
    static const char *const backward[] = {".backward()", "run_backward", ", in backward", NULL};
    static const char *const update[] = {"optimizer.step",      "scaler.step", "_multi_tensor_adam",
                                         "_single_tensor_adam", "_init_group", ", in adamw",
                                         ", in adam",           NULL};
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
        [OOM_SITE_ATTENTION] = {"att =", "att.", "scaled_dot_product", "c_attn(", "self.attn(",
                                NULL},
        [OOM_SITE_MLP] = {"gelu", "c_fc(", "self.mlp(", NULL},
        [OOM_SITE_EMBEDDING] = {"transformer.wte", "transformer.wpe", NULL},
    };
    for (int site = OOM_SITE_LOGITS; site <= OOM_SITE_EMBEDDING; site++)
        if (contains_any(line, words[site]))
            out->site = (enum oom_site)site;
}

/* Reads the frames between the last "Traceback" line and the message. */
static void traceback_read(const struct place *place, const char *begin, struct oom_message *out)
{
    static const char *const libraries[] = {"site-packages", "dist-packages", "/torch/",
                                            "\\torch\\",     "<frozen",       NULL};
    char line[LINE_BYTES];
    struct oom_frame frame;
    bool is_users = false, inside = false;
    const char *at = begin;
    for (int32_t lines = 0; lines < FRAMES_MAX && at < place->at; lines++) {
        at = line_copy(line, sizeof line, at + prefix_at(place, at), place->at);
        if (strncmp(line, TRACEBACK, sizeof TRACEBACK - 1) == 0) {
            out->stage = OOM_STAGE_UNKNOWN;
            out->site = OOM_SITE_UNKNOWN;
            out->evaluation = is_users = false;
            out->frame = (struct oom_frame){.line = 0};
            inside = true;
            continue;
        }
        if (!inside)
            continue;
        bool head = frame_read(line, &frame);
        if (head)
            is_users = !contains_any(line, libraries);
        if (head && is_users)
            out->frame = frame;
        else if (is_users && out->frame.source[0] == '\0')
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
    struct place place = {text, text, text + count};
    char window[WINDOW_BYTES];
    if (!message_find(text, count, &place, &message))
        return false;
    const size_t before = (size_t)(place.at - text);
    paragraph_copy(window, &place);
    amounts_read(window, &message);
    traceback_read(&place, before > TRACEBACK_BYTES_MAX ? place.at - TRACEBACK_BYTES_MAX : text,
                   &message);
    *out = message;
    return true;
}

/* ---- sums ---- */

struct oom_amount oom_others_bytes(const struct oom_message *message)
{
    struct oom_amount sum = unknown;
    for (int32_t i = 0; i < message->others_count; i++)
        sum = amount_sum(sum, message->others[i].held);
    return sum.known && !amount_exceeds(sum, message->total) ? sum : unknown;
}

struct oom_amount oom_spilled_bytes(const struct oom_message *message)
{
    const struct oom_amount reported = reserved(message), process = message->process;
    const struct oom_amount most =
        process.known && (!reported.known || process.bytes > reported.bytes) ? process : reported;
    return amount_exceeds(most, message->total) ? most : unknown;
}

struct oom_amount oom_context_bytes(const struct oom_message *message)
{
    if (!message->process.known || !message->allocated.known || !message->unallocated.known ||
        oom_spilled_bytes(message).known)
        return unknown;
    return amount_difference(message->process, reserved(message));
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
        return message->allowed;
    if (most.known && context.known)
        most = amount_difference(most, context);
    if (message->free.known && message->allocated.known && message->unallocated.known)
        budget = amount_least(amount_sum(message->free, reserved(message)), most);
    else if (context.known)
        budget = most;
    if (message->allowed.known && !amount_exceeds(message->allowed, budget.known ? budget : most))
        return message->allowed;
    return budget;
}

enum oom_verdict oom_verdict(const struct oom_message *message, struct oom_amount *lacking)
{
    const struct oom_amount held = amount_sum(reserved(message), message->elsewhere),
                            tried = message->tried;
    const struct oom_amount unused = message->unallocated;
    *lacking = unknown;
    if (!tried.known || !oom_allocators[message->allocator].tensors)
        return OOM_VERDICT_NONE;
    if (message->allowed.known && held.known && held.bytes + tried.bytes > message->allowed.bytes)
        return unused.known && amount_exceeds(unused, tried) ? OOM_VERDICT_LIMIT_FRAGMENTS
                                                             : OOM_VERDICT_LIMIT;
    if (amount_exceeds(message->free, tried))
        return OOM_VERDICT_ROOM;
    if (!message->free.known || !unused.known)
        return OOM_VERDICT_NONE;
    *lacking = amount_difference(tried, amount_sum(message->free, unused));
    return lacking->bytes > 0.0 ? OOM_VERDICT_SHORT : OOM_VERDICT_FRAGMENTS;
}

const char *oom_impossible(const struct oom_message *message)
{
    if (message->tried.known &&
        !(message->tried.bytes >= 1.0 && message->tried.bytes <= AMOUNT_MAX))
        return "no tensor has the size that could not be allocated";
    if (message->total.known &&
        !(message->total.bytes >= TOTAL_MIN && message->total.bytes <= AMOUNT_MAX))
        return "no device has that total capacity";
    if (amount_exceeds(message->free, message->total))
        return "more is free than the total capacity";
    if (message->free.known && !(message->free.bytes <= AMOUNT_MAX))
        return "no device has that much free";
    return NULL;
}

/* Returns the size that the allocator requests from the driver to place a tensor of `bytes`. */
static uint64_t oom_segment_bytes(enum oom_allocator allocator, uint64_t bytes)
{
    if (!oom_allocators[allocator].segments)
        return bytes;
    if (bytes <= (uint64_t)1 << 20)
        return OOM_SEGMENT_SMALL_BYTES;
    if (bytes < (uint64_t)10 << 20)
        return OOM_SEGMENT_MIDDLE_BYTES;
    return size_round_up(bytes, OOM_SEGMENT_SMALL_BYTES);
}

/* ---- the tensors ---- */

struct row {
    const char *name, *size;
    int32_t batch, block, channels, heads, vocabulary; /* exponents */
    int32_t factor;
    int32_t element_bytes; /* 0: 16 or 32 bits */
    unsigned stages;
    enum oom_site site; /* OOM_SITE_UNKNOWN: no line of the user's code shows it */
};

static const struct row rows[] = {
    {"the logits", "batch x block_size x vocab_size", 1, 1, 0, 0, 1, 1, 0, ANY_PASS,
     OOM_SITE_LOGITS},
    {"cross entropy's float32 copy of the logits, or its gradient",
     "batch x block_size x vocab_size", 1, 1, 0, 0, 1, 1, 4, ANY_PASS, OOM_SITE_LOSS},
    {"attention scores (without flash attention)", "batch x n_head x block_size x block_size", 1, 2,
     0, 1, 0, 1, 0, ANY_PASS, OOM_SITE_ATTENTION},
    {"queries, keys and values of a block", "batch x block_size x 3 n_embd", 1, 1, 1, 0, 0, 3, 0,
     ANY_PASS, OOM_SITE_ATTENTION},
    {"the MLP's hidden layer", "batch x block_size x 4 n_embd", 1, 1, 1, 0, 0, 4, 0, ANY_PASS,
     OOM_SITE_MLP},
    {"a block's hidden state", "batch x block_size x n_embd", 1, 1, 1, 0, 0, 1, 0, ANY_PASS,
     OOM_SITE_UNKNOWN},
    {"the token embedding: weight, gradient or Adam's moment", "vocab_size x n_embd", 0, 0, 1, 0, 1,
     1, 4, STAGE(SETUP) | STAGE(BACKWARD) | STAGE(OPTIMIZER), OOM_SITE_UNKNOWN},
    {"autocast's 16-bit copy of the token embedding, or its gradient", "vocab_size x n_embd", 0, 0,
     1, 0, 1, 1, 2, ANY_PASS, OOM_SITE_LOGITS},
    {"an MLP matrix: weight, gradient or Adam's moment", "4 n_embd x n_embd", 0, 0, 2, 0, 0, 4, 4,
     STAGE(SETUP) | STAGE(BACKWARD) | STAGE(OPTIMIZER), OOM_SITE_UNKNOWN},
    {"attention's matrix: weight, gradient or Adam's moment", "3 n_embd x n_embd", 0, 0, 2, 0, 0, 3,
     4, STAGE(SETUP) | STAGE(BACKWARD) | STAGE(OPTIMIZER), OOM_SITE_UNKNOWN},
};
#define ROWS (sizeof rows / sizeof rows[0])

/* Computes the bytes of a row's tensor.  Returns false on overflow. */
static bool row_bytes(const struct row *row, const struct oom_shape *shape, int32_t element_bytes,
                      uint64_t *out)
{
    const int32_t powers[] = {row->batch, row->block, row->channels, row->heads, row->vocabulary};
    const int64_t sizes[] = {shape->batch, shape->block_size, shape->n_embd, shape->n_head,
                             shape->vocab_size};
    size_t bytes = (size_t)row->factor * (size_t)element_bytes;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int32_t k = 0; k < powers[i]; k++)
            if (sizes[i] <= 0 || !size_mul(bytes, (size_t)sizes[i], &bytes))
                return false;
    *out = bytes;
    return true;
}

/* Returns true when a tensor of `bytes` is printed as the amount that failed. */
static bool prints_as(const struct oom_message *message, uint64_t bytes)
{
    double asked = (double)oom_segment_bytes(message->allocator, bytes);
    return fabs(asked - message->tried.bytes) <= message->tried.slack_bytes;
}

bool oom_is_small_segment(const struct oom_message *message)
{
    if (!message->tried.known || !oom_allocators[message->allocator].segments)
        return false;
    return message->tried.bytes <= (double)OOM_SEGMENT_SMALL_BYTES ||
           message->tried.bytes == (double)OOM_SEGMENT_MIDDLE_BYTES;
}

int32_t oom_match_find(const struct oom_message *message, const struct oom_shape *shape,
                       struct oom_match out[static OOM_MATCHES_MAX])
{
    int32_t count = 0, agreeing = 0;
    if (!message->tried.known || !oom_allocators[message->allocator].tensors ||
        oom_is_small_segment(message))
        return 0;
    for (size_t r = 0; r < ROWS; r++) {
        for (int32_t element = 2; element <= 4; element += 2) {
            uint64_t bytes;
            if ((rows[r].element_bytes != 0 && rows[r].element_bytes != element) ||
                count == OOM_MATCHES_MAX)
                continue;
            if (!row_bytes(&rows[r], shape, element, &bytes) || !prints_as(message, bytes))
                continue;
            const bool agrees =
                (message->stage == OOM_STAGE_UNKNOWN ||
                 (rows[r].stages >> message->stage & 1u) != 0) &&
                (message->site == OOM_SITE_UNKNOWN || rows[r].site == message->site);
            struct oom_match match = {rows[r].name, rows[r].size, bytes, element, agrees};
            int32_t at = match.fits_traceback ? agreeing++ : count;
            memmove(&out[at + 1], &out[at], (size_t)(count - at) * sizeof *out);
            out[at] = match;
            count++;
        }
    }
    return count;
}

int64_t oom_match_batch(const struct oom_message *message, const struct oom_shape *shape,
                        int32_t element_bytes)
{
    struct oom_shape other = *shape;
    uint64_t each, bytes;
    other.batch = 1;
    if (!message->tried.known || oom_is_small_segment(message) ||
        !row_bytes(&rows[0], &other, element_bytes, &each))
        return 0;
    double slack = message->tried.slack_bytes + (double)OOM_SEGMENT_SMALL_BYTES;
    double batch = floor(message->tried.bytes / (double)each + 0.5);
    if (!(batch >= 1.0 && batch <= 1e6) || slack * BATCH_CERTAINTY > (double)each)
        return 0;
    other.batch = (int64_t)batch;
    bool found = row_bytes(&rows[0], &other, element_bytes, &bytes) && prints_as(message, bytes);
    return found && other.batch != shape->batch ? other.batch : 0;
}
