/* Each kernel of the table has the bits of generic_fma on all sets of a reproducible device, and generic_fma's software
 * multiply-add those of the C library. A new kernel does not compile before it has a call here. NaNs may differ in sign
 * and payload. */

#include "full.h"
#include "near.h"
#include "random_floats.h"
#include "tensor/backend/cpu/isa.h"
#include "tensor/backend/cpu/kernels/software_fma.h"

enum { INPUTS = 8, OUTPUTS = 5, BUFFERS = INPUTS + OUTPUTS, FLOATS = 10240, TRIALS = 60 };
enum {
    ORDINARY,
    TINY,
    SPECIAL,
    KINDS
}; /* inputs: about 1; half are subnormal; some are infinite or NaN */

static _Alignas(64) float arena[BUFFERS][FLOATS], fresh[BUFFERS][FLOATS], want[BUFFERS][FLOATS];
static _Alignas(64) float packed[2][FLOATS], zeros[256];
static double work[1 << 16];
static int64_t count, rows, cols; /* sizes of a call */
static int trial_number;

#define IN(i)  arena[i]
#define OUT(i) arena[INPUTS + (i)]
#define COEF                       \
    {                              \
        IN(0), IN(1), IN(2), IN(3) \
    }

/* Returns 0 to below-1 by trial and place in this file: whatever the order in which a compiler evaluates arguments.
 * Vigna's SplitMix64, 2015. */
static int draw_at(uint64_t place, int below)
{
    uint64_t z = ((uint64_t)trial_number << 16 | place) * 0x9E3779B97F4A7C15U;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9U;
    z = (z ^ z >> 27) * 0x94D049BB133111EBU;
    return (int)((z ^ z >> 31) % (unsigned)below);
}
#define draw(below) draw_at(__COUNTER__, below)
#define number()    (IN(7)[draw(FLOATS)])
#define coin()      (draw(2) == 1)
#define maybe(p)    ((void *)(coin() ? (p) : NULL))

static int64_t min_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void put(double x)
{
    x = isnan(x) ? (double)NAN : x;
    memcpy(OUT(0), &x, sizeof x);
}

/* --- One call of each kernel, with random sizes and options --- */

#define CALL(name) static void call_##name(const lt_cpu_kernels *k, lt_cpu_store s)
#define STORED(name, ...)           \
    CALL(name)                      \
    {                               \
        k->of[s].name(__VA_ARGS__); \
    }
#define STORED_RESULT(name, ...)                 \
    CALL(name)                                   \
    {                                            \
        put((double)k->of[s].name(__VA_ARGS__)); \
    }
#define PLAIN(name, ...)      \
    CALL(name)                \
    {                         \
        (void)s;              \
        k->name(__VA_ARGS__); \
    }

/* clang-format off */
STORED(add, IN(0), IN(1), OUT(0), count)
STORED(relu, IN(0), OUT(0), count)
STORED(relu_grad, IN(0), IN(1), OUT(0), count)
STORED(scale, number(), IN(0), OUT(0), count)
STORED(normalize, (uint8_t *)IN(0), IN(1), IN(2), 1 + draw(4), OUT(0), count)
STORED(add_rows, IN(0), rows, cols, OUT(0))
STORED(repeat_row, number(), IN(0), rows, cols, OUT(0))
STORED(bn_moments, IN(0), rows, cols, OUT(0), OUT(1))
STORED(bn_apply, &(lt_bn_apply){.coef = COEF, .x = IN(4), .residual = maybe(IN(5)), .y = OUT(0),
    .mask = maybe(OUT(1)), .channels = cols, .relu = coin()}, 0, rows)
#define BN_GRAD {.coef = COEF, .dy = {IN(4), maybe(IN(5))}, .x = IN(6), .mask = maybe(IN(7)), .channels = cols, \
    .relu = coin(), .out = coin() ? OUT(0) : NULL, .slope = IN(0) + cols, .offset = IN(1) + cols}
