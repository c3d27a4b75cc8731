/* Tests of base/file: replacement through kills, modes, links, exact reads, words of the shell,
 * CRC-32C.
 *
 * A child is killed between write and commit.  tests/reliability has failing calls, power cuts and
 * locks.
 */
#include "base/file.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/rng.h"
#include "tests/unit/log_capture.h"
#include "tests/unit/scratch.h"
#include "tests/unit/unit_main.h"

static char folder[FILE_PATH_MAX];
static char target[FILE_PATH_MAX];
static struct log_capture capture;
static char home[FILE_PATH_MAX];

static void set_up(void)
{
    ck_assert_ptr_nonnull(getcwd(home, sizeof home));
    scratch_make(folder);
    file_join(target, folder, "target");
    log_capture_begin(&capture);
}

static void tear_down(void)
{
    ck_assert_int_eq(chdir(home), 0); /* the next test may run in this process (CK_FORK=no) */
    scratch_remove(folder);
}

static const char *at(const char *name)
{
    static char path[FILE_PATH_MAX];
    file_join(path, folder, name);
    return path;
}

static void expect_content(const char *path, const char *wanted)
{
    char *text = NULL;
    size_t count = 0;
    ck_assert_int_eq(file_read_all(path, 1 << 20, &text, &count), GT_OK);
    ck_assert_uint_eq(count, strlen(wanted));
    ck_assert_str_eq(text, wanted);
    free(text);
}

static void expect_entries(int wanted)
{
    char command[FILE_PATH_MAX + 32];
    (void)snprintf(command, sizeof command, "test $(ls -A '%s' | wc -l) -eq %d", folder, wanted);
    ck_assert_msg(system(command) == 0, "%s does not hold %d entries", folder, wanted);
}

static mode_t mode_of(const char *path)
{
    struct stat info;
    ck_assert_int_eq(lstat(path, &info), 0);
    return info.st_mode;
}

TEST_FIXTURE(set_up, tear_down)

TEST(replaced_files_keep_their_mode)
{
    (void)umask(027);
    ck_assert_int_eq(file_replace(target, "a", 1), GT_OK);
    ck_assert_uint_eq(mode_of(target) & 0777, 0640);
    static const mode_t kept[] = {0600, 0666, 0444, 0755};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        ck_assert_int_eq(chmod(target, kept[i]), 0);
        ck_assert_int_eq(file_replace(target, "b", 1), GT_OK);
        ck_assert_uint_eq(mode_of(target) & 0777, kept[i]);
        ck_assert_int_eq(unlink(target), 0);
        for (int turn = 0; turn < 2; turn++) { /* a given mode wins, with and without an old file */
            struct file_replacement file;
            ck_assert_int_eq(file_replacement_begin(&file, target, &kept[i]), GT_OK);
            ck_assert_int_eq(file_replacement_end(&file, GT_OK), GT_OK);
            ck_assert_uint_eq(mode_of(target) & 0777, kept[i]);
            ck_assert_int_eq(chmod(target, 0700), 0);
        }
    }
}

TEST(links_are_not_followed)
{
    char victim[FILE_PATH_MAX];
    char aside[FILE_PATH_MAX];
    file_join(victim, folder, "victim");
    struct file_replacement file;
    ck_assert_int_eq(file_replace(victim, "precious", 8), GT_OK);
    ck_assert_int_eq(file_replacement_begin(&file, target, NULL), GT_OK);
    memcpy(aside, file.aside, sizeof aside);
    ck_assert_int_eq(unlink(aside), 0);
    ck_assert_int_eq(symlink(victim, aside), 0); /* planted where the aside file was */
    log_capture_refused(&capture, file_replacement_end(&file, GT_OK), GT_IO,
                        "another program replaced this file");
    ck_assert_int_eq(unlink(aside), 0); /* the failed commit left it */
    ck_assert_int_eq(file_replace(target, "new", 3), GT_OK);
    expect_content(target, "new");
    expect_content(victim, "precious");
    ck_assert_int_eq(unlink(target), 0);
    ck_assert_int_eq(symlink(victim, target), 0);
    ck_assert_int_eq(file_replace(target, "newer", 5), GT_OK);
    ck_assert(S_ISREG(mode_of(target)));
    expect_content(victim, "precious");
    expect_entries(2);
}

