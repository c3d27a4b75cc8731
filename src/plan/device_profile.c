/* The table of known cards, the search for one, and the backend for planning only.
 *
 * Rates follow from cores, clock and the family's multiples, so that each figure of the table can
 * be looked up by itself.  Usable memory follows from the memory that drivers reserve and contexts
 * were observed to take.  No function here queries a device or reads a file.
 */
#include "plan/device_profile.h"

#include <ctype.h>
#include <math.h>
#include <strings.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
/* Intel's drivers limit one buffer to 4 GiB, and to half of the memory. */
#define INTEL_ALLOCATION_BYTES (4 * GIB - 4096)

enum largest_rule { ALL, QUARTER, INTEL };

enum reached_kind {
#define DEVICE_REACHED(key, products, attention, bytes, uncertainty) REACHED_##key,
#include "plan/device_profiles.def"
};

static const struct device_reached reached_rows[] = {
#define DEVICE_REACHED(key, products, attention, bytes, uncertainty) \
    [REACHED_##key] = {products, attention, bytes, uncertainty},
#include "plan/device_profiles.def"
};

struct family {
    const char *backend;
    int32_t cores_per_unit, flops_per_core;
    int32_t half, bf16, sums; /* multiples of the fp32 rate */
    enum reached_kind reached;
    enum largest_rule largest;
    uint32_t dtypes;
};

static const struct {
    const char *name;
    uint32_t alignment_bytes, context_mib, unit_mib;
    int32_t copy_engines;
} backends[] = {
#define DEVICE_BACKEND(backend, alignment, context, context_per_unit, engines) \
    {backend, alignment, context, context_per_unit, engines},
#include "plan/device_profiles.def"
};

#define F16 (1u << DTYPE_F16)
#define BF16 (1u << DTYPE_BF16)
#define DEVICE_FAMILY(key, backend, capability, cores_per_unit, flops, half, bf16, tf32, sums,   \
                      reached, largest, dtypes, source)                                          \
    static const struct family family_##key = {backend, cores_per_unit,    flops,   half,  bf16, \
                                               sums,    REACHED_##reached, largest, dtypes};
#include "plan/device_profiles.def"
#undef F16
#undef BF16

struct card {
    const char *id, *name;
    const struct family *family;
    int32_t memory_mib, driver_mib, cores, boost_mhz, bandwidth_gb_s, pcie, lanes;
};

static const struct card cards[] = {
#define DEVICE(id, name, family, memory, driver, cores, boost, bandwidth, pcie, lanes, source) \
    {id, name, &family_##family, memory, driver, cores, boost, bandwidth, pcie, lanes},
#include "plan/device_profiles.def"
};

static const struct device_other others[] = {
#define DEVICE_OTHER(name, backend, lowest, highest, bf16) {name, backend, lowest, highest, bf16},
#include "plan/device_profiles.def"
};

int32_t device_profile_count(void)
{
    return (int32_t)(sizeof cards / sizeof cards[0]);
}

bool device_profile_backend_set(struct device_profile *out)
{
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++) {
        if (strcmp(backends[i].name, out->backend) != 0)
            continue;
        out->alignment_bytes = backends[i].alignment_bytes;
        out->context_bytes =
            (backends[i].context_mib + (uint64_t)out->units * backends[i].unit_mib) * MIB;
        out->copy_engines = backends[i].copy_engines;
        return true;
    }
    return false;
}

struct device_reached device_reached_of(const char *backend)
{
    return reached_rows[strcmp(backend, "cuda") == 0 ? REACHED_GEFORCE : REACHED_ASSUMED];
}

/* Returns the bandwidth per direction with both busy (nvbandwidth's README, users' logs), by the
 * number of PCIe 3.0 lanes that are as fast.  The figure for 64 lanes is twice that for 32.  8
 * lanes of 5.0 reach 18.0. */
static double link_of(const struct card *card)
{
    const int32_t lanes = card->lanes << (card->pcie - 3);
    return (lanes >= 64 ? 37.2 : lanes >= 32 ? 18.6 : lanes >= 16 ? 11.2 : 5.6) * 1e9;
}

