/* Levels of recompute, and how many blocks have each.
 *
 * The table defines a level completely: its name, which configurations, reports and checkpoints
 * use, and its classes.
 */
#include "base/recompute.h"

#include <ctype.h>

#define LAYERS_MAX 1000000
#define CLASS(name) (1u << RECOMPUTE_CLASS_##name)
#define CLASSES_ALL (CLASS(ACTIVATION) | CLASS(NORM) | CLASS(PLAIN) | CLASS(QKV) | CLASS(ATTENTION))

static const struct {
    const char *name;
    unsigned classes;
} levels[RECOMPUTE_LEVELS] = {
    [RECOMPUTE_NONE] = {"none", 0},
    [RECOMPUTE_GELU] = {"gelu", CLASS(ACTIVATION)},
    [RECOMPUTE_LAYERNORM] = {"layernorm", CLASS(ACTIVATION) | CLASS(NORM)},
    [RECOMPUTE_MLP] = {"mlp", CLASS(ACTIVATION) | CLASS(NORM) | CLASS(PLAIN)},
    [RECOMPUTE_FULL] = {"full", CLASSES_ALL},
    [RECOMPUTE_OFFLOAD] = {"offload", CLASSES_ALL},
};

static const char not_understood[] =
    "is not a recompute level: expected none, gelu, layernorm, mlp, full or offload, or several of them with their "
    "numbers of blocks, such as full:6,none or full:2,mlp:4,none";

const char *recompute_level_name(enum recompute_level level)
{
    assert((unsigned)level < RECOMPUTE_LEVELS);
    return levels[level].name;
}

bool recompute_includes(enum recompute_level level, enum recompute_class op_class)
{
    assert((unsigned)level < RECOMPUTE_LEVELS);
    return (levels[level].classes >> op_class & 1u) != 0;
}

struct recompute_mix recompute_uniform(enum recompute_level level, int32_t layers)
{
    return recompute_two(level, layers, RECOMPUTE_NONE, layers);
}

struct recompute_mix recompute_two(enum recompute_level level, int32_t blocks,
                                   enum recompute_level rest, int32_t layers)
{
    struct recompute_mix mix = {{0}};
    mix.blocks[level] += blocks;
    mix.blocks[rest] += layers - blocks;
    mix.blocks[RECOMPUTE_NONE] = 0;
    return mix;
}

int32_t recompute_blocks(const struct recompute_mix *mix, enum recompute_level level,
                         int32_t layers)
{
    if (level != RECOMPUTE_NONE)
        return mix->blocks[level];
    for (int i = RECOMPUTE_NONE + 1; i < RECOMPUTE_LEVELS; i++)
        layers -= mix->blocks[i];
    return layers;
}

enum recompute_level recompute_level_of(const struct recompute_mix *mix, int32_t layer)
{
    int level = RECOMPUTE_OFFLOAD;
    for (; level > RECOMPUTE_NONE && layer >= mix->blocks[level]; level--)
        layer -= mix->blocks[level];
    return (enum recompute_level)level;
}

bool recompute_equal(const struct recompute_mix *a, const struct recompute_mix *b)
{
    return memcmp(a->blocks, b->blocks, sizeof a->blocks) == 0;
}

void recompute_swap(struct recompute_mix *mix, enum recompute_level from, enum recompute_level to,
                    int32_t most)
{
    const int32_t blocks = mix->blocks[from] < most ? mix->blocks[from] : most;
    mix->blocks[from] -= blocks;
    mix->blocks[to] += blocks;
}

void recompute_shrink(struct recompute_mix *mix, int32_t layers)
{
    for (int level = RECOMPUTE_OFFLOAD; level > RECOMPUTE_NONE; level--) {
        if (mix->blocks[level] > layers)
            mix->blocks[level] = layers;
        layers -= mix->blocks[level];
    }
}

char *recompute_text(char *text, const struct recompute_mix *mix, int32_t layers, const char *times,
                     const char *plus)
{
    size_t used = 0;
    for (int level = RECOMPUTE_OFFLOAD; level >= RECOMPUTE_NONE; level--) {
        int32_t blocks = recompute_blocks(mix, (enum recompute_level)level, layers);
        if (blocks == layers) {
            snprintf(text, RECOMPUTE_TEXT_MAX, "%s", levels[level].name);
            return text;
        }
        if (blocks > 0)
            used += (size_t)snprintf(text + used, RECOMPUTE_TEXT_MAX - used, "%s%s%s%" PRId32,
                                     used > 0 ? plus : "", levels[level].name, times, blocks);
    }
    return text;
}

/* A level, and how many blocks have it; 0 if the text does not say. */
struct group {
    int level;
    int64_t blocks;
};

/* Reads groups such as "full:6" or "full x6", or a level alone, between commas or plus signs.
 * Returns their number, or 0 when the text is something else or a group before the last has no
 * number of blocks. */
static int groups_read(const char *text, struct group out[static RECOMPUTE_LEVELS])
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    for (int count = 0; count < RECOMPUTE_LEVELS; count++, text++) {
        int level = 0;
        text += strspn(text, " ");
        const size_t length = strspn(text, letters);
        while (level < RECOMPUTE_LEVELS && (strlen(levels[level].name) != length ||
                                            strncmp(text, levels[level].name, length) != 0))
            level++;
        out[count] = (struct group){.level = level};
        text += length + strspn(text + length, " ");
        if (level < RECOMPUTE_LEVELS && (*text == ':' || *text == 'x')) {
            char *end;
            text += 1 + strspn(text + 1, " ");
            out[count].blocks = isdigit((unsigned char)*text) ? strtoll(text, &end, 10) : 0;
            if (out[count].blocks < 1 || out[count].blocks > LAYERS_MAX)
                return 0;
            text = end + strspn(end, " ");
        }
        if (level == RECOMPUTE_LEVELS || *text == '\0')
            return level == RECOMPUTE_LEVELS ? 0 : count + 1;
        if ((*text != ',' && *text != '+') || out[count].blocks == 0)
            return 0;
    }
    return 0;
}

bool recompute_read(const char *text, int64_t layers, struct recompute_mix *out, const char **why)
{
    struct group groups[RECOMPUTE_LEVELS];
    struct recompute_mix mix = {{0}};
    int count = groups_read(text, groups);
    int64_t left = layers;
    *why = not_understood;
    if (count == 0)
        return false;
    *why = "does not cover n_layer blocks";
    for (int i = 0; i < count && layers > 0; i++) {
        int64_t blocks = groups[i].blocks > 0 ? groups[i].blocks : left;
        left -= blocks;
        if (left < 0)
            return false;
        mix.blocks[groups[i].level] += (int32_t)blocks;
    }
    mix.blocks[RECOMPUTE_NONE] = 0;
    *out = mix;
    return left == 0;
}
