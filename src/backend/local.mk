# The backend interface, the list of backends and the calls of one; the backends themselves are in backends/.
libgpttrain_a_SOURCES += \
	src/backend/backend.h \
	src/backend/backend_call.c \
	src/backend/backend_call.h \
	src/backend/backend_holders.c src/backend/backend_holders.h \
	src/backend/backend_list.def \
	src/backend/backend_module.c \
	src/backend/backend_nvml.c \
	src/backend/backend_nvml.h \
	src/backend/backend_peak.c src/backend/backend_peak.h \
	src/backend/backend_registry.c src/backend/backend_registry.h

# A program that loads the cuda module is linked with the functions that the module calls, and shows them to it.
module_symbols = $(top_srcdir)/src/backend/module_symbols.list
EXTRA_DIST += src/backend/module_symbols.list
MODULE_HOST_LINK = $(shell sed -n 's/^\t\(.*\);/-Wl,-u,\1/p' $(module_symbols)) -Wl,--dynamic-list=$(module_symbols)
