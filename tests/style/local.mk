# The style rules that a machine checks; `make check-style` runs them alone.
dist_check_SCRIPTS += tests/style/check_style.py tests/style/configure.sh tests/style/macos.py tests/style/shell.sh
EXTRA_DIST += tests/style/structure.py

check-style:
	@$(AM_TESTS_ENVIRONMENT) CHECK_LONG=1 $(LOG_COMPILER) $(srcdir)/tests/style/check_style.py
