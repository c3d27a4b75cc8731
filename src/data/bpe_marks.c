/* SentencePiece's marks: puts them into text, finds pieces between them, and turns them back into
 * spaces.
 *
 * Knows nothing of vocabularies.  Text need not be UTF-8: only the three bytes of the mark matter.
 */
#include "data/bpe_marks.h"

#include "base/size.h"

static bool is_mark(const char *text, size_t count, size_t at)
{
    return count - at >= BPE_MARK_BYTES && memcmp(text + at, BPE_MARK, BPE_MARK_BYTES) == 0;
}

static bool goes_before(struct bpe_marks marks, enum bpe_place place, const char *text,
                        size_t count)
{
    const bool there = is_mark(text, count, 0) || (marks.spaces && text[0] == ' ');
    if (place == BPE_PLACE_WITHIN || marks.before == BPE_MARK_NEVER)
        return false;
    if (marks.before == BPE_MARK_FIRST && place != BPE_PLACE_BEGIN)
        return false;
    return marks.before == BPE_MARK_EVEN || !there;
}

enum gt_status bpe_marks_put(struct bpe_marks marks, enum bpe_place place, const char *text,
                             size_t count, char **out, size_t *out_count)
{
    *out = NULL;
    const bool before = count > 0 && goes_before(marks, place, text, count);
    size_t spaces = 0, size_bytes, length = 0;
    for (size_t i = 0; i < count && marks.spaces; i++)
        spaces += text[i] == ' ';
    if (!before && spaces == 0)
        return GT_OK;
    if (!size_mul(spaces + before, BPE_MARK_BYTES, &size_bytes) || size_bytes > SIZE_MAX - count)
        return GT_NO_MEMORY;
    char *marked = malloc(size_bytes + count);
    if (marked == NULL)
        return GT_NO_MEMORY;
    if (before)
        memcpy(marked, BPE_MARK, length = BPE_MARK_BYTES);
    for (size_t i = 0; i < count; i++) {
        if (marks.spaces && text[i] == ' ') {
            memcpy(marked + length, BPE_MARK, BPE_MARK_BYTES);
            length += BPE_MARK_BYTES;
        } else
            marked[length++] = text[i];
    }
    *out = marked;
    *out_count = length;
    return GT_OK;
}

size_t bpe_marks_piece(const char *text, size_t count, bool each)
{
    bool after_mark = is_mark(text, count, 0);
    size_t at = after_mark ? BPE_MARK_BYTES : 1;
    while (at < count) {
        const bool mark = is_mark(text, count, at);
        if (mark && (each || !after_mark))
            return at;
        at += mark ? BPE_MARK_BYTES : 1;
        after_mark = mark;
    }
    return count;
}

bool bpe_marks_inside(const char *text, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (text[i - 1] == '\n' && text[i] != '\n')
            return true;
    return bpe_marks_piece(text, count, false) < count;
}

size_t bpe_marks_read(const char *text, size_t count, char *out)
{
    size_t length = 0;
    for (size_t at = 0; at < count;) {
        const bool mark = is_mark(text, count, at);
        out[length++] = mark ? ' ' : text[at];
        at += mark ? BPE_MARK_BYTES : 1;
    }
    return length;
}
