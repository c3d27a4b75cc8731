# gpt-check is installed beside the programs, and what it imports below share.
dist_bin_SCRIPTS = bench/gpt-check
benchdir = $(pkgdatadir)/bench
dist_bench_SCRIPTS = bench/gpu-check
dist_bench_DATA = bench/card_check.py bench/common.py bench/predicted.py bench/random_llama.py bench/torch_gpt2.py bench/torch_side.py

# Measurements: bench/run compares with PyTorch on processors; the record_*.py produce the figures that bench/results/ and doc/ cite.
EXTRA_DIST += \
	bench/memory_table.py \
	bench/record_finetune.py \
	bench/record_scaling.py \
	bench/results/2026-11-22-cpu-speed.md \
	bench/results/2026-11-22-cpu-states.md \
	bench/results/2026-11-23-h100-cuda.json \
	bench/results/2026-11-23-h100-opencl.json \
	bench/results/2026-11-23-h100.md \
	bench/results/2026-11-25-lm-eval.md \
	bench/results/2026-11-25-products.md \
	bench/results/2026-11-25-tokenizers.md \
	bench/results/2026-11-26-lora.md \
	bench/results/2026-11-26-offload.md \
	bench/results/2026-11-26-ranks.md \
	bench/results/2026-11-26-recipe.md \
	bench/results/2026-11-28-export.md \
	bench/results/2026-11-28-finetune.md \
	bench/results/2026-11-28-llama-cpp.md \
	bench/results/2026-11-28-windows.md \
	bench/results/README.md \
	bench/roof.c \
	bench/run
