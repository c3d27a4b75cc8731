# The files of tests/plan; Makefile.am includes this.
