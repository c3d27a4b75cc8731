# The main job of ./quickstart: a small GPT, trained on short stories (config/stories.grammar).  ./quickstart adds
# --dataset, --out_dir and --hours, which sets the number of updates: about 900 on two cores.

# model: about 0.9 million parameters
n_layer = 4
n_head = 4
n_embd = 128
block_size = 64
dropout = 0.0
bias = False

# data: 16 x 64 = 1,024 tokens per update
batch_size = 16
gradient_accumulation_steps = 1

# optimizer
learning_rate = 4e-3
min_lr = 2e-4
max_iters = 900
lr_decay_iters = 900
warmup_iters = 30
beta2 = 0.99

# what is measured and saved
eval_interval = 200
eval_iters = 10
log_interval = 50
sample_tokens = 0
always_save_checkpoint = True

device = 'cpu'
compile = False
