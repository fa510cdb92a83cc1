/* Checkpoints and weights of sharded parameters; each rank is a thread. The joined files equal those of one rank, and
 * load on any mesh. */

#include "joined.h"
#include "ranks.h"

#include "lather/checkpoint.h"
#include "lather/detail/sharded_optim.h"
#include "lather/ema.h"
#include "lather/ext/fail.h"
#include "lather/init.h"

#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>

enum { PARAMS = 4, MOST = 256, RANKS = 8, BEFORE = 3, AFTER = 2, TEXT = 512 };

/* Dimension that is split along a row of the mesh, and along a column; -1: not split. */
typedef struct model_row {
    const char *name;
    lt_shape logical, view;
    int row_dim, column_dim;
} model_row;

static const model_row model[PARAMS] = {
    {"in_proj", {2, {24, 8}}, {4, {3, 4, 2, 8}}, 1, 3},
    {"fc", {2, {7, 10}}, {2, {7, 10}}, 0, 1},
    {"norm", {1, {10}}, {1, {10}}, -1, -1},
    {"kernel", {4, {4, 5, 2, 3}}, {4, {4, 5, 2, 3}}, 0, -1},
};

/* Rank (k * rows + i) * columns + j. */
typedef struct mesh {
    const char *name;
    int depth, rows, columns;
} mesh;

static const mesh meshes[] = {
    {"one", 1, 1, 1}, {"1x2", 1, 1, 2},   {"1x3", 1, 1, 3},
    {"2x2", 1, 2, 2}, {"2x2x2", 2, 2, 2}, {"two copies of 1x2", 2, 1, 2},
};

static int size_of(const mesh *m)
{
    return m->depth * m->rows * m->columns;
}

typedef struct plan {
    const mesh *mesh;
    const char *load, *save; /* run folders */
    const char *weights;     /* weights file to read or write instead of a checkpoint */
    bool read_weights, f64, alone;
    bool plain; /* parameters without shard specs, for mesh "one" */
    int shift;  /* offset error of a shard on rank 1 */
    int64_t from, to;
} plan;

typedef struct player {
    test_rank base;
    const plan *plan;
    lt_param param[PARAMS];
    lt_params params;
    lt_sharded_optim *placed;
    lt_optim *optim;
    lt_ema *ema;
    lt_checkpoint_tensor extra[PARAMS];
    char name[PARAMS][TEXT];
} player;

static lt_shard_spec place_of(const model_row *row, const mesh *m, int rank)
{
    lt_shard_spec spec = {row->logical, row->view, {.ndim = row->view.ndim}, row->view};
    if (row->row_dim >= 0)
        lt_shard_spec_split(&spec, row->row_dim, m->columns, rank % m->columns);
    if (row->column_dim >= 0)
        lt_shard_spec_split(&spec, row->column_dim, m->rows, rank / m->columns % m->rows);
    return spec;
}

static lt_status open_param(player *p, int k)
{
    lt_shard_spec spec = place_of(&model[k], p->plan->mesh, p->base.rank);
    if (p->plan->shift && p->base.rank == 1 && k == 1)
        spec.offset.dim[0] -= p->plan->shift;
    const lt_shape shape =
        model[k].view.ndim == 4 && k == 3 ? spec.extent : LT_SHAPE(lt_shard_spec_count(&spec));
    LT_TRY(lt_param_init(&p->param[k], p->base.device, "", model[k].name,
                         p->plan->plain ? model[k].logical : shape, 0));
    if (!p->plan->plain)
        LT_TRY(lt_param_set_shard_spec(&p->param[k], &spec));
    LT_TRY(lt_params_add(&p->params, &p->param[k]));
    return lt_init_normal(&p->param[k], 0.5, 3);
}

/* Writes a gradient that depends on the logical index. */
static lt_status write_gradient(player *p, int k, int64_t step)
{
    float own[MOST];
    double wide[MOST];
    const lt_shard_spec spec = lt_param_shard_spec(&p->param[k]);
    for (int64_t i = 0; i < lt_shard_spec_count(&spec); i++) {
        const double index = (double)lt_shard_spec_index(&spec, i);
        wide[i] = sin(1 + 7.0 * (double)step + 3.0 * k + 1.7 * index);
        own[i] = (float)wide[i];
    }
    p->param[k].has_grad = true;
    return lt_tensor_write(p->param[k].grad, p->plan->f64 ? (void *)wide : (void *)own,
                           lt_tensor_bytes(p->param[k].grad));
}

static lt_status name_average(void *context, const lt_state_entry *entry)
{
    player *p = context;
    int k = 0;
    while (strcmp(model[k].name, entry->param) != 0)
        k++;
    if (!lt_shape_equal(entry->shape, model[k].logical))
        return lt_fail(LT_E_SHAPE, "the average of %s does not have the logical shape",
                       entry->param);
    snprintf(p->name[k], TEXT, "ema.%s", entry->param);
    p->extra[k] = (lt_checkpoint_tensor){p->name[k], entry->tensor, &p->param[k]};
    return LT_OK;
}

