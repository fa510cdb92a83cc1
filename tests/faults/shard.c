/* Steps of optimizers that are divided over two ranks, in which one call of either rank fails: both ranks fail;
 * nothing leaks, nothing waits for ever, and the same steps then work. */

#include "lather/shard.h"

#include "faults.h"
#include "makers.h"
#include "ranks.h"

enum { RANKS = 2, PARAMS = 3, STEPS = 2 };

static const char *const names[PARAMS] = {"matrix", "kernel", "bias"};
static const lt_shape shapes[PARAMS] = {{2, {3, 4}}, {4, {3, 2, 1, 2}}, {1, {5}}};

typedef struct row {
    const char *name;
    make_fn *make;
    int group;
    lt_state_dtype dtype;
} row;

typedef struct player {
    test_rank at;
    const row *row;
    lt_param param[PARAMS];
    lt_params list;
    lt_optim *optim;
} player;

typedef struct scene {
    const row *row;
    player player[RANKS];
} scene;

static void open_model(player *p)
{
    lt_device *device = p->at.device;
    static const double start[12] = {1, -2, 3, -4, 5, -6, 7, -8, 9, -10, 11, -12};
    for (int k = 0; k < PARAMS; k++) {
        lt_param *param = &p->param[k];
        assert_ok(shapes[k].ndim == 4 ? lt_param_init_filter(param, device, "", names[k], shapes[k])
                                      : lt_param_init(param, device, "", names[k], shapes[k], 0));
        assert_ok(lt_params_add(&p->list, param));
        put(param->value, start);
        put_grad(param, start);
    }
    assert_ok(p->row->make(&p->optim, &p->list));
    if (p->row->dtype != LT_STATE_F32)
        assert_ok(lt_optim_set_state_dtype(p->optim, p->row->dtype));
}

static void begin(void *context)
{
    scene *s = context;
    for (int r = 0; r < RANKS; r++)
        s->player[r] = (player){.row = s->row};
    open_ranks(&(rank_group){RANKS_OF(s->player, RANKS)}); /* in f32, as quantized state wants it */
    for (int r = 0; r < RANKS; r++) {
        open_model(&s->player[r]);
        faults_attach(s->player[r].at.device);
    }
}

static void end(void *context)
{
    scene *s = context;
    for (int r = 0; r < RANKS; r++) {
        player *p = &s->player[r];
        lt_optim_free(&p->optim);
        for (size_t k = 0; k < PARAMS; k++)
            lt_param_clear(&p->param[k]);
        lt_params_clear(&p->list);
    }
    close_ranks(&(rank_group){RANKS_OF(s->player, RANKS)});
}

static lt_status play(void *context)
{
    player *p = context;
    const lt_shard_config c = {.comm = p->at.comm, .group = p->row->group};
    LT_TRY(lt_optim_shard(p->optim, &c));
    for (int t = 1; t <= STEPS; t++) {
        const lt_step step = {.lr = 0.05, .clip_norm = 5, .attempt = t};
        LT_TRY(lt_optim_step(p->optim, &step));
    }
    return LT_OK;
}

/* Status of the rank whose call failed; the other was aborted with LT_E_COMM. */
static lt_status act(void *context)
{
    scene *s = context;
    run_ranks(&(rank_group){RANKS_OF(s->player, RANKS), .run = play});
    const lt_status a = s->player[0].at.status, b = s->player[1].at.status;
    return a && a != LT_E_COMM ? a : b ? b : a;
}

static lt_status play_on(void *context)
{
    player *p = context;
    const lt_step next = {.lr = 0.05, .attempt = STEPS + 1};
    return p->at.status ? p->at.status : lt_optim_step(p->optim, &next);
}

/* If a rank fails after the collective, or while it sends its last message, the other has finished its step and
 * only the next step fails. */
static void after(void *context, lt_status st)
{
    scene *s = context;
    const bool one = s->player[0].at.status == LT_OK || s->player[1].at.status == LT_OK;
    if (st && one)
        run_ranks(&(rank_group){RANKS_OF(s->player, RANKS), .run = play_on});
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(!s->player[r].at.status, !st);
}

static const row rows[] = {
    {"sgd", make_sgd, 0, LT_STATE_F32},
    {"adam with int8 state", make_adam, 0, LT_STATE_INT8},
    {"muon", make_muon, 0, LT_STATE_F32},
    {"lamb", make_lamb, 0, LT_STATE_F32},
    {"shampoo", make_shampoo, 0, LT_STATE_F32},
    {"shampoo in groups of one", make_shampoo, 1, LT_STATE_F32},
    {"shampoo with bf16 state", make_shampoo, 0, LT_STATE_BF16},
    {"eigendecomposed", make_eigendecomposed, 0, LT_STATE_F32},
};

static void ranks_fail_together(void **state)
{
    scene s = {.row = *state};
    const fault_case c = {.name = s.row->name,
                          .kinds = FAULT_KERNEL | FAULT_MEMORY,
                          .any_status = true,
                          .open = begin,
                          .act = act,
                          .after = after,
                          .close = end,
                          .context = &s,
                          .least = 30};
    (void)faults_each(&c);
}

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(rows)];
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[i] = (struct CMUnitTest){rows[i].name, ranks_fail_together, NULL, NULL,
                                       (void *)(uintptr_t)&rows[i]};
    return faults_run("faults in a divided optimizer", tests, COUNT_OF(tests), NULL, NULL);
}
