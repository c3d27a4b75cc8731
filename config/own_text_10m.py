# A GPT of 10.6 million parameters and those of its vocabulary, for a text of your own of some 100 MB or more, on many
# processors or a graphics card (doc/own_text.md).  --plan forecasts the time.
#
#   gpt-prepare --tokenizer=train --out-dir=data/mine YOUR-TEXTS
#   gpt-train config/own_text_10m.py --plan
#   gpt-train config/own_text_10m.py
#   gpt-sample --out_dir=out-mine

out_dir = 'out-mine'
dataset = 'mine'

# model: 10.6 million parameters in the blocks, 3.1 million in the vocabulary of 8,192
n_layer = 6
n_head = 6
n_embd = 384
block_size = 256
dropout = 0.0  # 0.1 or 0.2 where the text is read more than about ten times

# data: 32 x 256 = 8,192 tokens per update
batch_size = 32
gradient_accumulation_steps = 1

# optimizer; max_iters is tokens of the text x readings / 8,192
learning_rate = 1e-3
min_lr = learning_rate / 10
max_iters = 10000
lr_decay_iters = max_iters
warmup_iters = 200
beta2 = 0.99

# evaluation; only a better validation loss replaces the checkpoint
eval_interval = 500
eval_iters = 40
log_interval = 10
always_save_checkpoint = False
