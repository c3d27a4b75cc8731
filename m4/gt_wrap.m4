# GT_WRAP
# Whether the linker can put another function in the place of the C library's (GNU ld's --wrap, which lld has too), and the
# library's names are those that it is asked for, who called among them.  Only a test needs it: tests/reliability/failing_memory.py.
# Sets the conditional HAVE_WRAP.
AC_DEFUN([GT_WRAP], [
  AC_MSG_CHECKING([whether $CC links with --wrap])
  gt_saved_LDFLAGS=$LDFLAGS
  LDFLAGS="$LDFLAGS -Wl,--wrap=fopen64 -Wl,--wrap=mmap64"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <execinfo.h>
#include <link.h>
void __real_fopen64(void);
void __real_mmap64(void);]], [[void *frame[1];
return __real_fopen64 == __real_mmap64 && backtrace(frame, 1) == 1 && _r_debug.r_map;]])], [gt_have_wrap=yes], [gt_have_wrap=no])
  LDFLAGS=$gt_saved_LDFLAGS
  AC_MSG_RESULT([$gt_have_wrap])
  AM_CONDITIONAL([HAVE_WRAP], [test "x$gt_have_wrap" = xyes])
])