static lt_status open_all(player *p)
{
    const lt_adam_config adam = LT_ADAM_DEFAULTS;
    const lt_shard_config shard = {.comm = p->base.comm};
    for (int k = 0; k < PARAMS; k++)
        LT_TRY(open_param(p, k));
    if (p->plan->weights || p->plan->shift)
        return LT_OK;
    LT_TRY(lt_sharded_optim_new(&p->placed, &p->params, p->base.comm, p->base.comm));
    LT_TRY(lt_optim_adam(&p->optim, lt_sharded_optim_params(p->placed), &adam));
    LT_TRY(lt_sharded_optim_attach(p->placed, p->optim, &shard));
    LT_TRY(lt_ema_new(&p->ema, &p->params, 0.75));
    lt_state_visitor visitor = {.entry = name_average, .context = p};
    return lt_ema_visit(p->ema, &visitor);
}

static lt_checkpoint_contents parts_of(player *p)
{
    return (lt_checkpoint_contents){.params = &p->params,
                                    .optim = p->optim,
                                    .extra = p->extra,
                                    .extra_count = p->optim ? PARAMS : 0,
                                    .comm = p->plan->alone ? NULL : p->base.comm};
}

static lt_status train(player *p)
{
    char path[TEMP_PATH];
    lt_checkpoint_state state = {0};
    const lt_checkpoint_contents parts = parts_of(p);
    if (p->plan->load) {
        LT_TRY(lt_checkpoint_newest(p->plan->load, path, sizeof path));
        LT_TRY(lt_checkpoint_load(path, &parts, &state));
    }
    for (int64_t t = p->plan->from + 1; t <= p->plan->to; t++) {
        for (int k = 0; k < PARAMS; k++)
            LT_TRY(write_gradient(p, k, t));
        const lt_step step = {.lr = 0.05, .attempt = t};
        LT_TRY(lt_optim_step(p->optim, &step));
        LT_TRY(lt_ema_update(p->ema, p->optim));
    }
    state = (lt_checkpoint_state){.step = p->plan->to, .seed = 1};
    snprintf(state.optim, sizeof state.optim, "%s", p->optim ? lt_optim_name(p->optim) : "");
    return lt_checkpoint_save(p->plan->save, &parts, &state, NULL);
}

/* Zeroes the shards and reads them back: they must equal the initial values of one rank. */
static lt_status read_weights(player *p)
{
    float own[PARAMS][MOST], got[MOST];
    for (int k = 0; k < PARAMS; k++) {
        LT_TRY(lt_tensor_read(p->param[k].value, own[k], lt_tensor_bytes(p->param[k].value)));
        LT_TRY(lt_tensor_fill(p->param[k].value, 0));
    }
    LT_TRY(lt_weights_load(p->plan->weights, &p->params, NULL));
    for (int k = 0; k < PARAMS; k++) {
        const size_t bytes = lt_tensor_bytes(p->param[k].value);
        LT_TRY(lt_tensor_read(p->param[k].value, got, bytes));
        if (memcmp(own[k], got, bytes) != 0)
            return lt_fail(LT_E_FORMAT, "%s has wrong values", p->param[k].name);
    }
    return LT_OK;
}

static lt_status run(void *rank)
{
    player *p = rank;
    LT_TRY(open_all(p));
    if (p->plan->weights)
        return p->plan->read_weights
                   ? read_weights(p)
                   : lt_weights_save_ranks(p->plan->weights, &p->params, NULL, 0, p->base.comm);
    return train(p);
}

static void end(void *rank)
{
    player *p = rank;
    lt_ema_free(&p->ema);
    lt_optim_free(&p->optim);
    lt_sharded_optim_free(&p->placed);
    lt_params_clear(&p->params);
    for (int k = 0; k < PARAMS; k++)
        lt_param_clear(&p->param[k]);
}

static rank_group play_all(player *p, const plan *what)
{
    const rank_group group = {RANKS_OF(p, size_of(what->mesh)), .f64 = what->f64, .run = run,
                              .end = end};
    for (int r = 0; r < group.count; r++)
        p[r] = (player){.plan = what};
    play_ranks(&group);
    return group;
}

static void play_well(const plan *what)
{
    player p[RANKS];
    const rank_group group = play_all(p, what);
    expect_ranks(&group);
}

static void check_same(const char *a, const char *b, const char *name)
{
    if (!joined_same(a, b, name))
        fail_msg("%s of %s and %s differ", name, a, b);
}

static const char *run_folder(char *path, const char *name, size_t i, size_t k)
{
    char leaf[64];
    snprintf(leaf, sizeof leaf, "%s-%zu-%zu", name, i, k);
    return temp_path(path, folder, leaf);
}

