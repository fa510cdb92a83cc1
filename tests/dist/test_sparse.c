/* Codec of sparse messages: decoded values equal encoded ones, and bytes equal the formula. */

#include "dist/reducer/sparse_codec.h"
#include "near.h"
#include "tensor/backend/select.h"

#include <stdbool.h>
#include <stdlib.h>

typedef struct sparse_row {
    const char *name;
    int64_t elements, count;
    lt_dtype dtype;
    lt_sparse_form form;
    int64_t bytes;
    bool two_bits;
} sparse_row;

/* Bytes computed by hand. */
static const sparse_row rows[] = {
    {"one of one", 1, 1, LT_F32, LT_SPARSE_INDICES, 4 + 4, false},
    {"one of 5000", 5000, 1, LT_F32, LT_SPARSE_INDICES, 4 + 4, false},
    {"one of 5000, bf16", 5000, 1, LT_BF16, LT_SPARSE_INDICES, 4 + 4, false},
    {"one percent of whole blocks", 8192, 82, LT_F32, LT_SPARSE_BLOCKS, 328 + 168, false},
    {"one percent, the last block is short", 8193, 81, LT_BF16, LT_SPARSE_BLOCKS, 164 + 168, false},
    {"one percent, f16", 40001, 401, LT_F16, LT_SPARSE_BLOCKS, 804 + 824, false},
    {"a fifth", 5001, 1000, LT_F32, LT_SPARSE_BITS, 4000 + 628, false},
    {"all", 4097, 4097, LT_F32, LT_SPARSE_BITS, 16388 + 516, false},
    {"all but one, f64", 100, 99, LT_F64, LT_SPARSE_BITS, 792 + 16, false},
    {"none of none", 0, 0, LT_F32, LT_SPARSE_INDICES, 0, false},
    {"a few of many", 1 << 20, 100, LT_F32, LT_SPARSE_INDICES, 400 + 400, false},
    {"one of 5000, 2 bits", 5000, 1, LT_F32, LT_SPARSE_INDICES, 12 + 4, true},
    {"two percent, 2 bits", 20000, 400, LT_F32, LT_SPARSE_BLOCKS, 108 + 812, true},
    {"all of 4097, 2 bits", 4097, 4097, LT_F32, LT_SPARSE_BITS, 1044 + 516, true},
};

/* Numbers that 16-bit types represent exactly; adjacent ones differ. */
static double value_of(int64_t i)
{
    return (double)((i * 37 + i / 7) % 101 - 50) / 4;
}

static void fill(const sparse_row *r, void *x)
{
    for (int64_t i = 0; i < r->elements; i++)
        if (r->dtype == LT_F64)
            ((double *)x)[i] = value_of(i);
        else
            ((float *)x)[i] = (float)value_of(i);
}

