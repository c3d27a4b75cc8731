/* Reads the documents of a corpus.
 *
 * One buffer receives blocks of the text; a document is a part of it.  For a JSONL file, that part
 * is the line, and jansson owns the document's text.  The state advances only when a document is
 * returned, so it always describes what was read up to the caller's document.
 */
#include "data/documents.h"

#include <ctype.h>

#include "base/size.h"
#include "data/chat_forms.h"
#include "data/chat_kind.h"
#include "data/chat_render.h"
#include "data/input.h"
#include "data/records.h"
#include "data/text_kind.h"
#include "data/text_mark.h"

#define BLOCK_BYTES ((size_t)1 << 20)
#define DECODE_BYTES_MIN ((size_t)64)
#define BUFFER_BYTES (DOCUMENT_BYTES_MAX + BLOCK_BYTES + DECODE_BYTES_MIN)
#define NOTES_MAX 10

struct documents {
    struct documents_spec spec;
    struct documents_state state;
    struct input *input; /* the open file, or NULL */
    bool in_text;
    bool is_jsonl;
    struct text_decoder *decoder;  /* NULL until a text needs one */
    bool decodes;                  /* the current text is not UTF-8 */
    bool converts_lines;           /* of the current text */
    bool after_return;             /* its last byte so far was "\r" */
    bool converted;                /* the current text is counted as converted */
    bool wide;                     /* zero bytes are normal in the given encoding */
    char *buffer;                  /* BUFFER_BYTES */
    size_t begin, end;             /* the bytes in the buffer that no document has used */
    bool text_ended;               /* the buffer has the last bytes of the text */
    json_t *value;                 /* owns the document's text, for JSONL */
    struct chat_text conversation; /* the document, with spec.chat: DOCUMENT_BYTES_MAX */
    struct record_scan scan;       /* of the text's records */
    struct record_columns columns; /* of a CSV file */
    uint64_t line_ends;            /* line ends consumed in the text */
    uint64_t files_bytes;
    bool marks_warned;
    char reason[JSONL_REASON_BYTES];
};

const char *const documents_format_words[] = {"auto", "text", "jsonl", NULL};
const char *const documents_end_words[] = {"file", "blank-line", "end-of-text", NULL};
_Static_assert(sizeof documents_end_words / sizeof documents_end_words[0] ==
                   DOCUMENTS_END_COUNT + 1,
               "a word for every end");

/* ---- creation ---- */

static void documents_close(void *object)
{
    struct documents *documents = object;
    json_decref(documents->value);
    json_decref(documents->columns.names);
}

enum gt_status documents_create(const void *owner, const struct documents_spec *spec,
                                struct documents **out)
{
    struct documents *documents;
    TRY(HOSTMEM_NEW(owner, 1, "document reader", &documents));
    hostmem_at_free(documents, documents_close);
    documents->spec = *spec;
    enum gt_status status = HOSTMEM_NEW(documents, BUFFER_BYTES, "a document", &documents->buffer);
    documents->conversation.room = DOCUMENT_BYTES_MAX;
    if (status == GT_OK && spec->chat.kind != CHAT_NONE)
        status = HOSTMEM_NEW(documents, DOCUMENT_BYTES_MAX, "a conversation",
                             &documents->conversation.text);
    bool is_ascii = true;
    if (status == GT_OK && spec->encoding != NULL)
        status = text_encoding_check(spec->encoding, &is_ascii);
    documents->wide = !is_ascii;
    return FINISH(status, out, documents, hostmem_free);
}

const struct documents_state *documents_state_get(const struct documents *documents)
{
    return &documents->state;
}

uint64_t documents_file_bytes(const struct documents *documents)
{
    return documents->files_bytes +
           (documents->input != NULL ? input_info_get(documents->input)->file_bytes : 0);
}

/* ---- the bytes of a text ---- */

/* Counts the current text as converted, and remembers the first one. */
static void converted_count(struct documents *documents)
{
    struct documents_state *state = &documents->state;
    state->converted_count += !documents->converted;
    documents->converted = true;
    if (state->converted[0] == '\0')
        snprintf(state->converted, sizeof state->converted, "%s",
                 input_info_get(documents->input)->label);
}

/* Turns every "\r\n" and "\r" in the buffer from `at` on into "\n".  The bytes from there on are
 * new. */
