/* float16's loss scale: GradScaler's rule as a small state machine, and its state in the
 * checkpoint.
 *
 * The scale depends on which updates were skipped; clip_factor detects gradients that are not
 * finite on the device, and the loop counts skipped updates.
 */
#include "session/loss_scaler.h"

#include <float.h>

void loss_scaler_init(struct loss_scaler *scaler, enum dtype dtype)
{
    bool dynamic = dtype == DTYPE_F16;
    *scaler = (struct loss_scaler){.dynamic = dynamic, .scale = dynamic ? LOSS_SCALE_FIRST : 1.0};
}

static bool in_range(double scale)
{
    return scale >= (double)FLT_MIN && scale <= (double)FLT_MAX;
}

void loss_scaler_update(struct loss_scaler *scaler, bool found_inf)
{
    if (!scaler->dynamic)
        return;
    assert(in_range(scaler->scale));
    double next = scaler->scale;
    if (found_inf) {
        next *= LOSS_SCALE_BACKOFF;
        scaler->growth_tracker = 0;
    } else if (++scaler->growth_tracker == LOSS_SCALE_GROWTH_INTERVAL) {
        next *= LOSS_SCALE_GROWTH;
        scaler->growth_tracker = 0;
    }
    if (in_range(next))
        scaler->scale = next;
}

json_t *loss_scaler_to_json(const struct loss_scaler *scaler)
{
    return json_pack("{s:f, s:I}", "scale", scaler->scale, "growth_tracker",
                     (json_int_t)scaler->growth_tracker);
}

enum gt_status loss_scaler_from_json(struct loss_scaler *scaler, const json_t *object,
                                     const char *source)
{
    int64_t tracker = 0;
    if (!scaler->dynamic || !object)
        return GT_OK;
    const json_t *scale = json_object_get(object, "scale");
    if (!json_is_number(scale) || !in_range(json_number_value(scale)))
        return FAIL(GT_DATA, "%s: loss_scaler.scale is not a number between %g and %g", source,
                    (double)FLT_MIN, (double)FLT_MAX);
    TRY(json_get_int(object, source, "growth_tracker", 0, LOSS_SCALE_GROWTH_INTERVAL - 1,
                     &tracker));
    scaler->scale = json_number_value(scale);
    scaler->growth_tracker = tracker;
    return GT_OK;
}