TEST(a_killed_writer_leaves_the_old_file)
{
    ck_assert_int_eq(file_replace(target, "old", 3), GT_OK);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        struct file_replacement file;
        if (file_replacement_begin(&file, target, NULL) == GT_OK &&
            file_replacement_write(&file, "new", 3) == GT_OK)
            (void)raise(SIGKILL);
        _exit(1);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    expect_content(target, "old");
    expect_entries(2);
    static const char *const kept[] = {".tmp-12",  "a.tmp-",      "a.tmp-12x", "a.tmp",
                                       "atmp-12",  "12",          ".tmp-1-2",  "a.tmp-1-",
                                       "a.tmp--1", "a.tmp-1-2-3", "a-1-2",     "1-2"};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        ck_assert_int_eq(file_replace(at(kept[i]), "x", 1), GT_OK);
    ck_assert_int_eq(mkdir(at("folder.tmp-7"), 0777), 0);
    ck_assert_int_eq(symlink(target, at("link.tmp-7")), 0);
    ck_assert_int_eq(file_replace(at("old.tmp-7"), "x", 1),
                     GT_OK); /* as earlier releases named them */
    file_remove_leftovers(folder, true);
    expect_entries(1 + 12 + 2);
    expect_content(target, "old");
    file_remove_leftovers(at("none"), true);
    ck_assert_int_eq(capture.lines, 0);
}

TEST(open_read_refuses)
{
    int fd = -7;
    uint64_t size_bytes = 7;
    log_capture_refused(&capture, file_open_read(at("none"), &fd, &size_bytes), GT_IO,
                        "none: cannot open: No such file");
    log_capture_refused(&capture, file_open_read(folder, &fd, &size_bytes), GT_IO,
                        "a folder, not a regular file");
    ck_assert_int_eq(mkfifo(at("pipe"), 0666), 0);
    ck_assert_int_eq(file_open_read(at("pipe"), &fd, &size_bytes),
                     GT_IO); /* and does not wait for a writer */
    log_capture_one_error(&capture, "not a regular file");
    log_capture_refused(&capture, file_open_read("/dev/zero", &fd, &size_bytes), GT_IO,
                        "/dev/zero");
    ck_assert_int_eq(fd, -7);
    ck_assert_uint_eq(size_bytes, 7);
}

