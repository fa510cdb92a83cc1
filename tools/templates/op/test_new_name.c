/* Compares new_name with its formula, and its gradient with central differences. */

#include "new_name.h"

#include "lather/ext/fail.h"
#include "lather/ext/gradcheck.h"

#include <math.h>
#include <stdio.h>

enum { COUNT = 2 * 3 * 4 };
static const double tolerance = 1e-15;

static lt_tensor *build(lt_tape *tape, lt_tensor *const *in, void *context)
{
    (void)context;
    return op_new_name(tape, in[0]);
}

static lt_status check(lt_device *device, lt_tape *tape, lt_tensor *x)
{
    double in[COUNT], out[COUNT];
    for (int i = 0; i < COUNT; i++) /* away from 0, where |x| has no second derivative */
        in[i] = (i % 2 ? 1 : -1) * (0.1 + fabs(3 * sin(i + 1.0)));
    LT_TRY(lt_tensor_write(x, in, sizeof in));
    LT_TRY(lt_gradcheck(device, build, NULL, (lt_tensor *[]){x}, 1, NULL));
    lt_tape_reset(tape, (lt_pass){0});
    lt_tensor *y = op_new_name(tape, x);
    LT_TRY(lt_tape_status(tape));
    LT_TRY(lt_tensor_read(y, out, sizeof out));
    for (int i = 0; i < COUNT; i++) {
        const double want = in[i] / (1 + fabs(in[i]));
        if (!(fabs(out[i] - want) <= tolerance))
            return lt_fail(LT_E_ARG, "element %d is %.17g, the formula has %.17g", i, out[i], want);
    }
    return LT_OK;
}

int main(void)
{
    const lt_device_config exact = {.f64 = true};
    lt_device *device = NULL;
    lt_tape *tape = NULL;
    lt_tensor *x = NULL;
    lt_status st = lt_device_open(&device, "ref", &exact);
    st = st ? st : lt_tape_new(&tape, device);
    st = st ? st : lt_tensor_new(&x, device, LT_F64, LT_SHAPE(2, 3, 4));
    st = st ? st : check(device, tape, x);
    if (st)
        fprintf(stderr, "new_name: %s\n", lt_error_message());
    else
        printf("new_name: values and gradients equal the formula\n");
    lt_tensor_free(&x);
    lt_tape_free(&tape);
    lt_device_close(&device);
    return st ? 1 : 0;
}
