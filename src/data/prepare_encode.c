/* Turns text into token files: cuts batches of documents into pieces, encodes these in several
 * threads, and writes the tokens in order.
 *
 * The main thread fills a batch and decides which split each document goes to.  Then the threads
 * encode its pieces, each into its own part of one buffer.  Then the main thread writes them.
 * Pieces are cut by content alone (bpe_split_cut()), so the output does not depend on the number of
 * threads.  The run can be saved after a batch: the saved state covers exactly the documents
 * written, without the one that was just read.
 *
 * A continued run does the same from the beginning of the text, but neither encodes nor writes the
 * part that the stopped run has written.  It therefore needs no other state, and detects a changed
 * text.  Reading is fast compared with tokenizing.
 */
#include "data/prepare_encode.h"

#include "base/crc32c.h"
#include "base/file.h"
#include "base/size.h"
#include "base/thread.h"
#include "base/utf8.h"
#include "data/chat_kind.h"
#include "data/prepare_manifest.h"
#include "data/prepare_pass.h"
#include "data/prepare_spec.h"
#include "data/text_kind.h"
#include "data/tokenizer_encoder.h"

#define CONVERSATIONS_BYTES ((uint64_t)4 << 20) /* are packed into rows together */

/* ---- opening and closing ---- */

static enum gt_status threads_open(struct prepare *prep)
{
    const bool is_chat = prep->spec->chat != CHAT_NONE;
    TRY(HOSTMEM_NEW(prep, (size_t)prep->spec->threads, "encoders", &prep->encoders));
    TRY(HOSTMEM_NEW(prep, (size_t)prep->spec->threads, "encoders", &prep->chats));
    TRY(HOSTMEM_NEW(prep, (size_t)prep->spec->threads, "tokens of threads", &prep->ids));
    for (int i = 0; i < prep->spec->threads; i++) {
        TRY(is_chat ? chat_encoder_create(prep, prep->tokenizer, prep->spec->chat, PIECE_BYTES,
                                          &prep->chats[i])
                    : tokenizer_encoder_create(prep, prep->tokenizer, &prep->encoders[i]));
        TRY(HOSTMEM_NEW(prep, PIECE_BYTES * tokenizer_pipeline(prep->tokenizer)->growth,
                        "tokens of a piece", &prep->ids[i]));
    }
    return GT_OK;
}

/* Without --shard-tokens, 32-bit ids go to a single file only when they certainly fit. */
static void writer_choose(struct prepare *prep)
{
    struct token_writer_spec *spec = &prep->writer_spec;
    spec->folder = prep->spec->out_dir;
    spec->width_bytes = prep->tokenizer->vocab_size > UINT16_MAX + 1 ? 4 : 2;
    spec->shard_tokens = prep->spec->shard_tokens;
    prep->mask_spec = (struct token_writer_spec){
        .folder = spec->folder,
        .width_bytes = 1,
        .mask_row = prep->spec->chat != CHAT_NONE ? prep->spec->block_size : 0};
    const uint64_t most =
        INT32_MAX / (prep->spec->encoding != NULL ? 8 : 2); /* the text may be longer in UTF-8 */
    const bool small = (!prep->many || prep->spec->chat != CHAT_NONE) && !prep->corpus->has_stdin &&
                       prep->corpus->size_bytes < most;
    if (spec->width_bytes == 4 && spec->shard_tokens == 0 && !small)
        spec->shard_tokens = (int64_t)1 << 30;
}

/* Counts the characters of each token of a bpe, for a split by position; a token that does not come
 * from the text has none. */
static enum gt_status weights_make(struct prepare *prep)
{
    const struct tokenizer *tokenizer = prep->tokenizer;
    if (prep->spec->tokenizer != TOKENIZER_BPE || prep->split != PREPARE_SPLIT_POSITION)
        return GT_OK;
    TRY(HOSTMEM_NEW(prep, (size_t)tokenizer->vocab_size, "lengths of tokens", &prep->weights));
    for (int64_t id = 0; id < tokenizer->vocab_size; id++) {
        char scratch[4];
        const char *text = NULL;
        const size_t count = tokenizer_token_bytes(tokenizer, (int32_t)id, scratch, &text);
        prep->weights[id] = (int32_t)utf8_count_leads((const unsigned char *)text, count);
    }
    if (tokenizer_eot(tokenizer) >= 0)
        prep->weights[tokenizer_eot(tokenizer)] = 0;
    if (tokenizer_pipeline(tokenizer)->bos >= 0)
        prep->weights[tokenizer_pipeline(tokenizer)->bos] = 0;
    if (tokenizer_pipeline(tokenizer)->unknown >= 0)
        prep->weights[tokenizer_pipeline(tokenizer)->unknown] = 0;
    return GT_OK;
}

