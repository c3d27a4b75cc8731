/* The first value of a program that is not finite: the op that made it, and the largest of its
 * inputs. */
#ifndef GPT_TRAIN_SESSION_BAD_VALUE_H
#define GPT_TRAIN_SESSION_BAD_VALUE_H

#include "session/session.h"

/* The result of scanning a tensor's values. */
struct value_scan {
    int32_t tensor;
    int64_t bad; /* the first element that is not finite, -1 = none */
    float value; /* its value */
    float largest;
    double squares;
};

/* Scans a tensor of floats; of the scalars, only the sum of losses.  Errors: the device's. */
enum gt_status value_scan(struct session *session, int32_t tensor, struct value_scan *out);

struct bad_value {
    struct session *session;
    bool *enough;             /* set when the search has ended; may be NULL */
    const struct op *op;      /* the first op with an output that is not finite, or NULL */
    struct value_scan output; /* of `op`; while there is none, the last output scanned */
    struct value_scan input;  /* an input of `op`: one that is not finite, else the largest */
};

/* Returns a search that has not begun. */
struct bad_value bad_value_none(struct session *session);
/* An exec_callback_fn; the context is a struct bad_value.  Finds the first output that is not
 * finite, and scans the inputs of its op. */
enum gt_status bad_value_probe(void *context, int32_t program, int32_t index);

#define BAD_VALUE_TEXT_MAX 512
/* Describes what was found.  `place` follows the op's layer; `since` says why a weight is not
 * finite.  Returns `out`. */
char *bad_value_text(char out[static BAD_VALUE_TEXT_MAX], const struct bad_value *found,
                     const char *place, const char *since);

/* Uploads the inputs again and runs the programs again. */
typedef enum gt_status bad_value_again_fn(void *context);

/* Lets `again` repeat the programs that gave `what`, a value that is not finite, and scans the
 * outputs of each op.  Logs one error line with the first one that is not finite.  Allocates
 * nothing.  Returns GT_DIVERGED, or an error of `again` or of the device. */
enum gt_status bad_value_explain(struct session *session, const char *what,
                                 bad_value_again_fn *again, void *context);

#endif
