/* Detects AMX in this processor and system, which not every compiler can test.
 *
 * The processor's bits come from CPUID.  The state of AMX tiles is large, so Linux saves it only for processes that
 * request it.  The request covers all threads; it fails if the system has not enabled AMX or a thread's signal stack is
 * too small.
 *                            Intel SDM vol. 2, CPUID leaf 7; Linux Documentation/arch/x86/xstate.rst
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "backends/cpu/cpu_gemm.h"

#ifdef HAVE_X86_BF16

#include <cpuid.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define LEAF7_EDX_AMX_BF16 (1u << 22)
#define LEAF7_EDX_AMX_TILE (1u << 24)
#define REQUEST_STATE_PERMISSION 0x1023 /* ARCH_REQ_XCOMP_PERM; missing in the headers of older systems */
#define STATE_TILE_DATA 18

bool cpu_has_amx_bf16(void)
{
    const unsigned wanted = LEAF7_EDX_AMX_BF16 | LEAF7_EDX_AMX_TILE;
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & wanted) != wanted)
        return false;
#if defined(__linux__) && defined(SYS_arch_prctl)
    return syscall(SYS_arch_prctl, REQUEST_STATE_PERMISSION, STATE_TILE_DATA) == 0;
#else
    return false;
#endif
}

#else

bool cpu_has_amx_bf16(void)
{
    return false;
}

#endif