static void lines_convert(struct documents *documents, size_t at)
{
    char *buffer = documents->buffer;
    size_t to = at;
    if (!documents->after_return && memchr(buffer + at, '\r', documents->end - at) == NULL)
        return;
    for (; at < documents->end; at++) {
        const bool is_return = buffer[at] == '\r';
        if (buffer[at] != '\n' || !documents->after_return)
            buffer[to++] = is_return ? '\n' : buffer[at];
        documents->after_return = is_return;
        documents->state.line_end_count += is_return;
    }
    documents->end = to;
    converted_count(documents);
}

/* Reads until the buffer has at least `count` bytes (at most DOCUMENT_BYTES_MAX + BLOCK_BYTES), or
 * the text ends. */
static enum gt_status buffer_fill(struct documents *documents, size_t count)
{
    documents->end -= documents->begin;
    memmove(documents->buffer, documents->buffer + documents->begin, documents->end);
    documents->begin = 0;
    while (!documents->text_ended && documents->end < count) {
        size_t got = 0, room = count - documents->end;
        unsigned char *to = (unsigned char *)documents->buffer + documents->end;
        if (documents->decodes && room < DECODE_BYTES_MIN)
            room = DECODE_BYTES_MIN;
        TRY(documents->decodes
                ? text_decoder_read(documents->decoder, documents->input, to, room, &got)
                : input_read(documents->input, to, room, &got));
        documents->end += got;
        documents->text_ended = got == 0;
        if (documents->converts_lines)
            lines_convert(documents, documents->end - got);
    }
    return GT_OK;
}

/* Consumes the next `count` bytes of the buffer. */
static void buffer_use(struct documents *documents, size_t count)
{
    documents->begin += count;
    documents->state.offset += count;
}

/* ---- files and texts ---- */

static const struct corpus_file *file_current(const struct documents *documents)
{
    return &documents->spec.corpus->files[documents->state.file];
}

/* Steps to the next file.  Stores the INPUT's totals after its last file. */
static void file_count_in(struct documents *documents)
{
    const struct corpus *corpus = documents->spec.corpus;
    const size_t input = file_current(documents)->input;
    documents->state.file++;
    if (documents->state.file < corpus->file_count && file_current(documents)->input == input)
        return;
    documents->spec.inputs[input] = documents->state.input;
    documents->state.input = (struct documents_input){.size_bytes = 0};
}

/* Closes the file after all its texts were read, or when it is skipped. */
static enum gt_status file_finish(struct documents *documents, bool skipped)
{
    struct documents_state *state = &documents->state;
    const struct input_info *info = input_info_get(documents->input);
    if (skipped) {
        documents->files_bytes += file_current(documents)->size_bytes;
        state->input.skipped_count++;
    } else {
        TRY(corpus_file_check(file_current(documents)));
        documents->files_bytes += info->file_bytes;
        state->input.crc32c = info->crc32c;
        state->input.size_bytes += info->file_bytes;
        state->input.file_count++;
        state->file_count++;
    }
    hostmem_free(documents->input);
    documents->input = NULL;
    file_count_in(documents);
    return GT_OK;
}

/* Starts the next text of the open file; *out_found is false when there is none. */
static enum gt_status text_begin(struct documents *documents, bool *out_found)
{
    struct documents_state *state = &documents->state;
    TRY(input_next(documents->input, out_found));
    if (!*out_found)
        return GT_OK;
    documents->in_text = true;
    documents->text_ended = documents->decodes = false;
    documents->converts_lines = documents->after_return = documents->converted = false;
    documents->begin = documents->end = 0;
    documents->is_jsonl = documents->spec.format == DOCUMENTS_JSONL ||
                          input_info_get(documents->input)->is_converted ||
                          (documents->spec.format == DOCUMENTS_BY_NAME &&
                           input_name_is_jsonl(input_info_get(documents->input)->name));
    state->offset = state->line = documents->line_ends = 0;
    state->in_document = false;
    json_decref(documents->columns.names);
    documents->columns.names = NULL;
    return GT_OK;
}

/* Converts the first block of a text: removes its byte-order mark, or passes the block to the
 * decoder if the encoding is not UTF-8.  From here on, the text is converted as it is read. */
static enum gt_status text_convert(struct documents *documents)
{
    size_t mark_length = 0;
    const unsigned char *bytes = (const unsigned char *)documents->buffer;
    const char *mark = text_mark_of(bytes, documents->end, &mark_length);
    const char *encoding = mark != NULL ? mark : documents->spec.encoding;
    documents->converts_lines = !documents->is_jsonl;
    if (encoding != NULL && (mark == NULL || strcmp(mark, "UTF-8") != 0)) {
        TRY(text_decoder_begin(documents, &documents->decoder, encoding, documents->input, bytes,
                               documents->end, mark_length));
        documents->decodes = true;
        documents->text_ended = false;
        documents->end = 0;
        return GT_OK;
    }
    documents->begin = mark_length;
    documents->state.mark_count += mark_length > 0;
    if (mark_length > 0)
        converted_count(documents);
    if (documents->converts_lines)
        lines_convert(documents, documents->begin);
    return GT_OK;
}

