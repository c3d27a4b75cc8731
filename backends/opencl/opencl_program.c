/* Programs and kernels: one source with one set of options is one program, built when its first
 * kernel is requested.
 *
 * A program comes from the user's cache, under its whole key, or is compiled.  Compiling takes
 * seconds with some drivers, so a line announces it, and another one follows every few seconds.  Of
 * the compiler's log, only the first error line is shown.  Nothing is built twice in a process: a
 * launch finds its kernel by source, options and name.
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "backends/opencl/opencl_program.h"

#include "backends/opencl/opencl_error.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/file.h"
#include "base/user_cache.h"

#define CACHE_FILE_BYTES_MAX ((uint64_t)64 << 20)
#define ALL_OPTIONS_MAX (OPENCL_OPTIONS_MAX + 160)
#define BUILD_LOG_BYTES_MAX ((size_t)1 << 20)
#define ERROR_LINE_MAX 300
#define PROGRESS_NS INT64_C(3000000000)

static const struct user_cache cache = {
    .folder = "opencl",
    .magic = "GTCLBIN1",
    .suffix = ".clbin",
    .otherwise = "the kernels in it are compiled again",
    .bytes_max = (uint64_t)256 << 20,
    .file_bytes_max = CACHE_FILE_BYTES_MAX,
};

bool opencl_cache_load(const char *key, void **out, size_t *out_bytes)
{
    return user_cache_load(&cache, key, key, out, out_bytes) == USER_CACHE_READ;
}

void opencl_cache_store(const char *key, const void *data, size_t bytes)
{
    (void)user_cache_store(&cache, key, key, data, bytes);
}

/* Everything that a binary depends on.  Length and checksum stand for the source. */
static void key_text(const struct opencl_backend *cl, const struct opencl_source *source,
                     const char *options, char key[static OPENCL_KEY_MAX])
{
    const uint32_t common = file_crc32c(0, opencl_source_common.text, opencl_source_common.length);
    snprintf(key, OPENCL_KEY_MAX,
             "%s; %s; %s; %s; units %u; common %zu %08" PRIx32 "; %s %zu %08" PRIx32
             "; %s; " PACKAGE_VERSION,
             cl->device.platform_name, cl->device.name, cl->device.driver, cl->device.version,
             cl->device.compute_units, opencl_source_common.length, common, source->name,
             source->length, file_crc32c(0, source->text, source->length), options);
}

/* Copies the first line of the compiler's log that contains "error", else its first line. */
static void error_line(const char *log, char out[static ERROR_LINE_MAX])
{
    const char *line = strstr(log, "error");
    line = line != NULL ? line : log;
    while (line > log && line[-1] != '\n')
        line--;
    snprintf(out, ERROR_LINE_MAX, "%.*s", (int)strcspn(line, "\n"), line);
}

static enum gt_status build_failed(struct opencl_backend *cl, const struct opencl_source *source,
                                   const char *options, cl_program program, cl_int code)
{
    char text[OPENCL_CODE_TEXT_MAX], line[ERROR_LINE_MAX] = "the compiler printed nothing";
    size_t bytes = 0;
    char *log = NULL;
    if (cl->api.clGetProgramBuildInfo(program, cl->device.id, CL_PROGRAM_BUILD_LOG, 0, NULL,
                                      &bytes) == CL_SUCCESS &&
        bytes > 1 && bytes < BUILD_LOG_BYTES_MAX)
        log = calloc(1, bytes + 1);
    if (log != NULL && cl->api.clGetProgramBuildInfo(program, cl->device.id, CL_PROGRAM_BUILD_LOG,
                                                     bytes, log, NULL) == CL_SUCCESS)
        error_line(log, line);
    free(log);
    opencl_error(cl, "%s.cl does not build on %s: %s: %s (options \"%s\")", source->name,
                 cl->device.name, opencl_code_text(text, code), line, options);
    return code == CL_OUT_OF_HOST_MEMORY ? GT_NO_MEMORY : GT_DEVICE;
}

static void progress_print(struct opencl_backend *cl)
{
    const int64_t now = clock_monotonic_ns();
    char text[32];
    if (cl->compiled == 0)
        log_note("opencl: compiling kernels for %s; the next start takes them from the cache",
                 cl->device.name);
    else if (now - cl->progress_ns > PROGRESS_NS)
        log_note("opencl: %" PRId32 " kernel files compiled in %s", cl->compiled,
                 clock_duration(text, cl->compile_seconds));
    else
        return;
    cl->progress_ns = now;
}

/* Returns the cached binary as a built program; NULL when there is none, or the driver rejects it.
 */
