/* Memory usage of this process. */
#ifndef GPT_TRAIN_BASE_PROCESS_H
#define GPT_TRAIN_BASE_PROCESS_H

#include <stddef.h>

/* The current and the peak resident set in bytes; 0 if the system does not report it. */
size_t process_rss_bytes(void);
size_t process_rss_bytes_max(void);

#endif
