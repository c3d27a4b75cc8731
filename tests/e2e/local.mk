# The programs as a user runs them.  The scripts share e2e.inc and checks.py.
EXTRA_DIST += tests/e2e/quickstart.expected tests/e2e/opencl_fake.c tests/e2e/opencl_real.h tests/e2e/slow_blas.c tests/e2e/checks.py tests/e2e/cuda_common.py tests/e2e/cuda_sass.py tests/e2e/e2e.inc tests/fixtures tests/tools/text.awk
dist_check_SCRIPTS += \
	tests/e2e/answers.sh \
	tests/e2e/bad_input.sh \
	tests/e2e/cards.py \
	tests/e2e/chat.py \
	tests/e2e/cuda_fatbin.py \
	tests/e2e/cuda_faults.py \
	tests/e2e/cuda_graphs.py \
	tests/e2e/cuda_tune.py \
	tests/e2e/gpu_check.py \
	tests/e2e/cuda_registers.py \
	tests/e2e/cuda_train.py \
	tests/e2e/bench_quick.py \
	tests/e2e/budget.sh \
	tests/e2e/explain_oom.py \
	tests/e2e/export.py \
	tests/e2e/goes_wrong.py \
	tests/e2e/halves.py \
	tests/e2e/lean.py \
	tests/e2e/judge.py \
	tests/e2e/keep.sh \
	tests/e2e/known_losses.sh \
	tests/e2e/learn.sh \
	tests/e2e/memory.py \
	tests/e2e/memory_story.py \
	tests/e2e/mended.sh \
	tests/e2e/models_in.py \
	tests/e2e/opencl_check.py \
	tests/e2e/opencl_matrix.py \
	tests/e2e/parity_torch.py \
	tests/e2e/plan_report.py \
	tests/e2e/prepare.sh \
	tests/e2e/prepare_inputs.py \
	tests/e2e/prepare_resume.py \
	tests/e2e/device_profiles.py \
	tests/e2e/recompute.sh \
	tests/e2e/quickstart.py \
	tests/e2e/recipe.py \
	tests/e2e/releases.sh \
	tests/e2e/report.py \
	tests/e2e/resume.sh \
	tests/e2e/sample.sh \
	tests/e2e/slow_blas.py \
	tests/e2e/tokenizer.py \
	tests/e2e/tokenizer_json.py \
	tests/e2e/opencl.py
