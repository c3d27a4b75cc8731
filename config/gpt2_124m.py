# GPT-2 small, 124 million parameters, from scratch: about half a million tokens per update, 300 billion in all.
#
# gradient_accumulation_steps and batch_size say how many sequences an update sees; how many of them are computed at
# once is the plan's business (gpt-train config/gpt2_124m.py --plan shows it).

out_dir = 'out-gpt2-124m'
dataset = 'openwebtext'

n_layer = 12
n_head = 12
n_embd = 768
block_size = 1024

batch_size = 12
gradient_accumulation_steps = 5 * 8  # 12 x 1,024 x 40 = 491,520 tokens

learning_rate = 6e-4
min_lr = learning_rate / 10
warmup_iters = 2000
max_iters = 600000
lr_decay_iters = max_iters
weight_decay = 1e-1

eval_interval = 1000
eval_iters = 200
log_interval = 10
# validation losses on OpenWebText, with about 0.1 on either side.  Those at 10,000 to 400,000 are read off nanoGPT's curve
# (assets/gpt2_124M_loss.png of 3adf61e, which states 2.905 at 399,000); its README has 2.85 at the end.
expected_losses = '0:10.7-11.1 10000:3.1-3.3 100000:2.9-3.1 400000:2.8-3.0 600000:2.75-2.95'