/* Sets `out` to ".png" for "a/b.png"; "no extension" when the name has none, or one that is not a
 * short word. */
static void kind_name(const struct input *input, char out[static DOCUMENTS_KIND_BYTES])
{
    const char *name = input_info_get(input)->name;
    const size_t length = input_name_stem(name);
    size_t dot = length;
    while (dot > 0 && isalnum((unsigned char)name[dot - 1]))
        dot--;
    const bool found = dot > 1 && dot < length && name[dot - 1] == '.' && name[dot - 2] != '/';
    if (found && length - dot + 1 < DOCUMENTS_KIND_BYTES)
        memcpy(out, name + dot - 1, length - dot + 1);
    else
        memcpy(out, "no extension", sizeof "no extension");
}

/* Counts a skipped text by its name extension. */
static void kind_count(struct documents *documents)
{
    char name[DOCUMENTS_KIND_BYTES] = "";
    struct documents_kind *kind = documents->state.kinds;
    size_t i = 0;
    kind_name(documents->input, name);
    while (i < DOCUMENTS_KINDS_MAX - 1 && kind[i].name[0] != '\0' &&
           strcmp(kind[i].name, name) != 0)
        i++;
    if (kind[i].count == 0)
        snprintf(kind[i].name, sizeof name, "%s", i < DOCUMENTS_KINDS_MAX - 1 ? name : "other");
    kind[i].count++;
    documents->state.skipped_count++;
}

/* Logs the kind of a file that is not text, and how the user can extract text from it.  Returns
 * GT_USAGE. */
static enum gt_status text_refuse(const struct documents *documents, const struct text_kind *kind)
{
    char quoted[FILE_PATH_MAX];
    const char *label = input_info_get(documents->input)->label;
    log_error("%s: this file is %s; gpt-prepare reads %s", label, kind->name,
              documents->spec.chat.kind != CHAT_NONE
                  ? "conversations as JSON lines, a JSON list, CSV or Parquet"
                  : "text and JSON lines (--format=text reads its bytes as they are)");
    if (kind->advice != NULL)
        log_note("%s%s%s", kind->advice,
                 kind->tail != NULL ? file_shell_quote(quoted, sizeof quoted, label) : "",
                 kind->tail != NULL ? kind->tail : "");
    return GT_USAGE;
}

/* Returns true for a text whose first line is an object of JSON. */
static bool begins_with_record(const struct documents *documents)
{
    const char *end = memchr(documents->buffer, '\n', documents->end);
    if (documents->end == 0 || documents->buffer[0] != '{' || end == NULL)
        return false;
    json_t *root = json_loadb(documents->buffer, (size_t)(end - documents->buffer), 0, NULL);
    const bool found = json_is_object(root) && json_object_size(root) > 0;
    json_decref(root);
    return found;
}

/* Refuses a file of JSON records that the user named as text, and notes one that is a table. */
static enum gt_status records_check(const struct documents *documents, const char *name,
                                    bool is_json)
{
    const char *label = input_info_get(documents->input)->label;
    if (documents->spec.format != DOCUMENTS_BY_NAME || documents->is_jsonl ||
        file_current(documents)->from_folder || input_info_get(documents->input)->is_member)
        return GT_OK;
    if (is_json && text_begins_with((const unsigned char *)documents->buffer, documents->end, '{'))
        return FAIL(GT_USAGE,
                    "%s: this file is JSON: --format=jsonl reads its lines as records, and "
                    "--format=text its bytes as they are",
                    label);
    const bool is_table =
        documents->spec.chat.kind == CHAT_NONE && record_form_of(name, "", 0) == RECORD_CSV;
    if (is_table && documents->spec.has_field)
        return FAIL(GT_USAGE,
                    "%s: add --format=jsonl, which reads the column \"%s\" of a table; without it "
                    "the table is read as it stands",
                    label, documents->spec.field);
    if (is_table && !documents->spec.quiet)
        log_note("%s: this table is read as it stands; --format=jsonl --field=NAME reads a column, "
                 "--chat its rows as conversations",
                 label);
    else if (!documents->spec.quiet && begins_with_record(documents))
        log_warning("%s: the first line is a record of JSON, and is read as it stands; "
                    "--format=jsonl reads its field \"%s\"",
                    label, documents->spec.field);
    return GT_OK;
}

