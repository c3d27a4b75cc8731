# The files of src/config; Makefile.am includes this.
libgpttrain_a_SOURCES += \
	src/config/config.h \
	src/config/config_args.c src/config/config_args.h \
	src/config/config_check.c src/config/config_check.h \
	src/config/config_file.c src/config/config_file.h \
	src/config/config_flat.c src/config/config_flat.h \
	src/config/config_help.c src/config/config_help.h \
	src/config/config_json.c src/config/config_json.h \
	src/config/config_key.c src/config/config_key.h \
	src/config/config_lex.c src/config/config_lex.h \
	src/config/config_names.c src/config/config_names.h \
	src/config/config_text.c src/config/config_text.h \
	src/config/config_value.c src/config/config_value.h \
	src/config/keys.def src/config/names.def
