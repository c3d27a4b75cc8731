# The files of tests/e2e; Makefile.am includes this.
