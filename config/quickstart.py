# The main job of ./quickstart: a small GPT over bytes, trained on this project's own sources and documents.  A few
# minutes on two cores.  ./quickstart adds --dataset and --out_dir.

# model: about 1.8 million parameters
n_layer = 4
n_head = 6
n_embd = 192
block_size = 128
dropout = 0.0
bias = False

# data: 16 x 128 = 2,048 bytes per update
batch_size = 16
gradient_accumulation_steps = 1

# optimizer
learning_rate = 2e-3
min_lr = 2e-4
max_iters = 1200
lr_decay_iters = 1200
warmup_iters = 50
beta2 = 0.99

# what is measured and saved
eval_interval = 200
eval_iters = 20
log_interval = 50
sample_tokens = 200
always_save_checkpoint = True
# validation losses; wide, because the text is this project's, which changes: 5.49, 2.47, 2.04, 1.57, 1.38 in November 2026
expected_losses = '0:5.2-5.8 200:2.1-2.8 400:1.7-2.4 800:1.2-1.9 1200:1-1.8'

device = 'cpu'
compile = False