/* Reads the first block.  If it is not text and the user did not name the file, sets *out_skip.  If
 * the user named it, returns an error, except when a zero byte is the only sign that it is not
 * text. */
static enum gt_status text_kind_check(struct documents *documents, bool *out_skip)
{
    size_t mark_length = 0;
    TRY(buffer_fill(documents, BLOCK_BYTES));
    const unsigned char *block = (const unsigned char *)documents->buffer;
    const bool is_chat = documents->spec.chat.kind != CHAT_NONE;
    const char *name = TEXT(FILE_PATH_MAX, "%s", input_info_get(documents->input)->name);
    const size_t length = input_name_stem(name);
    const bool is_json = length > 5 && memcmp(name + length - 5, ".json", 5) == 0 && !is_chat &&
                         documents->spec.format != DOCUMENTS_JSONL;
    const struct text_kind *kind = NULL;
    if (documents->spec.format != DOCUMENTS_TEXT)
        kind = text_kind_of(block, documents->end, is_json);
    const bool wide =
        documents->wide || (text_mark_of(block, documents->end, &mark_length) && mark_length != 3);
    const bool has_zero = !documents->is_jsonl && !wide && memchr(block, 0, documents->end) != NULL;
    const bool foreign =
        is_chat && !input_info_get(documents->input)->is_converted && !input_name_has_records(name);
    *out_skip =
        (file_current(documents)->from_folder || input_info_get(documents->input)->is_member) &&
        (kind != NULL || has_zero || foreign);
    if (*out_skip)
        kind_count(documents);
    else if (kind != NULL)
        return text_refuse(documents, kind);
    else
        TRY(records_check(documents, name, is_json));
    const bool as_it_is =
        documents->spec.encoding == NULL && (has_zero || documents->spec.format == DOCUMENTS_TEXT);
    return *out_skip || as_it_is ? GT_OK : text_convert(documents);
}

/* Returns true if a Parquet file's rows are read, false for one in a folder of texts. */
static bool file_converts(const struct documents *documents)
{
    const enum documents_format format = documents->spec.format;
    return format == DOCUMENTS_JSONL ||
           (format == DOCUMENTS_BY_NAME && !file_current(documents)->from_folder);
}

/* Begins the records of a text whose first block has been read. */
static enum gt_status records_begin(struct documents *documents)
{
    TRY(buffer_fill(documents, DECODE_BYTES_MIN)); /* a decoder may have consumed that block */
    const struct input_info *info = input_info_get(documents->input);
    const char *name = TEXT(FILE_PATH_MAX, "%.*s", (int)input_name_stem(info->name), info->name);
    const size_t count = documents->end - documents->begin;
    documents->scan = (struct record_scan){.form = RECORD_LINES};
    const bool has_records =
        documents->spec.chat.kind != CHAT_NONE || documents->spec.format == DOCUMENTS_JSONL;
    if (has_records && !info->is_converted)
        documents->scan.form = record_form_of(name, documents->buffer + documents->begin, count);
    return GT_OK;
}

/* Opens the next text unless one is open; *out_found is false at the end of the corpus. */
static enum gt_status text_ensure(struct documents *documents, bool *out_found)
{
    while (!documents->in_text) {
        bool found = false, skip = false;
        *out_found = documents->state.file < documents->spec.corpus->file_count;
        if (!*out_found)
            return GT_OK;
        if (documents->input == NULL)
            TRY(input_open(documents, file_current(documents), documents->spec.stdin_path,
                           documents->state.input.crc32c, file_converts(documents),
                           &documents->input));
        TRY(text_begin(documents, &found));
        if (!found) {
            TRY(file_finish(documents, false));
            continue;
        }
        TRY(text_kind_check(documents, &skip));
        if (!skip) {
            TRY(records_begin(documents));
            continue;
        }
        documents->in_text = false;
        if (!input_info_get(documents->input)->is_member)
            TRY(file_finish(documents, true));
    }
    *out_found = true;
    return GT_OK;
}

/* ---- documents of a text ---- */

static const char *const end_marks[] = {"", "\n\n", "<|endoftext|>"};
_Static_assert(sizeof end_marks / sizeof end_marks[0] == DOCUMENTS_END_COUNT,
               "a mark for every end");

/* Returns how many of the `count` bytes at `bytes` belong to the first document: all of them, or
 * those up to the end of the mark that ends the document.  Does not look for a mark that ends
 * within the first `searched` bytes. */