STORED(bn_grad_sums, &(lt_bn_grad)BN_GRAD, 0, rows, OUT(1), OUT(2))
STORED(ln_rows, &(lt_ln_rows){.x = IN(0), .y = OUT(0), .step_x = cols + 3, .step_y = cols, .width = cols,
    .gamma = IN(1), .beta = IN(2), .mean = OUT(1), .rstd = OUT(2), .eps = 1e-5F, .rms = coin()}, 0, rows)
STORED(ln_grad_rows, &(lt_ln_grad){.dy = IN(0), .x = IN(1), .dx = maybe(OUT(0)), .step_dy = cols, .step_x = cols,
    .step_dx = cols, .width = cols, .gamma = IN(2), .mean = IN(3), .rstd = IN(4), .dgamma = OUT(1), .dbeta = OUT(2),
    .rms = coin()}, 0, rows)
#define WINDOW {.x = IN(0), .y = OUT(0), .index = maybe(OUT(1)), .channels = cols, .stride = 3 * cols + 2, \
    .r0 = draw(2), .r1 = 2 + draw(2), .s0 = draw(2), .s1 = 2 + draw(2), .s = 3}
STORED(max_window, &(lt_max_window)WINDOW)
STORED(sum_window, &(lt_max_window)WINDOW, number())
STORED_RESULT(log_sum_exp, IN(0), count)
STORED_RESULT(cross, IN(0), maybe(IN(1)), count, (double)number())
STORED_RESULT(rank, IN(0), count, draw((int)count))
STORED(xent_grad, &(lt_xent_grad){.logits = IN(0), .target = maybe(IN(1)), .dx = OUT(0), .classes = count,
    .label = draw((int)count), .lse = number(), .factor = number(), .weight = number(), .share = number()})
STORED(attention_pack, &(lt_attention_pack){.x = IN(0), .step = cols + 3, .rows = rows, .d = cols, .pairs = coin(),
    .left = maybe(OUT(0)), .row_panels = maybe(OUT(1)), .feature_panels = maybe(OUT(2)),
    .feature_panel_step = LT_ATTENTION_PANEL * rows})
STORED(attention_save, &(lt_attention_save){.x = IN(0), .scale = maybe(IN(1)), .x_row = cols + 3, .factor = number(),
    .y = OUT(0), .y_row = cols, .rows = rows, .d = cols})
STORED(attention_dots, &(lt_attention_dots){IN(0), IN(1), cols, cols + 3, rows, cols, OUT(0)})
STORED(attention_scores, &(lt_attention_rows){IN(0), cols + 3, rows, cols, IN(1), OUT(0), NULL})
STORED(attention_mix, &(lt_attention_rows){IN(0), cols + 3, rows, cols, NULL, IN(1), OUT(0)})
STORED(rotary, &(lt_rotary_row){IN(0), OUT(0), IN(1), IN(2), coin() ? 1 : -1, 2 * cols, coin()})
PLAIN(attention_product, &(lt_attention_product){.a = IN(0), .a_row = 150, .a_step = 1, .b = IN(1), .b_panel = 0,
    .c = OUT(0), .c_row = 64, .rows = rows, .cols = 16 + 16 * draw(4), .depth = 1 + draw(150), .add = coin(),
    /* masks shorten whole tiles, of 4 rows or more */
    .bound = rows <= 4 ? (lt_attention_bound)draw(4) : LT_ATTENTION_ALL, .offset = draw(9) - 3})
PLAIN(attention_weights, &(lt_attention_weights){.score = OUT(0), .row = 64, .rows = rows, .cols = 1 + draw(64),
    .scale = fabsf(number()), .top = OUT(1), .sum = OUT(2), .y = OUT(3), .y_row = 32, .first = coin(), .causal = coin(),
    .offset = draw(9) - 3})
PLAIN(narrow_all, IN(0), OUT(0), count)
PLAIN(widen_all, IN(0), OUT(0), count)
PLAIN(sgd, &(lt_sgd_numbers){number(), number(), number(), number(), number(), coin(), coin()}, OUT(0), IN(0),
    maybe(OUT(1)), count)
#define ADAM &(lt_adam_numbers){number(), number(), number(), number(), number(), number(), number(), number(), \
    number(), number()}
