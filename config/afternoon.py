# The weekend recipe (config/weekend.py) at the size of two processors: a small model of your own text in an hour.
#
#   gpt-prepare --tokenizer=train --vocab-size=4096 --out-dir=data/mine YOUR-TEXTS
#   gpt-train config/afternoon.py
#   gpt-sample --out_dir=out-afternoon
#
# bench/results has what each part of the recipe is worth at this size.

out_dir = 'out-afternoon'
dataset = 'mine'
hours = 1  # sets max_iters and lr_decay_iters from the measured rate, and scales cooldown_iters

# model: Qwen3's blocks; 1.9 million parameters, and 0.8 million each in embedding and output layer
arch = 'qwen3'
n_layer = 4
n_embd = 192
n_head = 3
head_dim = 64
n_inner = 512
block_size = 256
rope_theta = 1e4
tie_embeddings = False
embed_norm = True
init = 'zero'
dropout = 0.0

# data: 32 x 256 = 8,192 tokens per update
batch_size = 32
gradient_accumulation_steps = 1
sampler = 'epoch'

# optimizer: Muon for the blocks and AdamW for the rest
optimizer = 'muon'
muon_learning_rate = 0.025
muon_weight_decay = 0.05
muon_momentum_warmup = 300
learning_rate = 0.004
embedding_learning_rate = 0.7
head_learning_rate = 0.004
scalar_learning_rate = 0.015
weight_decay = 0.001
beta1 = 0.8
beta2 = 0.95
adam_epsilon = 1e-10
grad_clip = 0.0

# schedule: constant, then down to 0 over the last 70 %
lr_schedule = 'wsd'
warmup_iters = 0
max_iters = 4400
lr_decay_iters = max_iters
cooldown_iters = 3080
min_lr = 0.0

# evaluation
eval_interval = 200
eval_iters = 40
log_interval = 10
