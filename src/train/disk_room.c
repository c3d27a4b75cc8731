/* Room for checkpoints.
 *
 * The size of a checkpoint is counted from the model's tensors as they are saved; headers and JSON are small and left
 * out.  A file system that does not report its size passes.
 */
#include "train/disk_room.h"

#include <inttypes.h>
#include <stdint.h>
#include <sys/statvfs.h>

#include "base/log.h"
#include "io/checkpoint_keep.h"

/* Returns the bytes of one checkpoint's tensors. */
static double checkpoint_bytes(const struct model *model)
{
    double bytes = 0.0;
    for (int32_t i = 0; i < model->parameters.count; i++) {
        const struct parameter *p = &model->parameters.at[i];
        const int32_t tensors[] = {model_parameter_home(p), p->m, p->v, p->scales};
        for (size_t k = 0; k < sizeof tensors / sizeof tensors[0]; k++)
            bytes += tensors[k] != TENSOR_NONE ? (double)graph_tensor_bytes(model->graph, tensors[k]) : 0.0;
    }
    return bytes;
}

enum gt_status disk_room_check(const struct session *session, bool own)
{
    const struct config *config = session->config;
    const double each = checkpoint_bytes(session->model);
    char one[24], all[24], left[24];
    struct statvfs disk;
    if (statvfs(config->out_dir, &disk) != 0 || disk.f_blocks == 0)
        return GT_OK;
    const double free_bytes = (double)disk.f_bavail * (double)disk.f_frsize;
    /* During a save there are the new one, the last keep - 1 and the best; with keep=1 the new one and the last. */
    int64_t count = config->keep + 1 - (own ? 1 + (int64_t)checkpoint_keep_count(config->out_dir) : 0);
    count = count < 1 ? 1 : count;
    log_bytes(one, each);
    log_bytes(all, (double)count * each);
    log_bytes(left, free_bytes);
    if (free_bytes < each) {
        log_error("%s: not enough disk space for a checkpoint: it takes %s, and %s are free; free some space or choose "
                  "another out_dir",
                  config->out_dir, one, left);
        return GT_IO;
    }
    if (free_bytes < (double)count * each)
        log_warning("%s: disk space may run out: %" PRId64 " checkpoints of %s take %s, and %s are free",
                    config->out_dir, count, one, all, left);
    return GT_OK;
}