static size_t part_length(const char *mark, const char *bytes, size_t searched, size_t count,
                          bool *out_ends)
{
    const size_t length = strlen(mark);
    *out_ends = false;
    for (size_t at = searched; length > 0 && at < count;) {
        const char *last = memchr(bytes + at, mark[length - 1], count - at);
        if (last == NULL)
            return count;
        at = (size_t)(last - bytes) + 1;
        *out_ends = at >= length && memcmp(bytes + at - length, mark, length) == 0;
        if (*out_ends)
            return at;
    }
    return count;
}

/* Reads until the buffer has a whole document, which `mark` or the end of the text ends, or its
 * first `most` bytes.  Sets *out_count to the number of bytes, and *out_ends to whether the
 * document ends there. */
static enum gt_status part_read(struct documents *documents, const char *mark, size_t most,
                                size_t *out_count, bool *out_ends)
{
    size_t searched = 0;
    for (;;) {
        const size_t count = size_min(documents->end - documents->begin, most);
        *out_count =
            part_length(mark, documents->buffer + documents->begin, searched, count, out_ends);
        if (*out_ends || count == most)
            return GT_OK;
        *out_ends = documents->text_ended;
        if (*out_ends)
            return GT_OK;
        searched = count;
        TRY(buffer_fill(documents, size_min(count + BLOCK_BYTES, most)));
    }
}

/* With end-of-text marks: removes from a part of a document the newline that follows the previous
 * mark and, if the part ends the document (`ends`), the mark at its end. */
static void text_trim(const struct documents *documents, bool ends, struct document *out)
{
    const char *mark = end_marks[DOCUMENTS_END_OF_TEXT];
    const struct documents_state *state = &documents->state;
    if (documents->spec.end != DOCUMENTS_END_OF_TEXT)
        return;
    if (ends && out->count >= strlen(mark) &&
        memcmp(out->text + out->count - strlen(mark), mark, strlen(mark)) == 0)
        out->count -= strlen(mark);
    if (!state->in_document && state->offset > 0 && out->count > 0 && out->text[0] == '\n') {
        out->text++;
        out->count--;
    }
}

/* Warns once of end-of-text marks that end nothing, in the first part of a text. */
static void marks_warn(struct documents *documents, const struct document *part)
{
    bool found = false;
    if (documents->spec.quiet || documents->marks_warned || documents->state.offset > 0 ||
        documents->spec.end == DOCUMENTS_END_OF_TEXT)
        return;
    (void)part_length(end_marks[DOCUMENTS_END_OF_TEXT], part->text, 0, part->count, &found);
    if (found)
        log_warning("%s: %s is ordinary text there; with --documents=end-of-text it ends documents",
                    input_info_get(documents->input)->label, end_marks[DOCUMENTS_END_OF_TEXT]);
    documents->marks_warned = found;
}

/* Returns the next part of a document; *out_found is false when it is empty, or when the text has
 * no more. */
static enum gt_status text_next(struct documents *documents, struct document *out, bool *out_found)
{
    struct documents_state *state = &documents->state;
    size_t count = 0;
    bool ends = false, forced = false;
    TRY(part_read(documents, end_marks[documents->spec.end], DOCUMENT_BYTES_MAX, &count, &ends));
    const char *text = documents->buffer + documents->begin;
    if (!ends)
        count = bpe_split_cut(text, count, documents->spec.joins_newlines, &forced);
    *out = (struct document){
        .text = text, .count = count, .continues = state->in_document, .unfinished = !ends};
    text_trim(documents, ends, out);
    out->place = state->offset + (uint64_t)(out->text - text);
    *out_found = out->count > 0 || out->continues;
    marks_warn(documents, out);
    documents->in_text = count > 0 || !ends;
    /* An empty text is an empty document, and so is an empty range between two marks. */
    state->empty_count += !*out_found && (count > 0 || state->offset == 0);
    buffer_use(documents, count);
    state->in_document = !ends;
    return GT_OK;
}

/* ---- lines of JSONL ---- */

bool jsonl_line_is_blank(const char *line, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (memchr(" \t\r\n", line[i], 4) == NULL)
            return false;
    return true;
}

static const char *type_text(const json_t *value)
{
    static const char *const texts[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "a list",  [JSON_STRING] = "a string",
        [JSON_INTEGER] = "a number", [JSON_REAL] = "a number", [JSON_TRUE] = "a boolean",
        [JSON_FALSE] = "a boolean",  [JSON_NULL] = "null"};
    return texts[json_typeof(value)];
}

