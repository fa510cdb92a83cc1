/* Compares a tiny model with PyTorch's results (tests/golden/make_*_fixture.py): logits, loss with label
 * smoothing, every gradient, and parameters and statistics after five optimizer steps. */
#ifndef TESTS_MODELS_FIXTURE_H
#define TESTS_MODELS_FIXTURE_H

#include "near.h"

#include "lather/module.h"
#include "lather/optim.h"

typedef lt_status optim_fn(lt_optim **out, const lt_params *params);

/* Optimizers with the settings of the scripts: SGD with Nesterov momentum, AdamW, AdaGrad; and plain momentum for
 * controls. */
lt_status fixture_open_sgd(lt_optim **out, const lt_params *params);
lt_status fixture_open_adamw(lt_optim **out, const lt_params *params);
lt_status fixture_open_adagrad(lt_optim **out, const lt_params *params);
lt_status fixture_open_plain_momentum(lt_optim **out, const lt_params *params);

typedef struct fixture_family {
    const char *file; /* file name in tests/golden */
    lt_status (*make)(lt_module **out, lt_device *device);
} fixture_family;

typedef struct fixture_row {
    const char *name, *device;
    bool f64;
    const char *optim; /* prefix of its results in the file */
    optim_fn *open;
    double lr;
    double
        tolerance; /* f64: relative to a tensor's norm; f32: factor on the distance in the file */
    bool broken;   /* a control, which the check must reject */
} fixture_row;

/* Rows of transformers: SGD and AdamW on ref and cpu, with controls. */
enum { FIXTURE_TRANSFORMER_ROWS = 8 };
extern const fixture_row fixture_transformer_rows[FIXTURE_TRANSFORMER_ROWS];

/* Runs all rows and the program's other tests. Returns main's status. */
int fixture_main(const fixture_family *family, const fixture_row *rows, size_t count,
                 const struct CMUnitTest *more, size_t others);

#endif
