/* Shared by the tests of src/config: a configuration, and every line that was logged.
 *
 * The config is large, so it is static in the test program; fixture_open() resets it.  Check forks
 * per test.
 */
#ifndef GPT_TRAIN_UNIT_CONFIG_FIXTURE_H
#define GPT_TRAIN_UNIT_CONFIG_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/status.h"
#include "config/config.h"
#include "config/config_file.h"
#include "config/config_key.h"
#include "tests/unit/unit_main.h"

#define FIXTURE_LINES 64

struct config_fixture {
    struct config config;
    int count; /* number of lines logged, of which only the first are stored */
    int errors;
    int notes;
    int warnings;
    char lines[FIXTURE_LINES][512];
};

static struct config_fixture fixture;

static inline void fixture_sink(void *context, enum log_level level, const char *line)
{
    struct config_fixture *at = context;
    if (at->count < FIXTURE_LINES)
        (void)snprintf(at->lines[at->count], sizeof at->lines[0], "%.500s", line);
    at->count++;
    at->errors += level == LOG_ERROR ? 1 : 0;
    at->notes += level == LOG_NOTE ? 1 : 0;
    at->warnings += level == LOG_WARNING ? 1 : 0;
}

static inline void fixture_open(enum config_program program)
{
    memset(&fixture, 0, sizeof fixture);
    log_sink_set(fixture_sink, &fixture);
    config_defaults(&fixture.config, program);
}

/* Reads `text` as the file x.py into new defaults of gpt-train. */
static inline enum gt_status fixture_read(const char *text)
{
    fixture_open(CONFIG_TRAIN);
    fixture.config.wall_s = 1700000000;
    return config_parse_text(&fixture.config, "x.py", text, strlen(text));
}

static inline void fixture_print(void)
{
    for (int i = 0; i < fixture.count && i < FIXTURE_LINES; i++)
        printf("  %s\n", fixture.lines[i]);
}

/* Returns true when some line contains `words`. */
static inline bool fixture_said(const char *words)
{
    for (int i = 0; i < fixture.count && i < FIXTURE_LINES; i++)
        if (strstr(fixture.lines[i], words) != NULL)
            return true;
    return false;
}

#define ASSERT_SAID(words)                                                                  \
    do {                                                                                    \
        if (!fixture_said(words)) {                                                         \
            fixture_print();                                                                \
            ck_abort_msg("no line contains \"%s\" (%d lines above)", words, fixture.count); \
        }                                                                                   \
    } while (0)

/* Fails unless `text` is refused with exactly one line, which contains `words`. */
#define ASSERT_REFUSED(text, words)                                                  \
    do {                                                                             \
        ck_assert_msg(fixture_read(text) == GT_USAGE, "accepted: %s", text);         \
        if (fixture.count != 1)                                                      \
            fixture_print();                                                         \
        ck_assert_msg(fixture.count == 1 && fixture.errors == 1, "%d lines for: %s", \
                      fixture.count, text);                                          \
        ASSERT_SAID(words);                                                          \
    } while (0)

/* Fails unless `text` is read without a log line. */
#define ASSERT_READS(text)                                                  \
    do {                                                                    \
        enum gt_status read_status_ = fixture_read(text);                   \
        if (fixture.count != 0)                                             \
            fixture_print();                                                \
        ck_assert_msg(read_status_ == GT_OK, "refused: %s", text);          \
        ck_assert_msg(fixture.count == 0, "not read in silence: %s", text); \
    } while (0)

#endif
