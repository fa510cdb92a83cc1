/* Optimizers over boxes of parameters: parameters and state have the bits of one rank. */

#include "boxes.h"

static const grid grids[] = {{1, 0, 0}, {2, 0, 0}, {3, 0, 0}, {4, 0, 0}, {0, 2, 1}, {0, 2, 2}};
enum { GRIDS = COUNT_OF(grids) };

/* --- The bits of one rank --- */

static void compare_values(const player *p, const player *one)
{
    for (int i = 0; i < ELEMENTS; i++)
        if (p->has[i] && memcmp(&p->value[i], &one->value[i], sizeof(double)) != 0)
            fail_msg("element %d is %.9g on rank %d of %d, want %.9g", i, p->value[i], p->rank,
                     p->ranks, one->value[i]);
}

static void compare_steps(const player *p, const player *one)
{
    for (int t = 1; t <= STEPS; t++) {
        assert_int_equal(p->applied[t], one->applied[t]);
        if (p->applied[t] && memcmp(&p->norm[t], &one->norm[t], sizeof(double)) != 0)
            fail_msg("norm %d is %.17g on rank %d of %d, want %.17g", t, p->norm[t], p->rank,
                     p->ranks, one->norm[t]);
    }
}

/* Each tensor of state is on one rank, with the same bytes there. */
static void compare_state(const player *p, int ranks, const player *one)
{
    size_t at = 0, bytes = 0;
    assert_true(one->state.entries > 0 || one->state.count > 0);
    for (size_t i = 0; i < one->state.entries; i++) {
        int holders = 0;
        for (int r = 0; r < ranks; r++) {
            const record *s = &p[r].state;
            assert_int_equal(s->entries, one->state.entries);
            assert_int_equal(s->length[i], one->state.length[i]);
            holders += s->here[i];
            if (s->here[i])
                assert_memory_equal(s->bytes + at, one->state.bytes + at, s->length[i]);
        }
        assert_int_equal(holders, 1);
        at += one->state.length[i];
    }
    for (int r = 0; r < ranks; r++) {
        assert_int_equal(p[r].state.count, one->state.count);
        assert_memory_equal(p[r].state.numbers, one->state.numbers,
                            one->state.count * sizeof(int64_t));
        bytes += p[r].state_bytes;
    }
    assert_int_equal(bytes, one->state_bytes);
}

static void compare(const player *p, int ranks, const player *one)
{
    for (int r = 0; r < ranks; r++) {
        if (p[r].status)
            fail_msg("rank %d of %d: %s", r, ranks, p[r].message);
        compare_steps(&p[r], one);
        compare_values(&p[r], one);
    }
    compare_state(p, ranks, one);
}

static void test_bits(void **state)
{
    static player one, p[RANKS];
    const scenario *s = *state;
    play_whole(&one, s, NULL);
    for (int g = 0; g < GRIDS; g++)
        for (int copies = 1; copies <= 2; copies++) {
            const int ranks = ranks_of(grids[g]) * copies;
            play_boxes(p, s, grids[g], copies, NULL);
            compare(p, ranks, &one);
            drop_records(p, ranks);
        }
    drop_records(&one, 1);
}

static scenario rows[] = {
    {.make = make_shampoo, .clip = 0.5},
};

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(rows)];
    int count = 0;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[count++] = (struct CMUnitTest){"bits", test_bits, NULL, NULL, &rows[i]};
    return cmocka_run_group_tests_name("placed", tests, NULL, NULL);
}