static void checkpoints_equal_one_ranks_and_load_on_any_mesh(void **state)
{
    (void)state;
    char first[TEMP_PATH], whole[TEMP_PATH], other[TEMP_PATH], resumed[TEMP_PATH];
    play_well(&(plan){
        .mesh = &meshes[0], .plain = true, .to = BEFORE, .save = run_folder(first, "plain", 0, 0)});
    play_well(&(plan){.mesh = &meshes[0],
                      .plain = true,
                      .to = BEFORE + AFTER,
                      .save = run_folder(whole, "whole", 0, 0)});
    for (size_t i = 0; i < COUNT_OF(meshes); i++) {
        run_folder(other, "first", i, 0);
        play_well(&(plan){.mesh = &meshes[i], .to = BEFORE, .save = other});
        check_same(first, other, "model.safetensors");
        check_same(first, other, "optim.safetensors");
        for (size_t k = 0; k < COUNT_OF(meshes); k++) {
            run_folder(resumed, "resumed", i, k);
            play_well(&(plan){.mesh = &meshes[k],
                              .from = BEFORE,
                              .to = BEFORE + AFTER,
                              .load = other,
                              .save = resumed});
            check_same(whole, resumed, "model.safetensors");
            check_same(whole, resumed, "optim.safetensors");
        }
    }
}

static void weights_equal_one_ranks(void **state)
{
    (void)state;
    for (int f64 = 0; f64 < 2; f64++) {
        char one[TEMP_PATH];
        run_folder(one, "plain", 0, (size_t)f64);
        play_well(&(plan){.mesh = &meshes[0], .plain = true, .weights = one, .f64 = f64});
        for (size_t i = 0; i < COUNT_OF(meshes); i++) {
            char path[TEMP_PATH];
            run_folder(path, "weights", i, (size_t)f64);
            play_well(&(plan){.mesh = &meshes[i], .weights = path, .f64 = f64});
            assert_true(temp_same(one, path));
            if (!f64)
                play_well(&(plan){.mesh = &meshes[i], .weights = one, .read_weights = true});
        }
    }
}

static void shards_that_do_not_tile_a_tensor_are_rejected(void **state)
{
    (void)state;
    char path[TEMP_PATH];
    player p[RANKS];
    play_all(p, &(plan){.mesh = &meshes[4], /* shift: the shards no longer tile fc */
                        .shift = 1,
                        .save = run_folder(path, "gap", 0, 0)});
    for (int r = 0; r < 8; r++) {
        assert_int_equal(p[r].base.status, LT_E_SHAPE);
        assert_non_null(strstr(p[r].base.message,
                               "the shards of fc on all ranks have 85 elements, it "
                               "has 70"));
    }
}

static void a_shard_is_not_saved_alone(void **state)
{
    (void)state;
    char path[TEMP_PATH];
    player p[RANKS];
    play_all(p, &(plan){.mesh = &meshes[1],
                        .alone = true,
                        .to = 1,
                        .save = run_folder(path, "alone", 0, 0)});
    for (int r = 0; r < 2; r++) {
        assert_int_equal(p[r].base.status, LT_E_ARG);
        assert_non_null(strstr(p[r].base.message, "in_proj is the shard [0:3,"));
    }
}

/* RLIMIT_FSIZE gives EFBIG, which is handled like ENOSPC. The sending ranks must not wait. */
static void a_full_disk_ends_all_ranks(void **state)
{
    (void)state;
    char path[TEMP_PATH];
    struct rlimit old, small;
    player p[RANKS];
    run_folder(path, "full", 0, 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_IGN);
    small = old;
    small.rlim_cur = 600;
    for (int weights = 0; weights < 2; weights++) {
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        play_all(p, &(plan){.mesh = &meshes[3],
                            .to = 1,
                            .save = weights ? NULL : path,
                            .weights = weights ? path : NULL});
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        for (int r = 0; r < 4; r++) {
            assert_int_equal(p[r].base.status, LT_E_IO);
            assert_int_equal(strncmp(p[r].base.message, "rank 0: ", 8), 0);
        }
    }
}

static void a_file_of_a_different_shape_is_rejected_with_the_full_shape(void **state)
{
    (void)state;
    char path[TEMP_PATH];
    lt_device *device = NULL;
    lt_param wrong;
    player p[RANKS];
    run_folder(path, "other", 0, 0);
    assert_ok(lt_device_open(&device, "ref", NULL));
    assert_ok(lt_param_init(&wrong, device, "", "in_proj", LT_SHAPE(12, 8), 0));
    lt_param *item = &wrong;
    assert_ok(lt_weights_save(path, &(lt_params){&item, 1}));
    play_all(p, &(plan){.mesh = &meshes[1], .weights = path, .read_weights = true});
    for (int r = 0; r < 2; r++) {
        assert_int_equal(p[r].base.status, LT_E_SHAPE);
        assert_non_null(
            strstr(p[r].base.message, "'in_proj' is [12,8], but the model needs [24,8]"));
    }
    lt_param_clear(&wrong);
    lt_device_close(&device);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, temp_setup, temp_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(checkpoints_equal_one_ranks_and_load_on_any_mesh),
        ROW(weights_equal_one_ranks),
        ROW(shards_that_do_not_tile_a_tensor_are_rejected),
        ROW(a_shard_is_not_saved_alone),
        ROW(a_full_disk_ends_all_ranks),
        ROW(a_file_of_a_different_shape_is_rejected_with_the_full_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
