/* Answers that need neither a device nor a file: a session's plan, and what an out-of-memory message means. */
#ifndef GPT_TRAIN_TRAIN_PLAN_ANSWER_H
#define GPT_TRAIN_TRAIN_PLAN_ANSWER_H

#include "train/forecast.h"

typedef enum gt_status plan_print_fn(const struct session *session, const struct plan_report_facts *facts, FILE *out);

/* Passes the plan of a session to `print`, with the configuration, the forecast, choices if the plan does not fit, and
 * the front of memory against time if config->plan shows it.  Call it after session_plan() and before session_start().
 * Errors: GT_NO_MEMORY, and those of print(). */
enum gt_status plan_answer(struct session *session, const struct forecast *forecast, plan_print_fn *print, FILE *out);

/* Prints what the numbers of the message in text[count] mean for this configuration; `name` names the text in log
 * lines.  Then sets the keys that the user left open: the budget becomes the memory that was available according to the
 * message, the device profile that of `card`, and the dtype nanoGPT's default.  If card->memory_bytes is 0, it becomes
 * a card of the message's size.  The caller answers with a plan under these assumptions.
 * Errors: GT_DATA for a text without such a message. */
enum gt_status explain_oom_text(const char *name, const char *text, size_t count, struct config *config,
                                const struct model_config *model, struct device_profile *card);

#endif
