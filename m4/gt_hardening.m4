# GT_HARDENING
# Programs that read untrusted files are hardened by default: position independent, full RELRO, no executable stack,
# stack protector and clash protection, control-flow marks, checked libc calls.  Every flag is tried first.
# --disable-hardening switches all of it off.  Under a sanitizer or gcov the libc checks stay off, because they hide
# errors from the sanitizer's own interceptors; the rest stays on.
# Sets HARDENING_CPPFLAGS, HARDENING_CFLAGS, HARDENING_LDFLAGS.  Call after GT_SANITIZERS.
AC_DEFUN([GT_HARDENING], [
  AC_REQUIRE([AC_CANONICAL_HOST])
  AC_ARG_ENABLE([hardening],
    [AS_HELP_STRING([--disable-hardening], [no stack protector, RELRO, PIE and checked libc calls])],
    [], [enable_hardening=yes])
  HARDENING_CPPFLAGS=
  HARDENING_CFLAGS=
  HARDENING_LDFLAGS=
  AS_IF([test "x$enable_hardening" = xyes], [GT_HARDENING_FLAGS])
  AC_SUBST([HARDENING_CPPFLAGS])
  AC_SUBST([HARDENING_CFLAGS])
  AC_SUBST([HARDENING_LDFLAGS])
])

AC_DEFUN([GT_HARDENING_FLAGS], [
  AS_IF([test -z "$gt_sanitizers"], [
    GT_FLAG_COMPILE([HARDENING_CPPFLAGS], [-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3])
    AS_IF([test -z "$HARDENING_CPPFLAGS"],
      [GT_FLAG_COMPILE([HARDENING_CPPFLAGS], [-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2])])
  ])
  GT_FLAG_COMPILE([HARDENING_CFLAGS], [-fstack-protector-strong])
  GT_FLAG_COMPILE([HARDENING_CFLAGS], [-fstack-clash-protection])
  AS_CASE([$host_cpu],
    [x86_64 | i?86], [GT_FLAG_COMPILE([HARDENING_CFLAGS], [-fcf-protection=full])],
    [aarch64], [GT_FLAG_COMPILE([HARDENING_CFLAGS], [-mbranch-protection=standard])])
  GT_FLAG_COMPILE([HARDENING_CFLAGS], [-fPIE])
  GT_FLAG_LINK([HARDENING_LDFLAGS], [-pie])
  for gt_flag in -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack; do
    GT_HARDENING_LINK_TRY
  done
])

AC_DEFUN([GT_HARDENING_LINK_TRY], [
  AC_MSG_CHECKING([whether $CC links with $gt_flag])
  gt_saved_LDFLAGS=$LDFLAGS
  LDFLAGS="$gt_flag $gt_saved_LDFLAGS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])],
    [AC_MSG_RESULT([yes])
     HARDENING_LDFLAGS="$HARDENING_LDFLAGS $gt_flag"],
    [AC_MSG_RESULT([no])])
  LDFLAGS=$gt_saved_LDFLAGS
])
