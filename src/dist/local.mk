# Ranks: processes that train one model together.
libgpttrain_a_SOURCES += \
	src/dist/comm_module.c src/dist/comm_module.h \
	src/dist/comm_shm.c src/dist/comm_shm.h \
	src/dist/dist.c src/dist/dist.h

# MPI's compiler makes the module, with our flags but for those that are of programs only.
EXTRA_DIST += src/dist/comm_mpi.c
if HAVE_MPI
mpimoduledir = $(pkglibdir)
mpimodule_DATA = gpt-train-mpi.so
gpt-train-mpi.so: src/dist/comm_mpi.c src/dist/dist.h src/base/module.h config.h
	$(AM_V_GEN)$(MPICC) $(DEFS) $(DEFAULT_INCLUDES) $(AM_CPPFLAGS) -std=c11 $(BUILD_CFLAGS) $(WARNING_CFLAGS) $(CFLAGS) \
		-fPIC -shared -o $@ $(srcdir)/src/dist/comm_mpi.c
CLEANFILES += gpt-train-mpi.so
endif
