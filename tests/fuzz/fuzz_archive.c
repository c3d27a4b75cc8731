/* Fuzzes the archive reader, including nesting levels and names; a build without libarchive rejects
 * every input. */
#include "data/input.h"
#include "tests/fuzz/fuzz_folder.h"

enum { TEXTS_MAX = 200, PIECES_MAX = 2000 };

static void read_texts(struct input *input)
{
    unsigned char bytes[4096];
    size_t pieces = 0;
    for (int i = 0; i < TEXTS_MAX; i++) {
        bool found = false;
        size_t got = 1;
        if (input_next(input, &found) != GT_OK || !found)
            return;
        const char *name = input_info_get(input)->name;
        FUZZ_CHECK(strlen(input_info_get(input)->label) > 0);
        FUZZ_CHECK(
            !input_info_get(input)->is_member ||
            (name[0] != '/' && strstr(name, "/../") == NULL && strncmp(name, "../", 3) != 0));
        while (got > 0 && pieces++ < PIECES_MAX) {
            if (input_read(input, bytes, sizeof bytes, &got) != GT_OK)
                return;
            FUZZ_CHECK(got <= sizeof bytes);
        }
    }
}

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    char path[FILE_PATH_MAX];
    struct input *input = NULL;
    fuzz_folder_make("");
    fuzz_path(path, "in.gz"); /* a tar archive is recognised all the same */
    fuzz_file_put(path, data, size);
    const struct corpus_file file = {.path = path};
    if (input_open(mem, &file, NULL, 0, false, &input) == GT_OK)
        read_texts(input);
    hostmem_free(input);
}
