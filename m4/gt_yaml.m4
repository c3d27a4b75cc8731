# GT_YAML
# libyaml, with which gpt-train reads configurations in YAML; optional.  Sets YAML_CFLAGS, YAML_LIBS and HAVE_YAML.
# --without-yaml leaves it out where it is installed.
AC_DEFUN([GT_YAML], [
  AC_ARG_WITH([yaml],
    [AS_HELP_STRING([--without-yaml], [configurations in YAML are refused])],
    [], [with_yaml=check])
  gt_yaml=no
  AS_IF([test "x$with_yaml" != xno],
    [PKG_CHECK_MODULES([YAML], [yaml-0.1 >= 0.2.1], [gt_yaml=yes],
      [AS_IF([test "x$with_yaml" = xyes],
        [AC_MSG_ERROR([libyaml 0.2.1 or later was not found.  Debian: apt-get install libyaml-dev])])])])
  AS_IF([test "x$gt_yaml" = xyes], [AC_DEFINE([HAVE_YAML], [1], [YAML can be read.])], [YAML_CFLAGS= YAML_LIBS=])
  AC_SUBST([YAML_CFLAGS])
  AC_SUBST([YAML_LIBS])
])
