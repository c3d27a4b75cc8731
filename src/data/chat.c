/* Chooses a vocabulary's chat template, and encodes rendered text to ids.
 *
 * The text between two special tokens is encoded as one, so that the ids are those of transformers,
 * even where a token spans the beginning of an answer.  The index of an answer's first id follows
 * from the number of bytes before the answer.
 */
#include "data/chat.h"

#include "data/chat_kind.h"
#include "data/chat_mark.h"
#include "data/chat_templates.h"
#include "data/tokenizer_encoder.h"

#define STEPS_MAX 8

const char *const chat_train_on_words[] = {"assistant", "completion", "all", NULL};

const char *const *chat_specials(enum chat_kind kind)
{
    return chat_template_of(kind)->specials;
}

static bool special_has(const struct tokenizer *tokenizer, const char *text)
{
    return tokenizer != NULL && tokenizer->bpe != NULL &&
           bpe_special_find(tokenizer->bpe, text) >= 0;
}

/* Returns the first token of the template that the vocabulary lacks, or NULL. */
static const char *special_lacking(const struct tokenizer *tokenizer, enum chat_kind kind)
{
    for (const char *const *text = chat_specials(kind); *text != NULL; text++)
        if (!special_has(tokenizer, *text))
            return *text;
    return tokenizer_eot(tokenizer) < 0 ? BPE_EOT_TEXT : NULL;
}

/* ---- the template of a vocabulary ---- */

const char *chat_jinja(const struct tokenizer *tokenizer)
{
    return tokenizer->template != NULL ? tokenizer->template
                                       : chat_template_of(chat_kind_of(tokenizer))->jinja;
}

enum chat_kind chat_kind_of(const struct tokenizer *tokenizer)
{
    if (tokenizer == NULL || tokenizer->chat != CHAT_NONE)
        return tokenizer != NULL ? tokenizer->chat : CHAT_NONE;
    for (int kind = CHAT_CHATML; kind <= CHAT_LLAMA3; kind++)
        if (special_lacking(tokenizer, (enum chat_kind)kind) == NULL)
            return (enum chat_kind)kind;
    return CHAT_NONE;
}

int32_t chat_end(const struct tokenizer *tokenizer)
{
    const enum chat_kind kind = chat_kind_of(tokenizer);
    const struct chat_template *template = chat_template_of(kind);
    const int32_t end =
        kind != CHAT_NONE
            ? bpe_special_find(tokenizer->bpe, template->specials[template->end_special])
            : -1;
    return end >= 0 ? end : tokenizer_eot(tokenizer);
}

enum chat_kind chat_kind_learnt(const struct tokenizer *tokenizer)
{
    return tokenizer != NULL && tokenizer->has_template ? chat_kind_of(tokenizer) : CHAT_NONE;
}

const char *chat_jinja_learnt(const struct tokenizer *tokenizer)
{
    return tokenizer != NULL && tokenizer->has_template ? chat_jinja(tokenizer) : NULL;
}

int32_t chat_end_learnt(const struct tokenizer *tokenizer)
{
    return chat_kind_learnt(tokenizer) != CHAT_NONE ? chat_end(tokenizer)
                                                    : tokenizer_eot(tokenizer);
}

bool chat_has_system(enum chat_kind kind)
{
    return chat_template_of(kind)->system != CHAT_SYSTEM_REFUSED;
}

void chat_use(struct tokenizer *tokenizer, enum chat_kind kind)
{
    if (tokenizer->template != NULL && tokenizer->chat != kind) {
        hostmem_free(tokenizer->template);
        tokenizer->template = NULL;
    }
    tokenizer->chat = kind;
}

static enum gt_status chat_check(const struct tokenizer *tokenizer, enum chat_kind kind)
{
    char lacking[256] = "";
    const enum chat_kind other = chat_kind_of(tokenizer);
    if (special_lacking(tokenizer, kind) == NULL)
        return GT_OK;
    for (const char *const *text = chat_specials(kind); *text != NULL; text++)
        if (!special_has(tokenizer, *text))
            snprintf(lacking + strlen(lacking), sizeof lacking - strlen(lacking), "%s%s",
                     lacking[0] ? ", " : "", *text);
    if (lacking[0] == '\0')
        snprintf(lacking, sizeof lacking, BPE_EOT_TEXT);
    if (other != CHAT_NONE && other != kind)
        return FAIL(GT_USAGE, "--chat=%s: the vocabulary has no token %s, but those of --chat=%s",
                    chat_words[kind], lacking, chat_words[other]);
    return FAIL(
        GT_USAGE,
        "--chat=%s: the vocabulary has no token %s; take that of the model's Instruct version, or let "
        "--tokenizer=train make one for a new model",
        chat_words[kind], lacking);
}

