/* --compare.
 *
 * Plans one configuration after the other, each with memory of its own, and prints the rows of both
 * plans (plan_rows_make()) side by side, with the change of those that are numbers.
 */
#include "answer/compare.h"

#include "answer/answer.h"
#include "config/config_args.h"
#include "plan/plan_report.h"
#include "session/session_start.h"

/* The rows of a plan; none if it could not be made. */
struct side {
    int32_t count;
    struct plan_row rows[PLAN_ROWS_MAX];
};

/* Plans a configuration.  A plan that does not fit has rows too.  Errors: those of its plan,
 * GT_NO_FIT. */
static enum gt_status side_make(struct config *config, struct side *out)
{
    struct hostmem *mem = NULL;
    struct run run = {.config = config};
    struct plan_answer answer;
    out->count = 0;
    TRY(hostmem_create(&mem));
    enum gt_status status = answer_open(&run, mem, config);
    THEN(status, answer_make(&run, &answer));
    if (status == GT_OK) {
        out->count = plan_rows_make(run.session.plan, &answer.facts, out->rows);
        status = session_fit_check(&run.session);
    }
    answer_close(&run, status);
    hostmem_destroy(mem);
    return status;
}

/* Returns the first configuration file that set a key, or NULL. */
static const char *file_of(const struct config *config)
{
    for (int key = 0; key < CONFIG_KEY_COUNT; key++)
        if (config->origin[key].line > 0)
            return config->origin[key].source;
    return NULL;
}

static void rows_print(const struct side *a, const struct side *b)
{
    static const struct plan_row none = {.text = ""};
    for (int32_t i = 0; i < a->count; i++) {
        const struct plan_row *row = &a->rows[i], *other = i < b->count ? &b->rows[i] : &none;
        const double ratio = other->number / row->number;
        printf("%-12s  %-28s  %s%s\n", row->label, row->text, other->text,
               row->number > 0.0 && ratio > 0.0 ? TEXT(24, "  %+.1f %%", 100.0 * (ratio - 1.0))
                                                : "");
    }
}

enum gt_status compare_run(struct config *config)
{
    static struct config other; /* large */
    static struct side sides[2];
    enum gt_status second = GT_FAILURE;
    TRY(config_compared(config, &other));
    const char *file = file_of(config);
    enum gt_status status = side_make(config, &sides[0]);
    if (status == GT_OK || status == GT_NO_FIT)
        second = side_make(&other, &sides[1]);
    if (second == GT_OK || second == GT_NO_FIT) {
        printf("%-12s  %-28s  %s\n", "", file != NULL ? file : "the defaults", config->compare);
        rows_print(&sides[0], &sides[1]);
    }
    return status == GT_OK ? second : status;
}
