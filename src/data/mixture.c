/* Reads the key `dataset`, and divides samples among data sets.
 *
 * The samples are repeatedly divided in two: the last data set's and those of all earlier ones,
 * then the last of the earlier ones', and so on.  Of the first n samples, floor(n * a / b) go to
 * the earlier data sets, where a and b are integer weights.  Sample n goes there if that number is
 * larger for n + 1.  The number is also the sample's index among them, so no state is needed.
 */
#include "data/mixture.h"

#include <math.h>

/* The sum of all weights, up to rounding; products of two stay below 2^63. */
#define WEIGHTS 1073741824.0

/* Refuses a data set that is a file: `text` as it was given, or below data. */
static enum gt_status part_check(const struct mixture_source *part, const char *text)
{
    char folder[FILE_PATH_MAX];
    const char *below = FILE_IN("data", text), *file = file_exists(text) ? text : below;
    const size_t length = strlen(file);
    if (file_is_folder(part->folder) || file_is_folder(file) || !file_exists(file))
        return GT_OK;
    if (length < 4 || strcmp(file + length - 4, ".bin") != 0)
        return FAIL(GT_USAGE,
                    "dataset: %s is a file; gpt-prepare makes a data set from text: gpt-prepare %s",
                    text, file);
    file_folder_of(folder, file);
    const bool in_data = strncmp(folder, "data/", 5) == 0 && strchr(folder + 5, '/') == NULL;
    const bool is_name = strchr(folder, '/') == NULL; /* gpt-train would look for it below data/ */
    return FAIL(GT_USAGE, "dataset: %s is a file; name its folder: --dataset=%s%s", text,
                is_name ? "./" : "",
                in_data                               ? folder + 5
                : is_name && strcmp(folder, ".") == 0 ? ""
                                                      : folder);
}

/* Adds the data set whose name is the first `length` characters of `name`. */
static enum gt_status part_add(struct mixture *mixture, const char *name, size_t length,
                               double share)
{
    char text[FILE_PATH_MAX], at_home[FILE_PATH_MAX];
    struct mixture_source *part = &mixture->parts[mixture->count];
    snprintf(text, sizeof text, "%.*s", (int)length, name);
    *part = (struct mixture_source){.name = name, .name_length = (int)length, .share = share};
    const char *path = file_expand_home(at_home, text);
    const bool is_path = strchr(path, '/') != NULL;
    const bool is_here = !is_path && file_is_folder(path) && !file_exists(FILE_IN("data", path));
    file_join(part->folder, is_path ? path : is_here ? "." : "data", is_path ? "" : path);
    TRY(part_check(part, path));
    for (int i = 0; i < mixture->count; i++) {
        const struct mixture_source *other = &mixture->parts[i];
        if (strcmp(other->folder, part->folder) == 0)
            return FAIL(GT_USAGE, "dataset: %s is named twice; add its shares", text);
        if (file_is_same(other->folder, part->folder))
            return FAIL(
                GT_USAGE,
                "dataset: %.*s and %s are one folder, named twice; name it once, with both shares",
                other->name_length, other->name, text);
    }
    mixture->count++;
    return GT_OK;
}

static enum gt_status list_parse(const char *text, struct mixture *out)
{
    double sum = 0.0;
    for (const char *at = text, *end; at != NULL; at = *end == ',' ? end + 1 : NULL) {
        char item[FILE_PATH_MAX], *rest = item;
        end = at + strcspn(at, ",");
        snprintf(item, sizeof item, "%.*s", (int)(end - at), at);
        const char *colon = strrchr(item, ':');
        const double share = colon != NULL ? strtod(colon + 1, &rest) : 0.0;
        sum += share;
        if (colon == NULL || colon == item || *rest != '\0' || !(share > 0.0 && isfinite(sum)))
            return FAIL(
                GT_USAGE,
                "dataset='%s': '%s' is not NAME:SHARE with a share above 0; a mixture is written "
                "--dataset=old:0.7,mine:0.3",
                text, item);
        if (out->count == MIXTURE_MAX)
            return FAIL(GT_USAGE, "dataset='%s': a mixture has at most %d data sets", text,
                        MIXTURE_MAX);
        TRY(part_add(out, at, (size_t)(colon - item), share));
    }
    for (int i = 0; i < out->count; i++) {
        out->parts[i].share /= sum;
        out->parts[i].weight = (int64_t)fmax(1.0, round(out->parts[i].share * WEIGHTS));
    }
    return GT_OK;
}

enum gt_status mixture_parse(const char *text, struct mixture *out)
{
    *out = (struct mixture){0};
    TRY(part_add(out, text, strlen(text), 1.0));
    out->parts[0].weight = 1;
    if (strpbrk(text, ":,") == NULL || file_is_folder(out->parts[0].folder))
        return GT_OK;
    out->count = 0;
    return list_parse(text, out);
}

enum gt_status mixture_tokenizer_open(const void *owner, const struct mixture *mixture,
                                      struct tokenizer **out)
{
    struct tokenizer *tokenizers[MIXTURE_MAX] = {NULL};
    enum gt_status status = GT_OK;
    int known = 0; /* the first data set with a tokenizer */
    for (int i = 0; i < mixture->count && status == GT_OK; i++) {
        status = tokenizer_open_dataset(owner, mixture->parts[i].folder, &tokenizers[i]);
        if (tokenizers[known] == NULL)
            known = i;
        if (status != GT_OK || tokenizers[i] == NULL ||
            tokenizers[known]->hash == tokenizers[i]->hash)
            continue;
        status = FAIL(
            GT_DATA,
            "%s: its tokenizer is not that of %s; prepare it again with gpt-prepare --tokenizer=%s",
            mixture->parts[i].folder, mixture->parts[known].folder, mixture->parts[known].folder);
    }
    for (int i = 0; i < mixture->count; i++)
        if (i != known || status != GT_OK)
            hostmem_free(tokenizers[i]);
    if (status == GT_OK)
        *out = tokenizers[known];
    return status;
}

/* Returns floor(n * part / whole) for part <= whole < 2^31. */
static int64_t share_of(int64_t n, int64_t part, int64_t whole)
{
    return n / whole * part + n % whole * part / whole;
}

struct mixture_place mixture_place(const struct mixture *mixture, int64_t sample)
{
    assert(sample >= 0 && sample < INT64_MAX);
    int64_t all = 0;
    for (int i = 0; i < mixture->count; i++)
        all += mixture->parts[i].weight;
    int part = mixture->count - 1;
    for (; part > 0; part--) {
        const int64_t before = all - mixture->parts[part].weight,
                      number = share_of(sample, before, all);
        if (share_of(sample + 1, before, all) == number)
            return (struct mixture_place){.part = part, .number = sample - number};
        sample = number;
        all = before;
    }
    return (struct mixture_place){.part = 0, .number = sample};
}