/* Logs that --chat without a word finds no template, and returns GT_USAGE. */
static enum gt_status auto_refuse(const struct tokenizer *tokenizer)
{
    if (tokenizer != NULL && tokenizer->template != NULL)
        return FAIL(
            GT_USAGE,
            "--chat: the model's chat template is not one that is known here; --chat=chatml and the "
            "other words of --help choose a template, which the model then learns");
    return FAIL(
        GT_USAGE,
        "--chat: the vocabulary comes with no chat template, and has no tokens of one; name the "
        "model with --tokenizer=OWNER/NAME, or let --tokenizer=train make a vocabulary for ChatML");
}

enum gt_status chat_choose(const struct tokenizer *tokenizer, enum chat_kind kind,
                           enum chat_kind *out)
{
    const bool unknown =
        tokenizer != NULL && tokenizer->template != NULL && tokenizer->chat == CHAT_NONE;
    const enum chat_kind by_template = unknown ? CHAT_NONE : chat_kind_of(tokenizer);
    if (kind == CHAT_AUTO && by_template == CHAT_NONE)
        return auto_refuse(tokenizer);
    if (kind != CHAT_AUTO && by_template != CHAT_NONE && by_template != kind &&
        tokenizer->template != NULL)
        log_warning("--chat=%s: the model's own template is %s, which it knows already",
                    chat_words[kind], chat_words[by_template]);
    *out = kind == CHAT_AUTO ? by_template : kind;
    return chat_check(tokenizer, *out);
}

/* ---- rendered text ---- */

bool chat_next(const char *text, size_t count, size_t *at, struct chat_piece *out)
{
    if (*at == count)
        return false;
    if (text[*at] == CHAT_MARK[0]) {
        assert(count - *at >= 2);
        *out = (struct chat_piece){.mark = text[*at + 1]};
        *at += 2;
        return true;
    }
    const char *mark = memchr(text + *at, CHAT_MARK[0], count - *at);
    *out = (struct chat_piece){.text = text + *at,
                               .count = mark != NULL ? (size_t)(mark - text) - *at : count - *at};
    *at += out->count;
    return true;
}

size_t chat_cut(const char *text, size_t most)
{
    while (most > 0 &&
           (((unsigned char)text[most] & 0xC0u) == 0x80 || text[most - 1] == CHAT_MARK[0]))
        most--;
    return most;
}

/* ---- ids ---- */

/* A place in a run where tokens begin or cease to count in the loss. */
struct step {
    size_t at;
    int32_t counted; /* from there on: CHAT_COUNTED or 0 */
};

struct chat_encoder {
    struct tokenizer_encoder *encoder;
    const struct tokenizer *tokenizer;
    const struct chat_template *template;
    char *run; /* the text since the last special token */
    size_t run_count;
    struct step steps[STEPS_MAX];
    size_t step_count;
    int32_t counted;      /* at the beginning of the run */
    enum bpe_place place; /* of the run */
    bool eats;            /* the special token before the run removes the white space after it */
    int32_t *before;      /* ids of what comes before a step */
    struct tokenizer_unknown unknown;
};

enum gt_status chat_encoder_create(const void *owner, const struct tokenizer *tokenizer,
                                   enum chat_kind kind, size_t room, struct chat_encoder **out)
{
    struct chat_encoder *encoder;
    TRY(HOSTMEM_NEW(owner, 1, "encoding conversations", &encoder));
    encoder->tokenizer = tokenizer;
    encoder->template = chat_template_of(kind);
    enum gt_status status = tokenizer_encoder_create(encoder, tokenizer, &encoder->encoder);
    THEN(status, HOSTMEM_NEW(encoder, room, "text between special tokens", &encoder->run));
    THEN(status, HOSTMEM_NEW(encoder, room * tokenizer_pipeline(tokenizer)->growth, "its tokens",
                             &encoder->before));
    return FINISH(status, out, encoder, hostmem_free);
}

const struct tokenizer_unknown *chat_encoder_unknown(const struct chat_encoder *encoder)
{
    return &encoder->unknown;
}

/* Adds the bytes without a token that the encoder has met since `before`. */
static void unknown_add(struct chat_encoder *encoder, const struct tokenizer_unknown *before)
{
    const struct tokenizer_unknown *now = tokenizer_encoder_unknown(encoder->encoder);
    if (now->total == before->total)
        return;
    encoder->unknown.total += now->total - before->total;
    for (int byte = 0; byte < 256; byte++)
        encoder->unknown.counts[byte] += now->counts[byte] - before->counts[byte];
}

/* Returns the number of bytes of the ids' texts. */
static size_t ids_bytes(const struct chat_encoder *encoder, const int32_t *ids, size_t count)
{
    char scratch[4];
    const char *text = NULL;
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += tokenizer_token_bytes(encoder->tokenizer, ids[i], scratch, &text);
    return bytes;
}

