/* Rows of attention and its gradient. */

#include "conform.h"

#include <math.h>

typedef struct attention_row {
    const char *name;
    int64_t batch, queries, keys, d;
    int heads, kv_heads;
    bool causal;
    layout layout;
    double spread; /* q and k are in -spread..spread; 0: 1 */
    bool large;
    unsigned without; /* bit i: without the gradient of input i */
} attention_row;

/* clang-format off */
static const attention_row rows[] = {
    {"one query, one key", 1, 1, 1, 1, 1, 1, false, ROWS, 0, false, 0},
    {"odd T", 2, 5, 5, 3, 2, 2, false, ROWS, 0, false, 0},
    {"odd T, causal", 2, 37, 37, 20, 2, 2, true, ROWS, 0, false, 0},
    {"a head for four, more keys, causal", 2, 7, 19, 16, 4, 1, true, JOINED, 0, false, 0},
    {"two heads for six, more keys", 1, 9, 33, 5, 6, 2, false, JOINED, 0, false, 0},
    {"fewer keys than queries", 1, 50, 17, 12, 1, 1, false, ROWS, 0, false, 0},
    {"parts of joined features", 2, 67, 67, 64, 3, 3, false, JOINED, 0, false, 0},
    {"several tiles, causal", 1, 130, 130, 32, 2, 2, true, JOINED, 0, false, 0},
    {"several tiles, more keys, causal", 1, 101, 230, 48, 2, 1, true, JOINED, 0, false, 0},
    {"several sequences, causal", 5, 28, 28, 16, 4, 2, true, JOINED, 0, false, 0},
    {"197 tokens", 1, 197, 197, 64, 2, 2, false, JOINED, 0, false, 0},
    {"many tokens", 1, 600, 600, 8, 1, 1, false, ROWS, 0, false, 0},
    {"many tokens, causal", 1, 601, 601, 16, 1, 1, true, ROWS, 0, false, 0},
    {"one query of many keys", 2, 1, 299, 64, 6, 2, true, JOINED, 0, false, 0},
    {"three queries of many keys, causal", 1, 3, 530, 72, 2, 2, true, JOINED, 0, false, 0},
    {"large heads", 1, 20, 30, 130, 2, 1, false, ROWS, 0, false, 0},
    {"scores far apart", 1, 33, 70, 64, 2, 2, false, JOINED, 4, false, 0},
    {"gaps between features", 1, 9, 11, 4, 2, 2, false, GAPS, 0, false, 0},
    {"batch innermost", 3, 7, 7, 6, 2, 2, true, REVERSED, 0, false, 0},
    {"q's gradient alone", 1, 140, 150, 32, 2, 2, true, ROWS, 0, false, 2 | 4},
    {"k's gradient alone", 1, 140, 150, 32, 2, 1, true, ROWS, 0, false, 1 | 4},
    {"v's gradient alone", 1, 140, 150, 32, 2, 1, false, ROWS, 0, false, 1 | 2},
    {"without q's gradient", 1, 17, 300, 16, 1, 1, false, ROWS, 0, false, 1},
    {"ViT-S/16, 224", 32, 197, 197, 64, 6, 6, false, ROWS, 0, true, 0},
    {"GPT-2, 256", 4, 256, 256, 64, 12, 12, true, ROWS, 0, true, 0},
    {"GPT-2, 1024", 1, 1024, 1024, 64, 12, 12, true, ROWS, 0, true, 0},
    {"1024 tokens", 1, 1024, 1024, 64, 12, 12, false, ROWS, 0, true, 0},
    {"GPT-2, one query of 1024", 1, 1, 1024, 64, 12, 12, true, ROWS, 0, true, 0},
};
/* clang-format on */

enum { Q, K, V, Y, LSE, FORWARD_OPERANDS };
enum { DY = FORWARD_OPERANDS, DQ, DK, DV, BACKWARD_OPERANDS };

static lt_status call(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                      bool absolute)
{
    (void)absolute;
    return be->attention(ctx, &t->config.attention, &v[Q], &v[K], &v[V], &v[Y], &v[LSE]);
}

static const lt_view *present(const lt_view *v)
{
    return v->data ? v : NULL;
}

static lt_status call_grad(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                           bool absolute)
{
    (void)absolute;
    const lt_attention_grad g = {&v[DY],  &v[Q],           &v[K],           &v[V],          &v[Y],
                                 &v[LSE], present(&v[DQ]), present(&v[DK]), present(&v[DV])};
    return be->attention_grad(ctx, &t->config.attention, &g);
}

/* A query of a head: indices of its features, of its first key and of its lse. */
typedef struct query {
    int64_t q, k, lse, keys, d, step; /* step: from key to key */
} query;

static query locate(const test *t, int64_t n)
{
    const lt_shape q = t->operand[Q].shape, k = t->operand[K].shape;
    const int64_t i = n % q.dim[1], h = n / q.dim[1] % q.dim[2], b = n / q.dim[1] / q.dim[2];
    const int64_t g = h / (q.dim[2] / k.dim[2]);
    return (query){.q = ((b * q.dim[1] + i) * q.dim[2] + h) * q.dim[3],
                   .k = (b * k.dim[1] * k.dim[2] + g) * k.dim[3],
                   .lse = n,
                   .keys = t->config.attention.causal ? i + 1 + k.dim[1] - q.dim[1] : k.dim[1],
                   .d = q.dim[3],
                   .step = k.dim[2] * k.dim[3]};
}

static double value(const test *t, int which, int64_t i)
{
    return t->operand[which].value[i];
}