enum gt_status prepare_encode_open(struct prepare *prep)
{
    writer_choose(prep);
    TRY(weights_make(prep));
    TRY(threads_open(prep));
    prep->lacks_bytes = prep->tokenizer->bpe != NULL && bpe_lacks_bytes(prep->tokenizer->bpe);
    TRY(HOSTMEM_NEW(prep, BATCH_BYTES, "text of a batch", &prep->text));
    const size_t width =
        prep->spec->chat != CHAT_NONE ? sizeof(int32_t) : prep->writer_spec.width_bytes;
    prep->packed_width = width * tokenizer_pipeline(prep->tokenizer)->growth;
    TRY(hostmem_alloc(prep, BATCH_BYTES, prep->packed_width, "tokens of a batch", &prep->packed));
    TRY(HOSTMEM_NEW(prep, BATCH_PIECES_MAX, "pieces of a batch", &prep->pieces));
    TRY(token_writer_create(prep, &prep->writer_spec, &prep->writer));
    if (prep->spec->chat != CHAT_NONE)
        TRY(token_writer_create(prep, &prep->mask_spec, &prep->masks));
    if (prep->phase == PREPARE_PHASE_ENCODE)
        TRY(prepare_state_shards(prep));
    if (prep->spec->dedup)
        TRY(dedup_create(prep, DEDUP_TABLE_BYTES_MAX, &prep->dedup));
    return prepare_open_documents(prep, true);
}

/* ---- a piece, on any thread ---- */

static void tokens_pack(unsigned char *out, size_t width_bytes, const int32_t *ids, size_t count)
{
    for (size_t i = 0; i < count && width_bytes == 2; i++)
        le_write(out + 2 * i, (uint32_t)ids[i], 2);
    for (size_t i = 0; i < count && width_bytes == 4; i++)
        le_write(out + 4 * i, (uint32_t)ids[i], 4);
}

/* Returns the bytes without a token that a thread has met. */
static const struct tokenizer_unknown *thread_unknown(const struct prepare *prep, int thread)
{
    return prep->chats[thread] != NULL ? chat_encoder_unknown(prep->chats[thread])
                                       : tokenizer_encoder_unknown(prep->encoders[thread]);
}

static void piece_encode(void *context, size_t index, int thread)
{
    struct prepare *prep = context;
    struct prepare_piece *piece = &prep->pieces[index];
    const char *text = prep->text + piece->offset;
    const size_t width = prep->writer_spec.width_bytes;
    const struct tokenizer_unknown *unknown = thread_unknown(prep, thread);
    const uint64_t unknown_before = unknown->total;
    size_t count = 0;
    if (prep->spec->chat != CHAT_NONE) {
        piece->status =
            chat_encode(prep->chats[thread], text, piece->count, prep->ids[thread], &count);
        piece->unknown_count = unknown->total - unknown_before;
        memcpy(prep->packed + piece->offset * prep->packed_width, prep->ids[thread],
               count * sizeof(int32_t));
        piece->tokens = (int64_t)count;
        return;
    }
    tokenizer_encoder_place(prep->encoders[thread],
                            piece->first ? BPE_PLACE_BEGIN : BPE_PLACE_WITHIN);
    if (!prep->replays || prep->lacks_bytes) /* unknown bytes are counted again */
        piece->status = tokenizer_encoder_run(prep->encoders[thread], text, piece->count,
                                              TOKENIZER_SPECIAL_AS_TEXT, prep->ids[thread], &count,
                                              &piece->fault);
    if (piece->status != GT_OK)
        return;
    assert(count * width <= piece->count * prep->packed_width);
    tokens_pack(prep->packed + piece->offset * prep->packed_width, width, prep->ids[thread], count);
    piece->tokens = (int64_t)count;
    piece->unknown_count = unknown->total - unknown_before;
    piece->invalid_count = utf8_count_invalid((const unsigned char *)text, piece->count);
    for (size_t i = 0; i < count && prep->weights != NULL; i++)
        piece->weight += prep->weights[prep->ids[thread][i]];
    piece->has_zero = memchr(text, 0, piece->count) != NULL;
}

