# GT_FUZZER
# A clang that has libFuzzer, for the short fuzzing of `make check`; any CC may build the rest.  FUZZ_CC=no switches it
# off.  Sets FUZZ_CC ("no" where there is none) and the conditional HAVE_FUZZER.
AC_DEFUN([GT_FUZZER], [
  AC_ARG_VAR([FUZZ_CC], [a clang with libFuzzer, for the fuzzing tests; "no" skips them])
  AS_IF([test -z "$FUZZ_CC"], [AC_CHECK_PROGS([FUZZ_CC], [clang clang-19 clang-16 clang-14], [no])])
  AS_IF([test "x$FUZZ_CC" != xno], [
    AC_MSG_CHECKING([whether $FUZZ_CC links with libFuzzer])
    gt_saved_CC=$CC
    gt_saved_CFLAGS=$CFLAGS
    gt_saved_LDFLAGS=$LDFLAGS
    CC=$FUZZ_CC
    CFLAGS="-fsanitize=fuzzer,address,undefined"
    LDFLAGS=
    AC_LINK_IFELSE([AC_LANG_SOURCE([[#include <stddef.h>
      #include <stdint.h>
      int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
      int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return data == NULL && size > 0; }]])],
      [AC_MSG_RESULT([yes])], [AC_MSG_RESULT([no])
       FUZZ_CC=no])
    CC=$gt_saved_CC
    CFLAGS=$gt_saved_CFLAGS
    LDFLAGS=$gt_saved_LDFLAGS
  ])
  AM_CONDITIONAL([HAVE_FUZZER], [test "x$FUZZ_CC" != xno])
])
