/* A mixture of data sets: which ones a run reads, and which one each of its samples comes from.
 *
 * dataset='old:0.7,mine:0.3' names several data sets with shares, which are divided by their sum.
 * Every sample has block_size tokens, so shares of samples are shares of tokens.  Which data set
 * sample n comes from is a function of n alone, and among any n samples in a row a data set has its
 * share to within one sample per data set.
 */
#ifndef GPT_TRAIN_DATA_MIXTURE_H
#define GPT_TRAIN_DATA_MIXTURE_H

#include "base/file.h"
#include "data/tokenizer.h"

#define MIXTURE_MAX 8

struct mixture_source {
    const char *name; /* borrowed from the text that was parsed */
    int name_length;
    char folder[FILE_PATH_MAX];
    double share;   /* of all samples; shares sum to 1 */
    int64_t weight; /* the share, as an integer of up to 31 bits */
};

struct mixture {
    int count;
    struct mixture_source parts[MIXTURE_MAX];
};

/* Reads the key `dataset`: the name of a data set, or NAME:SHARE,NAME:SHARE...  A name means the
 * folder data/NAME, or
 * ./NAME if there is only that; a name with a slash is a path, which may begin with "~/".  A text
 * that is the name of a folder is never a list.  `text` must outlive the mixture.  Errors: GT_USAGE
 * (also for two names of one folder). */
enum gt_status mixture_parse(const char *text, struct mixture *out);

/* Opens the data sets' tokenizer; NULL if none of them has one.  Errors: GT_DATA if two have
 * different ones; those of tokenizer_open_dataset(). */
enum gt_status mixture_tokenizer_open(const void *owner, const struct mixture *mixture,
                                      struct tokenizer **out);

/* The source of a sample: sample `number` of part `part`. */
struct mixture_place {
    int part;
    int64_t number;
};

/* Returns the source of sample `sample` >= 0 of a run. */
struct mixture_place mixture_place(const struct mixture *mixture, int64_t sample);

#endif