/* ---- writing ---- */

/* Writes tokens, or bytes of the mask, unless the stopped run has written them. */
static enum gt_status put(const struct prepare *prep, struct token_writer *writer,
                          enum token_split split, const unsigned char *bytes, int64_t count)
{
    return prep->replays ? GT_OK : token_writer_put(writer, split, bytes, count);
}

static enum gt_status put_token(struct prepare *prep, enum token_split split, int32_t id)
{
    unsigned char bytes[4];
    assert(id >= 0);
    if (prep->weights != NULL)
        prep->progress.weight += prep->weights[id];
    tokens_pack(bytes, prep->writer_spec.width_bytes, &id, 1);
    return put(prep, prep->writer, split, bytes, 1);
}

/* Writes the separator before a document, which depends on the earlier documents of its split, and
 * the tokenizer's first token. */
static enum gt_status put_before(struct prepare *prep, enum token_split split)
{
    const bool later = prep->progress.has_document[split];
    prep->progress.has_document[split] = true;
    if (prep->separator == PREPARE_SEPARATOR_NEWLINE && prep->progress.open_line[split])
        TRY(put_token(prep, split, tokenizer_id_of(prep->tokenizer, '\n')));
    if (prep->separator == PREPARE_SEPARATOR_BEFORE ||
        (prep->separator == PREPARE_SEPARATOR_BETWEEN && later))
        TRY(put_token(prep, split, tokenizer_eot(prep->tokenizer)));
    const int32_t bos = tokenizer_pipeline(prep->tokenizer)->bos;
    return bos >= 0 ? put_token(prep, split, bos) : GT_OK;
}

/* Completes a document: updates the counts and writes the separator after it. */
static enum gt_status put_after(struct prepare *prep, enum token_split split)
{
    struct prepare_progress *progress = &prep->progress;
    progress->split_documents[split]++;
    progress->counts.invalid_documents += progress->document_invalid;
    progress->counts.zero_documents += progress->document_zero;
    progress->document_invalid = progress->document_zero = false;
    if (prep->separator == PREPARE_SEPARATOR_AFTER)
        return put_token(prep, split, tokenizer_eot(prep->tokenizer));
    return GT_OK;
}

static enum gt_status piece_refuse(const struct prepare *prep, const struct prepare_piece *piece)
{
    const char *path = prep->corpus->files[piece->file].path;
    if (piece->status == GT_DATA && prep->learns) /* the first pass had seen all characters */
        return FAIL(GT_DATA, "%s: the file changed while it was read", path);
    tokenizer_fault_report(prep->tokenizer, piece->status, &piece->fault, path);
    return piece->status;
}

/* Warns once per run about text that looks like Latin-1. */
static void latin_note(struct prepare *prep, const struct prepare_piece *piece)
{
    const char *latin = text_guess_latin(prep->text + piece->offset, piece->count);
    if (latin != NULL && !prep->latin_said)
        log_warning("%s: this text looks like Latin-1, not UTF-8; --encoding=%s converts it",
                    prep->corpus->files[piece->file].path, latin);
    prep->latin_said |= latin != NULL;
}

/* Counts bytes without a token, and stores the place of the first: exactly, unless the text was
 * normalized. */
static void unknown_count(struct prepare *prep, const struct prepare_piece *piece)
{
    const bool is_first = prep->progress.counts.unknown_bytes == 0;
    const char *path = prep->corpus->files[piece->file].path, *text = prep->text + piece->offset;
    size_t at = 0;
    prep->progress.counts.unknown_bytes += piece->unknown_count;
    if (piece->unknown_count == 0 || !is_first)
        return;
    while (at < piece->count && !bpe_is_unknown(prep->tokenizer->bpe, text[at]))
        at++;
    snprintf(prep->unknown_first, sizeof prep->unknown_first, "%s: %s %" PRIu64, path,
             piece->is_line ? "line" : "byte", piece->is_line ? piece->place : piece->place + at);
}

