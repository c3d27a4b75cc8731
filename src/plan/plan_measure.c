/* Builds the pieces of candidates, measures them, and puts them together.
 *
 *   arena [ run: weights, states | gradients | the largest program ]   the update, or a micro-step
 *         [ run                  | the largest program ]               an evaluation, or sampling
 *
 * The update's piece has the run's tensors and the gradients.  Of the other pieces only the program
 * counts.
 *
 * Micro-steps leave out blocks and loss chunks that equal others (left_out.h).
 */
#include "plan/plan_measure.h"

#include <math.h>

#include "base/size.h"
#include "model/model_create.h"
#include "model/parameters.h"
#include "plan/plan_create.h"

/* Times are rounded to this fraction of themselves, so that equal ones compare equal. */
#define SECONDS_EQUAL 0x1p-40

enum piece_kind { PIECE_UPDATE, PIECE_STEPS, PIECE_EVALUATION };

/* A piece: what it depends on, and what was measured. */
struct measured_piece {
    enum piece_kind kind;
    struct plan_choice choice; /* fields are 0 where the piece does not depend on them */
    bool unplaceable;
    uint64_t run_bytes, gradient_bytes, host_bytes;
    uint64_t program_bytes; /* of the largest program, without what outlives it */
    uint64_t bytes;         /* of everything, including what outlives programs */
    double seconds;         /* in an update */
};

struct measured_plan {
    struct plan_choice choice;
    struct measurement placed;
};

void measure_micro_batch_set(struct model_options *options, int64_t samples, int64_t micro_batch)
{
    options->choice.micro_batch = (int32_t)micro_batch;
    options->micro_steps = (int32_t)size_ceil_div(samples, micro_batch);
    options->choice.remainder_batch = (int32_t)(samples % micro_batch);
}

double measure_update_seconds(const struct model *model, const struct plan_rates *rates,
                              plan_seconds_fn *seconds)
{
    double sum = 0.0;
    for (int32_t p = 0; p < model->graph->program_count; p++) {
        int32_t runs = model_runs(&model->options, model->graph->programs[p].kind);
        const bool steps =
            model->options.train_programs == TRAIN_STEPS && model->train_next.program >= 0;
        if (steps && p == model->train_next.program) /* counts for the first one too */
            runs += model_runs(&model->options, PROGRAM_TRAIN_FIRST);
        else if (steps && p == model->train_first.program)
            runs = 0;
        if (model->graph->programs[p].phase == PHASE_TRAIN)
            sum += runs * seconds(model->graph, p, rates);
    }
    return sum;
}

/* Returns the fields of a choice that a piece of that kind depends on. */
static struct plan_choice piece_choice(const struct measure *measure, enum piece_kind kind,
                                       const struct plan_choice *choice)
{
    struct plan_choice piece = {.offload = choice->offload};
    if (kind == PIECE_EVALUATION) {
        piece.offload = (struct offload_mix){.quarters[OFFLOAD_WEIGHTS] =
                                                 choice->offload.quarters[OFFLOAD_WEIGHTS]};
        piece.evaluate_batch = choice->evaluate_batch;
        piece.loss_chunk_rows = choice->loss_chunk_rows;
    } else if (kind == PIECE_STEPS) {
        piece.offload.quarters[OFFLOAD_STATES] = 0;
        piece.micro_batch = choice->micro_batch;
        piece.loss_chunk_rows = choice->loss_chunk_rows;
        piece.recompute = choice->recompute;
    } else if (model_parts(measure->options) > 1 && choice->micro_batch == measure->samples)
        piece.micro_batch = choice->micro_batch; /* whole parts, which micro-steps add */
    return piece;
}

