/* Images: the layout of a case's operands, with guard bands between them, and the encoding of
 * values as bytes.
 *
 * Offsets are multiples of the backend's alignment.  A band of at least BAND_BYTES lies before and
 * after every operand and the workspace.  Outputs and workspace start as NaN patterns (all ones),
 * which exposes reads of unwritten bytes and missing writes.
 */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/opcheck/opcheck.h"

#define BAND_BYTES 256u
#define BAND_PATTERN 0xa5
#define NAN_PATTERN 0xff

static bool is_scalars(const struct check_case *check, int32_t slot)
{
    return check->call.operand[slot].dtype == DTYPE_I32 &&
           strcmp(op_operand_name(check->call.kind, slot), "scalars") == 0;
}

static size_t aligned(size_t offset, uint32_t alignment)
{
    return (offset + alignment - 1) / alignment * alignment;
}

void image_layout(struct check_case *check, size_t workspace_bytes, uint32_t alignment_bytes)
{
    size_t offset = BAND_BYTES;
    for (int32_t slot = 0; slot < op_declaration(check->call.kind)->operands; slot++) {
        struct operand *operand = &check->call.operand[slot];
        if (!operand->present)
            continue;
        offset = aligned(offset, alignment_bytes);
        operand->at = (struct address){.space = SPACE_DEVICE, .offset_bytes = offset};
        offset += operand_bytes(operand) + BAND_BYTES;
    }
    offset = aligned(offset, alignment_bytes);
    check->call.workspace = (struct address){.space = SPACE_DEVICE, .offset_bytes = offset};
    check->call.workspace_bytes = workspace_bytes;
    check->image_bytes = aligned(offset + workspace_bytes + BAND_BYTES, alignment_bytes);
}

enum dtype image_dtype(const struct check_case *check, int32_t slot, int64_t i)
{
    if (is_scalars(check, slot) && scalar_is_float(i))
        return DTYPE_F32;
    return check->call.operand[slot].dtype;
}

double image_rounded(enum dtype dtype, double value)
{
    bool is_float = dtype == DTYPE_F32 || dtype == DTYPE_BF16 || dtype == DTYPE_F16;
    return is_float ? ref_rounded(dtype, value) : value;
}

void image_encode(const struct check_case *check, int32_t slot, int64_t i, double value,
                  uint8_t *image)
{
    const struct operand *operand = &check->call.operand[slot];
    uint8_t *at = image + operand->at.offset_bytes + (size_t)i * dtype_size_bytes(operand->dtype);
    enum dtype dtype = image_dtype(check, slot, i);
    float as_float = (float)value;
    if (dtype == DTYPE_F32) {
        memcpy(at, &as_float, sizeof as_float);
    } else if (dtype == DTYPE_U8) {
        *at = (uint8_t)value;
    } else if (dtype == DTYPE_I32) {
        uint32_t word = (uint32_t)(int64_t)value; /* seeds use all 32 bits */
        memcpy(at, &word, sizeof word);
    } else {
        uint16_t half = dtype == DTYPE_BF16 ? bf16_from_f32(as_float) : f16_from_f32(as_float);
        memcpy(at, &half, sizeof half);
    }
}

double image_decode(const struct check_case *check, int32_t slot, int64_t i, const uint8_t *image)
{
    const struct operand *operand = &check->call.operand[slot];
    const uint8_t *at =
        image + operand->at.offset_bytes + (size_t)i * dtype_size_bytes(operand->dtype);
    enum dtype dtype = image_dtype(check, slot, i);
    float as_float;
    uint32_t word;
    uint16_t half;
    if (dtype == DTYPE_F32) {
        memcpy(&as_float, at, sizeof as_float);
        return (double)as_float;
    }
    if (dtype == DTYPE_U8)
        return (double)*at;
    if (dtype == DTYPE_I32) {
        memcpy(&word, at, sizeof word);
        bool is_seed = is_scalars(check, slot) && (i == SCALAR_SEED_LO || i == SCALAR_SEED_HI);
        return is_seed ? (double)word : (double)(int32_t)word;
    }
    memcpy(&half, at, sizeof half);
    return (double)(dtype == DTYPE_BF16 ? bf16_to_f32(half) : f16_to_f32(half));
}

void image_prepare(const struct check_case *check, double *const *value, uint8_t *image)
{
    memset(image, BAND_PATTERN, check->image_bytes);
    memset(image + check->call.workspace.offset_bytes, NAN_PATTERN, check->call.workspace_bytes);
    for (int32_t slot = 0; slot < op_declaration(check->call.kind)->operands; slot++) {
        const struct operand *operand = &check->call.operand[slot];
        if (!operand->present)
            continue;
        if (op_direction(check->call.kind, &check->call.attrs, slot) == OPERAND_OUT) {
            memset(image + operand->at.offset_bytes, NAN_PATTERN, operand_bytes(operand));
            continue;
        }
        for (int64_t i = 0, count = operand_elements(operand); i < count; i++)
            image_encode(check, slot, i, value[slot][i], image);
    }
}

/* Returns the end of the writable region that contains `offset`, or `offset` itself when it is not
 * writable. */
static size_t writable_end(const struct check_case *check, size_t offset)
{
    size_t start = check->call.workspace.offset_bytes;
    if (offset >= start && offset < start + check->call.workspace_bytes)
        return start + check->call.workspace_bytes;
    for (int32_t slot = 0; slot < op_declaration(check->call.kind)->operands; slot++) {
        const struct operand *operand = &check->call.operand[slot];
        start = operand->at.offset_bytes;
        if (case_is_output(check, slot) && offset >= start &&
            offset < start + operand_bytes(operand))
            return start + operand_bytes(operand);
    }
    return offset;
}

bool image_bands_check(const struct check_case *check, const uint8_t *before, const uint8_t *after,
                       char *reason)
{
    for (size_t offset = 0; offset < check->image_bytes;) {
        if (before[offset] == after[offset]) {
            offset++;
            continue;
        }
        size_t end = writable_end(check, offset);
        if (end == offset) {
            snprintf(
                reason, OPCHECK_TEXT_MAX,
                "byte %zu of the image, outside of every output, was written (0x%02x, was 0x%02x)",
                offset, after[offset], before[offset]);
            return false;
        }
        offset = end;
    }
    return true;
}
