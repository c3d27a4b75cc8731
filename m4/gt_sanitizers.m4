# GT_SANITIZERS
# --enable-debug, --enable-asan, --enable-ubsan, --enable-tsan, --enable-gcov.  Sets BUILD_CFLAGS (optimisation and
# instrumentation of everything), BUILD_LDFLAGS, and gt_sanitizers (a list for the summary).  A flag that was asked for
# and does not link is an error: a build that silently lacks its sanitizer proves nothing.
AC_DEFUN([GT_SANITIZERS], [
  AC_ARG_ENABLE([debug],
    [AS_HELP_STRING([--enable-debug], [-Og, NaN patterns in fresh memory, guard bands between tensors])],
    [], [enable_debug=no])
  AC_ARG_ENABLE([asan], [AS_HELP_STRING([--enable-asan], [AddressSanitizer])], [], [enable_asan=no])
  AC_ARG_ENABLE([ubsan], [AS_HELP_STRING([--enable-ubsan], [UndefinedBehaviorSanitizer])], [], [enable_ubsan=no])
  AC_ARG_ENABLE([tsan],
    [AS_HELP_STRING([--enable-tsan], [ThreadSanitizer (use clang and libomp: gcc's OpenMP is not instrumented)])],
    [], [enable_tsan=no])
  AC_ARG_ENABLE([gcov], [AS_HELP_STRING([--enable-gcov], [count executed lines for gcov])], [], [enable_gcov=no])
  AS_IF([test "x$enable_tsan" = xyes && test "x$enable_asan" = xyes],
    [AC_MSG_ERROR([--enable-tsan and --enable-asan exclude each other])])

  AS_IF([test "x$enable_debug" = xyes],
    [BUILD_CFLAGS="-g -Og"
     AC_DEFINE([GT_DEBUG], [1], [Fill fresh and dead memory with NaN patterns and put guard bands around tensors.])],
    [BUILD_CFLAGS="-g -O2"])
  BUILD_LDFLAGS=
  gt_sanitizers=
  AS_IF([test "x$enable_asan" = xyes], [GT_SANITIZER_ADD([asan], [-fsanitize=address -fno-omit-frame-pointer])])
  AS_IF([test "x$enable_ubsan" = xyes],
    [GT_SANITIZER_ADD([ubsan], [-fsanitize=undefined -fno-sanitize-recover=all])])
  AS_IF([test "x$enable_tsan" = xyes], [GT_SANITIZER_ADD([tsan], [-fsanitize=thread])])
  AS_IF([test "x$enable_gcov" = xyes], [GT_SANITIZER_ADD([gcov], [--coverage])])
  AM_CONDITIONAL([SANITIZED], [test -n "$gt_sanitizers"])
  AC_SUBST([BUILD_CFLAGS])
  AC_SUBST([BUILD_LDFLAGS])
])

# GT_SANITIZER_ADD(NAME, FLAGS)
AC_DEFUN([GT_SANITIZER_ADD], [
  AC_MSG_CHECKING([whether $CC links with $2])
  gt_saved_CFLAGS=$CFLAGS
  CFLAGS="$2 $gt_saved_CFLAGS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no])
     AC_MSG_ERROR([--enable-$1 needs a compiler and runtime library that accept $2])])
  CFLAGS=$gt_saved_CFLAGS
  BUILD_CFLAGS="$BUILD_CFLAGS $2"
  BUILD_LDFLAGS="$BUILD_LDFLAGS $2"
  gt_sanitizers="$gt_sanitizers $1"
])