TEST(read_at_is_exact)
{
    int fd;
    uint64_t size_bytes;
    char bytes[8] = "-------";
    ck_assert_int_eq(file_replace(target, "0123456789", 10), GT_OK);
    ck_assert_int_eq(file_open_read(target, &fd, &size_bytes), GT_OK);
    ck_assert_uint_eq(size_bytes, 10);
    ck_assert_int_eq(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    ck_assert_int_eq(file_read_at(fd, target, 3, bytes, 5), GT_OK);
    ck_assert_str_eq(bytes, "34567--");
    ck_assert_int_eq(file_read_at(fd, target, 10, bytes, 0), GT_OK);
    ck_assert_int_eq(file_read_at(fd, target, 8, bytes, 3), GT_DATA);
    log_capture_one_error(
        &capture,
        "was truncated while it was being read: 3 bytes are needed at 8, the file ends at 10");
    ck_assert_int_eq(truncate(target, 4), 0);
    log_capture_refused(&capture, file_read_at(fd, target, 3, bytes, 5), GT_DATA,
                        "the file ends at 4");
    log_capture_refused(&capture, file_read_at(fd, target, UINT64_MAX, bytes, 5), GT_DATA,
                        "no file is that long");
    log_capture_refused(&capture, file_read_at(fd, target, INT64_MAX, bytes, 5), GT_DATA,
                        "no file is that long");
    ck_assert_int_eq(close(fd), 0);
    log_capture_refused(&capture, file_read_at(-1, target, 0, bytes, 5), GT_IO,
                        "cannot read: Bad file descriptor");
}

TEST(read_all_refuses_long_files)
{
    char *text = NULL;
    size_t count = 7;
    ck_assert_int_eq(file_replace(target, "a\0b", 3), GT_OK);
    log_capture_refused(&capture, file_read_all(target, 2, &text, &count), GT_DATA,
                        "target: 3 bytes long, at most 2 expected");
    ck_assert_ptr_null(text);
    ck_assert_uint_eq(count, 7);
    ck_assert_int_eq(file_read_all(target, 3, &text, &count), GT_OK);
    ck_assert_uint_eq(count, 3);
    ck_assert_mem_eq(text, "a\0b", 4); /* with the zero after the end */
    free(text);
    log_capture_refused(&capture, file_read_all(folder, 100, &text, &count), GT_IO, "a folder");
}

TEST(shell_words_are_quoted)
{
    static const char *const words[][2] = {{"data/mine-1.2_x", "data/mine-1.2_x"},
                                           {"my data", "'my data'"},
                                           {"it's", "'it'\\''s'"},
                                           {"", "\'\'"},
                                           {"$(x)`y`;\n", "'$(x)`y`;\n'"},
                                           {"größe", "'größe'"}};
    char out[64];
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        ck_assert_str_eq(file_shell_quote(out, sizeof out, words[i][0]), words[i][1]);
    for (size_t size = 8; size < 16; size++)
        ck_assert_uint_lt(strlen(file_shell_quote(out, size, "a'b'c'd'e'f'g'h'i'j'k")), size);
}

/* Computes the CRC one bit at a time, from the polynomial. */
static uint32_t reference_crc(uint32_t polynomial, const unsigned char *bytes, size_t count)
{
    uint32_t state = 0xffffffff;
    for (size_t i = 0; i < count; i++) {
        state ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            state = state >> 1 ^ ((state & 1) != 0 ? polynomial : 0);
    }
    return state ^ 0xffffffff;
}

TEST(crc32c)
{
    unsigned char bytes[600];
    ck_assert_uint_eq(file_crc32c(0, "123456789", 9), 0xe3069283);
    ck_assert_uint_eq(file_crc32(0, "123456789", 9), 0xcbf43926);
    /* RFC 3720, B.4. */
    memset(bytes, 0, 32);
    ck_assert_uint_eq(file_crc32c(0, bytes, 32), 0x8a9136aa);
    memset(bytes, 0xff, 32);
    ck_assert_uint_eq(file_crc32c(0, bytes, 32), 0x62a8ab43);
    for (int i = 0; i < 32; i++)
        bytes[i] = (unsigned char)i;
    ck_assert_uint_eq(file_crc32c(0, bytes, 32), 0x46dd794e);
    for (int i = 0; i < 32; i++)
        bytes[i] = (unsigned char)(31 - i);
    ck_assert_uint_eq(file_crc32c(0, bytes, 32), 0x113fdb5c);
    ck_assert_uint_eq(file_crc32c(0, NULL, 0), 0);

    const struct philox_key key = philox_key_make(unit_seed(), RNG_SAMPLE);
    for (uint32_t i = 0; i < sizeof bytes / 4; i++) {
        const struct philox_block block = philox4x32_10(key, (struct philox_block){{i, 0, 0, 0}});
        memcpy(bytes + 4 * i, block.word, 4);
    }
    for (size_t start = 0; start < 9; start++) {
        for (size_t count = 0; start + count <= sizeof bytes; count += 1 + count / 16) {
            const uint32_t wanted = reference_crc(0x82f63b78u, bytes + start, count);
            ck_assert_uint_eq(file_crc32c(0, bytes + start, count), wanted);
            const size_t half = count / 3;
            const uint32_t first = file_crc32c(0, bytes + start, half);
            ck_assert_uint_eq(file_crc32c(first, bytes + start + half, count - half), wanted);
            ck_assert_uint_eq(file_crc32c_portable(first, bytes + start + half, count - half),
                              wanted);
            ck_assert_uint_eq(
                file_crc32(file_crc32(0, bytes + start, half), bytes + start + half, count - half),
                reference_crc(0xedb88320u, bytes + start, count));
        }
    }
}