/* Lists the fields of the line, as many as fit. */
static void reason_missing(json_t *root, const char *field, char reason[static JSONL_REASON_BYTES])
{
    const char *key = NULL;
    json_t *value = NULL;
    char names[JSONL_REASON_BYTES / 2] = "";
    size_t used = 0;
    json_object_foreach(root, key, value)
    {
        const int more =
            snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "", key);
        used += (size_t)more;
        if (used >= sizeof names)
            break;
    }
    snprintf(
        reason, JSONL_REASON_BYTES,
        "field \"%.60s\" is missing; the line has %s: choose one with --field=NAME, or use whole lines with "
        "--format=text",
        field, used > 0 ? names : "none");
}

/* Returns the field's value if it is a text, else NULL with the reason. */
static json_t *root_field(json_t *root, const char *field, char reason[static JSONL_REASON_BYTES])
{
    if (!json_is_object(root)) {
        snprintf(reason, JSONL_REASON_BYTES, "expected an object, found %s", type_text(root));
        return NULL;
    }
    json_t *value = json_object_get(root, field);
    if (value == NULL)
        reason_missing(root, field, reason);
    else if (!json_is_string(value))
        snprintf(reason, JSONL_REASON_BYTES, "field \"%.100s\": expected a string, found %s", field,
                 type_text(value));
    return json_is_string(value) ? value : NULL;
}

/* Parses one record of JSON.  Errors: GT_DATA, with the reason and nothing logged; GT_NO_MEMORY. */
static enum gt_status record_parse(const char *line, size_t count, size_t flags, json_t **out,
                                   char reason[static JSONL_REASON_BYTES])
{
    json_error_t error;
    const enum gt_status status =
        json_load(line, count, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | flags, &error, out);
    if (status == GT_DATA)
        snprintf(reason, JSONL_REASON_BYTES, "column %d: not valid JSON: %s%s", error.column,
                 error.text,
                 strstr(error.text, "end of file") != NULL
                     ? "; a line must be one whole record, as jq -c writes it"
                 : strstr(error.text, "unable to decode byte") != NULL
                     ? "; it is not UTF-8, which --encoding=latin1, or another name, converts it to"
                     : "");
    return status;
}

enum gt_status jsonl_line_value(const char *line, size_t count, const char *field, json_t **out,
                                char reason[static JSONL_REASON_BYTES])
{
    json_t *root = NULL;
    TRY(record_parse(line, count, JSON_ALLOW_NUL, &root, reason));
    json_t *value = json_incref(root_field(root, field, reason));
    json_decref(root);
    if (value == NULL)
        return GT_DATA;
    *out = value;
    return GT_OK;
}

/* Counts the ends of lines in the next bytes of the buffer. */
static uint64_t lines_count(const struct documents *documents, size_t count)
{
    const char *at = documents->buffer + documents->begin, *end = at + count;
    uint64_t lines = 0;
    for (; (at = memchr(at, '\n', (size_t)(end - at))) != NULL; at++)
        lines++;
    return lines;
}

/* Returns true, with the name of the form, for a line of text that is a conversation. */
static bool line_is_chat(const struct documents *documents, const char *line, size_t count,
                         char out[static CHAT_FORM_BYTES])
{
    struct chat_form form = {.kind = CHAT_FORM_NONE};
    if (documents->spec.chat.kind != CHAT_NONE || documents->spec.chat_flags == NULL ||
        line == NULL)
        return false;
    json_t *root = json_loadb(line, count, 0, NULL);
    if (json_is_object(root))
        chat_form_find(root, NULL, &form);
    if (form.kind != CHAT_FORM_NONE)
        chat_form_text(&form, out);
    json_decref(root);
    return form.kind != CHAT_FORM_NONE && form.kind != CHAT_FORM_TEXT;
}

/* Reads the next line; *out_found is false at the text's end.  *out_line is NULL when the line is
 * longer than DOCUMENT_BYTES_MAX. */
static enum gt_status line_read(struct documents *documents, const char **out_line,
                                size_t *out_count, bool *out_found)
{
    const uint64_t offset = documents->state.offset;
    bool ends = false, is_whole = true;
    while (!ends) {
        TRY(part_read(documents, "\n", DOCUMENT_BYTES_MAX + 1, out_count, &ends));
        is_whole = is_whole && ends;
        *out_line = is_whole ? documents->buffer + documents->begin : NULL;
        buffer_use(documents, *out_count);
    }
    *out_found = documents->state.offset > offset;
    documents->state.line += *out_found;
    return GT_OK;
}

