# A GPT of 25 million parameters and those of its vocabulary, for a text of your own of some 500 MB or more, on a graphics
# card (doc/own_text.md).  --plan forecasts the time.
#
#   gpt-prepare --tokenizer=train --vocab-size=16384 --out-dir=data/mine YOUR-TEXTS
#   gpt-train config/own_text_30m.py --plan
#   gpt-train config/own_text_30m.py
#   gpt-sample --out_dir=out-mine

out_dir = 'out-mine'
dataset = 'mine'

# model: 25.2 million parameters in the blocks, 8.4 million in the vocabulary of 16,384
n_layer = 8
n_head = 8
n_embd = 512
block_size = 512
dropout = 0.0

# data: 32 x 512 x 4 = 65,536 tokens per update
batch_size = 32
gradient_accumulation_steps = 4

# optimizer; max_iters is tokens of the text x readings / 65,536
learning_rate = 6e-4
min_lr = learning_rate / 10
max_iters = 10000
lr_decay_iters = max_iters
warmup_iters = 500
beta2 = 0.95

# evaluation; only a better validation loss replaces the checkpoint
eval_interval = 500
eval_iters = 40
log_interval = 10
always_save_checkpoint = False
