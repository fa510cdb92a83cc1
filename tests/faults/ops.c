/* Forward and backward of every operation in which one kernel or allocation fails, on ref in double: the pass fails,
 * nothing leaks, and the same pass then works. The rows are those whose gradients are checked. */

#include "faults.h"
#include "gradients.h"

enum { MOST_ROWS = 600 };

static grad_rows_fn *const tables[] = {math_rows,  pointwise_rows, product_rows,
                                       norm_rows,  pool_rows,      attention_rows,
                                       shape_rows, select_rows,    loss_rows};

typedef struct scene {
    const grad_row *row;
    lt_device *device;
    lt_tape *tape;
    lt_tensor *in[MAX_INPUTS], *constant[MAX_CONSTANTS];
} scene;

/* Values in the domain of each operation. */
static lt_tensor *make(lt_device *device, const input *in)
{
    enum { MOST = 4096 };
    static double real[MOST];
    static int32_t whole[MOST];
    lt_tensor *t = NULL;
    const bool is_index = in->fill >= INDICES;
    assert_ok(lt_tensor_new(&t, device, is_index ? LT_I32 : LT_F64, in->shape));
    const int64_t count = lt_tensor_count(t);
    assert_true(count <= MOST);
    for (int64_t i = 0; i < count; i++) {
        whole[i] = (int32_t)(i % 3);
        real[i] = 0.8 + 0.4 * (double)i / (double)count;
    }
    assert_ok(lt_tensor_write(t, is_index ? (void *)whole : (void *)real, lt_tensor_bytes(t)));
    return t;
}

static void begin(void *context)
{
    scene *s = context;
    assert_ok(lt_device_open(&s->device, "ref", &(lt_device_config){.f64 = true}));
    assert_ok(lt_tape_new(&s->tape, s->device));
    for (int i = 0; i < s->row->inputs; i++)
        s->in[i] = make(s->device, &s->row->in[i]);
    for (int i = 0; i < s->row->constants; i++)
        s->constant[i] = make(s->device, &s->row->constant[i]);
    faults_attach(s->device);
}

static void end(void *context)
{
    scene *s = context;
    for (int i = 0; i < MAX_INPUTS; i++)
        lt_tensor_free(&s->in[i]);
    for (int i = 0; i < MAX_CONSTANTS; i++)
        lt_tensor_free(&s->constant[i]);
    lt_tape_free(&s->tape);
    lt_device_close(&s->device);
}

static lt_status pass(void *context)
{
    scene *s = context;
    lt_tensor *handle[MAX_INPUTS];
    lt_pass p = s->row->eval ? LT_PASS_EVAL : LT_PASS_TRAIN;
    p.record = true;
    lt_tape_reset(s->tape, p);
    for (int i = 0; i < s->row->inputs; i++)
        handle[i] = s->row->in[i].fill < INDICES ? lt_tape_variable(s->tape, s->in[i]) : s->in[i];
    lt_tensor *y = s->row->f(s->tape, handle, s->constant);
    lt_tensor *loss = lt_sum(s->tape, y, (lt_reduce_config){.dims = 0});
    LT_TRY(lt_tape_status(s->tape));
    return lt_tape_backward(s->tape, loss, 1);
}

static void pass_again(void *context, lt_status st)
{
    (void)st;
    assert_ok(pass(context));
}

static void an_operation_that_fails_says_so(void **state)
{
    scene s = {.row = *state};
    const fault_case c = {.name = s.row->name,
                          .kinds = FAULT_KERNEL | FAULT_MEMORY,
                          .open = begin,
                          .act = pass,
                          .after = pass_again,
                          .close = end,
                          .context = &s,
                          .least = 2};
    (void)faults_each(&c);
}

int main(void)
{
    static struct CMUnitTest tests[MOST_ROWS];
    size_t count = 0;
    for (size_t t = 0; t < COUNT_OF(tables); t++)
        for (size_t i = 0; tables[t](i); i++) {
            assert_true(count < MOST_ROWS);
            tests[count++] = (struct CMUnitTest){.name = tables[t](i)->name,
                                                 .test_func = an_operation_that_fails_says_so,
                                                 .initial_state = (void *)(uintptr_t)tables[t](i)};
        }
    return faults_run("faults in operations", tests, count, NULL, NULL);
}