/* Returns the score of query and key j, and the sum of its terms' absolute values. */
static double score(const test *t, query at, int64_t j, double *size)
{
    double sum = 0;
    *size = 0;
    for (int64_t c = 0; c < at.d; c++) {
        const double term = value(t, Q, at.q + c) * value(t, K, at.k + j * at.step + c);
        sum += term;
        *size += fabs(term);
    }
    *size *= t->config.attention.scale;
    return sum * t->config.attention.scale;
}

/* Bounds a weight: its relative error is the absolute error of score and lse. */
static double weight(const test *t, query at, double lse, int64_t j, double *factor)
{
    double size;
    const double p = exp(score(t, at, j, &size) - lse);
    *factor = 1 + size + fabs(lse);
    return p;
}

static void magnitude(const test *t, double *const *want, double *const *magnitudes)
{
    for (int64_t n = 0; n < operand_count(&t->operand[LSE]); n++) {
        const query at = locate(t, n);
        double shift = 0, factor;
        for (int64_t j = 0; j < at.keys; j++) {
            const double p = weight(t, at, want[LSE][n], j, &factor);
            shift += p * factor;
            for (int64_t c = 0; c < at.d; c++)
                magnitudes[Y][at.q + c] += p * factor * fabs(value(t, V, at.k + j * at.step + c));
        }
        for (int64_t c = 0; c < at.d; c++)
            magnitudes[Y][at.q + c] += shift * fabs(want[Y][at.q + c]);
        magnitudes[LSE][n] = shift + fabs(want[LSE][n]);
    }
}

static double sum_of_sizes(const test *t, int a, int64_t i, int b, int64_t j, int64_t count)
{
    double sum = 0;
    for (int64_t c = 0; c < count; c++)
        sum += fabs(value(t, a, i + c) * value(t, b, j + c));
    return sum;
}

/* sum is NULL for an absent gradient. */
static void add(double *sum, int64_t i, double term)
{
    if (sum)
        sum[i] += term;
}

static void grad_magnitude(const test *t, double *const *want, double *const *magnitudes)
{
    (void)want;
    const double scale = t->config.attention.scale;
    for (int64_t n = 0; n < operand_count(&t->operand[LSE]); n++) {
        const query at = locate(t, n);
        const double mean = sum_of_sizes(t, DY, at.q, Y, at.q, at.d);
        for (int64_t j = 0; j < at.keys; j++) {
            const int64_t k = at.k + j * at.step;
            double factor, p = weight(t, at, value(t, LSE, n), j, &factor);
            p *= factor;
            const double slope = scale * p * (sum_of_sizes(t, DY, at.q, V, k, at.d) + mean);
            for (int64_t c = 0; c < at.d; c++) {
                add(magnitudes[DV], k + c, p * fabs(value(t, DY, at.q + c)));
                add(magnitudes[DQ], at.q + c, slope * fabs(value(t, K, k + c)));
                add(magnitudes[DK], k + c, slope * fabs(value(t, Q, at.q + c)));
            }
        }
    }
}

/* Computes lse from q and k before they are rounded to the run's dtype. */
static void prepare_grad(test *t)
{
    for (int64_t n = 0; n < operand_count(&t->operand[LSE]); n++) {
        const query at = locate(t, n);
        double sum = 0, size;
        for (int64_t j = 0; j < at.keys; j++)
            sum += exp(score(t, at, j, &size));
        t->operand[LSE].value[n] = log(sum);
    }
}

static void make(const attention_row *r, test *t)
{
    const lt_shape q = LT_SHAPE(r->batch, r->queries, r->heads, r->d);
    const lt_shape k = LT_SHAPE(r->batch, r->keys, r->kv_heads, r->d);
    const double s = r->spread > 0 ? r->spread : 1;
    t->entry = "attention";
    t->call = call;
    t->magnitude = magnitude;
    t->operands = FORWARD_OPERANDS;
    t->operand[Q] = (operand){IN, DATA, q, r->layout, KEEP, -s, s, NULL};
    t->operand[K] = (operand){IN, DATA, k, r->layout, KEEP, -s, s, NULL};
    t->operand[V] = (operand){IN, DATA, k, r->layout, KEEP, -1, 1, NULL};
    t->operand[Y] = (operand){OUT, DATA, q, r->layout, .absolute = KEEP};
    t->operand[LSE] =
        (operand){OUT, MASTER, LT_SHAPE(r->batch, r->heads, r->queries), ROWS, .absolute = KEEP};
    t->terms = (double)(r->d + r->keys) + 16;
    t->inner = 1;
}

static void make_grad(const attention_row *r, test *t)
{
    make(r, t);
    t->entry = "attention_grad";
    t->call = call_grad;
    t->prepare = prepare_grad;
    t->magnitude = grad_magnitude;
    t->operands = BACKWARD_OPERANDS;
    t->operand[DY] = (operand){IN, DATA, t->operand[Q].shape, r->layout, KEEP, -1, 1, NULL};
    t->operand[Y].use = t->operand[LSE].use = IN;
    for (int i = Q; i <= V; i++) {
        t->operand[DQ + i] = t->operand[i];
        t->operand[DQ + i].use = OUT;
        if (r->without >> i & 1)
            t->operand[DQ + i].shape = (lt_shape){.ndim = -1};
    }
    t->terms += (double)(r->d + r->queries * r->heads / r->kv_heads);
}

bool attention_tests(size_t i, test *t)
{
    if (i >= 2 * COUNT_OF(rows))
        return false;
    const attention_row *r = &rows[i / 2];
    *t = (test){.name = r->name, .large = r->large};
    t->config.attention =
        (lt_attention_config){r->heads, r->kv_heads, r->causal, 1 / sqrt((double)r->d), true};
    (i % 2 ? make_grad : make)(r, t);
    return true;
}
