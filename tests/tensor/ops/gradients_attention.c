/* Gradients of attention and rotary positions. */

#include "gradients.h"

#define ATTENTION(name, q, k, v, ...)                                        \
    static lt_tensor *name(lt_tape *t, lt_tensor *const *in, void *context)  \
    {                                                                        \
        lt_tensor *const *constant = context;                                \
        (void)constant;                                                      \
        return lt_attention(t, q, k, v, (lt_attention_config){__VA_ARGS__}); \
    }
ATTENTION(two_heads, in[0], in[1], in[2], .heads = 2)
ATTENTION(two_heads_causal, in[0], in[1], in[2], .heads = 2, .causal = true, .lower_right = true)
ATTENTION(upper_left, in[0], in[1], in[2], .heads = 2, .causal = true)
ATTENTION(four_of_two, in[0], in[1], in[2], .heads = 4, .kv_heads = 2)
ATTENTION(three_of_one_causal, in[0], in[1], in[2], .heads = 3, .kv_heads = 1, .causal = true)
ATTENTION(scaled, in[0], in[1], in[2], .heads = 1, .scale = 1.7)
ATTENTION(joined, in[0], NULL, NULL, .heads = 2)
ATTENTION(joined_causal, in[0], NULL, NULL, .heads = 2, .causal = true)
ATTENTION(joined_four_of_one, in[0], NULL, NULL, .heads = 4, .kv_heads = 1, .causal = true)
ATTENTION(queries_alone, in[0], constant[0], constant[1], .heads = 2)
ATTENTION(keys_alone, constant[0], in[0], constant[1], .heads = 2)
ATTENTION(values_alone, constant[0], constant[1], in[0], .heads = 2)
ATTENTION(keys_and_values, constant[0], in[0], in[1], .heads = 2, .causal = true)
ATTENTION(of_itself, in[0], in[0], in[0], .heads = 2)

static lt_tensor *read_twice(lt_tape *t, lt_tensor *const *in, void *c)
{
    lt_tensor *y = joined_causal(t, in, c);
    return read_by_two(t, y);
}

/* The output of one is the input of the other. */
static lt_tensor *two_layers(lt_tape *t, lt_tensor *const *in, void *c)
{
    lt_tensor *y = two_heads(t, in, c);
    return two_heads_causal(t, (lt_tensor *[]){y, y, in[2]}, c);
}

#define ROTARY(name, ...)                                             \
    static lt_tensor *name(lt_tape *t, lt_tensor *const *in, void *c) \
    {                                                                 \
        (void)c;                                                      \
        return lt_rotary(t, in[0], (lt_rotary_config){__VA_ARGS__});  \
    }
ROTARY(halves, .heads = 2)
ROTARY(interleaved, .heads = 3, .base = 100, .interleaved = true)
ROTARY(late, .heads = 1, .first = 1000)

static lt_tensor *turned_attention(lt_tape *t, lt_tensor *const *in, void *c)
{
    lt_tensor *q = halves(t, in, c), *k = halves(t, in + 1, c);
    return two_heads_causal(t, (lt_tensor *[]){q, k, in[2]}, c);
}

#define SHAPE3(b, t, c)         \
    {                           \
        {3, {b, t, c}}, UNIFORM \
    }

