/* Compiles GPT-2's pattern once for all inputs of a fuzzing target: compiling and JIT translation
 * take longer than most inputs.
 *
 * The linker substitutes these functions for PCRE2's (--wrap).  The program has only this one
 * pattern; matching is still done by PCRE2.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdbool.h>

#include "tests/fuzz/fuzz_common.h"

static struct {
    PCRE2_SPTR pattern;
    pcre2_code *code;
    int jit;
    bool is_translated;
} once;

pcre2_code *__real_pcre2_compile_8(PCRE2_SPTR pattern, PCRE2_SIZE length, uint32_t options,
                                   int *error, PCRE2_SIZE *at, pcre2_compile_context *context);
pcre2_code *__wrap_pcre2_compile_8(PCRE2_SPTR pattern, PCRE2_SIZE length, uint32_t options,
                                   int *error, PCRE2_SIZE *at, pcre2_compile_context *context);
int __real_pcre2_jit_compile_8(pcre2_code *code, uint32_t options);
int __wrap_pcre2_jit_compile_8(pcre2_code *code, uint32_t options);
void __wrap_pcre2_code_free_8(pcre2_code *code);

pcre2_code *__wrap_pcre2_compile_8(PCRE2_SPTR pattern, PCRE2_SIZE length, uint32_t options,
                                   int *error, PCRE2_SIZE *at, pcre2_compile_context *context)
{
    if (once.code == NULL) {
        once.pattern = pattern;
        once.code = __real_pcre2_compile_8(pattern, length, options, error, at, context);
    }
    FUZZ_CHECK(once.pattern == pattern);
    return once.code;
}

int __wrap_pcre2_jit_compile_8(pcre2_code *code, uint32_t options)
{
    FUZZ_CHECK(code == once.code);
    if (!once.is_translated)
        once.jit = __real_pcre2_jit_compile_8(code, options);
    once.is_translated = true;
    return once.jit;
}

void __wrap_pcre2_code_free_8(pcre2_code *code)
{
    FUZZ_CHECK(code == once.code || code == NULL);
}
