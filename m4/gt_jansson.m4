# GT_JANSSON
# The JSON library, required.  Sets JANSSON_CFLAGS and JANSSON_LIBS.
AC_DEFUN([GT_JANSSON], [
  PKG_CHECK_MODULES([JANSSON], [jansson >= 2.14], [],
    [AC_MSG_ERROR([jansson 2.14 or later was not found through pkg-config.  Debian: apt-get install libjansson-dev])])
])
