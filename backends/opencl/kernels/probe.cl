/* probe: kernels whose answers the host computes too.
 *
 * They detect, before training, a driver that skips kernels, loses writes, or provides memory that
 * does not exist.
 */

/* Writes to words at multiples of `stride` the hash of their number. */
__kernel void gt_probe_write(__global uint *memory, ulong memory_at, ulong stride, ulong first,
                             ulong count, uint seed)
{
    const ulong i = (ulong)get_global_id(0);
    if (i < count)
        memory[memory_at + (first + i) * stride] = probe_hash(first + i, seed);
}

/* Gathers the words at multiples of `stride` into `out`, and clears them. */
__kernel void gt_probe_read(__global uint *memory, ulong memory_at, __global uint *out,
                            ulong out_at, ulong stride, ulong first, ulong count)
{
    const ulong i = (ulong)get_global_id(0);
    if (i < count) {
        out[out_at + i] = memory[memory_at + (first + i) * stride];
        memory[memory_at + (first + i) * stride] = 0u;
    }
}
