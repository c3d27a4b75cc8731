# GT_CXX
# A C++17 compiler, for tests that run the cuda backend's kernels on the CPU; nothing that is installed needs one, except
# that nvcc brings its own needs.  Sets CXX and the conditional HAVE_CXX.
AC_DEFUN([GT_CXX], [
  AC_REQUIRE([AC_PROG_CXX])
  gt_have_cxx=no
  AC_LANG_PUSH([C++])
  AC_MSG_CHECKING([whether $CXX compiles and links C++17])
  gt_saved_CXXFLAGS=$CXXFLAGS
  CXXFLAGS="$CXXFLAGS -std=c++17"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <tuple>]],
    [[auto pair = std::make_tuple(1, 2); auto [a, b] = pair; if constexpr (sizeof(a) == 4) return b - 2; return 1;]])],
    [gt_have_cxx=yes])
  AC_MSG_RESULT([$gt_have_cxx])
  CXXFLAGS=$gt_saved_CXXFLAGS
  AC_LANG_POP([C++])
  AM_CONDITIONAL([HAVE_CXX], [test "x$gt_have_cxx" = xyes])
  AC_SUBST([HAVE_CXX_WORD], [$gt_have_cxx])
])
