/* Rows that several optimizers share: parameters in batches, and JSON configs that must be rejected. */
#ifndef LT_TESTS_OPTIM_SHARED_ROWS_H
#define LT_TESTS_OPTIM_SHARED_ROWS_H

#include "makers.h"

#include "lather/optim_config.h"

#include <stdio.h>
#include <string.h>

/* --- Batches --- */

enum { LONG = (1 << 21) + 3, TOGETHER = 3 };
static const lt_shape batched[TOGETHER] = {{2, {3, 5}}, {2, {1, LONG}}, {2, {6, 2}}};

static inline void fill_pattern(lt_tensor *t, double seed)
{
    const int64_t count = lt_tensor_count(t);
    float *host = malloc((size_t)count * sizeof *host);
    assert_non_null(host);
    for (int64_t i = 0; i < count; i++)
        host[i] = (float)sin(seed + 1.3 * (double)i);
    assert_ok(lt_tensor_write(t, host, (size_t)count * sizeof *host));
    free(host);
}

/* Two steps of the parameters whose bits are set; the last elements of each. */
static inline void run_some(make_fn *make, unsigned which, float last[TOGETHER])
{
    static float host[LONG];
    fixture f = {0};
    assert_ok(lt_device_open(&f.device, "cpu", &(lt_device_config){.threads = 1}));
    for (int k = 0; k < TOGETHER; k++)
        if (which & 1U << k) {
            char name[] = {(char)('a' + k), 0};
            fill_pattern(fixture_add(&f, name, batched[k])->value, k);
        }
    assert_ok(make(&f.optim, &f.list));
    for (int t = 1; t <= 2; t++) {
        for (size_t i = 0; i < f.list.count; i++) {
            fill_pattern(f.param[i].grad, 10 * t + f.param[i].name[0] - 'a');
            f.param[i].has_grad = true;
        }
        fixture_step(&f, 0.1);
    }
    for (size_t i = 0; i < f.list.count; i++) {
        const lt_tensor *value = f.param[i].value;
        assert_ok(lt_tensor_read(value, host, lt_tensor_bytes(value)));
        last[f.param[i].name[0] - 'a'] = host[lt_tensor_count(value) - 1];
    }
    fixture_close(&f);
}

static inline void parameters_in_batches_are_those_alone(void **state)
{
    make_fn *const *make = *state;
    float all[TOGETHER] = {0}, alone[TOGETHER] = {0};
    run_some(*make, 7, all);
    for (unsigned k = 0; k < TOGETHER; k++)
        run_some(*make, 1U << k, alone);
    assert_memory_equal(all, alone, sizeof all);
    assert_true(all[0] != all[2]);
}

/* --- Rejected input --- */

typedef struct bad_row {
    const char *name, *json, *message; /* json: members of the config but lr */
} bad_row;

static inline void is_refused(void **state)
{
    const bad_row *row = *state;
    char json[256];
    lt_optim_config c = {0};
    fixture f;
    fixture_open(&f, true);
    fixture_add(&f, "w", LT_SHAPE(2, 2));
    snprintf(json, sizeof json, "{%s, \"lr\": 1}", row->json);
    lt_status st = lt_optim_config_parse(&c, json, strlen(json));
    if (!st)
        st = lt_optim_config_make(&f.optim, &c, &f.list);
    assert_status(st, LT_E_ARG);
    if (!strstr(lt_error_message(), row->message))
        fail_msg("'%s' does not say '%s'", lt_error_message(), row->message);
    lt_optim_config_clear(&c);
    fixture_close(&f);
}

#endif
