# GT_FOLDERS
# PKGLIB_DIR and PKGDATA_DIR: where modules and configurations are installed, for the programs.
AC_DEFUN([GT_FOLDERS], [
  AS_IF([test "x$prefix" = xNONE], [prefix=$ac_default_prefix])
  AS_IF([test "x$exec_prefix" = xNONE], [exec_prefix=$prefix])
  eval "gt_libdir=\"$libdir\""
  eval "gt_datadir=\"$datadir\""
  eval "gt_datadir=\"$gt_datadir\""
  AC_DEFINE_UNQUOTED([PKGLIB_DIR], ["$gt_libdir/$PACKAGE"], [The folder of modules.])
  AC_DEFINE_UNQUOTED([PKGDATA_DIR], ["$gt_datadir/$PACKAGE"], [The folder of configurations.])
])
