/* Loads modules.
 *
 * The first of these is searched: the folder $GPT_TRAIN_MODULE_DIR; the folder of the program, if
 * that is a build folder; the folder that was configured.  The current folder and that of an
 * installed program are never searched.  A module that any user may change is refused.
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "base/module.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

static bool anyone_may_write(const char *path)
{
    struct stat status;
    return stat(path, &status) != 0 || (status.st_mode & S_IWOTH) != 0;
}

/* Returns NULL if the object is one that this program may use, else what it is. */
static const char *module_fault(const struct module_head *head, uint64_t abi)
{
    if (head == NULL)
        return "not a module of gpt-train";
    if (head->abi != abi || strcmp(head->version, PACKAGE_VERSION) != 0)
        return "from another build of gpt-train than this one (" PACKAGE_VERSION ")";
    return NULL;
}

/* Writes the folder of the program's own file.  Returns true if that is a build folder, in which
 * configure left a script.  Whoever may put files there may replace the program itself. */
static bool build_folder(char folder[static FILE_PATH_MAX])
{
    const ssize_t length = readlink("/proc/self/exe", folder, FILE_PATH_MAX - 1);
    folder[length > 0 ? length : 0] = '\0';
    char *name = strrchr(folder, '/');
    if (name == NULL)
        return false;
    *name = '\0';
    return file_exists(FILE_IN(folder, "config.status"));
}

const void *module_load(const char *name, uint64_t abi, char reason[static MODULE_REASON_MAX],
                        bool *absent)
{
    char built[FILE_PATH_MAX];
    const bool is_built = build_folder(built);
    const char *wanted = getenv("GPT_TRAIN_MODULE_DIR");
    const char *folder = wanted != NULL ? wanted : is_built ? built : PKGLIB_DIR;
    const char *path = FILE_IN(folder, TEXT(64, "gpt-train-%s.so", name));
    *absent = !file_exists(path);
    if (*absent || anyone_may_write(folder) || anyone_may_write(path)) {
        (void)snprintf(reason, MODULE_REASON_MAX,
                       *absent ? "%.160s is not there (package gpt-train-%s)"
                               : "%.160s is not loaded: any user may change it, or its folder",
                       path, name);
        return NULL;
    }
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (object == NULL) {
        (void)snprintf(reason, MODULE_REASON_MAX, "%s", dlerror());
        return NULL;
    }
    const void *module = dlsym(object, "gpt_train_module");
    const char *fault = module_fault(module, abi);
    if (fault == NULL)
        return module;
    (void)snprintf(reason, MODULE_REASON_MAX, "%.160s is %s", path, fault);
    dlclose(object);
    return NULL;
}
