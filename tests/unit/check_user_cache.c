/* Tests of the user's cache: hits, refusals and their messages, damage byte by byte, the limit of the folder, and two
 * kinds of files next to each other. */
#include "base/user_cache.h"

#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/unit/log_capture.h"
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
    char here[FILE_PATH_MAX / 2];
    ck_assert_ptr_nonnull(getcwd(here, sizeof here));
    snprintf(corner->root, sizeof corner->root, "%s/user-cache-XXXXXX", here);
    ck_assert_ptr_nonnull(mkdtemp(corner->root));
    setenv("XDG_CACHE_HOME", corner->root, 1);
    log_capture_begin(&corner->log);
}

static void corner_close(struct corner *corner)
{
    char command[FILE_PATH_MAX + 16];
    log_capture_end();
    snprintf(command, sizeof command, "rm -rf '%s'", corner->root);
    ck_assert_int_eq(system(command), 0);
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
    ck_assert_ptr_nonnull(strstr(corner.log.text, "was made for card, driver 1, not for card, driver 2"));
    ck_assert_ptr_nonnull(strstr(corner.log.text, "they are counted again"));
    ck_assert(user_cache_store(&numbers, "card", "card, driver 2", "two", 3));
    ck_assert(loads("card", "card, driver 2", "two"));
    ck_assert_int_eq(corner.log.lines, 1);
    corner_close(&corner);
}

TEST(what_cannot_be_kept_is_not_and_nothing_is_said)
{
    struct corner corner;
    char long_key[USER_CACHE_KEY_MAX + 1], folder[FILE_PATH_MAX];
    corner_open(&corner);
    memset(long_key, 'k', sizeof long_key);
    long_key[USER_CACHE_KEY_MAX] = '\0';
    ck_assert(!user_cache_store(&numbers, "a", long_key, "one", 3));
    ck_assert(!user_cache_store(&numbers, "a", "a", "", 0));
    ck_assert(!user_cache_store(&numbers, "a", "a", "x", numbers.file_bytes_max));
    ck_assert(user_cache_store(&numbers, "a", "a", "one", 3));
    ck_assert(user_cache_folder(&numbers, folder, false));
    ck_assert_int_eq(chmod(folder, 0777), 0);
    ck_assert(!user_cache_store(&numbers, "a", "a", "two", 3));
    ck_assert(!loads("a", "a", ""));
    ck_assert_int_eq(chmod(folder, 0700), 0);
    ck_assert(loads("a", "a", "one"));
    setenv("XDG_CACHE_HOME", "relative", 1);
    setenv("HOME", "relative", 1);
    ck_assert(!user_cache_folder(&numbers, folder, true));
    ck_assert_int_eq(corner.log.lines, 0);
    corner_close(&corner);
}

/* The next start would not trust a file that is writable by its group. */
TEST(the_umask_does_not_matter)
{
    static const mode_t umasks[] = {002, 000};
    for (size_t i = 0; i < sizeof umasks / sizeof umasks[0]; i++) {
        struct corner corner;
        char command[sizeof corner.root + 128];
        corner_open(&corner);
        const mode_t before = umask(umasks[i]);
        ck_assert(user_cache_store(&numbers, "a", "a", "one", 3));
        ck_assert(loads("a", "a", "one"));
        snprintf(command, sizeof command, "cd '%s'/gpt-train && chmod 664 numbers/*.numbers", corner.root);
        ck_assert_int_eq(system(command), 0); /* as earlier releases made it */
        ck_assert(user_cache_store(&numbers, "a", "a", "two", 3));
        ck_assert(loads("a", "a", "two"));
        (void)umask(before);
        snprintf(
            command, sizeof command,
            "cd '%s'/gpt-train && test $(stat -c %%a numbers) = 700 && test $(stat -c %%a numbers/*.numbers) = 600",
            corner.root);
        ck_assert_int_eq(system(command), 0);
        ck_assert_int_eq(corner.log.lines, 0);
        corner_close(&corner);
    }
}

/* Makes a file in the cache's folder that was last written `age_s` seconds ago. */
static void leave(const char *name, long owner, int64_t age_s, char path[static FILE_PATH_MAX])
{
    char folder[FILE_PATH_MAX], whole[128];
    const struct timespec then = {.tv_sec = time(NULL) - age_s};
    ck_assert(user_cache_folder(&numbers, folder, true));
    (void)snprintf(whole, sizeof whole, "%s%ld", name, owner);
    file_join(path, folder, whole);
    ck_assert_int_eq(file_replace(path, "half", 4), GT_OK);
    ck_assert_int_eq(utimensat(AT_FDCWD, path, (const struct timespec[2]){then, then}, 0), 0);
}

