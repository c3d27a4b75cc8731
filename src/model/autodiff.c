/* Reverse-mode differentiation of a program.
 *
 * It removes the forward ops from the program and appends them again in execution order: the
 * trunk's forward ops as they were, each loss chunk followed directly by its backward ops, and
 * finally the trunk's backward ops in reverse order.  It records the gradient of each forward
 * tensor; the ops' backward rules only emit ops.
 */
#include "model/autodiff.h"

/* The state of a tensor that existed before the first backward op. */
struct tensor_state {
    int32_t gradient;  /* or TENSOR_NONE */
    int32_t parameter; /* index into options->parameters, or -1 */
    int32_t again;     /* the recomputed copy, or TENSOR_NONE */
    int32_t home;      /* the parameter of which it is a fetched copy, or TENSOR_NONE */
    int32_t maker;     /* index in `forward` of the op that can recompute it, or -1 */
    bool written;      /* of parameters and views: it has a contribution */
    bool done;         /* the backward of the op that produced it was emitted */
    bool trained;      /* it depends on a parameter that is trained */
    int32_t wanted;    /* the last forward op for whose backward it was wanted, or -1 */
};

struct autodiff {
    struct graph *graph;
    const struct autodiff_options *options;
    struct graph_pen pen;
    struct op *forward; /* the forward ops, moved out of the program */
    int32_t forward_count;
    int32_t wanting;         /* index of the forward op whose backward comes next */
    int32_t tensor_count;    /* tensors that existed before the first backward op */
    int32_t first;           /* the first of the program's own tensors that its forward ops use */
    struct tensor_state *at; /* [tensor_count] */
};

const struct autodiff_options *autodiff_options_get(const struct autodiff *ad)
{
    return ad->options;
}

/* Finds the op that can recompute each tensor: the marked op that produced it, unless another layer
 * reads it, or the op that stored it in host memory.  Finds the program's first own tensor too. */
static void makers_find(struct autodiff *ad)
{
    for (int32_t i = 0; i < ad->forward_count; i++) {
        const struct op *op = &ad->forward[i];
        for (int32_t s = 0; s < op_declaration(op->kind)->operands; s++) {
            int32_t tensor = op->operand[s];
            if (tensor == TENSOR_NONE)
                continue;
            if (ad->graph->tensors[tensor].lifetime == LIFETIME_PROGRAM && tensor < ad->first)
                ad->first = tensor;
            bool made = op_direction(op->kind, &op->attrs, s) == OPERAND_OUT;
            if (op->kind == OP_FETCH && made)
                ad->at[tensor].home = op->operand[FETCH_X];
            if ((made && op->recompute) || op->kind == OP_STORE)
                ad->at[tensor].maker = i;
            else if (!made && ad->at[tensor].maker >= 0 &&
                     ad->forward[ad->at[tensor].maker].layer != op->layer)
                ad->at[tensor].maker = -1;
        }
    }
}

/* Marks the results of an op that reads something that is trained. */
static void trained_find(struct autodiff *ad, const struct op *op)
{
    bool trained = false;
    for (int32_t s = 0; s < op_declaration(op->kind)->operands; s++)
        trained |= op->operand[s] != TENSOR_NONE &&
                   op_direction(op->kind, &op->attrs, s) != OPERAND_OUT &&
                   autodiff_wants(ad, op->operand[s]);
    for (int32_t s = 0; trained && s < op_declaration(op->kind)->operands; s++)
        if (op->operand[s] != TENSOR_NONE && op_direction(op->kind, &op->attrs, s) != OPERAND_IN) {
            ad->at[op->operand[s]].trained = true;
            ad->at[graph_storage(ad->graph, op->operand[s])].trained = true;
        }
}