/* Reads the next element of a list, or row of a table, in the same way. state.line is the line on
 * which it begins. */
static enum gt_status record_read(struct documents *documents, const char **out_record,
                                  size_t *out_count, bool *out_found)
{
    struct record_scan *scan = &documents->scan;
    const char *label = input_info_get(documents->input)->label, *fault = NULL;
    size_t scanned = 0, used = 0;
    bool ends = false, is_whole = true;
    record_scan_begin(scan);
    while (!ends && fault == NULL) {
        if (scanned > DOCUMENT_BYTES_MAX) {
            documents->line_ends += lines_count(documents, scanned);
            buffer_use(documents, scanned);
            scanned = 0;
            is_whole = false;
        }
        if (documents->end - documents->begin == scanned)
            TRY(buffer_fill(documents, scanned + BLOCK_BYTES));
        const size_t left = documents->end - documents->begin - scanned;
        ends = left == 0 || record_scan_run(scan, documents->buffer + documents->begin + scanned,
                                            left, &used, &fault);
        scanned += left > 0 ? used : 0;
        fault = left == 0 && fault == NULL ? record_scan_end(scan) : fault;
    }
    const size_t before = is_whole ? size_min(scan->start, scanned) : 0;
    documents->state.line = documents->line_ends + lines_count(documents, before) + 1;
    if (fault != NULL)
        return FAIL(GT_DATA, "%s: line %" PRIu64 ": %s", label, documents->state.line, fault);
    documents->line_ends += lines_count(documents, scanned);
    *out_record = is_whole ? documents->buffer + documents->begin + before : NULL;
    *out_count = scanned - before;
    *out_found = scan->begun;
    buffer_use(documents, scanned);
    return GT_OK;
}

/* Handles a line that is not valid.  Returns GT_DATA, or with --bad-lines=skip counts the line and
 * returns GT_OK. */
static enum gt_status line_refuse(struct documents *documents, const char *line, size_t count)
{
    const char *label = input_info_get(documents->input)->label;
    char form[CHAT_FORM_BYTES];
    if (!documents->spec.skip_bad_lines && line_is_chat(documents, line, count, form))
        return FAIL(GT_DATA,
                    "%s: line %" PRIu64 ": this is a conversation, in the form %s: give %s", label,
                    documents->state.line, form, documents->spec.chat_flags);
    if (!documents->spec.skip_bad_lines)
        return FAIL(GT_DATA, "%s: line %" PRIu64 ": %s; --bad-lines=skip leaves such lines out",
                    label, documents->state.line, documents->reason);
    documents->state.bad_line_count++;
    if (documents->state.bad_line_count <= NOTES_MAX && !documents->spec.quiet)
        log_warning(
            "%s: line %" PRIu64 ": skipped: %s%s", label, documents->state.line, documents->reason,
            documents->state.bad_line_count == NOTES_MAX ? " (others like it are only counted)"
                                                         : "");
    return GT_OK;
}

/* Reads a row of a table into an object.  The row with the names of the columns gives NULL. */
static enum gt_status row_parse(struct documents *documents, const char *row, size_t count,
                                json_t **out)
{
    const char *reason = NULL;
    const enum gt_status status =
        documents->columns.names == NULL
            ? record_columns_read(&documents->columns, row, count, &reason)
            : record_row_read(&documents->columns, row, count, out, &reason);
    if (status == GT_DATA)
        snprintf(documents->reason, sizeof documents->reason, "%s", reason);
    return status;
}

/* Takes the value of the column that is the field; the first row has none. */
static enum gt_status column_parse(struct documents *documents, const char *row, size_t count)
{
    json_t *root = NULL;
    TRY(row_parse(documents, row, count, &root));
    if (root == NULL)
        return GT_OK;
    documents->value = json_incref(root_field(root, documents->spec.field, documents->reason));
    json_decref(root);
    return documents->value != NULL ? GT_OK : GT_DATA;
}

