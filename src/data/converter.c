/* Reads Parquet files through another program.
 *
 * posix_spawnp() finds the program on PATH.  Its standard error goes to a file without a name,
 * because a full pipe would block the program; failure messages quote this file.  If the last line
 * lacks its end, the program was cut off, whatever its exit status.
 */
#include "data/converter.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"

#define NEEDS "a Parquet file is read by duckdb, or by a Python with pyarrow, polars or duckdb"
#define STATUS_NO_MODULE 9
#define WORDS_BYTES 400
#define QUERY_BYTES (2 * FILE_PATH_MAX + 64)

extern char **environ; /* POSIX has no header for it */

struct converter {
    const char *path;
    const char *name; /* of the program */
    pid_t pid;        /* 0: it has ended and was waited for */
    int fd;           /* the pipe's end, or -1 */
    FILE *words;      /* its standard error */
    bool in_line;     /* the last byte did not end a line */
};

/* Writes rows in batches, with the first module that exists.  Loads no module from the working
 * directory, where files of others may be. */
static const char python[] =
    "import sys\n"
    "sys.path[:] = [folder for folder in sys.path if folder]\n"
    "import importlib, json\n"
    "def find():\n"
    "    for name in 'pyarrow.parquet', 'polars', 'duckdb':\n"
    "        try:\n"
    "            return name, importlib.import_module(name)\n"
    "        except ImportError:\n"
    "            pass\n"
    "    sys.exit(9)\n"
    "def batches(name, module, path):\n"
    "    if name == 'pyarrow.parquet':\n"
    "        for batch in module.ParquetFile(path).iter_batches(1000):\n"
    "            yield batch.to_pylist()\n"
    "    elif name == 'polars':\n"
    "        lazy = module.scan_parquet(path, glob=False)\n"
    "        for at in range(0, lazy.select(module.len()).collect().item(), 1000):\n"
    "            yield lazy.slice(at, 1000).collect().to_dicts()\n"
    "    else:\n"
    "        rows = module.connect().execute('SELECT * FROM read_parquet(?)', [path])\n"
    "        names = [column[0] for column in rows.description]\n"
    "        part = rows.fetchmany(1000)\n"
    "        while part:\n"
    "            yield [dict(zip(names, row)) for row in part]\n"
    "            part = rows.fetchmany(1000)\n"
    "try:\n"
    "    out = open(1, 'w', encoding='utf-8')\n"
    "    for batch in batches(*find(), sys.argv[1]):\n"
    "        for row in batch:\n"
    "            out.write(json.dumps(row, ensure_ascii=False, default=str) + '\\n')\n"
    "    out.close()\n"
    "except Exception as error:\n"
    "    sys.exit(f'{type(error).__name__}: {error}')\n";

bool converter_is_parquet(const unsigned char *bytes, size_t count)
{
    return count >= 4 && memcmp(bytes, "PAR1", 4) == 0;
}

static void converter_close(void *object)
{
    struct converter *converter = object;
    if (converter->fd >= 0)
        close(converter->fd);
    if (converter->words != NULL)
        fclose(converter->words);
    if (converter->pid == 0)
        return;
    kill(converter->pid, SIGKILL);
    while (waitpid(converter->pid, NULL, 0) < 0 && errno == EINTR) {
    }
}

/* Starts argv[0] with its output in `out`.  Returns 0 or an errno: ENOENT if there is no such
 * program. */
static int program_start(struct converter *converter, char *const *argv, int out)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGPIPE);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &signals);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, fileno(converter->words), STDERR_FILENO);
    const int error = posix_spawnp(&converter->pid, argv[0], &actions, &attributes, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    converter->name = argv[0];
    converter->pid = error == 0 ? converter->pid : 0;
    return error;
}

/* Writes the query for duckdb, in which a quote is doubled. */
static void query_write(char out[static QUERY_BYTES], const char *path)
{
    size_t count = (size_t)snprintf(out, QUERY_BYTES, "SELECT * FROM read_parquet('");
    for (; *path != '\0'; path++) {
        if (*path == '\'')
            out[count++] = '\'';
        out[count++] = *path;
    }
    (void)snprintf(out + count, QUERY_BYTES - count, "')");
}

