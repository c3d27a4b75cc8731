/* Reads PyTorch's out-of-memory messages, and compares their sizes with those of nanoGPT's tensors.
 *
 * Finds the last marker of a message.  The text that follows, up to a blank line, is copied into a small buffer with
 * all white space as single blanks, so that wrapped lines read like unwrapped ones.  There each amount is found by the
 * words next to it.  The traceback is the text before the marker, from its last "Traceback" line on.
 *
 * One table describes the tensors: the exponents of batch, block, channels, heads and vocabulary, a factor, and the
 * stages in which a tensor of that size is created.  Both 16-bit and 32-bit forms are tried, since the dtype of the
 * failed run is not always known.
 */
#include "plan/oom_message.h"

#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

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
/* A batch is only inferred if the size of one sequence exceeds the error of the printed number by this factor. */
#define BATCH_CERTAINTY 8.0

/* Beginnings of messages.  Forms without numbers come last; they are markers all the same. */
static const struct {
    const char *text;
    enum oom_allocator allocator;
} markers[] = {
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

const struct oom_allocator_info oom_allocators[] = {[OOM_CUDA] = {"CUDA", "cuda"},
                                                    [OOM_HIP] = {"HIP", "opencl"},
                                                    [OOM_XPU] = {"XPU", "opencl"},
                                                    [OOM_MPS] = {"MPS", NULL},
                                                    [OOM_CPU] = {"CPU", NULL}};

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\0';
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

/* Copies at .. end, white space as blanks, single ones if `single`, and without blanks around it; up to the first of
 * `most` newlines with nothing but blanks between them.  Returns where the rest begins. */
static const char *text_copy(char *out, size_t size, const char *at, const char *end, int most, bool single)
{
    size_t used = 0;
    for (int newlines = 0; at < end && newlines < most; at++) {
        newlines = *at == '\n' ? newlines + 1 : is_blank(*at) ? newlines : 0;
        const bool kept = !is_blank(*at) || (used > 0 && !(single && out[used - 1] == ' '));
        if (kept && used + 1 < size)
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

/* An amount: digits, perhaps a point and digits, a unit.  PyTorch counts in powers of 1,024 under either name. */
#define AMOUNT "([0-9]{1,24})(\\.[0-9]{0,24})? ?(bytes|[KMGT]i?B|B)"

/* Reads the first amount that the pattern finds; AMOUNT must be its first three groups. */
static struct oom_amount amount_find(const char *text, const char *pattern)
{
    static const char prefixes[] = "KMGT";
    regmatch_t groups[4];
    if (!matches(text, pattern, groups, 4))
        return unknown;
    const char *prefix = strchr(prefixes, text[groups[3].rm_so]);
    const double unit = prefix != NULL ? ldexp(1024.0, 10 * (int)(prefix - prefixes)) : 1.0;
    const int decimals = (int)(groups[2].rm_eo - groups[2].rm_so) - 1;
    return (struct oom_amount){.known = true,
                               .bytes = strtod(text + groups[1].rm_so, NULL) * unit,
                               .slack_bytes = groups[2].rm_so >= 0 ? 0.5 * pow(10.0, -decimals) * unit : 0.0};
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
    regmatch_t at;
    while (out->others_count < OOM_PROCESSES_MAX && matches(text, "Process [0-9]+ has " AMOUNT, &at, 1)) {
        text += at.rm_so;
        out->others[out->others_count++] =
            (struct oom_process){strtoll(text + sizeof "Process", NULL, 10), amount_find(text, AMOUNT)};
        text++;
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
        memmove(&out->others[i], &out->others[i + 1], (size_t)(--out->others_count - i) * sizeof out->others[0]);
        return;
    }
}

/* Where a message has its amounts, in the words of several years.  The first row that finds one counts. */
static const struct {
    size_t offset; /* in struct oom_message */
    const char *pattern;
} places[] = {
    {offsetof(struct oom_message, tried), "[Tt]ried to allocate " AMOUNT},
    {offsetof(struct oom_message, total), "total capaci?ty of " AMOUNT},
    {offsetof(struct oom_message, total), AMOUNT " total capacity"},
    {offsetof(struct oom_message, free), "of which " AMOUNT},
    {offsetof(struct oom_message, free), AMOUNT " free;"},
    {offsetof(struct oom_message, process), "this process has " AMOUNT},
    {offsetof(struct oom_message, allocated), "Of the allocated memory " AMOUNT},
    {offsetof(struct oom_message, allocated), AMOUNT " already allocated"},
    {offsetof(struct oom_message, allocated), "MPS allocated: " AMOUNT},
    {offsetof(struct oom_message, elsewhere), "other allocations: " AMOUNT},
    {offsetof(struct oom_message, pools), AMOUNT " allocated in private pools"},
    {offsetof(struct oom_message, allowed), AMOUNT " allowed;"},
    {offsetof(struct oom_message, allowed), "max allowed: " AMOUNT},
    {offsetof(struct oom_message, unallocated), AMOUNT " is reserved by PyTorch but unallocated"},
    /* Before 1.4 the amount called cached is the memory that no tensor uses. */
    {offsetof(struct oom_message, unallocated), AMOUNT " cached\\)"},
};

static void amounts_read(const char *text, struct oom_message *out)
{
    regmatch_t device;
    if (matches(text, "GPU [0-9]", &device, 1))
        out->device = (int32_t)strtol(text + device.rm_so + sizeof "GPU", NULL, 10);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        struct oom_amount *amount = (struct oom_amount *)(void *)((char *)out + places[i].offset);
        if (!amount->known)
            *amount = amount_find(text, places[i].pattern);
    }
    if (!out->unallocated.known)
        out->unallocated = amount_difference(amount_find(text, AMOUNT " reserved in total by PyTorch"), out->allocated);
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
    if (!matches(line, "^File \"([^\"]*[/\\])?([^\"]*)\", line ([0-9]{0,9})[0-9]*(, in )?", groups, 5))
        return false;
    *out = (struct oom_frame){.line = (int32_t)strtol(line + groups[3].rm_so, NULL, 10)};
    snprintf(out->file, sizeof out->file, "%.*s", (int)(groups[2].rm_eo - groups[2].rm_so), line + groups[2].rm_so);
    if (groups[4].rm_so >= 0)
        snprintf(out->function, sizeof out->function, "%s", line + groups[4].rm_eo);
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
    for (int site = OOM_SITE_LOGITS; site <= OOM_SITE_EMBEDDING; site++)
        if (contains_any(line, words[site]))
            out->site = (enum oom_site)site;
}

/* Reads the frames between the last "Traceback" line and the message. */
static void traceback_read(const char *begin, const char *end, struct oom_message *out)
{
    static const char *const libraries[] = {"site-packages", "dist-packages", "/torch/", "\\torch\\", "<frozen", NULL};
    char line[LINE_BYTES];
    struct oom_frame frame;
    bool own = false, inside = false;
    const char *at = begin;
    for (int32_t lines = 0; lines < FRAMES_MAX && at < end; lines++) {
        at = text_copy(line, sizeof line, at, end, 1, false);
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
            own = !contains_any(line, libraries);
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
    (void)text_copy(window, sizeof window, found, text + count, 2, true);
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
    {"the logits", "batch x block_size x vocab_size", 1, 1, 0, 0, 1, 1, 0, ANY_PASS, OOM_SITE_LOGITS},
    {"cross entropy's float32 copy of the logits, or its gradient", "batch x block_size x vocab_size", 1, 1, 0, 0, 1, 1,
     4, ANY_PASS, OOM_SITE_LOSS},
    {"attention scores (without flash attention)", "batch x n_head x block_size x block_size", 1, 2, 0, 1, 0, 1, 0,
     ANY_PASS, OOM_SITE_ATTENTION},
    {"queries, keys and values of a block", "batch x block_size x 3 n_embd", 1, 1, 1, 0, 0, 3, 0, ANY_PASS,
     OOM_SITE_ATTENTION},
    {"the MLP's hidden layer", "batch x block_size x 4 n_embd", 1, 1, 1, 0, 0, 4, 0, ANY_PASS, OOM_SITE_MLP},
    {"a block's hidden state", "batch x block_size x n_embd", 1, 1, 1, 0, 0, 1, 0, ANY_PASS, OOM_SITE_UNKNOWN},
    {"the token embedding: weight, gradient or Adam's moment", "vocab_size x n_embd", 0, 0, 1, 0, 1, 1, 4,
     STAGE(SETUP) | STAGE(BACKWARD) | STAGE(OPTIMIZER), OOM_SITE_UNKNOWN},
    {"autocast's 16-bit copy of the token embedding, or its gradient", "vocab_size x n_embd", 0, 0, 1, 0, 1, 1, 2,
     ANY_PASS, OOM_SITE_LOGITS},
    {"an MLP matrix: weight, gradient or Adam's moment", "4 n_embd x n_embd", 0, 0, 2, 0, 0, 4, 4,
     STAGE(SETUP) | STAGE(BACKWARD) | STAGE(OPTIMIZER), OOM_SITE_UNKNOWN},
    {"attention's matrix: weight, gradient or Adam's moment", "3 n_embd x n_embd", 0, 0, 2, 0, 0, 3, 4,
     STAGE(SETUP) | STAGE(BACKWARD) | STAGE(OPTIMIZER), OOM_SITE_UNKNOWN},
};
#define ROWS (sizeof rows / sizeof rows[0])

/* Computes the bytes of a row's tensor.  Returns false on overflow. */
static bool row_bytes(const struct row *row, const struct oom_shape *shape, int32_t element_bytes, uint64_t *out)
{
    const int32_t powers[] = {row->batch, row->block, row->channels, row->heads, row->vocabulary};
    const int64_t sizes[] = {shape->batch, shape->block_size, shape->n_embd, shape->n_head, shape->vocab_size};
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
    if (!message->tried.known || message->allocator == OOM_CPU || message->allocator == OOM_MPS)
        return false;
    return message->tried.bytes <= (double)OOM_SEGMENT_SMALL_BYTES ||
           message->tried.bytes == (double)OOM_SEGMENT_MIDDLE_BYTES;
}

int32_t oom_match_find(const struct oom_message *message, const struct oom_shape *shape,
                       struct oom_match out[static OOM_MATCHES_MAX])
{
    int32_t count = 0, agreeing = 0;
    if (!message->tried.known || oom_is_small_segment(message))
        return 0;
    for (size_t r = 0; r < ROWS; r++) {
        for (int32_t element = 2; element <= 4; element += 2) {
            uint64_t bytes;
            if ((rows[r].element_bytes != 0 && rows[r].element_bytes != element) || count == OOM_MATCHES_MAX)
                continue;
            if (!row_bytes(&rows[r], shape, element, &bytes) || !prints_as(message, bytes))
                continue;
            const bool agrees = (message->stage == OOM_STAGE_UNKNOWN || (rows[r].stages >> message->stage & 1u) != 0) &&
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

int64_t oom_match_batch(const struct oom_message *message, const struct oom_shape *shape, int32_t element_bytes)
{
    struct oom_shape other = *shape;
    uint64_t each, bytes;
    other.batch = 1;
    if (!message->tried.known || oom_is_small_segment(message) || !row_bytes(&rows[0], &other, element_bytes, &each))
        return 0;
    double slack = message->tried.slack_bytes + (double)OOM_SEGMENT_SMALL_BYTES;
    double batch = floor(message->tried.bytes / (double)each + 0.5);
    if (!(batch >= 1.0 && batch <= 1e6) || slack * BATCH_CERTAINTY > (double)each)
        return 0;
    other.batch = (int64_t)batch;
    bool found = row_bytes(&rows[0], &other, element_bytes, &bytes) && prints_as(message, bytes);
    return found && other.batch != shape->batch ? other.batch : 0;
}