PLAIN(adagrad, ADAM, OUT(0), IN(0), OUT(1), count)
PLAIN(adam, ADAM, OUT(0), IN(0), OUT(1), OUT(2), count)
PLAIN(lerp, number(), OUT(0), IN(0), count)
PLAIN(vec_row, &(lt_vec_row){(lt_vec_op)draw(LT_VEC_SIGN + 1), number(), coin() ? number() : 0, number(), number(),
    IN(0), IN(1), OUT(0), count, 1 + draw(2), 1 + draw(2), 1 + draw(2)})
PLAIN(transpose_block, IN(0), cols + 3, rows, cols, OUT(0), rows + 2)
PLAIN(symmetric_product, IN(0), 96, LT_CPU_REDUCE_BLOCK * (1 + draw(3)), IN(1), OUT(0))
PLAIN(rows_dot, IN(0), 96, rows, LT_CPU_REDUCE_BLOCK * (1 + draw(3)), IN(1), OUT(0))
PLAIN(rows_subtract, IN(0), 96, rows, LT_CPU_REDUCE_BLOCK * (1 + draw(3)), IN(1), OUT(0))
/* clang-format on */

CALL(add_products)
{
    const float *a[20], *b[20];
    (void)s;
    for (int64_t i = 0; i < rows; i++) {
        a[i] = IN(0) + i * cols;
        b[i] = IN(1) + i;
    }
    k->add_products(a, b, rows, cols, OUT(0));
}

/* As everywhere, lse is at least the largest scaled score. */
CALL(attention_slopes)
{
    (void)s;
    lt_attention_slopes in = {.score = OUT(0), .slope = maybe(OUT(1)), .row = 64, .rows = rows};
    in.slope_rows = (uint16_t *)(void *)OUT(2);
    in.score_pairs = OUT(3);
    in.slope_pairs = OUT(4);
    in.cols = 1 + draw(64);
    in.scale = fabsf(number());
    in.lse = IN(0);
    in.mean = IN(1);
    in.pairs = coin();
    in.causal = coin();
    in.offset = draw(9) - 3;
    for (int64_t i = 0; i < 64 * rows; i++)
        IN(0)[i / 64] = fmaxf(IN(0)[i / 64], in.scale * OUT(0)[i]);
    k->attention_slopes(&in);
}

CALL(square_sum)
{
    (void)s;
    put(k->square_sum(IN(0), (double)number(), count));
}

CALL(pointwise)
{
    const lt_pointwise f = {(lt_pointwise_kind)draw(LT_POINTWISE_KINDS),
                            {(double)number(), (double)number()}};
    const bool two = lt_pointwise_is_binary(f.kind);
    const lt_pointwise_row r = {&f, two && coin(), maybe(IN(2)), IN(0), two ? IN(1) : NULL, OUT(0)};
    k->of[s].pointwise(&r, count);
}

CALL(bn_grad_x)
{
    lt_bn_grad in = BN_GRAD;
    in.out = OUT(0);
    k->of[s].bn_grad_x(&in, 0, rows);
}

CALL(max_grad)
{
    uint8_t *index = (uint8_t *)OUT(1);
    for (int i = 0; i < 400; i++)
        index[i] = (uint8_t)draw_at(1000 + (uint64_t)i, 3);
    k->of[s].max_grad(&(lt_max_grad){.dy = {IN(0), maybe(IN(1))},
                                     .index = index,
                                     .dx = OUT(0),
                                     .channels = cols,
                                     .windows = 1 + draw(4),
                                     .window = {0, 100, 200, 300},
                                     .tap = {0, 1, 2, 1}});
}

