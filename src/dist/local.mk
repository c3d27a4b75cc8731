# The files of src/dist; Makefile.am includes this.