/* Starts the first program that exists. */
static enum gt_status programs_try(struct converter *converter, int out)
{
    char query[QUERY_BYTES];
    query_write(query, converter->path);
    char *const duckdb[] = {"duckdb", "-init", "/dev/null", "-jsonlines", "-c", query, NULL};
    char *const python3[] = {"python3", "-c", (char *)python, (char *)converter->path, NULL};
    char *const *const programs[] = {duckdb, python3};
    int error = ENOENT;
    for (size_t i = 0; i < sizeof programs / sizeof programs[0] && error == ENOENT; i++)
        error = program_start(converter, programs[i], out);
    if (error == 0)
        return GT_OK;
    if (error == ENOENT)
        return FAIL(GT_UNSUPPORTED,
                    "%s: " NEEDS
                    ", and none is on PATH: install Python 3, then pip install pyarrow",
                    converter->path);
    return FAIL(GT_IO, "%s: %s cannot be started: %s", converter->path, converter->name,
                strerror(error));
}

enum gt_status converter_open(const void *owner, const char *path, struct converter **out)
{
    struct converter *converter;
    int ends[2];
    TRY(HOSTMEM_NEW(owner, 1, "a converter", &converter));
    converter->fd = -1;
    converter->path = path;
    hostmem_at_free(converter, converter_close);
    enum gt_status status = GT_OK;
    converter->words = tmpfile();
    if (converter->words == NULL || pipe(ends) != 0)
        status = FAIL(GT_IO, "%s: no file or pipe for the program that reads it: %s", path,
                      strerror(errno));
    if (status == GT_OK) {
        converter->fd = ends[0];
        fcntl(ends[0], F_SETFD, FD_CLOEXEC);
        fcntl(ends[1], F_SETFD, FD_CLOEXEC);
        status = programs_try(converter, ends[1]);
        close(ends[1]);
    }
    return FINISH(status, out, converter, hostmem_free);
}

/* Returns the last line that the program wrote to its standard error. */
static char *last_words(struct converter *converter, char out[static WORDS_BYTES])
{
    char line[WORDS_BYTES];
    snprintf(out, WORDS_BYTES, "it gave no reason");
    rewind(converter->words);
    while (fgets(line, sizeof line, converter->words) != NULL) {
        line[strcspn(line, "\r\n")] = '\0';
        if (line[0] != '\0')
            memcpy(out, line, sizeof line);
    }
    return out;
}

static enum gt_status converter_end(struct converter *converter)
{
    int result = 0;
    char words[WORDS_BYTES];
    while (waitpid(converter->pid, &result, 0) < 0 && errno == EINTR) {
    }
    converter->pid = 0;
    if (WIFSIGNALED(result))
        return FAIL(
            GT_FAILURE,
            "%s: signal %d ended %s, which was reading this file (9: perhaps for lack of memory)",
            converter->path, WTERMSIG(result), converter->name);
    if (WEXITSTATUS(result) == STATUS_NO_MODULE && strcmp(converter->name, "python3") == 0)
        return FAIL(GT_UNSUPPORTED,
                    "%s: " NEEDS ", and this python3 has none of them: pip install pyarrow",
                    converter->path);
    if (WEXITSTATUS(result) != 0)
        return FAIL(GT_DATA, "%s: %s could not read this file: %s", converter->path,
                    converter->name, last_words(converter, words));
    if (converter->in_line)
        return FAIL(GT_FAILURE, "%s: %s stopped in the middle of a row", converter->path,
                    converter->name);
    return GT_OK;
}

enum gt_status converter_read(struct converter *converter, unsigned char *out, size_t capacity,
                              size_t *out_count)
{
    ssize_t got = 0;
    *out_count = 0;
    if (converter->pid == 0)
        return GT_OK;
    do {
        got = read(converter->fd, out, capacity);
    } while (got < 0 && errno == EINTR);
    if (got < 0)
        return FAIL(GT_IO, "%s: the pipe from %s: %s", converter->path, converter->name,
                    strerror(errno));
    if (got == 0)
        return converter_end(converter);
    converter->in_line = out[got - 1] != '\n';
    *out_count = (size_t)got;
    return GT_OK;
}
