/* A run at work: struct run of session/run.h, and the data, the forecast and what the run shows.
 *
 * start.c fills it, for training and for an evaluation that eval_only requests. */
#ifndef GPT_TRAIN_TRAIN_RUNNER_H
#define GPT_TRAIN_TRAIN_RUNNER_H

#include "base/progress.h"
#include "session/run.h"
#include "train/feed.h"
#include "train/forecast.h"
#include "train/ranks.h"
#include "train/samples.h"

struct runner {
    struct run run;
    struct dist *dist; /* the other ranks, or NULL */
    struct feed feed;
    struct tokenizer *tokenizer; /* of the data; NULL: unknown */
    struct forecast forecast;
    struct progress progress; /* the line on the terminal */
    struct ranks_life life;
    struct samples samples;
    bool advised; /* the advice for a run that takes months was logged */
};

#endif