static enum gt_status autodiff_init(struct autodiff *ad)
{
    struct program *program = &ad->graph->programs[ad->options->program];
    TRY(HOSTMEM_NEW(ad->graph, (size_t)program->count + 1, "autodiff ops", &ad->forward));
    TRY(HOSTMEM_NEW(ad->graph, (size_t)ad->tensor_count, "autodiff tensors", &ad->at));
    for (int32_t t = TENSOR_FIRST; t < ad->tensor_count; t++)
        ad->at[t] = (struct tensor_state){.parameter = -1, .maker = -1, .wanted = -1};
    for (int32_t p = 0; p < ad->options->parameter_count; p++) {
        const struct autodiff_parameter *parameter = &ad->options->parameters[p];
        if (parameter->gradient == TENSOR_NONE)
            continue;
        ad->at[parameter->tensor].parameter = p;
        ad->at[parameter->tensor].trained = true;
        ad->at[parameter->tensor].gradient = parameter->gradient;
        ad->at[parameter->tensor].written = ad->options->accumulate_parameters && !parameter->fresh;
    }
    ad->forward_count = program->count;
    memcpy(ad->forward, program->ops, (size_t)program->count * sizeof(struct op));
    program->count = 0;
    makers_find(ad);
    for (int32_t i = 0; i < ad->forward_count; i++)
        trained_find(ad, &ad->forward[i]);
    return GT_OK;
}

bool autodiff_wants(const struct autodiff *ad, int32_t tensor)
{
    return ad->at[graph_storage(ad->graph, tensor)].trained;
}

static enum gt_status gradient_tensor_add(struct autodiff *ad, int32_t tensor, int32_t *out)
{
    struct tensor gradient = ad->graph->tensors[tensor];
    graph_name_put(graph_name_put(gradient.name, gradient.name, 80), ".grad", 5);
    gradient.category = CATEGORY_TEMPORARY;
    gradient.lifetime = LIFETIME_PROGRAM; /* also that of a gain which is not trained */
    gradient.phase = ad->graph->programs[ad->options->program].phase;
    gradient.input = gradient.output = false;
    gradient.base = TENSOR_NONE;
    gradient.view_offset = 0;
    return graph_tensor_add(ad->graph, &gradient, out);
}

/* The gradient of a view is the same view of its base's gradient. */
static enum gt_status view_gradient(struct autodiff *ad, int32_t view)
{
    int32_t base = ad->graph->tensors[view].base;
    if (ad->at[base].gradient == TENSOR_NONE)
        TRY(gradient_tensor_add(ad, base, &ad->at[base].gradient));
    const struct tensor *t = &ad->graph->tensors[view];
    int64_t row_elements = graph_tensor_elements(ad->graph, view) / t->dims[0];
    return graph_view_add(ad->graph, ad->at[base].gradient, t->view_offset / row_elements,
                          t->dims[0], &ad->at[view].gradient);
}

/* Returns true if another tensor, whose gradient is still to be read, shares the gradient buffer of
 * `tensor`. */
static bool gradient_is_shared(const struct autodiff *ad, int32_t tensor)
{
    for (int32_t t = ad->first; t < ad->tensor_count; t++)
        if (t != tensor && ad->at[t].gradient == ad->at[tensor].gradient && !ad->at[t].done)
            return true;
    return false;
}

/* Returns the tensor whose gradient is that of `tensor`: the parameter of a fetched copy. */
static int32_t gradient_owner(const struct autodiff *ad, int32_t tensor)
{
    return ad->at[tensor].home != TENSOR_NONE ? ad->at[tensor].home : tensor;
}

enum gt_status autodiff_target(struct autodiff *ad, int32_t tensor, int32_t slot,
                               union op_arguments *arguments)
{
    assert(tensor >= TENSOR_FIRST && tensor < ad->tensor_count);
    bool first;
    tensor = gradient_owner(ad, tensor);
    if (ad->at[tensor].parameter >= 0) {
        first = !ad->at[tensor].written;
    } else if (ad->graph->tensors[tensor].base != TENSOR_NONE) {
        first = !ad->at[tensor].written && !ad->at[ad->graph->tensors[tensor].base].written;
        if (ad->at[tensor].gradient == TENSOR_NONE)
            TRY(view_gradient(ad, tensor));
    } else if (ad->at[tensor].gradient == TENSOR_NONE) {
        first = true;
        TRY(gradient_tensor_add(ad, tensor, &ad->at[tensor].gradient));
    } else {
        first = false;
        if (gradient_is_shared(ad, tensor)) {
            int32_t copy;
            TRY(gradient_tensor_add(ad, tensor, &copy));
            TRY(GRAPH_ADD(COPY, &ad->pen, "copy", NULL, .x = ad->at[tensor].gradient, .y = copy));
            ad->at[tensor].gradient = copy;
        }
    }
    ad->at[tensor].written = true;
    arguments->operand[slot] = ad->at[tensor].gradient;
    arguments->attrs.accumulate |= (uint32_t)!first << slot;
    return GT_OK;
}

