/* Parses PyTorch's out-of-memory messages into numbers, and guesses which of nanoGPT's tensors an
 * allocation was.
 *
 * The text may be the line alone, a line wrapped by a mail program or a logger, or a log with a
 * traceback around it, made plain by oom_text_plain().  It is not trusted: reading is bounded, and
 * anything that does not look like an amount stays unknown.  Messages of drivers, libraries, NCCL,
 * llm.c, JAX, TensorFlow, llama.cpp, vLLM and a killed process have one size or none; they are
 * recognised.
 *
 * nanoGPT under torch.amp.autocast creates a few kinds of large tensors whose sizes follow from the
 * configuration.  A tensor matches if its size, rounded as PyTorch's allocator rounds, prints as
 * the message's number; the matches that fit the traceback are listed first.  A size is evidence,
 * not proof: the caller says "probably".
 *
 * source: the wordings are those of c10/cuda/CUDACachingAllocator.cpp from PyTorch 0.4 to 2.9
 * ("cached", "reserved in total by PyTorch", "has a total capacity of"), of its HIP, XPU and NPU
 * twins, of CUDAMallocAsyncAllocator.cpp, of MPSAllocator.mm and of c10/core/alloc_cpu.cpp; the
 * tensors are those of nanoGPT model.py and train.py (commit 3adf61e), their dtypes those of
 * torch.amp's op lists (cross_entropy, log_softmax, softmax and layer_norm in float32).
 */
#ifndef GPT_TRAIN_PLAN_OOM_MESSAGE_H
#define GPT_TRAIN_PLAN_OOM_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OOM_PROCESSES_MAX 8
#define OOM_SOURCE_MAX 112
#define OOM_NAME_MAX 48
/* Tensors of up to 1 MiB are cut from a segment of the small size, larger ones below 10 MiB from a
 * segment of the middle size; tensors from 10 MiB on are rounded up to a multiple of the small
 * size.  The message contains the segment's size. */
#define OOM_SEGMENT_SMALL_BYTES ((uint64_t)2 << 20)
#define OOM_SEGMENT_MIDDLE_BYTES ((uint64_t)20 << 20)

/* Who refused memory.  OOM_HOST: the system, which killed the process. */
enum oom_allocator {
    OOM_CUDA,
    OOM_ASYNC,
    OOM_HIP,
    OOM_XPU,
    OOM_NPU,
    OOM_MPS,
    OOM_METAL,
    OOM_CPU,
    OOM_NCCL,
    OOM_OTHER, /* JAX, TensorFlow, llama.cpp, vLLM, ... */
    OOM_HOST
};

/* The stage of the program, from the traceback. */
enum oom_stage {
    OOM_STAGE_UNKNOWN,
    OOM_STAGE_SETUP,
    OOM_STAGE_FORWARD,
    OOM_STAGE_BACKWARD,
    OOM_STAGE_OPTIMIZER
};

/* The part of the forward pass, if the innermost line of the user's code shows it. */
enum oom_site {
    OOM_SITE_UNKNOWN,
    OOM_SITE_LOGITS,
    OOM_SITE_LOSS,
    OOM_SITE_ATTENTION,
    OOM_SITE_MLP,
    OOM_SITE_EMBEDDING
};

/* A printed amount stands for all values that round to it. */
struct oom_amount {
    bool known;
    bool not_counted; /* not known, because the driver does not count it: printed as 2^64 bytes */
    double bytes;
    double slack_bytes; /* half a unit of the last printed digit */
};

struct oom_process {
    int64_t pid;
    struct oom_amount held;
};

/* The user's innermost frame; empty strings and line 0 without a traceback. */
struct oom_frame {
    char file[OOM_NAME_MAX]; /* last component of the path */
    int32_t line;
    char function[OOM_NAME_MAX];
    char source[OOM_SOURCE_MAX]; /* the line of code, truncated, without control characters */
};

