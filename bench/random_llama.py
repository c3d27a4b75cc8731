"""Writes a Llama with random weights, for rows that time a model of that shape, in Hugging Face's layout.

usage: random_llama.py FOLDER LAYERS HEADS KEY-VALUE-HEADS CHANNELS INNER-CHANNELS VOCABULARY

It needs only the standard library, and writes as fast as the disk or memory takes it: all tensors repeat one block of random
bfloat16 numbers, of both signs and between 1/128 and 1/64.  Gains of norms are ones.  What such a model computes means nothing.
"""
import json
import os
import random
import sys

BLOCK_BYTES = 16 << 20
ONE = b"\x80\x3f"  # of bfloat16, little-endian
# Layers, heads, key-value heads, channels, inner channels, vocabulary.
LLAMA_8B = (32, 32, 8, 4096, 14336, 128256)


def tensors_of(shape):
    """Returns [(name, dimensions)] of all tensors, in the file's order."""
    layers, heads, kv_heads, width, inner, vocabulary = shape
    keys = width // heads * kv_heads
    parts = [("input_layernorm", [width]), ("self_attn.q_proj", [width, width]), ("self_attn.k_proj", [keys, width]),
             ("self_attn.v_proj", [keys, width]), ("self_attn.o_proj", [width, width]), ("post_attention_layernorm", [width]),
             ("mlp.gate_proj", [inner, width]), ("mlp.up_proj", [inner, width]), ("mlp.down_proj", [width, inner])]
    return [("model.embed_tokens.weight", [vocabulary, width]),
            *((f"model.layers.{layer}.{name}.weight", dimensions) for layer in range(layers) for name, dimensions in parts),
            ("model.norm.weight", [width]), ("lm_head.weight", [vocabulary, width])]


def bytes_of_one(dimensions):
    return 2 * dimensions[0] * (dimensions[1] if len(dimensions) > 1 else 1)


def bytes_of(shape):
    return sum(bytes_of_one(dimensions) for _, dimensions in tensors_of(shape))


def random_block():
    """Returns BLOCK_BYTES of bfloat16: signs and fractions are random, exponents are those of 1/128."""
    bits = random.Random(1).getrandbits(8 * BLOCK_BYTES)
    kept = int.from_bytes(b"\x7f\x80" * (BLOCK_BYTES // 2), "little")
    return (bits & kept | int.from_bytes(b"\x00\x3c" * (BLOCK_BYTES // 2), "little")).to_bytes(BLOCK_BYTES, "little")


def llama_write(folder, shape):
    """Writes config.json and model.safetensors into the folder."""
    layers, heads, kv_heads, width, inner, vocabulary = shape
    with open(os.path.join(folder, "config.json"), "w", encoding="ascii") as file:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": width, "intermediate_size": inner,
                   "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
                   "vocab_size": vocabulary, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
                   "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16"}, file)
    header, end = {}, 0
    tensors = tensors_of(shape)
    for name, dimensions in tensors:
        begin, end = end, end + bytes_of_one(dimensions)
        header[name] = {"dtype": "BF16", "shape": dimensions, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    block = memoryview(random_block())
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, dimensions in tensors:
            left = bytes_of_one(dimensions)
            if len(dimensions) == 1:
                file.write(ONE * (left // 2))
                left = 0
            while left > 0:
                left -= file.write(block[:left])


if __name__ == "__main__":
    llama_write(sys.argv[1], tuple(map(int, sys.argv[2:])))
