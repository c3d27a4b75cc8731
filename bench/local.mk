# Measurements: bench/run compares with PyTorch; the record_*.py produce the figures that bench/results/ and doc/ cite.
EXTRA_DIST += \
	bench/common.py \
	bench/memory_table.py \
	bench/opencl-check \
	bench/record_budgets.py \
	bench/record_dtypes.py \
	bench/record_export.py \
	bench/record_generate.py \
	bench/record_nanogpt.py \
	bench/record_prepare.py \
	bench/record_scaling.py \
	bench/record_shakespeare.py \
	bench/record_states.py \
	bench/record_tokenizers.py \
	bench/record_transformers.py \
	bench/results/2026-11-21-cpu-16bit.md \
	bench/results/2026-11-21-cpu.md \
	bench/results/2026-11-22-cpu-speed.md \
	bench/results/2026-11-22-cpu-states.md \
	bench/results/2026-11-23-h100-cuda.json \
	bench/results/2026-11-23-h100-opencl.json \
	bench/results/2026-11-23-h100.md \
	bench/results/README.md \
	bench/roof.c \
	bench/run \
	bench/torch_gpt2.py \
	bench/torch_gpu.py \
	bench/torch_side.py
