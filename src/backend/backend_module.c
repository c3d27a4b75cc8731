/* The cuda backend as a module, which is loaded when a device is asked for.
 *
 * The module lies in the folder that was configured, or in $GPT_TRAIN_MODULE_DIR; never in the current folder or beside
 * the program.  One that any user may change is refused.  A loaded module stays loaded; loading it again is cheap, so
 * nothing is remembered here.
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "backend/backend_module.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include "base/file.h"

#define MODULE_FILE "gpt-train-cuda.so"
#define MODULE_PACKAGE "gpt-train-cuda"

static bool anyone_may_write(const char *path)
{
    struct stat status;
    return stat(path, &status) != 0 || (status.st_mode & S_IWOTH) != 0;
}

/* Returns NULL if the object is one that this program may use, else what it is. */
static const char *module_fault(const struct backend_module *module)
{
    if (module == NULL)
        return "not a module of gpt-train";
    if (module->abi != BACKEND_MODULE_ABI || strcmp(module->version, PACKAGE_VERSION) != 0)
        return "the module of another gpt-train than this one (" PACKAGE_VERSION ")";
    return NULL;
}

/* Returns the module's table, or NULL after writing to `reason` why the program cannot use a module.  Sets *absent to
 * true if no module is installed. */
static const struct backend_ops *module_ops(char reason[static BACKEND_REASON_MAX], bool *absent)
{
    const char *wanted = getenv("GPT_TRAIN_MODULE_DIR"), *folder = wanted != NULL ? wanted : PKGLIB_DIR;
    const char *path = FILE_IN(folder, MODULE_FILE);
    *absent = !file_exists(path);
    if (*absent || anyone_may_write(folder) || anyone_may_write(path)) {
        snprintf(reason, BACKEND_REASON_MAX,
                 *absent ? "%.160s is not there (package " MODULE_PACKAGE ")"
                         : "%.160s is not loaded: any user may change it, or its folder",
                 path);
        return NULL;
    }
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (object == NULL) {
        snprintf(reason, BACKEND_REASON_MAX, "%s", dlerror());
        return NULL;
    }
    const struct backend_module *module = dlsym(object, "gpt_train_module");
    const char *fault = module_fault(module);
    if (fault == NULL)
        return module->ops;
    snprintf(reason, BACKEND_REASON_MAX, "%.160s is %s", path, fault);
    dlclose(object);
    return NULL;
}

static void module_devices(bool automatic, struct backend_devices *out)
{
    bool absent;
    struct backend_devices none = {.first = -1};
    const struct backend_ops *ops = module_ops(none.reason, &absent);
    if (ops != NULL) {
        ops->devices(automatic, out);
        return;
    }
    if (automatic && absent)
        none.reason[0] = '\0';
    *out = none;
}

static enum gt_status module_open(const struct backend_open_options *options, struct backend **out)
{
    bool absent;
    char reason[BACKEND_REASON_MAX];
    const struct backend_ops *ops = module_ops(reason, &absent);
    if (ops != NULL)
        return ops->open(options, out);
    return FAIL(GT_DEVICE, ERROR_NO_DEVICE "cuda: %s", reason);
}

/* The backend that open() returns has the module's own table. */
const struct backend_ops module_backend_ops = {.name = "cuda", .devices = module_devices, .open = module_open};
