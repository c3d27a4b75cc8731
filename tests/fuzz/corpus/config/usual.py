# a run
out_dir = 'out-a'
n_layer = 4; n_head = 4
n_embd = 32 * n_head
batch_size, dropout = 12, 0.0
learning_rate = 6e-4
min_lr = learning_rate / 10
max_iters = 5 * 8 if False else 2000
bias = False
dtype = "bfloat16"
wandb_run_name = 'gpt' + str(time.time())
