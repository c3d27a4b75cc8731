/* Fuzzes configuration files in nanoGPT's syntax.
 *
 * A file is accepted in silence, or refused with error lines that name it; values stay in range. An
 * accepted configuration that passes config_check() can be stored in a checkpoint, and a later run
 * must accept the stored text as the same configuration.
 */
#include "tests/fuzz/fuzz_config.h"
#include "config/config_file.h"

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    struct config config;
    struct fuzz_said said = {.input = "input:"};
    (void)mem;
    log_sink_set(fuzz_config_listen, &said);
    config_defaults(&config, CONFIG_TRAIN);
    config.wall_s = 1; /* time.time() returns this, so that equal inputs give equal results */
    fuzz_config_check(&config, config_parse_text(&config, "input", (const char *)data, size),
                      &said);
}
