/* Starts a program of the wheel.
 *
 * The wheel has a copy under the name of each program, which pip puts into PREFIX/bin.  It sets the
 * folders of the configurations and of the CUDA module, unless the user did, and becomes
 * PREFIX/libexec/gpt-train/NAME.  pip's own starters are scripts, and would run Python first.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fail(const char *path, int error)
{
    fprintf(stderr, "gpt-train's wheel: %s: %s\n", path, strerror(error));
    return 1;
}

int main(int argc, char **argv)
{
    (void)argc;
    char self[PATH_MAX], libexec[PATH_MAX + 32], path[PATH_MAX + 64];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0)
        return fail("/proc/self/exe", errno);
    self[length] = '\0';
    char *const name = strrchr(self, '/');
    *name = '\0';
    char *const bin = strrchr(self, '/');
    if (bin == NULL)
        return fail(self, ENOENT);
    *bin = '\0'; /* self is the prefix now */
    snprintf(path, sizeof path, "%s/share/gpt-train/config", self);
    setenv("GPT_TRAIN_CONFIG_DIR", path, 0);
    snprintf(libexec, sizeof libexec, "%s/libexec/gpt-train", self);
    setenv("GPT_TRAIN_MODULE_DIR", libexec, 0);
    snprintf(path, sizeof path, "%s/%s", libexec, name + 1);
    execv(path, argv);
    return fail(path, errno);
}
