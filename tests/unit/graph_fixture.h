/* Graphs for the tests of plan/ and exec/: a pen for hand-made ones, and random ones from a seed.
 *
 * Random graphs consist of fill, copy (with and without accumulation) and residual over chains,
 * branches, views that are written and read in part, inputs, outputs, persistent tensors and
 * several programs in several phases.
 */
#ifndef GPT_TRAIN_UNIT_GRAPH_FIXTURE_H
#define GPT_TRAIN_UNIT_GRAPH_FIXTURE_H

#include <stdint.h>

#include "model/graph.h"

struct fixture_random {
    uint64_t seed, draws;
};
/* Returns an integer in [0, bound). */
int32_t fixture_below(struct fixture_random *random, int32_t bound);

/* Adds an fp32 tensor [rows, columns] of the training phase. */
int32_t fixture_tensor(struct graph *graph, const char *name, int64_t rows, int64_t columns,
                       enum tensor_lifetime lifetime, enum tensor_category category);
int32_t fixture_program(struct graph *graph, enum program_kind kind);
/* Add an op to `program`; each returns the tensor written.  `to` may be TENSOR_NONE for a new
 * tensor, except in fill. */
int32_t fixture_fill(struct graph *graph, int32_t program, int32_t to, float value);
int32_t fixture_copy(struct graph *graph, int32_t program, int32_t from, int32_t to,
                     bool accumulate);
int32_t fixture_residual(struct graph *graph, int32_t program, int32_t x, int32_t y, int32_t to);

/* Returns a random graph, whose ops read what was written.  Every input is read by its program. */
struct graph *fixture_random_graph(struct hostmem *mem, uint64_t seed);

#endif
