# GT_PYTHON
# PYTHON: any Python 3, for the style checks.  PYTHON_TORCH: one that can `import torch`, for the live comparison with
# PyTorch; where there is none, those tests are skipped by name.  Neither is needed to build or to train.
AC_DEFUN([GT_PYTHON], [
  AC_ARG_VAR([PYTHON], [a Python 3 interpreter, for the style checks])
  AC_PATH_PROGS([PYTHON], [python3 python])
  dnl The interpreter itself, where that is a script that looks for it at every start (pyenv).
  AS_IF([test -n "$PYTHON"], [
    gt_python=`"$PYTHON" -c 'import sys; print(sys.executable)' 2>/dev/null`
    AS_IF([test -n "$gt_python"], [PYTHON=$gt_python])
  ])
  AC_ARG_VAR([PYTHON_TORCH], [a Python 3 interpreter with PyTorch, for the comparison tests; "no" skips them])
  AC_MSG_CHECKING([for a Python with PyTorch])
  AS_IF([test -z "$PYTHON_TORCH"], [
    PYTHON_TORCH=no
    for gt_python in /usr/bin/python3 "$PYTHON"; do
      AS_IF([test "$PYTHON_TORCH" = no && test -n "$gt_python" && "$gt_python" -c 'import torch' >/dev/null 2>&1],
        [PYTHON_TORCH=$gt_python])
    done
  ])
  AC_MSG_RESULT([$PYTHON_TORCH])
])
