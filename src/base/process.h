/* What the system says of this process. */
#ifndef GPT_TRAIN_BASE_PROCESS_H
#define GPT_TRAIN_BASE_PROCESS_H

#include <stddef.h>

/* Resident set, now and at its highest, in bytes; 0 where the system does not tell. */
size_t process_rss_bytes(void);
size_t process_rss_bytes_max(void);

#endif