/* Warns about the bytes without a token of the whole run. */
static void unknown_note(const struct prepare *prep)
{
    struct tokenizer_unknown all = {0};
    for (int i = 0; i < prep->spec->threads; i++) {
        const struct tokenizer_unknown *one = thread_unknown(prep, i);
        all.total += one->total;
        for (int byte = 0; byte < 256; byte++)
            all.counts[byte] += one->counts[byte];
    }
    tokenizer_unknown_warn(prep->tokenizer, &all,
                           TEXT(FILE_PATH_MAX + 64, "from %s on", prep->unknown_first));
}

static enum gt_status piece_put(struct prepare *prep, const struct prepare_piece *piece)
{
    struct prepare_progress *progress = &prep->progress;
    if (piece->status != GT_OK)
        return piece_refuse(prep, piece);
    if (piece->first)
        TRY(put_before(prep, piece->split));
    TRY(put(prep, prep->writer, piece->split, prep->packed + piece->offset * prep->packed_width,
            piece->tokens));
    unknown_count(prep, piece);
    progress->weight += piece->weight;
    progress->counts.invalid_bytes += piece->invalid_count;
    progress->document_invalid |= piece->invalid_count > 0;
    if (piece->invalid_count > 0)
        latin_note(prep, piece);
    progress->document_zero |= piece->has_zero;
    if (piece->count > 0)
        progress->open_line[piece->split] = prep->text[piece->offset + piece->count - 1] != '\n';
    return piece->last ? put_after(prep, piece->split) : GT_OK;
}

/* ---- conversations ----
 *
 * They are packed into rows of --block-size tokens.  Those of a batch are sorted by length.  A row
 * repeatedly takes the longest one that fits into its remaining space (best fit), and end-of-text
 * tokens fill the rest.  One more token follows the last row, because the last target of a sample
 * is the token after it.  A conversation without a target within a row is left out. */

/* Orders pieces by split, then from the longest to the shortest, then by their place in the text.
 */
static int piece_compare(const void *a, const void *b)
{
    const struct prepare_piece *one = a, *other = b;
    if (one->split != other->split)
        return one->split < other->split ? -1 : 1;
    if (one->tokens != other->tokens)
        return one->tokens > other->tokens ? -1 : 1;
    return one->offset < other->offset ? -1 : 1;
}

static const int32_t *piece_ids(const struct prepare *prep, const struct prepare_piece *piece)
{
    return (const int32_t *)(void *)(prep->packed + piece->offset * prep->packed_width);
}

/* Cuts a conversation to a row and counts it, or leaves it out by setting its number of tokens to
 * 0. */
static void piece_fit(struct prepare *prep, struct prepare_piece *piece)
{
    struct prepare_counts *counts = &prep->progress.counts;
    const int64_t row = prep->spec->block_size, tokens = piece->tokens;
    const int32_t *ids = piece_ids(prep, piece);
    int64_t first = 0;
    while (first < tokens && (ids[first] & CHAT_COUNTED) == 0)
        first++;
    piece->tokens = first < min_i64(tokens, row) ? min_i64(tokens, row) : 0;
    if (piece->tokens > 0) {
        counts->cut_conversations +=
            !piece->last || tokens - 1 > row; /* losing the end of text alone is not a cut */
        prep->progress.split_documents[piece->split]++;
        return;
    }
    counts->targetless++;
    if (first < tokens && (counts->targetless_needs == 0 || first + 1 < counts->targetless_needs))
        counts->targetless_needs = first + 1;
}

/* A row that is being written. */
struct row {
    enum token_split split;
    int64_t count;
    unsigned char bits; /* of the tokens since the last whole byte of the mask */
};

static enum gt_status row_add(struct prepare *prep, struct row *row, int32_t id)
{
    const bool counts = (id & CHAT_COUNTED) != 0;
    TRY(put_token(prep, row->split, id & ~CHAT_COUNTED));
    prep->progress.counts.answer_tokens += counts;
    row->bits |= (unsigned char)(counts << row->count % 8);
    if (++row->count % 8 != 0)
        return GT_OK;
    TRY(put(prep, prep->masks, row->split, &row->bits, 1));
    row->bits = 0;
    return GT_OK;
}

