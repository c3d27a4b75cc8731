/* Finds alternatives that fit when the requested configuration does not.
 */
#ifndef GPT_TRAIN_PLAN_PLAN_ALTERNATIVES_H
#define GPT_TRAIN_PLAN_PLAN_ALTERNATIVES_H

#include "plan/plan_search.h"

#define SEARCH_ALTERNATIVES_MAX 3
#define SEARCH_LEAN_SHARE 0.9

/* Finds up to SEARCH_ALTERNATIVES_MAX different alternatives that fit the budget, each planned for
 * real.  First come alternatives that change no result but the order of sums, sorted by time; keys
 * are unpinned if necessary.  Leaner states follow, if the request offers them and only they fit or
 * they take at most SEARCH_LEAN_SHARE of the time.  If nothing fits with the pins, alternatives
 * that train something else come last, with the pins kept.  Errors: GT_NO_MEMORY, and those of
 * model_create() and plan_create(). */
enum gt_status search_alternatives(struct hostmem *mem, const struct search_request *request,
                                   struct search_alternative out[static SEARCH_ALTERNATIVES_MAX],
                                   int32_t *count);

/* Returns "search", "micro_batch", "recompute", "host_budget", "states", "lora_rank", "block_size",
 * "n_layer", "n_head" or "model". */
const char *search_alternative_name(enum alternative_kind kind);
#define SEARCH_REQUEST_TEXT_MAX 64
/* Writes what the requested options need: "at least 54.81 GiB". */
char *search_request_text(char text[static SEARCH_REQUEST_TEXT_MAX],
                          const struct search_result *result);
#define SEARCH_TIME_TEXT_MAX 48
/* Writes how much longer an update takes than with the requested options: "+1.2 % time
 * (estimated)".  If the request does not fit, a change that costs no time is never shown as saving
 * any. */
char *search_time_text(char text[static SEARCH_TIME_TEXT_MAX], const struct search_result *result);
#define SEARCH_CHANGES_MAX 256
/* Writes the changes of a choice, and the flag that it needs. */
char *search_alternative_text(char text[static SEARCH_CHANGES_MAX],
                              const struct search_alternative *choice,
                              const struct model_options *requested);
/* Writes the keys of `options` that differ from `requested`: "micro_batch 8, recompute mlp x7 +
 * layernorm x5". */
char *search_changes_text(char text[static SEARCH_CHANGES_MAX], const struct model_options *options,
                          const struct model_options *requested);

/* Writes the options in words: "micro-batch 8, recompute mlp in 7 of 12 blocks, gelu in the others,
 * loss in chunks of 512 rows". */
#define SEARCH_OPTIONS_TEXT_MAX 384
char *search_options_text(char text[static SEARCH_OPTIONS_TEXT_MAX],
                          const struct model_options *options);
/* Writes a memory_budget of at least `bytes` as the user can type it: "84MiB", "2.01GiB". */
char *search_budget_text(char text[static 24], uint64_t bytes);

#endif
