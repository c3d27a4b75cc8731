# GT_PCRE2
# Regular expressions, required: GPT-2's tokenizer splits text by one.  Sets PCRE2_CFLAGS and PCRE2_LIBS.
AC_DEFUN([GT_PCRE2], [
  PKG_CHECK_MODULES([PCRE2], [libpcre2-8 >= 10.32], [],
    [AC_MSG_ERROR([PCRE2 10.32 or later was not found through pkg-config.  Debian: apt-get install libpcre2-dev])])
])