/* Sets *out to the index of the first id whose text ends after a place of the run.  The text before
 * the place is encoded to count its bytes, because a tokenizer may normalize. */
static enum gt_status step_find(struct chat_encoder *encoder, size_t at, const int32_t *ids,
                                size_t count, size_t *out)
{
    struct tokenizer_fault fault;
    size_t before = 0, index = 0, bytes = 0;
    tokenizer_encoder_place(encoder->encoder, encoder->place);
    if (at > 0 && at < encoder->run_count)
        TRY(tokenizer_encoder_run(encoder->encoder, encoder->run, at, TOKENIZER_SPECIAL_AS_TEXT,
                                  encoder->before, &before, &fault));
    const size_t wanted = ids_bytes(encoder, encoder->before, before);
    while (index < count && (bytes += ids_bytes(encoder, ids + index, 1)) <= wanted)
        index++;
    *out = at == encoder->run_count ? count : index;
    return GT_OK;
}

/* Encodes the run to out[*out_count], and empties it. */
static enum gt_status run_encode(struct chat_encoder *encoder, int32_t *out, size_t *out_count)
{
    struct tokenizer_fault fault;
    size_t begins[STEPS_MAX + 1], count = 0;
    const struct tokenizer_unknown before = *tokenizer_encoder_unknown(encoder->encoder);
    tokenizer_encoder_place(encoder->encoder, encoder->place);
    if (encoder->run_count > 0)
        TRY(tokenizer_encoder_run(encoder->encoder, encoder->run, encoder->run_count,
                                  TOKENIZER_SPECIAL_AS_TEXT, out, &count, &fault));
    unknown_add(encoder, &before);
    for (size_t i = 0; i < encoder->step_count; i++)
        TRY(step_find(encoder, encoder->steps[i].at, out, count, &begins[i]));
    for (size_t at = 0, i = 0; at < count; at++) {
        for (; i < encoder->step_count && begins[i] <= at; i++)
            encoder->counted = encoder->steps[i].counted;
        out[at] |= encoder->counted;
    }
    if (encoder->step_count > 0)
        encoder->counted = encoder->steps[encoder->step_count - 1].counted;
    encoder->run_count = encoder->step_count = 0;
    *out_count = count;
    return GT_OK;
}

/* Adds a part to the run.  Returns false for a special token, which ends it. */
static bool part_add(struct chat_encoder *encoder, const struct chat_piece *part)
{
    if (part->mark == CHAT_MARK_COUNT || part->mark == CHAT_MARK_IGNORE) {
        assert(encoder->step_count < STEPS_MAX);
        encoder->steps[encoder->step_count++] = (struct step){
            .at = encoder->run_count, .counted = part->mark == CHAT_MARK_COUNT ? CHAT_COUNTED : 0};
        return true;
    }
    if (part->mark != 0)
        return false;
    size_t begin = 0;
    while (encoder->eats && begin < part->count && strchr(" \t\n\r\v\f", part->text[begin]) != NULL)
        begin++;
    encoder->eats = encoder->eats && begin == part->count;
    memcpy(encoder->run + encoder->run_count, part->text + begin, part->count - begin);
    encoder->run_count += part->count - begin;
    return true;
}

static int32_t special_id(const struct chat_encoder *encoder, char mark)
{
    if (mark == CHAT_MARK_END_OF_TEXT)
        return tokenizer_eot(encoder->tokenizer);
    return bpe_special_find(encoder->tokenizer->bpe, encoder->template->specials[mark - '0']);
}

enum gt_status chat_encode(struct chat_encoder *encoder, const char *text, size_t count,
                           int32_t *out, size_t *out_count)
{
    struct chat_piece part;
    size_t ids = 0, at = 0, more = 0;
    encoder->counted = 0;
    encoder->place = BPE_PLACE_BEGIN;
    encoder->eats = false;
    while (chat_next(text, count, &at, &part)) {
        if (part_add(encoder, &part) && encoder->step_count < STEPS_MAX)
            continue;
        TRY(run_encode(encoder, out + ids, &more));
        ids += more;
        /* If a full list of steps ended the run, the same text continues. */
        encoder->place = ids > 0 ? BPE_PLACE_WITHIN : encoder->place;
        if (part.mark == 0 || part.mark == CHAT_MARK_COUNT || part.mark == CHAT_MARK_IGNORE)
            continue;
        const int32_t id = special_id(encoder, part.mark);
        encoder->eats = bpe_strip_of(encoder->tokenizer->bpe, id).right;
        encoder->place = BPE_PLACE_AFTER;
        out[ids++] = id | encoder->counted;
    }
    TRY(run_encode(encoder, out + ids, &more));
    *out_count = ids + more;
    return GT_OK;
}