enum gt_status autodiff_share(struct autodiff *ad, int32_t tensor, int32_t gradient)
{
    bool plain = ad->at[tensor].parameter < 0 && ad->graph->tensors[tensor].base == TENSOR_NONE;
    if (!autodiff_wants(ad, tensor))
        return GT_OK;
    if (plain && ad->at[tensor].gradient == TENSOR_NONE) {
        ad->at[tensor].gradient = gradient;
        return GT_OK;
    }
    union op_arguments copy = {.COPY = {.x = gradient}};
    TRY(autodiff_target(ad, tensor, COPY_Y, &copy));
    return graph_op_add(&ad->pen, OP_COPY, "copy", &copy, NULL);
}

/* Gives the ops that come next the layer, the loss chunk and `left_out` of a forward op. */
static void pen_follow(struct autodiff *ad, const struct op *op)
{
    ad->pen.layer = op->layer;
    ad->pen.chunk = op->chunk;
    ad->pen.left_out = op->left_out;
}

enum gt_status autodiff_emit(struct autodiff *ad, const struct op *of, enum op_kind kind,
                             union op_arguments *arguments)
{
    pen_follow(ad, of);
    return graph_op_add(&ad->pen, kind, op_declaration(kind)->name, arguments, NULL);
}

enum gt_status autodiff_contribute(struct autodiff *ad, const struct op *of, int32_t tensor,
                                   enum op_kind kind, int32_t slot, union op_arguments *arguments)
{
    TRY(autodiff_target(ad, tensor, slot, arguments));
    return autodiff_emit(ad, of, kind, arguments);
}

int32_t autodiff_saved(const struct autodiff *ad, int32_t tensor)
{
    if (tensor == TENSOR_NONE || tensor >= ad->tensor_count || ad->at[tensor].again == TENSOR_NONE)
        return tensor;
    return ad->at[tensor].again;
}

/* Marks a tensor as wanted and returns true if it can be recomputed and has not been yet. */
static bool want(struct autodiff *ad, int32_t tensor)
{
    if (tensor == TENSOR_NONE || ad->at[tensor].maker < 0 || ad->at[tensor].again != TENSOR_NONE)
        return false;
    ad->at[tensor].wanted = ad->wanting;
    return true;
}

/* Returns true if `op` produces or changes a wanted tensor; then the tensors that it reads are
 * wanted too. */
static bool makes_wanted(struct autodiff *ad, const struct op *op, int32_t index)
{
    bool makes = false;
    for (int32_t s = 0; s < op_declaration(op->kind)->operands; s++) {
        int32_t tensor = op->operand[s];
        bool changes = op_direction(op->kind, &op->attrs, s) ==
                       OPERAND_INOUT; /* changes what the tensor's maker made */
        makes |= tensor != TENSOR_NONE && (ad->at[tensor].maker == index || changes) &&
                 ad->at[tensor].wanted == ad->wanting;
    }
    for (int32_t s = 0; makes && s < op_declaration(op->kind)->operands; s++)
        if (op_direction(op->kind, &op->attrs, s) != OPERAND_OUT)
            (void)want(ad, op->operand[s]);
    return makes;
}

/* Emits a forward op once more, into new tensors, or fetches what it stored. */
static enum gt_status again_emit(struct autodiff *ad, const struct op *op)
{
    union op_arguments again = {.attrs = op->attrs};
    char name[TENSOR_NAME_MAX];
    if (op->kind == OP_STORE) {
        const int32_t host = op->operand[STORE_Y];
        int32_t *device = &ad->at[op->operand[STORE_X]].again;
        TRY(GRAPH_ADD(FETCH, &ad->pen, ad->graph->tensors[host].name, device, .x = host));
        return GRAPH_ADD(WAIT, &ad->pen, "", NULL, .x = host, .y = *device);
    }
    for (int32_t s = 0; s < op_declaration(op->kind)->operands; s++)
        if (op_direction(op->kind, &op->attrs, s) != OPERAND_OUT)
            again.operand[s] = autodiff_saved(ad, op->operand[s]);
    char *at = graph_name_number(NAME_JOIN(name, sizeof name, "h."), op->layer);
    NAME_JOIN(at, (size_t)(name + sizeof name - at), ".again.", op_declaration(op->kind)->name);
    TRY(graph_op_add(&ad->pen, op->kind, name, &again, NULL));
    for (int32_t s = 0; s < op_declaration(op->kind)->operands; s++)
        if (op->operand[s] != TENSOR_NONE && op_direction(op->kind, &op->attrs, s) == OPERAND_OUT)
            ad->at[op->operand[s]].again = again.operand[s];
    return GT_OK;
}