struct oom_message {
    enum oom_allocator allocator;
    int32_t device;      /* GPU number, -1 = not in the message */
    int32_t count;       /* messages of this kind in the text; this is the last one */
    const char *meaning; /* a sentence, or NULL */
    struct oom_amount tried, total, free;
    struct oom_amount process;     /* all memory of this process, context included */
    struct oom_amount allocated;   /* live tensors */
    struct oom_amount unallocated; /* in PyTorch's cache and not used by a tensor */
    struct oom_amount allowed;     /* a limit that the program set itself */
    struct oom_amount pools;       /* part of `allocated` that belongs to CUDA graphs */
    struct oom_amount elsewhere;   /* MPS: memory of this process outside PyTorch's allocator */
    struct oom_process others[OOM_PROCESSES_MAX];
    int32_t others_count;
    bool own_by_pid; /* the driver listed this process by number among the others, as it does inside
                        containers */
    enum oom_stage stage;
    enum oom_site site;
    bool evaluation; /* inside estimate_loss or the like */
    struct oom_frame frame;
};

/* Reads the last message in text[count].  Returns false when there is none. */
bool oom_message_parse(const char *text, size_t count, struct oom_message *out);

/* Returns the memory of the other processes, as far as the driver counts it, and the part of this
 * process's memory that is not PyTorch's (kernels, libraries); unknown if the message does not
 * contain enough.  If the others have more than the total, they are not on this device: a slice of
 * a card lists the processes of the whole card. Their memory is then unknown. */
struct oom_amount oom_others_bytes(const struct oom_message *message);
struct oom_amount oom_context_bytes(const struct oom_message *message);
/* Returns this process's memory if it exceeds the total, as happens where a driver moves memory to
 * the host; else unknown. */
struct oom_amount oom_spilled_bytes(const struct oom_message *message);
/* Returns the memory that was available to tensors: the free memory and PyTorch's own, or the
 * program's own limit. Excludes other processes and the context, and never exceeds what the total
 * leaves. */
struct oom_amount oom_budget_bytes(const struct oom_message *message);
/* Returns the most that a process could have had, its context included: the total less the memory
 * of other processes. */
struct oom_amount oom_process_most(const struct oom_message *message);

enum oom_verdict {
    OOM_VERDICT_NONE,            /* too little is known */
    OOM_VERDICT_LIMIT,           /* the program's own limit was reached */
    OOM_VERDICT_LIMIT_FRAGMENTS, /* the same; unused memory would have been enough in one piece */
    OOM_VERDICT_ROOM,            /* the device had more free than was requested */
    OOM_VERDICT_SHORT,           /* free and unused memory together were too little, by *lacking */
    OOM_VERDICT_FRAGMENTS        /* they would have been enough in one piece */
};
enum oom_verdict oom_verdict(const struct oom_message *message, struct oom_amount *lacking);

/* Returns why the numbers cannot be a card's ("0 B of total capacity"), or NULL if they can.
 * Processes may use more than the total, as drivers that spill into the host's memory and slices of
 * cards report it. */
const char *oom_impossible(const struct oom_message *message);
/* By enum oom_allocator. */
extern const struct oom_allocator_info {
    const char *name;
    const char *backend; /* the backend that runs on its cards; NULL: its devices are no cards */
    bool segments;       /* sizes are rounded up to those of segments */
    bool tensors;        /* the size in a message is a tensor's */
} oom_allocators[];

#define OOM_MATCHES_MAX 8

/* The dimensions that determine the sizes. */
struct oom_shape {
    int64_t batch; /* sequences of a batch: eval_batch_size if an evaluation failed */
    int64_t block_size, n_embd, n_head, vocab_size;
};

struct oom_match {
    const char *name; /* "the logits" */
    const char *size; /* "batch x block_size x vocab_size" */
    uint64_t bytes;
    int32_t element_bytes;
    bool fits_traceback; /* also true without a traceback */
};

/* Fills out[OOM_MATCHES_MAX] and returns the number of matches.  Returns 0 also when the message
 * contains no size, or one that stands for any tensor below 10 MiB (2 and 20 MiB). */
int32_t oom_match_find(const struct oom_message *message, const struct oom_shape *shape,
                       struct oom_match out[static OOM_MATCHES_MAX]);
/* Returns a batch, different from `shape`'s, whose logits in elements of `element_bytes` have the
 * message's size; 0 when there is none or the printed number is too coarse. */
int64_t oom_match_batch(const struct oom_message *message, const struct oom_shape *shape,
                        int32_t element_bytes);
/* Returns true when the size is that of a segment for small tensors, which says nothing about the
 * tensor. */
bool oom_is_small_segment(const struct oom_message *message);

#endif
