/* Fuzzes configurations of other programs, in JSON if the first byte is 'j', else in YAML.
 *
 * What holds for nanoGPT's syntax holds for them (fuzz_config.c), but what they say that has
 * another meaning here is answered with a note.
 */
#include "config/config_flat.h"
#include "config/config_key.h"
#include "tests/fuzz/fuzz_config.h"
#include "tests/fuzz/fuzz_folder.h"

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    struct config config;
    struct fuzz_said said = {.input = "input."};
    char path[FILE_PATH_MAX];
    (void)mem;
    if (size == 0)
        return;
    fuzz_folder_make("");
    fuzz_path(path, data[0] == 'j' ? "input.json" : "input.yaml");
    fuzz_file_put(path, data + 1, size - 1);
    log_sink_set(fuzz_config_listen, &said);
    config_defaults(&config, CONFIG_TRAIN);
    fuzz_config_check(&config, config_read_file(&config, path), &said);
    fuzz_folder_empty();
}