/* A product's operand is read only for the gradient of the other one. */
static bool is_read(const struct autodiff *ad, const struct op *op, int32_t slot)
{
    return op->kind != OP_GEMM || autodiff_wants(ad, op->operand[slot == GEMM_A ? GEMM_B : GEMM_A]);
}

/* Recomputes the tensors that the backward of forward op `index` reads and that the forward pass
 * did not keep. */
static enum gt_status recompute_emit(struct autodiff *ad, int32_t index)
{
    const struct op *op = &ad->forward[index];
    bool any = false;
    int32_t first = index;
    ad->wanting = index;
    for (int32_t s = 0; s < op_declaration(op->kind)->operands; s++)
        any |= op_operand_is(op->kind, s, OPERAND_SAVED) && is_read(ad, op, s) &&
               want(ad, op->operand[s]);
    if (!any)
        return GT_OK;
    for (int32_t i = index; i >= 0 && ad->forward[i].layer == op->layer; i--)
        if (makes_wanted(ad, &ad->forward[i], i))
            first = i;
    for (int32_t i = first; i <= index; i++)
        if (makes_wanted(ad, &ad->forward[i], i))
            TRY(again_emit(ad, &ad->forward[i]));
    return GT_OK;
}

/* Returns the operand of that name, or -1. */
static int32_t slot_named(enum op_kind kind, const char *name)
{
    int32_t slot = op_declaration(kind)->operands - 1;
    while (slot >= 0 && strcmp(op_operand_name(kind, slot), name) != 0)
        slot--;
    return slot;
}

/* Emits an op's declared `backward`.  Its operands have the names of the forward op's, with one
 * more letter in front for gradients. */
static enum gt_status named_backward_emit(struct autodiff *ad, const struct op *op,
                                          int32_t gradient)
{
    const struct op_declaration *forward = op_declaration(op->kind),
                                *backward = op_declaration(forward->backward);
    union op_arguments arguments = {.attrs = op->attrs};
    int32_t result = TENSOR_NONE;
    for (int32_t s = 0; s < backward->operands; s++) {
        const char *name = op_operand_name(forward->backward, s);
        const int32_t same = slot_named(op->kind, name),
                      slot = same >= 0 ? same : slot_named(op->kind, name + 1);
        assert(slot >= 0);
        const int32_t of = op->operand[slot];
        if (same >= 0) {
            arguments.operand[s] = autodiff_saved(ad, of);
        } else if (op_direction(op->kind, &op->attrs, slot) == OPERAND_OUT) {
            arguments.operand[s] = gradient;
            result = of;
        } else if (of != TENSOR_NONE) {
            TRY(op_operand_is(forward->backward, s, OPERAND_IN_PLACE)
                    ? autodiff_target_in_place(ad, result, of, s, &arguments)
                    : autodiff_target(ad, of, s, &arguments));
        }
    }
    return autodiff_emit(ad, op, forward->backward, &arguments);
}

