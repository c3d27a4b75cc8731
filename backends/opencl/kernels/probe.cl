/* probe: kernels whose answers the host computes too.
 *
 * They detect, before training, a driver that skips kernels, loses writes, or provides memory that does not exist.
 */
static uint gt_probe_hash(ulong i, uint seed)
{
    uint x = (uint)i * 2654435761u ^ (uint)(i >> 32) ^ seed;
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    return x;
}

/* Writes to words at multiples of `stride` the hash of their number. */
__kernel void gt_probe_write(__global uint *memory, ulong memory_at, ulong stride, ulong first, ulong count, uint seed)
{
    const ulong i = (ulong)get_global_id(0);
    if (i < count)
        memory[memory_at + (first + i) * stride] = gt_probe_hash(first + i, seed);
}

/* Gathers the words at multiples of `stride` into `out`, and clears them. */
__kernel void gt_probe_read(__global uint *memory, ulong memory_at, __global uint *out, ulong out_at, ulong stride,
                            ulong first, ulong count)
{
    const ulong i = (ulong)get_global_id(0);
    if (i < count) {
        out[out_at + i] = memory[memory_at + (first + i) * stride];
        memory[memory_at + (first + i) * stride] = 0u;
    }
}

/* Each group of 32 writes its hashes in reverse order, through local memory and a float operation. */
GT_KERNEL(32)
gt_probe_answer(GT_ARRAY(uint, out), uint seed)
{
    __local uint words[32];
    const uint i = (uint)get_local_id(0);
    const ulong group = (ulong)gt_group_index(0);
    words[i] = gt_probe_hash(group * 32u + i, seed);
    GT_SYNC();
    const uint word = words[31u - i];
    const float half_word = (float)(word & 0xffffu) * 0.5f;
    out[out_at + group * 32u + i] = (word & 0xffff0000u) | (uint)(half_word + half_word);
}
