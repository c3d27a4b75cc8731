# The programs.  Each reads its command line, calls the library and exits.
PROGRAM_SOURCES = src/cli/program.c src/cli/program.h
bin_PROGRAMS += gpt-export gpt-prepare gpt-report gpt-sample gpt-train
gpt_export_SOURCES = src/cli/gpt_export.c src/cli/restart.c src/cli/restart.h $(PROGRAM_SOURCES)
gpt_export_LDADD = $(PROGRAM_LIBS)
gpt_export_LDFLAGS = $(DEVICE_LINK)
gpt_prepare_SOURCES = src/cli/gpt_prepare.c $(PROGRAM_SOURCES)
gpt_prepare_LDADD = $(PROGRAM_LIBS)
gpt_report_SOURCES = src/cli/gpt_report.c $(PROGRAM_SOURCES)
gpt_report_LDADD = $(PROGRAM_LIBS)
gpt_sample_SOURCES = src/cli/gpt_sample.c src/cli/line_edit.c src/cli/line_edit.h src/cli/program_start.c src/cli/program_start.h \
	src/cli/restart.c src/cli/sample_chat.c src/cli/sample_chat.h $(PROGRAM_SOURCES)
gpt_sample_LDADD = $(PROGRAM_LIBS) $(LIBEDIT_LIBS)
gpt_sample_LDFLAGS = $(DEVICE_LINK)
gpt_train_SOURCES = src/cli/gpt_train.c src/cli/program_start.c src/cli/restart.c $(PROGRAM_SOURCES)
gpt_train_LDADD = $(PROGRAM_LIBS)
gpt_train_LDFLAGS = $(DEVICE_LINK)
