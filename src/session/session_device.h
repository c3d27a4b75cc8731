/* A session's device: a card that only a profile describes, the dtype, the nominal rates. */
#ifndef GPT_TRAIN_SESSION_SESSION_DEVICE_H
#define GPT_TRAIN_SESSION_SESSION_DEVICE_H

#include "session/session.h"

/* Returns the dtype, or the nearest that ops of the device can store: float16 for bfloat16, else
 * float32. */
enum dtype session_device_dtype(const struct session_device *device, enum dtype dtype);

/* As session_open(), for a card that only a profile describes.  Reads no file.  Errors: GT_USAGE,
 * GT_NO_MEMORY. */
enum gt_status session_open_profile(struct hostmem *mem, const struct config *config,
                                    const struct device_profile *profile, struct session *out);
/* Sets the budgets and the dtype of an open device.  The host's memory is 0 if it is unknown.
 * Errors: GT_USAGE. */
enum gt_status session_device_resolve(struct session *session, uint64_t host_total_bytes,
                                      uint64_t host_free_bytes);
/* Returns the rates with which the search compares candidates: the profile's, or those of a nominal
 * cpu.  They never depend on timings, so two fresh runs of a configuration get the same plan. */
struct plan_rates session_rates_nominal(const struct session *session);
/* Sets the rates of a session whose device is a profile, and logs their basis. */
void session_rates_profile(struct session *session);

#endif