/* Sets `out` to the conversation of a record.  The form is logged with the first one. */
static enum gt_status conversation_parse(struct documents *documents, const char *record,
                                         size_t count, struct document *out)
{
    struct chat_reader *reader = &documents->spec.chat;
    const bool is_first = reader->form.kind == CHAT_FORM_NONE, loses = reader->loses_system,
               lacks = reader->lacks_answers;
    json_t *root = NULL;
    if (documents->scan.form == RECORD_CSV)
        TRY(row_parse(documents, record, count, &root));
    else
        TRY(record_parse(record, count, 0, &root, documents->reason));
    if (root == NULL)
        return GT_OK;
    root = record_wrap(root);
    if (root == NULL)
        return FAIL(GT_NO_MEMORY, "out of memory for a record");
    enum gt_status status = record_lists_parse(root);
    THEN(status, chat_record_render(reader, root, &documents->conversation, documents->reason));
    if (is_first && reader->form.kind != CHAT_FORM_NONE && !documents->spec.quiet)
        log_note("%s: conversations in the form %s%s", input_info_get(documents->input)->label,
                 chat_form_text(&reader->form, (char[CHAT_FORM_BYTES]){0}),
                 chat_form_unused(&reader->form, root, (char[CHAT_UNUSED_BYTES]){0}));
    if (reader->loses_system && !loses && !documents->spec.quiet)
        log_warning("%s: line %" PRIu64 ": this conversation has a system message, which the "
                    "template %s writes only where the user speaks last, so that such messages are "
                    "left out; begin the user's message with that text",
                    input_info_get(documents->input)->label, documents->state.line,
                    chat_words[reader->kind]);
    if (reader->lacks_answers && !lacks && reader->train_on != CHAT_TRAIN_ALL &&
        !documents->spec.quiet)
        log_warning("%s: line %" PRIu64 ": this text has no answer in the template %s, so that all "
                    "of it is learnt; other texts without one are not mentioned",
                    input_info_get(documents->input)->label, documents->state.line,
                    chat_words[reader->kind]);
    json_decref(root);
    out->text = documents->conversation.text;
    out->count = documents->conversation.count;
    return status;
}

/* Sets `out` to the text of the line's field, or to the conversation that it holds. */
static enum gt_status field_parse(struct documents *documents, const char *line, size_t count,
                                  struct document *out)
{
    if (documents->spec.chat.kind != CHAT_NONE)
        return conversation_parse(documents, line, count, out);
    json_decref(documents->value);
    documents->value = NULL;
    if (documents->scan.form == RECORD_CSV)
        TRY(column_parse(documents, line, count));
    else
        TRY(jsonl_line_value(line, count, documents->spec.field, &documents->value,
                             documents->reason));
    out->text = json_string_value(documents->value);
    out->count = json_string_length(documents->value);
    return GT_OK;
}

/* Sets `out` to the document of a line; `line` is NULL if the line is too long.  *out_found is
 * false for a line that is blank, bad or empty. */
static enum gt_status line_parse(struct documents *documents, const char *line, size_t count,
                                 struct document *out, bool *out_found)
{
    const bool has_names =
        documents->scan.form == RECORD_CSV && documents->columns.names == NULL; /* of columns */
    *out = (struct document){.place = documents->state.line, .is_line = true};
    *out_found = false;
    if (line != NULL && jsonl_line_is_blank(line, count))
        return GT_OK;
    enum gt_status status = GT_DATA;
    if (line == NULL)
        snprintf(documents->reason, sizeof documents->reason, "longer than %zu bytes",
                 DOCUMENT_BYTES_MAX);
    else
        status = field_parse(documents, line, count, out);
    if (status != GT_OK)
        return status == GT_DATA ? line_refuse(documents, line, count) : status;
    *out_found = out->count > 0;
    documents->state.empty_count += !*out_found && !has_names;
    return GT_OK;
}

static enum gt_status jsonl_next(struct documents *documents, struct document *out, bool *out_found)
{
    const char *line = NULL;
    size_t count = 0;
    bool found = true;
    *out_found = false;
    while (found && !*out_found) {
        TRY(documents->scan.form == RECORD_LINES ? line_read(documents, &line, &count, &found)
                                                 : record_read(documents, &line, &count, &found));
        if (found)
            TRY(line_parse(documents, line, count, out, out_found));
    }
    documents->in_text = found;
    return GT_OK;
}

/* ---- the sequence ---- */

enum gt_status documents_next(struct documents *documents, struct document *out, bool *out_found)
{
    struct documents_state *state = &documents->state;
    *out_found = false;
    while (!*out_found) {
        bool more = false;
        TRY(text_ensure(documents, &more));
        if (!more)
            return GT_OK;
        if (documents->is_jsonl)
            TRY(jsonl_next(documents, out, out_found));
        else
            TRY(text_next(documents, out, out_found));
    }
    out->label = input_info_get(documents->input)->label;
    state->text_bytes += out->count;
    state->document_count += !out->continues;
    state->long_count += !out->continues && out->unfinished;
    return GT_OK;
}
