/* Writes the parts of a GGUF file.
 *
 * Small pieces are collected in the writer's buffer, since a vocabulary has some hundred thousand of them.  Lengths are
 * counted only here, so that offsets and padding always agree with the bytes written.
 */
#include "io/gguf.h"

#include <assert.h>
#include <string.h>

void gguf_bytes(struct gguf *gguf, const void *bytes, size_t count)
{
    const unsigned char *next = bytes;
    gguf->size_bytes += count;
    if (gguf->file == NULL)
        return;
    while (count > 0 && gguf->status == GT_OK) {
        const size_t room = sizeof gguf->buffer - gguf->used, now = count < room ? count : room;
        memcpy(gguf->buffer + gguf->used, next, now);
        gguf->used += now;
        next += now;
        count -= now;
        if (gguf->used == sizeof gguf->buffer)
            (void)gguf_flush(gguf);
    }
}

enum gt_status gguf_flush(struct gguf *gguf)
{
    if (gguf->file != NULL && gguf->status == GT_OK && gguf->used > 0)
        gguf->status = file_replacement_write(gguf->file, gguf->buffer, gguf->used);
    gguf->used = 0;
    return gguf->status;
}

void gguf_u32(struct gguf *gguf, uint32_t value)
{
    gguf_bytes(gguf, &value, sizeof value);
}

void gguf_u64(struct gguf *gguf, uint64_t value)
{
    gguf_bytes(gguf, &value, sizeof value);
}

void gguf_string(struct gguf *gguf, const char *text, size_t count)
{
    gguf_u64(gguf, count);
    gguf_bytes(gguf, text, count);
}

void gguf_align(struct gguf *gguf)
{
    static const char zeros[GGUF_ALIGNMENT];
    gguf_bytes(gguf, zeros, (GGUF_ALIGNMENT - gguf->size_bytes % GGUF_ALIGNMENT) % GGUF_ALIGNMENT);
}

void gguf_key(struct gguf *gguf, const char *key, enum gguf_type type)
{
    gguf->keys++;
    gguf_string(gguf, key, strlen(key));
    gguf_u32(gguf, (uint32_t)type);
}

void gguf_key_u32(struct gguf *gguf, const char *key, uint32_t value)
{
    gguf_key(gguf, key, GGUF_UINT32);
    gguf_u32(gguf, value);
}

void gguf_key_f32(struct gguf *gguf, const char *key, float value)
{
    gguf_key(gguf, key, GGUF_FLOAT32);
    gguf_bytes(gguf, &value, sizeof value);
}

void gguf_key_bool(struct gguf *gguf, const char *key, bool value)
{
    gguf_key(gguf, key, GGUF_BOOL);
    gguf_bytes(gguf, &value, 1);
}

void gguf_key_string(struct gguf *gguf, const char *key, const char *text)
{
    gguf_key(gguf, key, GGUF_STRING);
    gguf_string(gguf, text, strlen(text));
}

void gguf_key_array(struct gguf *gguf, const char *key, enum gguf_type type, uint64_t count)
{
    gguf_key(gguf, key, GGUF_ARRAY);
    gguf_u32(gguf, (uint32_t)type);
    gguf_u64(gguf, count);
}

uint32_t gguf_tensor_type(enum dtype dtype)
{
    assert(dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16);
    if (dtype == DTYPE_F32)
        return 0;
    return dtype == DTYPE_F16 ? 1 : 30;
}

uint32_t gguf_file_type(enum dtype dtype)
{
    assert(dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16);
    if (dtype == DTYPE_F32)
        return 0;
    return dtype == DTYPE_F16 ? 1 : 32;
}
