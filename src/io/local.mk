# The files of src/io; included by Makefile.am.
libgpttrain_a_SOURCES += \
	src/io/checkpoint.h \
	src/io/checkpoint_folder.c src/io/checkpoint_folder.h \
	src/io/checkpoint_load.c src/io/checkpoint_load.h \
	src/io/checkpoint_open.c src/io/checkpoint_open.h \
	src/io/checkpoint_record.c src/io/checkpoint_record.h \
	src/io/checkpoint_save.c src/io/checkpoint_save.h \
	src/io/export.c src/io/export.h \
	src/io/export_compare.c src/io/export_compare.h \
	src/io/export_generation.c src/io/export_generation.h \
	src/io/export_gguf.c src/io/export_gguf.h \
	src/io/export_hf.c src/io/export_hf.h \
	src/io/export_ollama.c src/io/export_ollama.h \
	src/io/export_options.h \
	src/io/export_weights.c src/io/export_weights.h \
	src/io/ggml_block.c src/io/ggml_block.h \
	src/io/gguf.c src/io/gguf.h \
	src/io/gguf_model.c src/io/gguf_model.h \
	src/io/gguf_tokenizer.c src/io/gguf_tokenizer.h \
	src/io/gguf_mixture.c src/io/gguf_mixture.h \
	src/io/hf_cache.c src/io/hf_cache.h \
	src/io/foreign_models.c src/io/foreign_models.h \
	src/io/hf_config.c src/io/hf_config.h \
	src/io/known_models.c src/io/known_models.def src/io/known_models.h \
	src/io/llmc_model.c src/io/llmc_model.h \
	src/io/nanogpt.c src/io/nanogpt.h \
	src/io/peft.c src/io/peft.h src/io/peft_targets.c src/io/peft_targets.h \
	src/io/pickle.c src/io/pickle.h \
	src/io/safetensors.c src/io/safetensors.h \
	src/io/safetensors_table.c src/io/safetensors_table.h \
	src/io/zip_stored.c src/io/zip_stored.h
