/* Prints the plan as one screen of text, and computes the sums that the reports share. */
#ifndef GPT_TRAIN_PLAN_PLAN_REPORT_H
#define GPT_TRAIN_PLAN_PLAN_REPORT_H

#include "plan/plan.h"

/* Return the seconds until the end of the run, the share of them that evaluations take, and the
 * time at which the run ends if it is `now_wall_s` now. */
double forecast_seconds_left(const struct forecast *forecast);
double forecast_evaluation_share(const struct forecast *forecast);
int64_t forecast_end(const struct forecast *forecast, int64_t now_wall_s);

/* Prints one line without control characters and trailing blanks, folded at blanks to 80 columns.
 * Continuation lines begin at `indent`. */
void plan_line_print(FILE *out, int indent, const char *format, ...) LOG_PRINTF(3, 4);
#define PLAN_OFFLOAD_TEXT_MAX 160
/* Writes what lives in host memory, if anything: "17.40 GiB of optimizer state and 144.0 MiB of
 * blocks' inputs". */
char *plan_offload_text(char text[static PLAN_OFFLOAD_TEXT_MAX], const struct plan *plan,
                        bool frozen);
/* Prints one screen of text.  If the requested configuration does not fit, also prints the bytes
 * that are missing, the changes, and the alternatives. */
void plan_print_text(const struct plan *plan, const struct plan_report_facts *facts, FILE *out);
#define PLAN_ROW_TEXT_MAX 224
/* A fact that matters for a comparison of plans. */
struct plan_row {
    const char *label;
    char text[PLAN_ROW_TEXT_MAX];
    double number; /* 0: it is only a text */
};
/* Lists the facts that matter for a comparison, always in the same order.  Returns their number. */
#define PLAN_ROWS_MAX (CATEGORY_COUNT + 9)
int32_t plan_rows_make(const struct plan *plan, const struct plan_report_facts *facts,
                       struct plan_row rows[static PLAN_ROWS_MAX]);

/* Returns the bytes of the arena that are unused at the peak. */
uint64_t plan_unused_bytes(const struct plan *plan);
/* Returns the sum of arena, context and headroom, and of the host's memory if the device shares it.
 */
uint64_t plan_total_bytes(const struct plan *plan, const struct plan_report_facts *facts);

#endif
