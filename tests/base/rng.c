/* src/base/rng.c: Philox4x32-10 against the known answers that its authors publish with Random123
 * (kat_vectors of Salmon, Moraes, Dror & Shaw), and properties of the sequences. */

#include "base/rng.h"

#include "near.h"

#include <stdbool.h>

typedef struct answer {
    const char *name;
    uint64_t key, high, low;
    uint32_t want[4];
    bool broken; /* a control: must not come out */
} answer;

static const answer answers[] = {
    {"philox: zeros", 0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}, false},
    {"philox: ones",
     UINT64_MAX,
     UINT64_MAX,
     UINT64_MAX,
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
     false},
    {"philox: digits of pi",
     0x299f31d0a4093822,
     0x0370734413198a2e,
     0x85a308d3243f6a88,
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
     false},
    {"control: another counter", 0, 0, 1, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}, true},
};

static void known_answer(void **state)
{
    const answer *a = *state;
    uint32_t got[4];
    int equal = 0;
    lt_philox(a->key, a->high, a->low, got);
    for (int i = 0; i < 4; i++)
        equal += got[i] == a->want[i];
    assert_int_equal(equal == 4, !a->broken);
}

enum { DRAWS = 100000 };

/* Sample moments of n draws lie within 5 standard errors of the true ones. */
static void uniform_fills_the_unit_interval(void **state)
{
    (void)state;
    lt_rng rng = {.key = 7};
    double sum = 0, square = 0;
    for (int i = 0; i < DRAWS; i++) {
        double u = lt_rng_uniform(&rng);
        assert_true(u >= 0 && u < 1);
        sum += u;
        square += (u - 0.5) * (u - 0.5);
    }
    assert_near(sum / DRAWS, 0.5, 5 * sqrt(1.0 / 12 / DRAWS));
    assert_near(square / DRAWS, 1.0 / 12, 5 * sqrt(1.0 / 180 / DRAWS));
}

static void below_is_even_over_its_range(void **state)
{
    enum { BOUND = 7 };
    (void)state;
    lt_rng rng = {.key = 8};
    int count[BOUND] = {0};
    for (int i = 0; i < DRAWS; i++)
        count[lt_rng_below(&rng, BOUND)]++;
    double p = 1.0 / BOUND, error = sqrt(p * (1 - p) / DRAWS);
    for (int k = 0; k < BOUND; k++)
        assert_near((double)count[k] / DRAWS, p, 5 * error);
}

static void below_one_is_zero_and_large_bounds_stay_inside(void **state)
{
    (void)state;
    lt_rng rng = {.key = 9};
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(lt_rng_below(&rng, 1), 0);
        assert_true(lt_rng_below(&rng, 0xC0000001U) < 0xC0000001U);
    }
}

static void normal_has_mean_0_and_deviation_1(void **state)
{
    (void)state;
    lt_rng rng = {.key = 10};
    double sum = 0, square = 0, fourth = 0;
    for (int i = 0; i < DRAWS; i++) {
        double x = lt_rng_normal(&rng);
        sum += x;
        square += x * x;
        fourth += x * x * x * x;
    }
    assert_near(sum / DRAWS, 0, 5 * sqrt(1.0 / DRAWS));
    assert_near(square / DRAWS, 1, 5 * sqrt(2.0 / DRAWS));
    assert_near(fourth / DRAWS, 3, 5 * sqrt(96.0 / DRAWS)); /* var of x^4: 105 - 9 */
}

static void a_sequence_is_the_words_of_its_counter(void **state)
{
    (void)state;
    lt_rng rng = {.key = 11};
    for (uint64_t block = 0; block < 3; block++) {
        uint32_t want[4];
        lt_philox(11, 0, block, want);
        for (int i = 0; i < 4; i++)
            assert_int_equal(lt_rng_u32(&rng), want[i]);
    }
}

static void keys_differ_in_every_part(void **state)
{
    (void)state;
    uint64_t key[] = {
        lt_rng_key(1, LT_STREAM_ORDER, 2, 3),
        lt_rng_key(2, LT_STREAM_ORDER, 2, 3),
        lt_rng_key(1, LT_STREAM_AUGMENT, 2, 3),
        lt_rng_key(1, LT_STREAM_ORDER, 3, 3),
        lt_rng_key(1, LT_STREAM_ORDER, 2, 4),
        lt_rng_name_key(1, LT_STREAM_ORDER, "weight"),
        lt_rng_name_key(1, LT_STREAM_ORDER, "weihgt"),
    };
    for (size_t i = 0; i < COUNT_OF(key); i++)
        for (size_t j = 0; j < i; j++)
            assert_true(key[i] != key[j]);
    assert_true(lt_rng_key(1, LT_STREAM_ORDER, 2, 3) == key[0]);
}

int main(void)
{
    static const struct CMUnitTest properties[] = {
        cmocka_unit_test(uniform_fills_the_unit_interval),
        cmocka_unit_test(below_is_even_over_its_range),
        cmocka_unit_test(below_one_is_zero_and_large_bounds_stay_inside),
        cmocka_unit_test(normal_has_mean_0_and_deviation_1),
        cmocka_unit_test(a_sequence_is_the_words_of_its_counter),
        cmocka_unit_test(keys_differ_in_every_part),
    };
    struct CMUnitTest tests[COUNT_OF(answers)];
    for (size_t i = 0; i < COUNT_OF(answers); i++)
        tests[i] = (struct CMUnitTest){answers[i].name, known_answer, NULL, NULL,
                                       (void *)(uintptr_t)&answers[i]};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + cmocka_run_group_tests(properties, NULL, NULL);
}