CALL(winograd)
{
    const int64_t size = s == LT_STORE_BF16 ? 2 : 4, channels = 16 + 16 * draw(2);
    const lt_bn_apply norm = {.coef = COEF, .residual = maybe(IN(5)), .y = OUT(0), .relu = coin()};
    const lt_bn_grad grad = {.coef = COEF, .dy = {OUT(0)}, .x = IN(6)};
    const lt_winograd_sums sums = {{OUT(1), OUT(2)}, coin() ? &grad : NULL, 0.0625F, 0.25F, 12};
    lt_winograd_tile t = {.map = (lt_winograd_map)draw(LT_WINOGRAD_DW + 1),
                          .zeros = zeros,
                          .point = OUT(3),
                          .step = channels,
                          .group = 16,
                          .channels = channels,
                          .input_norm = coin() ? &norm : NULL};
    const int epilogue = draw(3);
    t.output_norm = epilogue == 1 ? &norm : NULL;
    t.sums = epilogue == 2 ? &sums : NULL;
    const bool writes = t.map == LT_WINOGRAD_Y || t.map == LT_WINOGRAD_DW;
    for (int i = 0; i < 36; i++)
        if (i && !draw_at(1000 + (uint64_t)i, 5))
            t.pixel[i] = writes ? NULL : zeros;
        else
            t.pixel[i] = (char *)(writes ? OUT(0) : IN(4)) + i * channels * size;
    k->of[s].winograd(&t);
}

/* --- Kernels on packed operands, whose order in memory differs between sets --- */

CALL(gemm_tile)
{
    (void)s;
    const int64_t depth = 1 + draw(40), far = coin() ? depth : 1, near = far == 1 ? 100 : 1;
    int64_t column[100], step[40];
    for (int64_t i = 0; i < 100; i++)
        column[i] = i * far;
    for (int64_t i = 0; i < depth; i++)
        step[i] = i * near;
    k->gemm_pack(&(lt_panel){IN(0), column, step, (int)rows, depth}, packed[0]);
    k->gemm_pack(&(lt_panel){IN(1), column, step, (int)cols, depth}, packed[1]);
    const float alpha = number(), beta = coin() ? number() : 0;
    for (int64_t j = 0; j < cols; j += k->tile_cols)
        for (int64_t i = 0; i < rows; i += k->tile_rows) {
            const int below = (int)min_of(k->tile_rows, rows - i);
            const int right = (int)min_of(k->tile_cols, cols - j), first = (int)(i % 16);
            const lt_tile_save save = {alpha, beta, below, right, cols, first};
            k->gemm_tile(packed[0] + i / 16 * 16 * depth + first, packed[1] + j * depth, depth,
                         &save, OUT(0) + i * cols + j);
        }
}
#define call_gemm_pack call_gemm_tile

CALL(wgrad_product)
{
    const int64_t size = s == LT_STORE_BF16 ? 2 : 4, pixels = 1 + draw(40), ld = k->tile_cols;
    int64_t at[40];
    float tile[16 * 64];
    for (int64_t p = 0; p < pixels; p++)
        at[p] = draw_at(1000 + (uint64_t)p, 8) ? p * 100 : -1;
    k->of[s].wgrad_dy(IN(0), at, pixels, rows, packed[0]);
    for (int64_t i = 0; i < rows * cols; i++) {
        const int64_t r = i / cols, c = i % cols;
        if (r % k->tile_rows || c % ld)
            continue;
        k->of[s].wgrad_x((char *)IN(1) + c * size, at, pixels, cols - c, packed[1]);
        k->wgrad_product(packed[0] + r * pixels, packed[1], pixels, tile, ld, false);
        for (int64_t n = 0; n < k->tile_rows && r + n < rows; n++)
            memcpy(OUT(0) + (r + n) * cols + c, tile + n * ld, (size_t)min_of(ld, cols - c) * 4);
    }
}
#define call_wgrad_x  call_wgrad_product
#define call_wgrad_dy call_wgrad_product