static void memory_set(const struct card *card, const struct family *family,
                       struct device_profile *out)
{
    uint64_t total = (uint64_t)(card->memory_mib - card->driver_mib) * MIB;
    (void)device_profile_backend_set(out);
    out->memory_bytes = (uint64_t)card->memory_mib * MIB;
    out->usable_bytes = total - out->context_bytes;
    out->largest_allocation_bytes = out->memory_bytes;
    if (family->largest == QUARTER)
        out->largest_allocation_bytes = out->memory_bytes / 4;
    if (family->largest == INTEL)
        out->largest_allocation_bytes =
            total / 2 < INTEL_ALLOCATION_BYTES ? total / 2 : INTEL_ALLOCATION_BYTES;
}

static void rates_set(const struct card *card, const struct family *family,
                      struct device_profile *out)
{
    out->bytes_per_s = (double)card->bandwidth_gb_s * 1e9;
    out->link_bytes_per_s = link_of(card);
    out->vector_flops_per_s =
        (double)card->cores * (double)family->flops_per_core * (double)card->boost_mhz * 1e6;
    out->matrix_flops_per_s[DTYPE_F32] = out->vector_flops_per_s;
    out->matrix_flops_per_s[DTYPE_F16] = (double)family->half * out->vector_flops_per_s;
    out->matrix_flops_per_s[DTYPE_BF16] = (double)family->bf16 * out->vector_flops_per_s;
    out->half_sums_flops_per_s = (double)family->sums * out->vector_flops_per_s;
    out->reached = reached_rows[family->reached];
}

void device_profile_get(int32_t index, struct device_profile *out)
{
    assert(index >= 0 && index < device_profile_count());
    const struct card *card = &cards[index];
    const struct family *family = card->family;
    *out = (struct device_profile){.units = card->cores / family->cores_per_unit,
                                   .dtypes = family->dtypes | 1u << DTYPE_F32};
    snprintf(out->id, sizeof out->id, "%s", card->id);
    snprintf(out->name, sizeof out->name, "%s", card->name);
    snprintf(out->backend, sizeof out->backend, "%s", family->backend);
    memory_set(card, family, out);
    rates_set(card, family, out);
    assert(out->usable_bytes < out->memory_bytes &&
           out->largest_allocation_bytes <= out->memory_bytes);
}

const char *device_profile_id(int32_t index)
{
    assert(index >= 0 && index < device_profile_count());
    return cards[index].id;
}

/* The table has the lowest total that was found.  Drivers keep between half of what that total
 * leaves out and a seventh more. */
#define KEPT_LEAST 0.49
#define KEPT_MOST 1.15
/* Under Windows, and on AMD's cards, drivers keep at most this part of the memory. */
#define KEPT_LITTLE 0.0055
/* A driver that keeps this part of a large memory does so for error correction, under Windows too.
 */
#define CORRECTION_DIVISOR 16
#define CORRECTION_MIB 16384

bool device_profile_reports(int32_t index, double total, double slack)
{
    assert(index >= 0 && index < device_profile_count());
    const struct card *card = &cards[index];
    const double memory = (double)card->memory_mib, kept = (double)card->driver_mib;
    const double most = memory - (total - slack) / (double)MIB,
                 least = memory - (total + slack) / (double)MIB;
    const bool corrected = card->memory_mib >= CORRECTION_MIB &&
                           card->driver_mib >= card->memory_mib / CORRECTION_DIVISOR;
    if (most >= kept * KEPT_LEAST && least <= kept * KEPT_MOST)
        return true;
    return !corrected && most >= 0.0 && least <= memory * KEPT_LITTLE;
}

const struct device_other *device_other_next(int32_t *index, const char *backend, double total,
                                             double slack)
{
    while (*index < (int32_t)(sizeof others / sizeof others[0])) {
        const struct device_other *other = &others[(*index)++];
        if (strcmp(other->backend, backend) == 0 &&
            total + slack >= other->lowest_gib * (double)GIB &&
            total - slack <= other->highest_gib * (double)GIB)
            return other;
    }
    return NULL;
}

#define WORD_MAX 64

/* Reduces a name to letters and digits in lower case, without the maker's and the family's words in
 * front: "NVIDIA GeForce RTX 3060 Ti" and "rtx3060-ti" become "3060ti". */
