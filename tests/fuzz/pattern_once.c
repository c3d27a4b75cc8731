/* GPT-2's pattern is compiled once for all inputs of a fuzzing target: compiling and translating it takes longer than most
 * inputs.
 *
 * The linker puts these functions in the place of PCRE2's (--wrap).  There is only this one pattern in the program; what is
 * matched by it is matched by PCRE2 as ever.
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

pcre2_code *__real_pcre2_compile_8(PCRE2_SPTR pattern, PCRE2_SIZE length, uint32_t options, int *error, PCRE2_SIZE *at,
                                   pcre2_compile_context *context);
pcre2_code *__wrap_pcre2_compile_8(PCRE2_SPTR pattern, PCRE2_SIZE length, uint32_t options, int *error, PCRE2_SIZE *at,
                                   pcre2_compile_context *context);
int __real_pcre2_jit_compile_8(pcre2_code *code, uint32_t options);
int __wrap_pcre2_jit_compile_8(pcre2_code *code, uint32_t options);
void __wrap_pcre2_code_free_8(pcre2_code *code);

pcre2_code *__wrap_pcre2_compile_8(PCRE2_SPTR pattern, PCRE2_SIZE length, uint32_t options, int *error, PCRE2_SIZE *at,
                                   pcre2_compile_context *context)
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