/* Returns the options of a model that has nothing but the piece. */
static struct model_options piece_options(const struct measure *measure,
                                          const struct measured_piece *part)
{
    struct model_options options = *measure->options;
    options.choice = part->choice;
    options.train = part->kind != PIECE_EVALUATION;
    options.evaluate = part->kind == PIECE_EVALUATION;
    options.generate = options.generate && part->kind == PIECE_UPDATE;
    options.train_programs = part->kind == PIECE_STEPS ? TRAIN_STEPS : TRAIN_UPDATE;
    if (part->kind == PIECE_STEPS)
        measure_micro_batch_set(&options, measure->samples, part->choice.micro_batch);
    else /* the update depends only on whether a micro-step is a whole part */
        options.micro_steps = part->choice.micro_batch > 0 ? 1 : 2;
    return options;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Builds and measures a piece. */
static enum gt_status piece_make(const struct measure *measure, struct measured_piece *part)
{
    const struct model_options options = piece_options(measure, part);
    struct plan_options quiet = *measure->plan;
    struct model *model;
    struct plan *plan;
    quiet.quiet = quiet.measure_only = true;
    TRY(model_create(measure->mem, &options, &model));
    enum gt_status status = plan_create(model, model->graph, &quiet, &plan);
    part->unplaceable = status == GT_NO_FIT;
    if (status == GT_OK) {
        part->run_bytes = plan->run_bytes;
        part->gradient_bytes = plan->phase_bytes[PHASE_TRAIN];
        part->bytes = plan->arena_bytes_bound;
        part->host_bytes = part->kind == PIECE_STEPS
                               ? plan->host_category_bytes[CATEGORY_ACTIVATION]
                               : plan->host_bytes;
        for (int32_t p = 0; p < plan->program_count; p++)
            part->program_bytes = larger(part->program_bytes, plan->program[p].bytes_bound);
        part->seconds = measure_update_seconds(model, measure->rates, plan_cost_blocks);
    }
    hostmem_free(model);
    return part->unplaceable ? GT_OK : status;
}

/* Finds a piece of a choice among those measured already, or measures it. */
static enum gt_status piece_get(const struct measure *measure, enum piece_kind kind,
                                const struct plan_choice *choice, struct measured_piece *out)
{
    struct measure_memo *memo = measure->memo;
    *out = (struct measured_piece){.kind = kind, .choice = piece_choice(measure, kind, choice)};
    for (int32_t i = 0; i < memo->part_count; i++)
        if (memo->parts[i].kind == kind &&
            plan_choice_equal(&memo->parts[i].choice, &out->choice)) {
            *out = memo->parts[i];
            return GT_OK;
        }
    TRY(HOSTMEM_GROW(measure->mem, &memo->parts, (size_t)memo->part_count + 1, "measured parts"));
    TRY(piece_make(measure, out));
    memo->parts[memo->part_count++] = *out;
    return GT_OK;
}

static double rounded(double seconds)
{
    int exponent;
    const double part = frexp(seconds, &exponent);
    return ldexp(rint(part / SECONDS_EQUAL), exponent) * SECONDS_EQUAL;
}

enum gt_status measure_update(const struct measure *measure, const struct plan_choice *choice,
                              struct measurement *out)
{
    struct measured_piece update;
    TRY(piece_get(measure, PIECE_UPDATE, choice, &update));
    *out = (struct measurement){update.unplaceable ? MEASURE_NEVER : update.bytes,
                                update.host_bytes, rounded(update.seconds)};
    return GT_OK;
}

enum gt_status measure_choice(const struct measure *measure, const struct plan_choice *choice,
                              struct measurement *out)
{
    struct measured_piece update, steps, evaluation = {.program_bytes = 0};
    TRY(piece_get(measure, PIECE_UPDATE, choice, &update));
    TRY(piece_get(measure, PIECE_STEPS, choice, &steps));
    /* An evaluation of no more rows than a micro-step needs less memory, because it keeps no
     * activations and has no gradients. */
    if (measure->options->evaluate && choice->evaluate_batch > choice->micro_batch)
        TRY(piece_get(measure, PIECE_EVALUATION, choice, &evaluation));
    *out = (struct measurement){.bytes = update.bytes,
                                .host_bytes = update.host_bytes + steps.host_bytes,
                                .seconds = rounded(update.seconds + steps.seconds)};
    out->bytes = larger(out->bytes, update.run_bytes + update.gradient_bytes + steps.program_bytes);
    out->bytes = larger(out->bytes, update.run_bytes + evaluation.program_bytes);
    if (update.unplaceable || steps.unplaceable || evaluation.unplaceable)
        out->bytes = MEASURE_NEVER;
    return GT_OK;
}

enum gt_status measure_options(struct hostmem *mem, const struct plan_options *plan,
                               const struct model_options *options, struct measurement *out)
{
    struct plan_options quiet = *plan;
    struct model *model;
    struct plan *made;
    quiet.quiet = true;
    *out = (struct measurement){.bytes = MEASURE_NEVER};
    TRY(model_create(mem, options, &model));
    enum gt_status status = plan_create(model, model->graph, &quiet, &made);
    if (status == GT_OK)
        *out = (struct measurement){.bytes = made->arena_bytes, .host_bytes = made->host_bytes};
    hostmem_free(model);
    return status == GT_NO_FIT ? GT_OK : status;
}

const struct measurement *measure_placed(const struct measure *measure,
                                         const struct plan_choice *choice)
{
    const struct measure_memo *memo = measure->memo;
    for (int32_t i = 0; i < memo->plan_count; i++)
        if (plan_choice_equal(&memo->plans[i].choice, choice))
            return &memo->plans[i].placed;
    return NULL;
}

enum gt_status measure_place(const struct measure *measure, const struct plan_choice *choice,
                             struct measurement *out)
{
    struct measure_memo *memo = measure->memo;
    struct model_options options = *measure->options;
    const struct measurement *known = measure_placed(measure, choice);
    struct measurement measured;
    if (known != NULL) {
        *out = *known;
        return GT_OK;
    }
    options.choice = *choice;
    measure_micro_batch_set(&options, measure->samples, choice->micro_batch);
    TRY(measure_choice(measure, choice, &measured));
    TRY(measure_options(measure->mem, measure->plan, &options, out));
    out->seconds = measured.seconds;
    TRY(HOSTMEM_GROW(measure->mem, &memo->plans, (size_t)memo->plan_count + 1, "plans"));
    memo->plans[memo->plan_count++] = (struct measured_plan){*choice, *out};
    return GT_OK;
}

int64_t measure_rank_elements(const struct model *model, int32_t rank)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < model->parameters.count; i++)
        sum += parameters_share(model->graph, &model->parameters.at[i],
                                model_ranks(&model->options), rank)
                   .count;
    return sum;
}

enum gt_status measure_rank_set(struct hostmem *mem, struct model_options *options)
{
    struct model_options update = *options;
    struct model *model;
    int64_t most = -1;
    update.train_programs = TRAIN_UPDATE;
    update.evaluate = update.generate = false;
    TRY(model_create(mem, &update, &model));
    for (int32_t rank = 0; rank < model_ranks(options); rank++) {
        const int64_t elements = measure_rank_elements(model, rank);
        options->rank = elements > most ? rank : options->rank;
        most = max_i64(most, elements);
    }
    hostmem_free(model);
    return GT_OK;
}

void measure_memo_close(struct measure_memo *memo)
{
    hostmem_free(memo->parts);
    hostmem_free(memo->plans);
    *memo = (struct measure_memo){0};
}