static void card_word(char out[static WORD_MAX], const char *text)
{
    static const char *const prefixes[] = {"nvidia", "geforce", "tesla", "amd", "radeon",
                                           "intel",  "rtx",     "gtx",   "rx",  "arc"};
    size_t used = 0;
    for (; *text != '\0' && used + 1 < WORD_MAX; text++)
        if (isalnum((unsigned char)*text))
            out[used++] = (char)tolower((unsigned char)*text);
    out[used] = '\0';
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        const size_t length = strlen(prefixes[i]);
        if (strncmp(out, prefixes[i], length) == 0)
            memmove(out, out + length, strlen(out) - length + 1);
    }
}

/* Returns the card with that id, else the first whose id up to a dash matches the text; -1 when
 * there is none. */
static int32_t card_index(const char *text)
{
    char word[WORD_MAX], begin[WORD_MAX], id[DEVICE_PROFILE_NAME_MAX];
    int32_t begins = -1;
    card_word(word, text);
    for (int32_t i = 0; i < device_profile_count(); i++) {
        if (strcasecmp(cards[i].id, text) == 0)
            return i;
        if (word[0] == '\0') /* only a maker's name, or no name */
            continue;
        snprintf(id, sizeof id, "%s", cards[i].id);
        for (char *dash = strrchr(id, '-'); begins < 0 && dash != NULL; dash = strrchr(id, '-')) {
            *dash = '\0';
            card_word(begin, id);
            begins = strcmp(begin, word) == 0 ? i : -1;
        }
        card_word(begin, cards[i].id);
        if (begins < 0 && strcmp(begin, word) == 0)
            begins = i;
    }
    return begins;
}

double device_profile_link(const char *device)
{
    char name[DEVICE_PROFILE_NAME_MAX];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(device, ","), device);
    int32_t index = card_index(name);
    for (size_t end = strlen(name); index < 0 && end-- > 0;)
        if (name[end] == ' ' || name[end] == '-') {
            name[end] = '\0';
            index = card_index(name);
        }
    return index < 0 ? 0.0 : link_of(&cards[index]);
}

/* Returns true for cards older than compute capability 7.5, by the beginning of their names. */
static bool is_too_old(const char *text)
{
    static const char *const old[] = {"v100", "p100",   "p40",    "p4", "k40", "k80", "m40",
                                      "m60",  "titanv", "titanx", "10", "9",   "7"};
    char word[WORD_MAX];
    card_word(word, text);
    for (size_t i = 0; i < sizeof old / sizeof old[0]; i++) {
        const size_t length = strlen(old[i]), digits = strspn(word, "0123456789");
        if (strncmp(word, old[i], length) == 0 &&
            (digits == 0 || (length == 2 && digits == 4) || (length == 1 && digits == 3)))
            return true;
    }
    return false;
}

/* Writes up to four cards whose ids contain the number in the text: "; did you mean rtx3060-12g,
 * rtx3060-8g?"; else a hint. */
static char *cards_near(char out[static 256], const char *text)
{
    char word[WORD_MAX], id[WORD_MAX];
    size_t used = 0;
    int32_t found = 0;
    card_word(word, text);
    const char *number = word + strcspn(word, "0123456789");
    const size_t digits = strspn(number, "0123456789");
    out[0] = '\0';
    for (int32_t i = 0; digits >= 3 && i < device_profile_count() && found < 4; i++) {
        card_word(id, cards[i].id);
        if (strncmp(id + strcspn(id, "0123456789"), number, digits) != 0)
            continue;
        used += (size_t)snprintf(out + used, 256 - used, "%s%s",
                                 found++ == 0 ? "; did you mean " : ", ", cards[i].id);
    }
    if (found > 0)
        snprintf(out + used, 256 - used, "?");
    else
        snprintf(
            out, 256,
            "; --device_profile=list shows the cards, and a path names a JSON file of your own");
    return out;
}

