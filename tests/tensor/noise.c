/* src/tensor/ops/dropout.c, drop_path.c: a shard of an activation draws the same numbers as the whole
 * activation there. */

#include "near.h"

#include "lather/ext/op.h"
#include "lather/ops.h"

enum { SAMPLES = 3, TOKENS = 5, ROWS = SAMPLES * TOKENS, COLUMNS = 13, COUNT = ROWS * COLUMNS };

typedef struct bench {
    lt_device *device;
    lt_tape *tape;
} bench;

static void open_bench(bench *b, const char *backend)
{
    *b = (bench){0};
    assert_ok(lt_device_open(&b->device, backend, NULL));
    assert_ok(lt_tape_new(&b->tape, b->device));
}

static void close_bench(bench *b)
{
    lt_tape_free(&b->tape);
    lt_device_close(&b->device);
}

static const lt_pass *pass_of(void)
{
    static lt_pass pass;
    pass = LT_PASS_TRAIN;
    pass.seed = 3;
    pass.attempt = 17;
    return &pass;
}

/* A tensor of ones. */
static lt_tensor *ones(const bench *b, lt_shape shape)
{
    lt_tensor *x = NULL;
    assert_ok(lt_tensor_new(&x, b->device, LT_F32, shape));
    assert_ok(lt_tensor_fill(x, 1));
    return x;
}

typedef lt_tensor *noise_fn(lt_tape *tape, lt_tensor *x, double p, lt_noise_box box);

static lt_tensor *whole_dropout(lt_tape *tape, lt_tensor *x, double p, lt_noise_box box)
{
    (void)box;
    return lt_dropout(tape, x, p);
}

static lt_tensor *whole_drop_path(lt_tape *tape, lt_tensor *x, double p, lt_noise_box box)
{
    (void)box;
    return lt_drop_path(tape, x, p);
}

/* Draws by fn from ones; value and gradient must be equal. */
static void draw(const bench *b, noise_fn *fn, lt_shape shape, lt_noise_box box, float *out)
{
    float dx[COUNT];
    lt_tensor *x = ones(b, shape);
    lt_tape_reset(b->tape, *pass_of());
    lt_tape_set_op_counter(b->tape, 41);
    lt_tensor *in = lt_tape_variable(b->tape, x);
    lt_tensor *y = fn(b->tape, in, 0.4, box);
    assert_int_equal(lt_tape_op_counter(b->tape), 42);
    lt_tape_keep(b->tape, y);
    lt_tensor *loss = lt_sum(b->tape, y, (lt_reduce_config){0});
    assert_ok(lt_tape_status(b->tape));
    assert_ok(lt_tensor_read(y, out, lt_tensor_bytes(y)));
    assert_ok(lt_tape_backward(b->tape, loss, 1));
    assert_ok(lt_tensor_read(lt_tape_gradient(b->tape, in), dx, lt_tensor_bytes(x)));
    assert_memory_equal(dx, out, lt_tensor_bytes(x));
    lt_tensor_free(&x);
}

/* Checks every box of rows and columns of some sizes. */
static void check_boxes(const bench *b, noise_fn *whole, lt_shape shape, noise_fn *part)
{
    float all[COUNT], own[COUNT];
    draw(b, whole, shape, (lt_noise_box){0}, all);
    for (int64_t r = 0; r < ROWS; r += 4)
        for (int64_t c = 0; c < COLUMNS; c += 3) {
            const int64_t rows = r + 6 < ROWS ? 6 : ROWS - r, columns = c ? COLUMNS - c : 2;
            const lt_noise_box box = {r, c, COLUMNS, TOKENS};
            draw(b, part, LT_SHAPE(rows, columns), box, own);
            for (int64_t i = 0; i < rows * columns; i++) {
                const float want = all[(r + i / columns) * COLUMNS + c + i % columns];
                assert_memory_equal(&own[i], &want, sizeof want);
            }
        }
}

static const char *const backends[] = {"ref", "cpu"};

static void dropout_of_a_box_equals_the_box_of_the_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(backends); i++) {
        bench b;
        open_bench(&b, backends[i]);
        check_boxes(&b, whole_dropout, LT_SHAPE(SAMPLES, TOKENS, COLUMNS), lt_dropout_at);
        close_bench(&b);
    }
}

static void rows_of_drop_path_follow_their_sample(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(backends); i++) {
        bench b;
        open_bench(&b, backends[i]);
        check_boxes(&b, whole_drop_path, LT_SHAPE(SAMPLES, TOKENS, COLUMNS), lt_drop_path_at);
        close_bench(&b);
    }
}

static void bad_boxes_are_errors(void **state)
{
    (void)state;
    bench b;
    open_bench(&b, "ref");
    lt_tensor *x = ones(&b, LT_SHAPE(4, 6));
    lt_tape_reset(b.tape, *pass_of());
    assert_null(lt_dropout_at(b.tape, x, 0.5, (lt_noise_box){.column_first = 3, .columns = 8}));
    assert_fails(lt_tape_status(b.tape), LT_E_SHAPE,
                 "x [4,6] at row 0, column 3 exceeds 8 columns");
    lt_tape_reset(b.tape, *pass_of());
    assert_null(lt_drop_path_at(b.tape, x, 0.5, (lt_noise_box){.row_first = 1}));
    assert_fails(lt_tape_status(b.tape), LT_E_ARG, "got 0 rows per sample");
    lt_tape_reset(b.tape, LT_PASS_EVAL);
    assert_ptr_equal(lt_dropout_at(b.tape, x, 0.5, (lt_noise_box){0}), x);
    assert_ptr_equal(lt_drop_path_at(b.tape, x, 0.5, (lt_noise_box){0}), x);
    lt_tensor_free(&x);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dropout_of_a_box_equals_the_box_of_the_whole),
        cmocka_unit_test(rows_of_drop_path_follow_their_sample),
        cmocka_unit_test(bad_boxes_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