CALL(conv_tile)
{
    const int64_t size = s == LT_STORE_BF16 ? 2 : 4, pair = 4 / size, width = k->tile_cols;
    const int64_t depth = 2 + 2 * draw(10), taps = 1 + draw(2), tap[2] = {0, depth * width * size};
    int32_t at[2 * 16];
    int64_t to[16];
    for (int64_t i = 0; i < rows * cols; i++) {
        const int64_t p = i / cols, c = i % cols;
        if (p % k->tile_rows || c % width)
            continue;
        memset(packed, 0, sizeof packed);
        for (int64_t d = 0; d < taps * depth; d++) /* steps of both taps */
            for (int64_t n = 0; n < width && c + n < cols; n++)
                memcpy((char *)packed + ((d / pair * width + n) * pair + d % pair) * size,
                       (char *)IN(1) + (d * cols + c + n) * size, (size_t)size);
        for (int64_t r = 0; r < k->tile_rows; r++)
            to[r] = p + r;
        for (int64_t r = 0; r < k->tile_rows * taps; r++) {
            const int64_t pixel = p + r % k->tile_rows + r / k->tile_rows;
            at[r] = pixel % 5 ? (int32_t)pixel : -1;
        }
        k->of[s].conv_tile(&(lt_conv_tile){.x = IN(0),
                                           .zeros = zeros,
                                           .pixel = depth * size,
                                           .at = at,
                                           .w = packed,
                                           .tap = tap,
                                           .taps = taps,
                                           .depth = depth,
                                           .y = (char *)OUT(0) + c * size,
                                           .to = to,
                                           .channels = cols,
                                           .rows = (int)min_of(k->tile_rows, rows - p),
                                           .cols = (int)min_of(width, cols - c)});
    }
}

/* --- Inverses --- */

#define INVERSE(name, real)                                                            \
    CALL(name)                                                                         \
    {                                                                                  \
        (void)s;                                                                       \
        const int64_t n = 1 + draw(70);                                                \
        real *a = (real *)(void *)IN(0);                                               \
        for (int64_t i = 0; i < n * n; i++) { /* positive definite */                  \
            const float off = fabsf(IN(1)[i]) <= 1 ? IN(1)[i] : 0;                     \
            a[i] = (real)(i / n == i % n ? (float)n : off);                            \
        }                                                                              \
        const lt_inverse_term t = {a, OUT(0), work, n, (double)number(), 0.1, coin()}; \
        put(k->name(&t));                                                              \
    }
INVERSE(add_inverse, float)
INVERSE(add_inverse_wide, float)
INVERSE(add_inverse_f64, double)

/* --- Comparison --- */

typedef struct kernel {
    const char *name;
    lt_cpu_store store;
    void (*call)(const lt_cpu_kernels *k, lt_cpu_store s);
} kernel;

#define ROW(result, name, ...)      {#name, LT_STORE_F32, call_##name},
#define ROW_BF16(result, name, ...) {#name, LT_STORE_BF16, call_##name},
static const kernel kernels[] = {LT_CPU_KERNELS_OF_STORAGE(ROW) LT_CPU_KERNELS_OF_STORAGE(ROW_BF16)
                                     LT_CPU_KERNELS(ROW)};

static uint32_t random_of(int kind)
{
    const uint32_t u = random_bits(), ordinary = (u & 0x807FFFFF) | (119 + (u >> 27)) << 23;
    if (kind == ORDINARY || random_bits() % (kind == TINY ? 2 : 32))
        return ordinary;
    return kind == TINY ? (u & 0x807FFFFF) | (u >> 25 & 1) << 23 : random_float();
}

static void fill_inputs(int kind, lt_cpu_store s)
{
    for (size_t i = 0; i < sizeof fresh / 4; i++) {
        uint32_t u = random_of(kind);
        if (s == LT_STORE_BF16)
            u = (u & 0xFFFF0000) | random_of(kind) >> 16;
        memcpy((char *)fresh + i * sizeof u, &u, sizeof u);
    }
}

/* Calls one kernel of a set on a copy of the inputs. */
static void run(const kernel *of, const lt_cpu_kernels *set, int trial)
{
    memcpy(arena, fresh, sizeof arena);
    trial_number = trial;
    count = 1 + draw(100);
    rows = 1 + draw(20);
    cols = 1 + draw(70);
    of->call(set, of->store);
}

static bool is_nan(uint32_t word)
{
    return word << 1 > 0xFF000000;
}

/* Returns true if two words are the same or NaN; in bf16 a word is two numbers, of which the low one may be NaN. */
static bool is_same(uint32_t x, uint32_t y, lt_cpu_store s)
{
    return x == y || (is_nan(x) && is_nan(y))
           || (s == LT_STORE_BF16 && x >> 16 == y >> 16 && is_nan(x << 16) && is_nan(y << 16));
}