/* Adds a conversation, and sets its number of tokens to 0. */
static enum gt_status row_add_piece(struct prepare *prep, struct row *row,
                                    struct prepare_piece *piece)
{
    const int32_t *ids = piece_ids(prep, piece);
    for (; piece->tokens > 0; piece->tokens--)
        TRY(row_add(prep, row, *ids++));
    return GT_OK;
}

static enum gt_status rows_put(struct prepare *prep)
{
    struct prepare_piece *end = prep->pieces + prep->piece_count;
    for (struct prepare_piece *piece = prep->pieces; piece < end; piece++) {
        if (piece->status != GT_OK)
            return piece_refuse(prep, piece);
        unknown_count(prep, piece);
        piece_fit(prep, piece);
    }
    qsort(prep->pieces, prep->piece_count, sizeof prep->pieces[0], piece_compare);
    for (struct prepare_piece *first = prep->pieces; first < end; first++) {
        struct row row = {.split = first->split};
        if (first->tokens == 0)
            continue;
        for (struct prepare_piece *piece = first; piece < end && piece->split == row.split; piece++)
            if (piece->tokens <= prep->spec->block_size - row.count)
                TRY(row_add_piece(prep, &row, piece));
        while (row.count < prep->spec->block_size)
            TRY(row_add(prep, &row, tokenizer_eot(prep->tokenizer)));
    }
    return GT_OK;
}

static enum gt_status rows_end(struct prepare *prep)
{
    const unsigned char none = 0;
    for (int split = TOKEN_TRAIN; split <= TOKEN_VAL; split++) {
        if (token_writer_tokens(prep->writer, (enum token_split)split) == 0)
            continue;
        TRY(put_token(prep, (enum token_split)split, tokenizer_eot(prep->tokenizer)));
        TRY(token_writer_put(prep->masks, (enum token_split)split, &none, 1));
    }
    return GT_OK;
}

/* Encodes and writes the batch, empties it, and saves the state when enough text has been written.
 */
static enum gt_status batch_run(struct prepare *prep)
{
    thread_for_each(prep->spec->threads, prep->piece_count, piece_encode, prep);
    for (size_t i = 0; i < prep->piece_count && prep->masks == NULL; i++)
        TRY(piece_put(prep, &prep->pieces[i]));
    if (prep->masks != NULL)
        TRY(rows_put(prep));
    prep->piece_count = prep->text_count = 0;
    if (prep->replays ||
        prep->progress.documents.text_bytes - prep->saved_at_bytes < prep->spec->save_every_bytes)
        return GT_OK;
    TRY(token_writer_sync(prep->writer));
    if (prep->masks != NULL)
        TRY(token_writer_sync(prep->masks));
    prep->saved_at_bytes = prep->progress.documents.text_bytes;
    return prepare_state_save(prep, PREPARE_PHASE_ENCODE);
}

/* ---- filling ---- */

/* Chooses the split of a document, and checks whether it is a copy.  A long document's split
 * depends on its first part. */
static enum gt_status document_place(struct prepare *prep, const struct document *document,
                                     enum token_split *out_split, bool *out_known)
{
    *out_known = false;
    *out_split = prep->progress.long_split;
    if (document->continues)
        return GT_OK;
    *out_split = TOKEN_TRAIN;
    const bool by_document = prep->split == PREPARE_SPLIT_DOCUMENT;
    if (!by_document && prep->dedup == NULL)
        return GT_OK;
    const struct document_hash hash = document_hash_of(document->text, document->count);
    if (by_document && document_hash_draw(hash, prep->spec->seed) < prep->spec->val_fraction)
        *out_split = TOKEN_VAL;
    prep->progress.long_split = *out_split;
    return prep->dedup != NULL && !document->unfinished ? dedup_add(prep->dedup, hash, out_known)
                                                        : GT_OK;
}