enum gt_status device_profile_named(const char *text, struct device_profile *out)
{
    int32_t index = card_index(text);
    char near[256];
    if (index < 0 && is_too_old(text))
        return FAIL(
            GT_USAGE,
            "device_profile='%s': not supported; NVIDIA cards need compute capability 7.5 or later (GTX 16, "
            "RTX 20, T4)",
            text);
    if (index < 0)
        return FAIL(GT_USAGE, "unknown device_profile '%s'%s", text, cards_near(near, text));
    device_profile_get(index, out);
    return GT_OK;
}

/* Writes "35.6", or "-" for an unknown rate. */
static const char *rate_text(char text[static 16], double flops_per_s)
{
    snprintf(text, 16, flops_per_s > 0.0 ? "%.1f" : "-", flops_per_s / 1e12);
    return text;
}

void device_profile_print_list(FILE *out)
{
    fprintf(out, "TFLOP/s with fp32 accumulation; GB/s of memory, and of the link each way.\n");
    fprintf(out, "%-21s %-7s %6s %6s %6s %6s %6s %6s %6s\n", "name", "backend", "GiB", "usable",
            "GB/s", "link", "fp32", "fp16", "bf16");
    for (int32_t i = 0; i < device_profile_count(); i++) {
        struct device_profile p;
        char half[16], bf16[16];
        device_profile_get(i, &p);
        fprintf(out, "%-21s %-7s %6.2f %6.2f %6.0f %6.1f %6.1f %6s %6s\n", p.id, p.backend,
                (double)p.memory_bytes / (double)GIB, (double)p.usable_bytes / (double)GIB,
                p.bytes_per_s / 1e9, p.link_bytes_per_s / 1e9, p.vector_flops_per_s / 1e12,
                rate_text(half, p.matrix_flops_per_s[DTYPE_F16]),
                rate_text(bf16, p.matrix_flops_per_s[DTYPE_BF16]));
    }
}

/* ---- the backend for planning only ---- */

/* The functions that need a device are NULL, because a plan for a profile never runs. */
struct profile_device {
    struct backend base; /* must be first */
    struct backend_ops ops;
    struct device_profile profile;
};

static const struct profile_device *device_of(const struct backend *backend)
{
    return (const struct profile_device *)(const void *)backend;
}

static bool profile_supports(const struct backend *backend, const struct op_call *call)
{
    uint32_t dtypes = device_of(backend)->profile.dtypes;
    for (int32_t slot = 0; slot < op_declaration(call->kind)->operands; slot++) {
        const struct operand *operand = &call->operand[slot];
        bool matrix = operand->dtype == DTYPE_F32 || operand->dtype == DTYPE_BF16 ||
                      operand->dtype == DTYPE_F16;
        if (operand->present &&
            (operand->dtype == DTYPE_F64 || (matrix && !(dtypes >> operand->dtype & 1u))))
            return false;
    }
    return true;
}

static size_t profile_workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    (void)backend;
    return op_workspace_cap(call);
}

static void profile_close(struct backend *backend)
{
    free(backend);
}

static enum gt_status profile_info(struct backend *backend, struct backend_info *out)
{
    const struct device_profile *profile = &device_of(backend)->profile;
    *out = (struct backend_info){
        .total_bytes = profile->usable_bytes + profile->context_bytes,
        .free_bytes = profile->usable_bytes + profile->context_bytes,
        .context_bytes = profile->context_bytes,
        .largest_allocation_bytes = profile->largest_allocation_bytes,
        .alignment_bytes = profile->alignment_bytes,
        .dtypes = profile->dtypes,
    };
    snprintf(out->device, sizeof out->device, "%s (profile)", profile->name);
    snprintf(out->detail, sizeof out->detail, "planned for without the device");
    return GT_OK;
}

enum gt_status profile_device_open(const struct device_profile *profile, struct backend **out)
{
    struct profile_device *device = calloc(1, sizeof *device);
    if (device == NULL)
        return FAIL(GT_NO_MEMORY, "no memory for %zu B of a device profile", sizeof *device);
    device->profile = *profile;
    device->ops = (struct backend_ops){
        .name = device->profile.backend,
        .close = profile_close,
        .info = profile_info,
        .supports = profile_supports,
        .workspace_bytes = profile_workspace_bytes,
    };
    device->base.ops = &device->ops;
    *out = &device->base;
    return GT_OK;
}