TEST(what_a_killed_process_left_is_removed)
{
    struct corner corner;
    char old[FILE_PATH_MAX], fresh[FILE_PATH_MAX], other[FILE_PATH_MAX];
    corner_open(&corner);
    leave("0123456789abcdef.numbers.tmp-", 12345678, 7200, old);
    leave("0123456789abcdef.numbers.tmp-", 87654321, 60, fresh);
    leave("notes-", 1, 7200, other);
    ck_assert(user_cache_store(&numbers, "a", "a", "one", 3));
    ck_assert(!file_exists(old) && file_exists(fresh) && file_exists(other));
    ck_assert(loads("a", "a", "one"));
    ck_assert_int_eq(corner.log.lines, 0);
    corner_close(&corner);
}

/* A caller that adds to a list must not replace a list that it could not read. */
TEST(what_cannot_be_read_this_time_is_told_apart)
{
    struct corner corner;
    struct rlimit files;
    void *data = NULL;
    size_t bytes = 0;
    corner_open(&corner);
    ck_assert(user_cache_store(&numbers, "a", "a", "one", 3));
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = files.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    ck_assert_int_eq(user_cache_load(&numbers, "a", "a", &data, &bytes), USER_CACHE_UNREAD);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
    ck_assert(loads("a", "a", "one"));
    ck_assert_int_eq(user_cache_load(&numbers, "b", "b", &data, &bytes), USER_CACHE_ABSENT);
    ck_assert_int_eq(user_cache_load(&numbers, "a", "another a", &data, &bytes), USER_CACHE_REFUSED);
    ck_assert_ptr_null(data);
    ck_assert_int_eq(corner.log.lines, 2);
    corner_close(&corner);
}

TEST(a_damaged_file_is_said_with_its_consequence)
{
    struct corner corner;
    char command[sizeof corner.root + 128];
    corner_open(&corner);
    ck_assert(user_cache_store(&numbers, "a", "a", "one", 3));
    snprintf(command, sizeof command, "for f in '%s'/gpt-train/numbers/*.numbers; do printf x >>\"$f\"; done",
             corner.root);
    ck_assert_int_eq(system(command), 0);
    ck_assert(!loads("a", "a", ""));
    ck_assert_int_eq(corner.log.lines, 1);
    ck_assert_ptr_nonnull(strstr(corner.log.text, "its length is not the one it states; they are counted again"));
    corner_close(&corner);
}

TEST(what_others_may_write_is_ignored_and_said)
{
    static const struct {
        const char *change, *words;
    } changes[] = {{"chmod 666 a", "not a file of yours alone"},
                   {"mv a b; ln -s b a", "it is a link"},
                   {"truncate -s 140000 a", "it is too long"}};
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        struct corner corner;
        char command[sizeof corner.root + 128];
        corner_open(&corner);
        ck_assert(user_cache_store(&numbers, "a", "a", "one", 3));
        snprintf(command, sizeof command, "cd '%s'/gpt-train/numbers; f=$(ls); mv $f a; %s; mv a $f", corner.root,
                 changes[i].change);
        ck_assert_int_eq(system(command), 0);
        ck_assert(!loads("a", "a", ""));
        ck_assert_int_eq(corner.log.lines, 1);
        ck_assert_ptr_nonnull(strstr(corner.log.text, changes[i].words));
        corner_close(&corner);
    }
}

static void file_write(const char *path, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, count, file), count);
    ck_assert_int_eq(fclose(file), 0);
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
        file_write(found.gl_pathv[0], whole, i);
        ck_assert_msg(!loads("a", "a", ""), "cut to %zu of %zu bytes", i, size);
        whole[i] = (char)(whole[i] ^ 0x10);
        file_write(found.gl_pathv[0], whole, size);
        ck_assert_msg(!loads("a", "a", ""), "byte %zu of %zu changed", i, size);
        whole[i] = (char)(whole[i] ^ 0x10);
    }
    file_write(found.gl_pathv[0], whole, size);
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
        file_write(path, "", 0);
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
