# The weekend recipe: GPT-2's quality from one graphics card, by ./quickstart weekend.  doc/weekend.md tells what to
# expect, with sources.
#
#   gpt-train config/weekend.py --plan
#   gpt-train config/weekend.py --hours=60

out_dir = 'out-weekend'
dataset = 'fineweb10B'  # llm.c's shards: fineweb_train_000001.bin ..., fineweb_val_000000.bin

# model: Qwen3's blocks; 162.2 million parameters, 77.3 of them embedding and output layer
arch = 'qwen3'
n_layer = 12
n_embd = 768
n_head = 6
head_dim = 128
n_inner = 2048
vocab_size = 50304
block_size = 1024
rope_theta = 1e4
tie_embeddings = False
embed_norm = True
init = 'zero'
dropout = 0.0

# data: 512 x 1,024 tokens per update
batch_size = 64
gradient_accumulation_steps = 8
sampler = 'epoch'

# optimizer: modded-nanogpt's (records/track_3_optimization), Muon for the blocks and AdamW for the rest
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

# schedule: 2.1 G tokens; constant, then down to 0 over the last 70 %.  hours=60 sets another length.
lr_schedule = 'wsd'
warmup_iters = 0
max_iters = 4000
lr_decay_iters = max_iters
cooldown_iters = 2800
min_lr = 0.0

# evaluation: 10,485,760 tokens of each split
eval_interval = 250
eval_iters = 160
log_interval = 10
# validation losses: those of the published run (doc/weekend.md), whose blocks differ, with room
expected_losses = '250:3.95-4.35 500:3.7-4 1000:3.5-3.8 2000:3.35-3.6 4000:3.15-3.35'
