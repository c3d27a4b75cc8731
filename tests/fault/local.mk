# The files of tests/fault; Makefile.am includes this.