static double element(const sparse_row *r, const void *x, int64_t i)
{
    return r->dtype == LT_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

/* Selects evenly spaced elements, including the last. */
static void choose(const sparse_row *r, uint32_t *index)
{
    for (int64_t i = 0; i < r->count; i++)
        index[i] =
            (uint32_t)(r->count == 1 ? r->elements - 1 : i * (r->elements - 1) / (r->count - 1));
}

/* Exact, or with two bits the sign and a level between 0 and the largest value. */
static void check_value(const sparse_row *r, double got, double want)
{
    const double largest = 25;
    assert_near(got, want, r->two_bits ? fabs(want) + 2 * largest : 0);
    assert_true(!r->two_bits || got * want >= 0);
}

static void round_trip(void **state)
{
    const sparse_row *r = *state;
    const lt_sparse p = r->two_bits ? lt_sparse_layout_2bit(r->elements, r->count)
                                    : lt_sparse_layout(r->elements, r->count, r->dtype);
    const lt_dtype wide = r->dtype == LT_F64 ? LT_F64 : LT_F32;
    assert_int_equal(p.form, r->form);
    assert_int_equal(p.bytes, r->bytes);
    double *x = calloc((size_t)r->elements + 1, sizeof *x),
           *y = calloc((size_t)r->elements + 1, sizeof *y);
    uint32_t *index = calloc((size_t)r->count + 1, sizeof *index);
    unsigned char *message = malloc((size_t)p.bytes + 8);
    assert_true(x && y && index && message);
    memset(message, 0x5a, (size_t)p.bytes + 8);
    fill(r, x);
    choose(r, index);
    lt_sparse_encode(&p, x, index, message);
    for (int i = 0; i < 8; i++)
        assert_int_equal(message[p.bytes + i], 0x5a);
    assert_ok(lt_sparse_add_message(&p, message, -2, y, wide));
    int64_t at = 0;
    for (int64_t i = 0; i < r->elements; i++) {
        const bool is_chosen = at < r->count && index[at] == i;
        if (is_chosen)
            check_value(r, element(r, y, i), -2 * value_of(i));
        else
            assert_near(element(r, y, i), 0, 0);
        at += is_chosen;
    }
    free(x);
    free(y);
    free(index);
    free(message);
}

/* By hand: |v| = 1, 2, 3, 10 have mean 4, so the levels are 2 and 10. */
static void two_bits_are_a_sign_and_one_of_two_means(void **state)
{
    (void)state;
    const float x[] = {-1, 2, 3, -10};
    const uint32_t index[] = {0, 1, 2, 3};
    const double want[] = {-2, 2, 2, -10};
    uint32_t message[8];
    double sum[4] = {0};
    const lt_sparse p = lt_sparse_layout_2bit(4, 4);
    assert_int_equal(p.bytes, 8 + 4 + 4);
    lt_sparse_encode(&p, x, index, message);
    assert_ok(lt_sparse_add_message(&p, message, 1, sum, LT_F64));
    for (int i = 0; i < 4; i++)
        assert_near(sum[i], want[i], 0);
}

/* Messages with an index out of range, a repeated index, too many or too few indices. */
static void rejects(void **state)
{
    (void)state;
    float x[5000] = {0};
    uint32_t index[400], message[1000];
    const int64_t counts[] = {1, 200, 400};
    for (int k = 0; k < 3; k++) {
        const lt_sparse p = lt_sparse_layout(5000, counts[k], LT_F32);
        assert_int_equal(p.form, k);
        for (int64_t i = 0; i < counts[k]; i++)
            index[i] = (uint32_t)(4999 - counts[k] + 1 + i);
        lt_sparse_encode(&p, x, index, message);
        assert_ok(lt_sparse_add_message(&p, message, 1, x, LT_F32));
        if (k == 1) {
            char *end = (char *)message + p.bytes;
            memcpy(end - 2, end - 4, 2);
            assert_fails(lt_sparse_add_message(&p, message, 1, x, LT_F32), LT_E_COMM,
                         "corrupt sparse message");
        }
        memset((char *)message + p.value_bytes, 0xff, (size_t)(p.bytes - p.value_bytes));
        assert_fails(lt_sparse_add_message(&p, message, 1, x, LT_F32), LT_E_COMM,
                     "corrupt sparse message");
        if (k) {
            memset((char *)message + p.value_bytes, 0, (size_t)(p.bytes - p.value_bytes));
            assert_fails(lt_sparse_add_message(&p, message, 1, x, LT_F32), LT_E_COMM,
                         "corrupt sparse message");
        }
    }
}

int main(void)
{
    enum { ROWS = COUNT_OF(rows) };
    struct CMUnitTest tests[ROWS + 2];
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[i] =
            (struct CMUnitTest){rows[i].name, round_trip, NULL, NULL, (void *)(uintptr_t)&rows[i]};
    tests[ROWS] = (struct CMUnitTest){"corrupt messages are rejected", rejects, NULL, NULL, NULL};
    tests[ROWS + 1] =
        (struct CMUnitTest){"two bits are a sign and one of two means",
                            two_bits_are_a_sign_and_one_of_two_means, NULL, NULL, NULL};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
