/* Tests of base/heads: the named pairs divide and are the nearest, and the count is the model's own. */
#include "base/heads.h"

#include <stdio.h>
#include <string.h>

#include "model/model.h"
#include "model/parameters.h"
#include "tests/unit/unit_main.h"

TEST(nearest_pairs)
{
    static const struct {
        int64_t n_embd, n_head;
        const char *words[4];
    } cases[] = {
        {448, 12, {"nearest n_embd is 444 (", " or 456 (", "n_embd 448 (", "goes with 8 or 14 heads"}},
        {512, 12, {"nearest n_embd is 504 (", " or 516 (", "n_embd 512 (", "goes with 8 or 16 heads"}},
        {5, 12, {"nearest n_embd is 12 (", "", "n_embd 5 (", "goes with 5 heads"}},
        {7, 3, {"nearest n_embd is 6 (", " or 9 (", "n_embd 7 (", "goes with 1 or 7 heads"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct heads_shape shape = {12, cases[i].n_head, cases[i].n_embd, 50304, false};
        char text[HEADS_TEXT_MAX];
        heads_nearest_text(text, &shape);
        for (size_t k = 0; k < 4; k++)
            ck_assert_msg(strstr(text, cases[i].words[k]) != NULL, "\"%s\" lacks \"%s\"", text, cases[i].words[k]);
        ck_assert_uint_lt(strlen(text) + 1, HEADS_TEXT_MAX);
    }
    /* The largest numbers that the keys allow also fit. */
    struct heads_shape huge = {4096, 32767, 1048575, 16777216, true};
    char text[HEADS_TEXT_MAX];
    ck_assert_str_eq(strchr(heads_nearest_text(text, &huge), '\0') - 5, "heads");
}

TEST(counts_as_the_model)
{
    static const int64_t shapes[][4] = {{12, 12, 768, 50304}, {12, 12, 576, 50304}, {1, 1, 1, 1}, {3, 5, 35, 97}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (int bias = 0; bias < 2; bias++) {
            struct heads_shape shape = {shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3], bias != 0};
            struct model_config config = {
                .n_layer = (int32_t)shape.n_layer,
                .n_head = (int32_t)shape.n_head,
                .n_kv_head = (int32_t)shape.n_head,
                .n_embd = (int32_t)shape.n_embd,
                .block_size = 16,
                .vocab_size = (int32_t)shape.vocab_size,
                .padded_vocab_size = (int32_t)shape.vocab_size,
                .bias = shape.bias,
            };
            ck_assert_double_eq(heads_parameter_count(&shape), (double)model_parameter_count_no_positions(&config));
        }
    }
}
