/* Settings of optimizers from the rows of the registry, and runs with one or two of them. */
#ifndef LT_TESTS_OPTIM_OPTION_RUNS_H
#define LT_TESTS_OPTIM_OPTION_RUNS_H

#include "fixture.h"
#include "optim/registry/field.h"
#include "optim/registry/registry.h"

#include "lather/averaging.h"
#include "lather/cautious.h"
#include "lather/detail/optim_flags.h"

enum { SETTINGS = 160, TEXT = 96, MESSAGE = 240, STEPS = 7, PARAMS = 6 };

typedef struct setting {
    char field[TEXT], value[TEXT], flag[2 * TEXT + 16];
    lt_averaging_kind averaging;
    lt_state_dtype state;
    lt_cautious_config cautious;
    bool f64;
} setting;

typedef struct settings {
    setting set[SETTINGS];
    size_t count;
} settings;

typedef struct run {
    lt_device *device;
    lt_param param[PARAMS];
    lt_params list;
    lt_optim *optim;
    lt_options *options;
} run;

extern lt_optim_flags flags; /* rows for all runs */

/* Registers shampoo_small, Shampoo and SOAP with small blocks and frequent refreshes, and prodigy_long, with a long first
 * distance. */
void register_replacements(void);
/* Returns true for the rows that these replace. */
bool is_replaced(const lt_optim_family *family);
/* Lists settings that differ from the defaults: one of each field, of a choice all, and those of every optimizer. */
void list_settings(settings *out, const lt_optim_family *family);
void open_run(run *r, bool f64);
void close_run(run *r);
/* Makes the optimizer with up to two settings. */
lt_status make_optim(run *r, const lt_optim_family *family, const setting *const *set, int count);
/* Makes step t; param i has a gradient if bit i of `present` is set. */
lt_status make_step(run *r, int64_t t, unsigned present);
/* Adds memory, or all values, to a hash. */
void add_to_hash(uint64_t *hash, const void *memory, size_t bytes);
lt_status add_values_to_hash(const run *r, uint64_t *hash);

#endif
