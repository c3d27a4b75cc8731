# The programs.  Each reads its command line, calls the library and exits.
EXIT_STATUS = src/cli/exit_status.c src/cli/exit_status.h
bin_PROGRAMS += gpt-export gpt-prepare gpt-sample gpt-train
gpt_export_SOURCES = src/cli/gpt_export.c src/cli/flags.c src/cli/flags.h src/cli/program.c src/cli/program.h $(EXIT_STATUS)
gpt_export_LDADD = $(PROGRAM_LIBS)
gpt_prepare_SOURCES = src/cli/gpt_prepare.c src/cli/prepare_suggest.c src/cli/prepare_suggest.h src/cli/flags.c \
	src/cli/flags.h $(EXIT_STATUS)
gpt_prepare_LDADD = $(PROGRAM_LIBS)
gpt_sample_SOURCES = src/cli/gpt_sample.c src/cli/program.c src/cli/program.h src/cli/program_start.c $(EXIT_STATUS)
gpt_sample_LDADD = $(PROGRAM_LIBS)
gpt_train_SOURCES = src/cli/gpt_train.c src/cli/program.c src/cli/program.h src/cli/program_start.c $(EXIT_STATUS)
gpt_train_LDADD = $(PROGRAM_LIBS)
