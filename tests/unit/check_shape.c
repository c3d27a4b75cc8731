/* Tests of base/shape: which architecture a shape has, what it lacks of the nearest one, and the
 * tables themselves. */
#include "base/shape.h"

#include "tests/unit/unit_main.h"

static struct shape of(enum arch_kind kind)
{
    struct shape shape = arch_get(kind)->shape;
    shape.n_layer = 2;
    shape.n_head = 4;
    shape.n_embd = 32;
    shape_sizes_fill(&shape);
    return shape;
}

static void is(const struct shape *shape, enum arch_kind wanted)
{
    ck_assert_str_eq(arch_of(shape)->name, arch_get(wanted)->name);
}

TEST(an_architecture_has_its_own_shape)
{
    for (int kind = 0; kind < ARCH_mistral; kind++) {
        enum shape_property differs;
        struct shape shape = of((enum arch_kind)kind);
        is(&shape, (enum arch_kind)kind);
        ck_assert_str_eq(arch_nearest(&shape, &differs)->name,
                         arch_get((enum arch_kind)kind)->name);
        ck_assert_int_eq(differs, SHAPE_PROPERTIES);
    }
    is(&(struct shape){.n_layer = 1, .n_head = 2, .n_kv_head = 2, .n_embd = 6},
       ARCH_gpt2); /* all zero */
    struct shape mistral = of(ARCH_mistral);
    is(&mistral, ARCH_llama); /* the same but for defaults in files */
}

/* Every property is in the way of a class that cannot say it. */
TEST(what_a_class_cannot_say_is_our_own)
{
    static const struct {
        enum arch_kind arch;
        enum shape_property property;
        double value;
        const char *text; /* of the property; NULL: the class can say it */
    } cases[] = {
        {ARCH_gpt2, SHAPE_bias, 1, NULL},
        {ARCH_gpt2, SHAPE_gelu, GELU_TANH, NULL},
        {ARCH_gpt2, SHAPE_norm_epsilon, 0.5, NULL},
        {ARCH_gpt2, SHAPE_head_dim, 8, NULL},
        {ARCH_gpt2, SHAPE_head_dim, 16, "head_dim=16"},
        {ARCH_gpt2, SHAPE_n_inner, 128, NULL},
        {ARCH_gpt2, SHAPE_n_inner, 127, "n_inner=127"},
        {ARCH_gpt2, SHAPE_n_kv_head, 2, "n_kv_head=2"},
        {ARCH_gpt2, SHAPE_tie_embeddings, 1,
         "tie_embeddings=False"}, /* the struct's field is the opposite */
        {ARCH_gpt2, SHAPE_qkv_bias, 1, "qkv_bias=True"},
        {ARCH_gpt2, SHAPE_norm, NORM_RMSNORM, "norm='rmsnorm'"},
        {ARCH_llama, SHAPE_n_kv_head, 2, NULL},
        {ARCH_llama, SHAPE_tie_embeddings, 1, NULL},
        {ARCH_llama, SHAPE_bias, 1, NULL},
        {ARCH_llama, SHAPE_gelu, GELU_TANH, NULL}, /* without effect */
        {ARCH_llama, SHAPE_rope_theta, 7, NULL},
        {ARCH_llama, SHAPE_mlp, MLP_GELU, "mlp='gelu'"},
        {ARCH_llama, SHAPE_sliding_window_pattern, 2, NULL}, /* without effect */
        {ARCH_qwen2, SHAPE_sliding_window, 8, NULL},
        {ARCH_olmo2, SHAPE_sliding_window, 8, "sliding_window=8"},
        {ARCH_qwen3, SHAPE_bias, 1, "bias=True"},
        {ARCH_qwen3, SHAPE_embed_norm, 1, "embed_norm=True"},
        {ARCH_qwen3, SHAPE_qkv_bias, 1, "qkv_bias=True"},
        {ARCH_qwen3, SHAPE_logits_scaling, 2, "logits_scaling=2"},
        {ARCH_granite, SHAPE_logits_scaling, 2, NULL},
        {ARCH_granite, SHAPE_logits_scaling, 0, "logits_scaling=0"},
        {ARCH_smollm3, SHAPE_no_rope_layer_interval, 2, NULL},
        {ARCH_qwen3_5, SHAPE_full_attention_interval, 2, NULL},
        {ARCH_qwen3_5, SHAPE_linear_num_value_heads, 32, NULL},
        {ARCH_qwen3_5, SHAPE_mlp, MLP_GEGLU, "mlp='geglu'"},
        {ARCH_qwen3_5, SHAPE_attn_output_gate, 0, "attn_output_gate=False"},
        {ARCH_qwen3, SHAPE_attn_output_gate, 1, "attn_output_gate=True"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        enum shape_property differs;
        struct shape shape = of(cases[i].arch);
        shape_set(&shape, cases[i].property, cases[i].value);
        ck_assert(shape_get(&shape, cases[i].property) == cases[i].value);
        is(&shape, cases[i].text == NULL ? cases[i].arch : ARCH_gpt_train);
        const struct arch *nearest = arch_nearest(&shape, &differs);
        if (cases[i].text != NULL && cases[i].property == differs)
            ck_assert_str_eq(SHAPE_TEXT(&shape, differs), cases[i].text);
        ck_assert_int_eq(differs == SHAPE_PROPERTIES, cases[i].text == NULL);
        ck_assert_ptr_nonnull(nearest->class_name);
    }
    struct shape both =
        of(ARCH_llama); /* biases everywhere include those of queries, keys and values */
    both.bias = both.qkv_bias = true;
    is(&both, ARCH_llama);
}

/* A Llama with a window is a Mistral, if all layers have it. */
TEST(windows_of_layers)
{
    struct shape shape = of(ARCH_llama);
    shape.sliding_window = 8;
    is(&shape, ARCH_mistral);
    shape.sliding_window_pattern = 3;
    is(&shape, ARCH_gpt_train);
    shape.max_window_layers = 1;
    static const int32_t windows[] = {0, 8, 0, 8, 8, 0};
    for (int32_t layer = 0; layer < 6; layer++)
        ck_assert_int_eq(shape_window(&shape, layer), windows[layer]);
}

/* Of Qwen3.5 every fourth layer has attention; of others all. */
TEST(linear_layers)
{
    const struct shape shape = of(ARCH_qwen3_5), other = of(ARCH_qwen3);
    for (int32_t layer = 0; layer < 9; layer++) {
        ck_assert_int_eq(shape_is_linear(&shape, layer), layer % 4 != 3);
        ck_assert_int_eq(shape_full_before(&shape, layer), layer / 4);
        ck_assert(!shape_is_linear(&other, layer) && shape_full_before(&other, layer) == layer);
    }
}

TEST(a_family_says_what_has_a_field)
{
    ck_assert(!arch_says(arch_get(ARCH_llama), SHAPE_mlp, MLP_GELU) &&
              arch_says(arch_get(ARCH_llama), SHAPE_mlp, MLP_SWIGLU));
    ck_assert(!arch_says(arch_get(ARCH_gpt2), SHAPE_n_inner, 5) &&
              !arch_says(arch_get(ARCH_llama), SHAPE_norm, 0));
}
