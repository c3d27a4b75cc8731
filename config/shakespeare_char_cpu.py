# A small GPT over the characters of a text, for a laptop without a card: about 0.8 million parameters, a few minutes.
#
#   gpt-prepare --tokenizer=chars --out-dir=data/shakespeare_char input.txt
#   gpt-train config/shakespeare_char_cpu.py
#   gpt-sample --out_dir=out-shakespeare-char

out_dir = 'out-shakespeare-char'
dataset = 'shakespeare_char'

# model
n_layer = 4
n_head = 4
n_embd = 128
block_size = 64  # characters that the model looks back
dropout = 0.0    # a model this small does not overfit in 2,000 iterations

# data: 12 sequences of 64 characters per update
batch_size = 12
gradient_accumulation_steps = 1

# optimizer; beta2 is raised because an update sees few tokens
learning_rate = 1e-3
min_lr = learning_rate / 10
max_iters = 2000
lr_decay_iters = max_iters
warmup_iters = 100
beta2 = 0.99

# evaluation; a checkpoint is kept only when the validation loss improves
eval_interval = 250
eval_iters = 20
log_interval = 10
always_save_checkpoint = False
# validation losses on tinyshakespeare, with about 0.15 on either side: four seeds gave 4.17 to 4.21, 2.43 to 2.49, 2.26 to
# 2.32 and 2.06 to 2.08, seed 1337 gave 1.91 at the end, where nanoGPT's README has 1.88
expected_losses = '0:4.1-4.3 250:2.3-2.65 500:2.1-2.45 1000:1.9-2.2 2000:1.75-2.05'

device = 'cpu'
compile = False