/* Emits the backward of one forward op if the loss depends on its first result. */
static enum gt_status backward_emit(struct autodiff *ad, int32_t index)
{
    const struct op *op = &ad->forward[index];
    const struct op_declaration *declaration = op_declaration(op->kind);
    int32_t result = TENSOR_NONE, gradient = TENSOR_NONE;
    for (int32_t s = declaration->operands - 1; s >= 0; s--)
        if (op->operand[s] != TENSOR_NONE &&
            (op_direction(op->kind, &op->attrs, s) == OPERAND_OUT ||
             (op->attrs.accumulate >> s & 1u) != 0))
            result = op->operand[s];
    if (result != TENSOR_NONE && ad->at[result].trained) {
        const int32_t base = ad->graph->tensors[result].base;
        if (ad->at[result].gradient == TENSOR_NONE && base != TENSOR_NONE &&
            ad->at[base].gradient != TENSOR_NONE)
            TRY(view_gradient(ad, result));
        gradient = ad->at[result].gradient;
    }
    if (gradient != TENSOR_NONE && declaration->differentiate == NULL && declaration->backward == 0)
        return FAIL(GT_USAGE, "%s has no backward rule, and the loss depends on %s",
                    declaration->name, ad->graph->tensors[result].name);
    if (gradient != TENSOR_NONE || declaration->makes_gradient) {
        ad->pen.pass = PASS_BACKWARD;
        pen_follow(ad, op);
        TRY(recompute_emit(ad, index));
        TRY(declaration->backward != 0 ? named_backward_emit(ad, op, gradient)
                                       : declaration->differentiate(ad, op, gradient));
    }
    for (int32_t s = 0; s < declaration->operands; s++)
        if (op->operand[s] != TENSOR_NONE && op_direction(op->kind, &op->attrs, s) == OPERAND_OUT)
            ad->at[op->operand[s]].done = true;
    return GT_OK;
}

/* Makes temporaries that a forward op writes and a backward op reads activations. */
static enum gt_status activations_find(struct graph *graph, int32_t program)
{
    const struct program *p = &graph->programs[program];
    bool *made; /* [tensor_count]: a forward op has written the storage, as it has before a backward
                   op reads it */
    TRY(HOSTMEM_NEW(graph, (size_t)graph->tensor_count, "categories", &made));
    for (int32_t i = 0; i < p->count; i++) {
        const struct op *op = &p->ops[i];
        for (int32_t s = 0; s < op_declaration(op->kind)->operands; s++) {
            if (op->operand[s] == TENSOR_NONE)
                continue;
            const int32_t storage = graph_storage(graph, op->operand[s]);
            const enum operand_use direction = op_direction(op->kind, &op->attrs, s);
            if (op->pass == PASS_FORWARD && direction != OPERAND_IN)
                made[storage] = true;
            if (op->pass == PASS_BACKWARD && direction != OPERAND_OUT && made[storage] &&
                graph->tensors[storage].category == CATEGORY_TEMPORARY)
                graph->tensors[storage].category = CATEGORY_ACTIVATION;
        }
    }
    hostmem_free(made);
    return GT_OK;
}

static enum gt_status autodiff_walk(struct autodiff *ad)
{
    for (int32_t i = 0; i < ad->forward_count;) {
        int32_t chunk = ad->forward[i].chunk, first = i;
        for (; i < ad->forward_count && ad->forward[i].chunk == chunk; i++)
            TRY(graph_op_append(ad->graph, ad->options->program, &ad->forward[i]));
        for (int32_t k = i - 1; chunk > 0 && k >= first; k--)
            TRY(backward_emit(ad, k));
    }
    for (int32_t k = ad->forward_count - 1; k >= 0; k--)
        if (ad->forward[k].chunk == 0)
            TRY(backward_emit(ad, k));
    return activations_find(ad->graph, ad->options->program);
}

enum gt_status autodiff_run(struct graph *graph, const struct autodiff_options *options)
{
    struct autodiff ad = {.graph = graph, .options = options, .tensor_count = graph->tensor_count};
    ad.first = ad.tensor_count;
    ad.pen = graph_pen_make(graph, options->program, PASS_BACKWARD);
    TRY(autodiff_init(&ad));
    TRY(autodiff_walk(&ad));
    hostmem_free(ad.at);
    hostmem_free(ad.forward);
    return GT_OK;
}

enum gt_status autodiff_target_in_place(struct autodiff *ad, int32_t from, int32_t tensor,
                                        int32_t slot, union op_arguments *arguments)
{
    const struct tensor *tensors = ad->graph->tensors;
    bool plain = ad->at[tensor].parameter < 0 && tensors[tensor].base == TENSOR_NONE;
    bool is_same = tensors[ad->at[from].gradient].base == TENSOR_NONE &&
                   tensors[from].dtype == tensors[tensor].dtype;
    if (!plain || !is_same || ad->at[tensor].gradient != TENSOR_NONE ||
        gradient_is_shared(ad, from))
        return autodiff_target(ad, tensor, slot, arguments);
    arguments->operand[slot] = ad->at[tensor].gradient = ad->at[from].gradient;
    ad->at[tensor].written = true;
    return GT_OK;
}