static cl_program program_cached(struct opencl_backend *cl, const char *key,
                                 const char *all_options)
{
    void *bytes = NULL;
    size_t size = 0;
    cl_int code = CL_SUCCESS, status = CL_SUCCESS;
    if (!opencl_cache_load(key, &bytes, &size))
        return NULL;
    const unsigned char *binary = bytes;
    cl_program program = cl->api.clCreateProgramWithBinary(cl->context, 1, &cl->device.id, &size,
                                                           &binary, &status, &code);
    free(bytes);
    if (code != CL_SUCCESS || program == NULL)
        return NULL;
    if (status == CL_SUCCESS &&
        cl->api.clBuildProgram(program, 1, &cl->device.id, all_options, NULL, NULL) == CL_SUCCESS)
        return program;
    (void)cl->api.clReleaseProgram(program);
    return NULL;
}

/* Stores the binary in the cache.  If the driver provides none, the program is compiled in every
 * process. */
static void program_keep(struct opencl_backend *cl, const char *key, cl_program program)
{
    size_t size = 0;
    if (cl->api.clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL) !=
            CL_SUCCESS ||
        size == 0 || size > CACHE_FILE_BYTES_MAX)
        return;
    unsigned char *bytes = malloc(size);
    if (bytes != NULL &&
        cl->api.clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(unsigned char *), &bytes,
                                 NULL) == CL_SUCCESS)
        opencl_cache_store(key, bytes, size);
    free(bytes);
}

static enum gt_status program_compile(struct opencl_backend *cl, const struct opencl_source *source,
                                      const char *options, const char *all_options, cl_program *out)
{
    char line[OPENCL_NAME_MAX];
    const char *texts[3] = {opencl_source_common.text, line, source->text};
    cl_int code = CL_SUCCESS;
    snprintf(line, sizeof line, "\n#line 1 \"%s.cl\"\n", source->name);
    const size_t lengths[3] = {opencl_source_common.length, strlen(line), source->length};
    const int64_t begin = clock_monotonic_ns();
    progress_print(cl);
    cl_program program = cl->api.clCreateProgramWithSource(cl->context, 3, texts, lengths, &code);
    if (code != CL_SUCCESS)
        return opencl_failure(cl, "clCreateProgramWithSource", code);
    code = cl->api.clBuildProgram(program, 1, &cl->device.id, all_options, NULL, NULL);
    cl->compile_seconds += (double)(clock_monotonic_ns() - begin) * 1e-9;
    if (code != CL_SUCCESS) {
        const enum gt_status status = build_failed(cl, source, options, program, code);
        (void)cl->api.clReleaseProgram(program);
        return status;
    }
    *out = program;
    return GT_OK;
}

static enum gt_status program_find(struct opencl_backend *cl, const struct opencl_source *source,
                                   const char *options, int32_t *out)
{
    char all_options[ALL_OPTIONS_MAX], key[OPENCL_KEY_MAX];
    for (int32_t i = 0; i < cl->programs; i++) {
        if (cl->program[i].source == source && strcmp(cl->program[i].options, options) == 0) {
            *out = i;
            return GT_OK;
        }
    }
    assert(cl->programs < OPENCL_PROGRAMS_MAX && strlen(options) < OPENCL_OPTIONS_MAX);
    snprintf(all_options, sizeof all_options, "-cl-std=CL1.2%s %s",
             cl->device.has_fma && cl->device.is_gpu ? " -DGT_FMA" : "", options);
    key_text(cl, source, all_options, key);
    struct opencl_program *program = &cl->program[cl->programs];
    cl_program built = program_cached(cl, key, all_options);
    if (built == NULL) {
        TRY(program_compile(cl, source, options, all_options, &built));
        cl->compiled++;
        program_keep(cl, key, built);
    }
    program->source = source;
    program->program = built;
    snprintf(program->options, sizeof program->options, "%s", options);
    *out = cl->programs++;
    return GT_OK;
}

enum gt_status opencl_kernel_find(struct opencl_backend *cl, const struct opencl_source *source,
                                  const char *options, const char *name, cl_kernel *out)
{
    int32_t program = 0;
    TRY(program_find(cl, source, options, &program));
    for (int32_t i = 0; i < cl->kernels; i++) {
        const struct opencl_kernel *kernel = &cl->kernel[i];
        if (kernel->program == program &&
            (kernel->name == name || strcmp(kernel->name, name) == 0)) {
            *out = kernel->kernel;
            return GT_OK;
        }
    }
    assert(cl->kernels < OPENCL_KERNELS_MAX);
    cl_int code = CL_SUCCESS;
    cl_kernel kernel = cl->api.clCreateKernel(cl->program[program].program, name, &code);
    if (code != CL_SUCCESS)
        return opencl_failure(cl, name, code);
    cl->kernel[cl->kernels++] =
        (struct opencl_kernel){.program = program, .name = name, .kernel = kernel};
    *out = kernel;
    return GT_OK;
}

void opencl_programs_release(struct opencl_backend *cl)
{
    for (int32_t i = 0; i < cl->kernels; i++)
        (void)cl->api.clReleaseKernel(cl->kernel[i].kernel);
    for (int32_t i = 0; i < cl->programs; i++)
        (void)cl->api.clReleaseProgram(cl->program[i].program);
    cl->kernels = 0;
    cl->programs = 0;
}