/* clang-format off */
static const grad_row rows[] = {
    {"attention", two_heads, 3, 0, .in = {SHAPE3(2, 5, 6), SHAPE3(2, 5, 6), SHAPE3(2, 5, 6)}},
    {"attention, causal", two_heads_causal, 3, 0, .in = {SHAPE3(2, 5, 6), SHAPE3(2, 5, 6), SHAPE3(2, 5, 6)}},
    {"attention, one token", two_heads, 3, 0, .in = {SHAPE3(2, 1, 4), SHAPE3(2, 1, 4), SHAPE3(2, 1, 4)}},
    {"attention, one token, causal", two_heads_causal, 3, 0,
     .in = {SHAPE3(1, 1, 4), SHAPE3(1, 1, 4), SHAPE3(1, 1, 4)}},
    {"attention, fewer queries", two_heads, 3, 0, .in = {SHAPE3(2, 3, 4), SHAPE3(2, 7, 4), SHAPE3(2, 7, 4)}},
    {"attention, fewer queries, causal", two_heads_causal, 3, 0,
     .in = {SHAPE3(2, 3, 4), SHAPE3(2, 7, 4), SHAPE3(2, 7, 4)}},
    {"attention, fewer queries, causal from the upper left", upper_left, 3, 0,
     .in = {SHAPE3(2, 3, 4), SHAPE3(2, 7, 4), SHAPE3(2, 7, 4)}},
    {"attention, one query", two_heads_causal, 3, 0, .in = {SHAPE3(1, 1, 6), SHAPE3(1, 9, 6), SHAPE3(1, 9, 6)}},
    {"attention, fewer keys", two_heads, 3, 0, .in = {SHAPE3(1, 7, 4), SHAPE3(1, 3, 4), SHAPE3(1, 3, 4)}},
    {"attention, two heads of k and v for four", four_of_two, 3, 0,
     .in = {SHAPE3(2, 5, 12), SHAPE3(2, 5, 6), SHAPE3(2, 5, 6)}},
    {"attention, one head of k and v for three, causal", three_of_one_causal, 3, 0,
     .in = {SHAPE3(2, 3, 6), SHAPE3(2, 4, 2), SHAPE3(2, 4, 2)}},
    {"attention, a scale", scaled, 3, 0, .in = {SHAPE3(1, 3, 5), SHAPE3(1, 3, 5), SHAPE3(1, 3, 5)}},
    {"attention, joined", joined, 1, 0, .in = {SHAPE3(2, 5, 12)}},
    {"attention, joined, causal", joined_causal, 1, 0, .in = {SHAPE3(2, 5, 18)}},
    {"attention, joined, one head of k and v for four", joined_four_of_one, 1, 0, .in = {SHAPE3(2, 3, 12)}},
    {"attention, only q", queries_alone, 1, 2, .in = {SHAPE3(1, 3, 4)},
     .constant = {SHAPE3(1, 5, 4), SHAPE3(1, 5, 4)}},
    {"attention, only k", keys_alone, 1, 2, .in = {SHAPE3(1, 5, 4)},
     .constant = {SHAPE3(1, 3, 4), SHAPE3(1, 5, 4)}},
    {"attention, only v", values_alone, 1, 2, .in = {SHAPE3(1, 5, 4)},
     .constant = {SHAPE3(1, 3, 4), SHAPE3(1, 5, 4)}},
    {"attention, k and v", keys_and_values, 2, 1, .in = {SHAPE3(1, 5, 4), SHAPE3(1, 5, 4)},
     .constant = {SHAPE3(1, 3, 4)}},
    {"attention, q, k and v the same", of_itself, 1, 0, .in = {SHAPE3(2, 4, 6)}},
    {"attention, read twice", read_twice, 1, 0, .in = {SHAPE3(1, 3, 12)}},
    {"attention of attention", two_layers, 3, 0, .in = {SHAPE3(1, 3, 4), SHAPE3(1, 3, 4), SHAPE3(1, 3, 4)}},
    {"rotary, halves", halves, 1, 0, .in = {SHAPE3(2, 5, 12)}},
    {"rotary, interleaved", interleaved, 1, 0, .in = {SHAPE3(2, 3, 12)}},
    {"rotary, late positions", late, 1, 0, .in = {SHAPE3(1, 4, 6)}},
    {"rotary, then attention", turned_attention, 3, 0,
     .in = {SHAPE3(1, 4, 8), SHAPE3(1, 4, 8), SHAPE3(1, 4, 8)}},
};
/* clang-format on */

const grad_row *attention_rows(size_t i)
{
    return i < sizeof rows / sizeof *rows ? &rows[i] : NULL;
}