/* Returns true if a kernel of two sets has the same bits in some trials; prints the first difference. */
static bool agree(const kernel *of, const lt_cpu_kernels *set, const lt_cpu_kernels *base)
{
    for (int trial = 0; trial < (test_full() ? 4 * TRIALS : TRIALS); trial++) {
        if (trial % 4 == 0)
            fill_inputs(trial / 4 % KINDS, of->store);
        run(of, base, trial);
        memcpy(want, arena, sizeof want);
        run(of, set, trial);
        for (size_t i = 0; i < sizeof want / 4; i++) {
            uint32_t x, y;
            memcpy(&x, (const char *)arena + i * sizeof x, sizeof x);
            memcpy(&y, (const char *)want + i * sizeof y, sizeof y);
            if (is_same(x, y, of->store))
                continue;
            print_message("%s, %s, trial %d: buffer %zu, word %zu: %08x, want %08x\n", of->name,
                          of->store ? "bf16" : "f32", trial, i / FLOATS, i % FLOATS, x, y);
            return false;
        }
    }
    return true;
}

static void all_agree(lt_cpu_isa isa)
{
    int wrong = 0;
    if (lt_cpu_detect() < isa) {
        print_message("%s: not on this processor\n", lt_cpu_isa_name(isa));
        skip();
    }
    for (size_t i = 0; i < COUNT_OF(kernels); i++)
        wrong += !agree(&kernels[i], lt_cpu_isa_kernels(isa, true), &lt_cpu_kernels_generic_fma);
    assert_int_equal(wrong, 0);
}

static void avx2_or_neon(void **state)
{
    (void)state;
    all_agree(LT_ISA_AVX2); /* on ARM64 LT_ISA_NEON */
}

static void avx512(void **state)
{
    (void)state;
    all_agree(LT_ISA_AVX512);
}

/* --- Controls, and the multiply-add --- */

static void add_rows_from_the_last(const void *x, int64_t n, int64_t channels, float *sum)
{
    for (int64_t r = n - 1; r >= 0; r--)
        for (int64_t c = 0; c < channels; c++)
            sum[c] += ((const float *)x)[r * channels + c];
}

static void a_sum_in_another_order_is_found(void **state)
{
    const lt_cpu_kernels *base = &lt_cpu_kernels_generic_fma;
    lt_cpu_kernels other = *base;
    const kernel add_rows = {"add_rows", LT_STORE_F32, call_add_rows};
    (void)state;
    assert_true(agree(&add_rows, &other, base));
    other.of[LT_STORE_F32].add_rows = add_rows_from_the_last;
    assert_false(agree(&add_rows, &other, base));
}

static four_floats twice_rounded(four_floats a, four_floats b, four_floats c)
{
    for (int i = 0; i < 4; i++)
        c[i] = (float)((double)a[i] * (double)b[i] + (double)c[i]);
    return c;
}

/* Returns how many results of random operands differ from fmaf's. */
static int wrong_sums(four_floats (*of)(four_floats, four_floats, four_floats), int rounds)
{
    int wrong = 0;
    for (int round = 0; round < rounds; round++) {
        four_floats x[3], y;
        for (int i = 0; i < 12; i++) {
            const uint32_t u = random_float();
            memcpy((char *)x + 4 * i, &u, sizeof u);
        }
        y = of(x[0], x[1], x[2]);
        for (int i = 0; i < 4; i++) {
            const float sum = fmaf(x[0][i], x[1][i], x[2][i]), got = y[i];
            wrong += memcmp(&sum, &got, sizeof sum) != 0 && !(isnan(sum) && isnan(got));
        }
    }
    return wrong;
}

static void the_software_multiply_add_is_fmaf(void **state)
{
    enum { ROUNDS = 100000, FULL_ROUNDS = 12000000 };
    (void)state;
    assert_int_equal(wrong_sums(software_fma, test_full() ? FULL_ROUNDS : ROUNDS), 0);
    assert_int_not_equal(wrong_sums(twice_rounded, ROUNDS), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_software_multiply_add_is_fmaf),
        cmocka_unit_test(a_sum_in_another_order_is_found),
        cmocka_unit_test(avx2_or_neon),
        cmocka_unit_test(avx512),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