/* Cuts the text at the end of the batch into pieces. */
static void pieces_add(struct prepare *prep, const struct document *document,
                       enum token_split split)
{
    const size_t end = prep->text_count + document->count;
    const uint64_t file = documents_state_get(prep->documents)->file;
    size_t at = prep->text_count;
    const bool joins = bpe_splits[tokenizer_pipeline(prep->tokenizer)->split].joins_newlines;
    bool begins = !document->continues;
    do {
        bool forced = false;
        const size_t left = end - at;
        const size_t count = left <= PIECE_BYTES
                                 ? left
                                 : bpe_split_cut(prep->text + at, PIECE_BYTES, joins, &forced);
        const bool ends = at + count == end;
        assert(prep->piece_count < BATCH_PIECES_MAX);
        prep->pieces[prep->piece_count++] =
            (struct prepare_piece){.offset = at,
                                   .count = count,
                                   .split = split,
                                   .first = begins,
                                   .last = ends && !document->unfinished,
                                   .file = file,
                                   .place = document->place,
                                   .is_line = document->is_line};
        if (!document->is_line)
            prep->pieces[prep->piece_count - 1].place += at - prep->text_count;
        prep->progress.counts.forced_cuts += forced;
        begins = false;
        at += count;
    } while (at < end);
    prep->text_count = end;
}

/* Returns true when the batch has room for `count` more bytes.  Any two adjacent pieces of a
 * document together exceed PIECE_BYTES, which bounds their number. */
static bool batch_takes(const struct prepare *prep, size_t count)
{
    return count <= BATCH_BYTES - prep->text_count &&
           prep->piece_count + 2 * (count / PIECE_BYTES) + 2 <= BATCH_PIECES_MAX;
}

/* Ends the replay: from here on, tokens are written. */
static enum gt_status replay_end(struct prepare *prep)
{
    const struct prepare_text *text = &prep->progress.text, *then = &prep->stopped;
    if (text->parts != then->parts || text->bytes != then->bytes || text->crc32c != then->crc32c)
        return FAIL(
            GT_DATA,
            "%s: the text changed after the stopped run read it; start again with --restart",
            prep->spec->out_dir);
    if (prep->weights != NULL && prep->phase == PREPARE_PHASE_ENCODE)
        TRY(token_writer_weight(prep->writer, prep->weights, prep->tokenizer->vocab_size,
                                &prep->progress.weight));
    prep->replays = false;
    prep->owns_files = true;
    prep->saved_at_bytes = prep->progress.documents.text_bytes;
    return GT_OK;
}

static enum gt_status document_add(struct prepare *prep, const struct document *document)
{
    enum token_split split = TOKEN_TRAIN;
    bool known = false;
    struct document part = *document;
    if (prep->masks != NULL && part.count > PIECE_BYTES) { /* a conversation is one piece */
        part.count = chat_cut(part.text, PIECE_BYTES);
        part.unfinished = true;
    }
    /* The rows depend on the batches of conversations, so save_every must not. */
    const uint64_t most = prep->masks != NULL ? CONVERSATIONS_BYTES : prep->spec->save_every_bytes;
    struct prepare_text *read = &prep->progress.text;
    const bool caught_up =
        prep->replays && prep->phase == PREPARE_PHASE_ENCODE && read->parts == prep->stopped.parts;
    if (caught_up || !batch_takes(prep, document->count) || prep->text_count >= most)
        TRY(batch_run(prep));
    if (caught_up)
        TRY(replay_end(prep));
    TRY(document_place(prep, document, &split, &known));
    prep->progress.counts.duplicates += known;
    if (!known) {
        memcpy(prep->text + prep->text_count, part.text, part.count);
        pieces_add(prep, &part, split);
    }
    prep->progress.documents = *documents_state_get(prep->documents);
    read->parts++;
    read->bytes += (int64_t)document->count;
    read->crc32c = file_crc32c((uint32_t)read->crc32c, document->text, document->count);
    return GT_OK;
}

enum gt_status prepare_encode(struct prepare *prep)
{
    struct document document;
    bool found = false;
    TRY(documents_next(prep->documents, &document, &found));
    while (found) {
        TRY(document_add(prep, &document));
        prepare_report(prep, false);
        TRY(documents_next(prep->documents, &document, &found));
    }
    prep->progress.documents = *documents_state_get(prep->documents);
    TRY(batch_run(prep));
    if (prep->replays)
        TRY(replay_end(prep));
    if (prep->masks != NULL && prep->phase != PREPARE_PHASE_COMMIT)
        TRY(rows_end(prep));
    unknown_note(prep);
    prepare_report(prep, true);
    return GT_OK;
}
