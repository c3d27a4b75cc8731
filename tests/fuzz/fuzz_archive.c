/* Fuzzes the archive reader, including nesting levels and names; a build without libarchive rejects every input. */
#include <string.h>

#include "data/archive_stream.h"
#include "tests/fuzz/fuzz_common.h"

enum { TEXTS_MAX = 200, PIECES_MAX = 2000 };

static void read_texts(struct archive_stream *stream)
{
    unsigned char bytes[4096];
    size_t pieces = 0;
    for (int i = 0; i < TEXTS_MAX; i++) {
        const char *name = NULL;
        bool is_member = false;
        size_t got = 1;
        if (archive_stream_next(stream, &name, &is_member) != GT_OK || name == NULL)
            return;
        FUZZ_CHECK(strlen(archive_stream_label(stream)) > 0);
        FUZZ_CHECK(!is_member || (name[0] != '/' && strstr(name, "/../") == NULL && strncmp(name, "../", 3) != 0));
        while (got > 0 && pieces++ < PIECES_MAX) {
            if (archive_stream_read(stream, bytes, sizeof bytes, &got) != GT_OK)
                return;
            FUZZ_CHECK(got <= sizeof bytes);
        }
    }
}

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    struct archive_stream *stream = NULL;
    if (archive_stream_open(mem, fuzz_file(data, size), 0, &stream) == GT_OK)
        read_texts(stream);
    archive_stream_close(stream);
}
