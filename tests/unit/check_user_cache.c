/* Tests of the user's cache: hits, refusals and their messages, damage byte by byte, the limit of
 * the folder, and two kinds of files next to each other. */
#include "base/user_cache.h"

#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/unit/log_capture.h"
#include "tests/unit/scratch.h"
#include "tests/unit/unit_main.h"

static const struct user_cache numbers = {.folder = "numbers",
                                          .magic = "GTNUMB01",
                                          .suffix = ".numbers",
                                          .otherwise = "they are counted again",
                                          .bytes_max = 1 << 20,
                                          .file_bytes_max = 1 << 16};

struct corner {
    char root[FILE_PATH_MAX];
    struct log_capture log;
};

static void corner_open(struct corner *corner)
{
    scratch_make(corner->root);
    setenv("XDG_CACHE_HOME", corner->root, 1);
    log_capture_begin(&corner->log);
}

static void corner_close(struct corner *corner)
{
    log_capture_end();
    scratch_remove(corner->root);
}

static bool loads(const char *name, const char *key, const char *wanted)
{
    void *data = NULL;
    size_t bytes = 0;
    const bool found = user_cache_load(&numbers, name, key, &data, &bytes) == USER_CACHE_READ;
    if (found) {
        ck_assert_uint_eq(bytes, strlen(wanted));
        ck_assert_int_eq(memcmp(data, wanted, bytes), 0);
    }
    free(data);
    return found;
}

TEST(what_was_stored_comes_back_until_it_is_replaced)
{
    struct corner corner;
    corner_open(&corner);
    ck_assert(!loads("card", "card, driver 1", ""));
    ck_assert(user_cache_store(&numbers, "card", "card, driver 1", "one", 3));
    ck_assert(loads("card", "card, driver 1", "one"));
    ck_assert(user_cache_store(&numbers, "card", "card, driver 1", "three", 5));
    ck_assert(user_cache_store(&numbers, "other card", "other card, driver 1", "two", 3));
    ck_assert(loads("card", "card, driver 1", "three"));
    ck_assert(loads("other card", "other card, driver 1", "two"));
    ck_assert_int_eq(corner.log.lines, 0);
    corner_close(&corner);
}

TEST(what_was_made_for_another_key_is_not_taken_and_said)
{
    struct corner corner;
    corner_open(&corner);
    ck_assert(user_cache_store(&numbers, "card", "card, driver 1", "one", 3));
    ck_assert(!loads("card", "card, driver 2", ""));
    ck_assert_int_eq(corner.log.lines, 1);
    ck_assert_ptr_nonnull(
        strstr(corner.log.text, "was made for card, driver 1, not for card, driver 2"));
    ck_assert_ptr_nonnull(strstr(corner.log.text, "they are counted again"));
    ck_assert(user_cache_store(&numbers, "card", "card, driver 2", "two", 3));
    ck_assert(loads("card", "card, driver 2", "two"));
    ck_assert_int_eq(corner.log.lines, 1);
    corner_close(&corner);
}

/* Tries every length below the right one, and every single byte changed. */
TEST(no_damage_is_overlooked)
{
    struct corner corner;
    glob_t found;
    char *whole, folder[FILE_PATH_MAX];
    size_t size;
    corner_open(&corner);
    ck_assert(user_cache_store(&numbers, "a", "a", "one", 3));
    ck_assert(user_cache_folder(&numbers, folder, false));
    strcat(folder, "/*.numbers");
    ck_assert_int_eq(glob(folder, 0, NULL, &found), 0);
    ck_assert_int_eq(file_read_all(found.gl_pathv[0], 1024, &whole, &size), GT_OK);
    for (size_t i = 0; i < size; i++) {
        scratch_write(found.gl_pathv[0], whole, i);
        ck_assert_msg(!loads("a", "a", ""), "cut to %zu of %zu bytes", i, size);
        whole[i] = (char)(whole[i] ^ 0x10);
        scratch_write(found.gl_pathv[0], whole, size);
        ck_assert_msg(!loads("a", "a", ""), "byte %zu of %zu changed", i, size);
        whole[i] = (char)(whole[i] ^ 0x10);
    }
    scratch_write(found.gl_pathv[0], whole, size);
    ck_assert(loads("a", "a", "one"));
    free(whole);
    globfree(&found);
    corner_close(&corner);
}

/* Three old files fill the folder, as holes: the oldest is removed when another is stored. */
TEST(the_folder_is_bounded)
{
    struct corner corner;
    char folder[FILE_PATH_MAX], path[FILE_PATH_MAX + 16];
    corner_open(&corner);
    ck_assert(user_cache_store(&numbers, "a", "a", "one", 3));
    ck_assert(user_cache_folder(&numbers, folder, false));
    for (int i = 0; i < 3; i++) {
        const struct timespec times[2] = {{.tv_sec = 1000 + i}, {.tv_sec = 1000 + i}};
        snprintf(path, sizeof path, "%s/%d.numbers", folder, i);
        scratch_write(path, "", 0);
        ck_assert_int_eq(truncate(path, (off_t)(numbers.bytes_max / 3 + 1024)), 0);
        ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
    }
    ck_assert(user_cache_store(&numbers, "b", "b", "two", 3));
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%d.numbers", folder, i);
        ck_assert_int_eq(access(path, F_OK) == 0, i > 0);
    }
    ck_assert(loads("a", "a", "one") && loads("b", "b", "two"));
    corner_close(&corner);
}
