/* Reducer state in checkpoints: kept, redistributed over a different number of nodes, dropped, missing. */

#include "base/alloc.h"
#include "near.h"
#include "ranks.h"
#include "temp_folder.h"

#include "lather/checkpoint.h"
#include "lather/ext/reducer.h"
#include "lather/log.h"

#include <stdio.h>
#include <string.h>

enum { RANKS = 8, PARAMS = 2, NODES = 8, MOST = 6 };
static const char *const names[PARAMS] = {"matrix", "bias"};
static const lt_shape shapes[PARAMS] = {{2, {2, 3}}, {1, {4}}};

/* --- A reducer that sends nothing; each node's first rank holds the residuals of that node --- */

typedef struct keeper {
    lt_reducer base;
    lt_tensor *residual[PARAMS], *basis; /* basis: replicated on all ranks, of no node */
    bool gathered, loaded;
} keeper;

static bool has_number; /* all keepers have a number in their state */

static bool has_residual(const lt_reducer *self)
{
    return !self->nodes->local;
}

static lt_status configure(lt_reducer *self)
{
    keeper *k = (keeper *)self;
    for (int i = 0; i < PARAMS && has_residual(self); i++) {
        LT_TRY(lt_tensor_new(&k->residual[i], self->device, LT_F32, shapes[i]));
        LT_TRY(lt_tensor_fill(k->residual[i], 0));
    }
    LT_TRY(lt_tensor_new(&k->basis, self->device, LT_F32, LT_SHAPE(3)));
    return lt_tensor_fill(k->basis, 0);
}

static lt_status nothing(lt_reducer *self, size_t bucket)
{
    (void)self;
    (void)bucket;
    return LT_OK;
}

static lt_status gather(lt_reducer *self)
{
    ((keeper *)self)->gathered = true;
    return LT_OK;
}

static lt_status loaded(lt_reducer *self)
{
    ((keeper *)self)->loaded = true;
    return LT_OK;
}

static int first_of(const lt_reducer *self, int node)
{
    int rank = 0;
    while (self->nodes->of[rank] != node)
        rank++;
    return rank;
}

static lt_status visit(lt_reducer *self, lt_state_visitor *visitor)
{
    keeper *k = (keeper *)self;
    char name[32];
    int64_t number = 1;
    if (has_number)
        LT_TRY(visitor->number(visitor->context, "count", &number));
    for (int i = 0; i < PARAMS; i++)
        for (int node = 0; node < self->nodes->count; node++) {
            const bool own = node == self->nodes->index && has_residual(self);
            snprintf(name, sizeof name, "residual.%d", node);
            LT_TRY(visitor->entry(visitor->context,
                                  &(lt_state_entry){.param = names[i],
                                                    .name = name,
                                                    .block = -1,
                                                    .shape = shapes[i],
                                                    .extent = shapes[i],
                                                    .dtype = LT_F32,
                                                    .owner = first_of(self, node),
                                                    .tensor = own ? k->residual[i] : NULL}));
        }
    return visitor->entry(visitor->context, &(lt_state_entry){.param = names[0],
                                                              .name = "basis",
                                                              .block = -1,
                                                              .shape = LT_SHAPE(3),
                                                              .extent = LT_SHAPE(3),
                                                              .dtype = LT_F32,
                                                              .tensor = k->basis});
}

static void sent(const lt_reducer *self, lt_reducer_bytes *out)
{
    (void)self;
    *out = (lt_reducer_bytes){0};
}

static void close_keeper(lt_reducer *self)
{
    keeper *k = (keeper *)self;
    for (int i = 0; i < PARAMS; i++)
        lt_tensor_free(&k->residual[i]);
    lt_tensor_free(&k->basis);
}

static const lt_reducer_ops keep = {.kind = "keep",
                                    .bytes = sizeof(keeper),
                                    .configure = configure,
                                    .begin = nothing,
                                    .finish = nothing,
                                    .gather = gather,
                                    .visit = visit,
                                    .loaded = loaded,
                                    .sent = sent,
                                    .close = close_keeper};

/* --- Ranks --- */

/* Loads a checkpoint, or else fills the state; then saves. */
typedef struct plan {
    int ranks, per_node;
    bool plain; /* use no reducer */
    const char *load, *save;
} plan;

typedef struct player {
    test_rank base;
    const plan *plan;
    lt_nodes nodes;
    lt_tape *tape;
    lt_param param[PARAMS];
    lt_params params;
    lt_optim *optim;
    lt_data_parallel *dp;
    float residual[PARAMS][MOST], basis[3]; /* final values */
} player;

/* Returns element i of a node's residual: distinct values whose sums are exact. */
static float value_of(int node, int param, int i)
{
    return (float)(100 * node + 10 * param + i + 1);
}

static lt_status fill_entry(void *context, const lt_state_entry *entry)
{
    float values[MOST];
    int node = 0, param = !strcmp(entry->param, names[1]);
    (void)context;
    if (!entry->tensor)
        return LT_OK;
    sscanf(entry->name, "residual.%d", &node);
    for (int i = 0; i < MOST; i++)
        values[i] = value_of(node, param, i);
    return lt_tensor_write(entry->tensor, values, lt_tensor_bytes(entry->tensor));
}

static lt_status keep_number(void *context, const char *name, int64_t *value)
{
    (void)context, (void)name, (void)value;
    return LT_OK;
}

static lt_status read_entry(void *context, const lt_state_entry *entry)
{
    player *p = context;
    if (!entry->tensor)
        return LT_OK;
    float *to =
        !strcmp(entry->name, "basis") ? p->basis : p->residual[!strcmp(entry->param, names[1])];
    return lt_tensor_read(entry->tensor, to, lt_tensor_bytes(entry->tensor));
}

static lt_status open_all(player *p)
{
    lt_data_parallel_config c = {.nodes = &p->nodes, .compress = p->plan->plain ? NULL : "keep"};
    for (int i = 0; i < PARAMS; i++) {
        LT_TRY(lt_param_init(&p->param[i], p->base.device, "", names[i], shapes[i], 0.5));
        LT_TRY(lt_params_add(&p->params, &p->param[i]));
    }
    LT_TRY(lt_tape_new(&p->tape, p->base.device));
    LT_TRY(lt_comm_nodes(&p->nodes, p->base.comm, p->plan->per_node));
    LT_TRY(lt_optim_sgd(&p->optim, &p->params, &(lt_sgd_config){.momentum = 0.9}));
    return lt_data_parallel_new(&p->dp, p->base.comm, &p->params, p->tape, &c);
}

static lt_status run(void *rank)
{
    player *p = rank;
    lt_state_visitor fill = {fill_entry, keep_number, p}, read = {read_entry, NULL, p};
    LT_TRY(open_all(p));
    const lt_checkpoint_contents parts = {
        .params = &p->params, .optim = p->optim, .comm = p->base.comm, .dp = p->dp};
    lt_checkpoint_state state = {.seed = 1};
    snprintf(state.optim, sizeof state.optim, "%s", lt_optim_name(p->optim));
    if (p->plan->load) {
        char path[TEMP_PATH];
        LT_TRY(lt_checkpoint_newest(p->plan->load, path, sizeof path));
        LT_TRY(lt_checkpoint_load(path, &parts, &state));
    } else {
        LT_TRY(lt_data_parallel_visit(p->dp, &fill));
    }
    if (p->plan->save)
        LT_TRY(lt_checkpoint_save(p->plan->save, &parts, &state, NULL));
    return lt_data_parallel_visit(p->dp, &read);
}

static void end(void *rank)
{
    player *p = rank;
    lt_data_parallel_free(&p->dp);
    lt_optim_free(&p->optim);
    lt_tape_free(&p->tape);
    lt_nodes_clear(&p->nodes);
    lt_params_clear(&p->params);
    for (int i = 0; i < PARAMS; i++)
        lt_param_clear(&p->param[i]);
}

static void play_well(player p[RANKS], const plan *what)
{
    const rank_group group = {RANKS_OF(p, what->ranks), .run = run, .end = end};
    for (int r = 0; r < what->ranks; r++)
        p[r] = (player){.plan = what};
    play_ranks_well(&group);
}

static char said[4096];
static void hear(void *context, lt_log_level level, const char *area, const char *line)
{
    (void)context;
    (void)level;
    (void)area;
    const size_t used = strlen(said);
    snprintf(said + used, sizeof said - used, "%s\n", line);
}

/* --- Rows --- */

static const char *path_of(char *path, const char *name)
{
    return temp_path(path, folder, name);
}

static void residuals_of_the_same_node_count_are_kept(void **state)
{
    (void)state;
    player p[RANKS];
    char path[TEMP_PATH];
    path_of(path, "same");
    said[0] = 0;
    play_well(p, &(plan){.ranks = 4, .per_node = 2, .save = path});
    play_well(p, &(plan){.ranks = 4, .per_node = 2, .load = path});
    for (int r = 0; r < 4; r++)
        for (int k = 0; k < 2 && r % 2 == 0; k++)
            for (int i = 0; i < lt_shape_count(shapes[k]); i++)
                assert_near((double)p[r].residual[k][i], (double)value_of(r / 2, k, i), 0);
    for (int r = 0; r < 4; r++)
        assert_near((double)p[r].basis[2], 3, 0);
    assert_string_equal(said, "");
}

/* Conservation: the sum over nodes does not change. */
static void residuals_are_redistributed_equally_over_other_nodes(void **state)
{
    (void)state;
    player p[RANKS];
    char path[TEMP_PATH];
    path_of(path, "two");
    play_well(p, &(plan){.ranks = 4, .per_node = 2, .save = path});
    for (int nodes = 1; nodes <= NODES; nodes *= 2) {
        said[0] = 0;
        play_well(p, &(plan){.ranks = nodes, .per_node = 1, .load = path});
        for (int r = 0; r < nodes; r++)
            for (int k = 0; k < PARAMS; k++)
                for (int i = 0; i < lt_shape_count(shapes[k]); i++) {
                    const double sum = (double)value_of(0, k, i) + (double)value_of(1, k, i);
                    const double own = nodes == 2 ? (double)value_of(r, k, i) : sum / nodes;
                    assert_near((double)p[r].residual[k][i], own, 0);
                }
        if (nodes == 2)
            assert_null(strstr(said, "divided"));
        else if (!strstr(said, "residuals of 2 nodes are divided equally over"))
            fail_msg("'%s' lacks the message", said);
    }
}

static void residuals_without_a_reducer_are_dropped_with_a_warning(void **state)
{
    (void)state;
    player p[RANKS];
    char path[TEMP_PATH];
    path_of(path, "dropped");
    play_well(p, &(plan){.ranks = 2, .per_node = 1, .save = path});
    said[0] = 0;
    play_well(p, &(plan){.ranks = 2, .per_node = 1, .plain = true, .load = path});
    const char *first = strstr(said, "5 tensors of compressed gradients");
    assert_non_null(first);
    assert_null(strstr(first + 1, "5 tensors of compressed gradients")); /* only one rank logs it */
}

static void missing_residuals_start_at_zero_with_a_warning(void **state)
{
    (void)state;
    player p[RANKS];
    char path[TEMP_PATH];
    path_of(path, "missing");
    play_well(p, &(plan){.ranks = 2, .per_node = 1, .plain = true, .save = path});
    said[0] = 0;
    play_well(p, &(plan){.ranks = 2, .per_node = 1, .load = path});
    assert_near((double)p[1].residual[0][1], 0, 0);
    assert_non_null(strstr(said, "start at zero"));
}

/* Numbers have no shares of a sum. */
static void a_number_in_a_reducers_state_is_refused(void **state)
{
    (void)state;
    player p[RANKS];
    char path[TEMP_PATH];
    const plan what = {.ranks = 2, .per_node = 1, .save = path_of(path, "number")};
    const rank_group group = {RANKS_OF(p, what.ranks), .run = run, .end = end};
    for (int r = 0; r < what.ranks; r++)
        p[r] = (player){.plan = &what};
    has_number = true;
    play_ranks(&group);
    has_number = false;
    for (int r = 0; r < what.ranks; r++)
        assert_string_equal(p[r].base.message,
                            "rank 0: checkpoint: a reducer's state is tensors, not the number "
                            "'count'");
}

/* A file without reducer state equals that of a run without data parallelism. */
static void a_run_without_reducer_state_writes_the_same_file(void **state)
{
    (void)state;
    player p[RANKS];
    char path[TEMP_PATH], file[TEMP_PATH];
    lt_safetensors *f = NULL;
    path_of(path, "plain");
    play_well(p, &(plan){.ranks = 2, .per_node = 1, .plain = true, .save = path});
    assert_ok(
        lt_safetensors_open(&f, temp_path(file, path, "checkpoints/latest/optim.safetensors")));
    for (size_t i = 0; i < lt_safetensors_count(f); i++)
        assert_null(strchr(lt_safetensors_at(f, i)->name, '@'));
    lt_safetensors_close(&f);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(residuals_of_the_same_node_count_are_kept, temp_setup,
                                        temp_teardown),
        cmocka_unit_test_setup_teardown(residuals_are_redistributed_equally_over_other_nodes,
                                        temp_setup, temp_teardown),
        cmocka_unit_test_setup_teardown(residuals_without_a_reducer_are_dropped_with_a_warning,
                                        temp_setup, temp_teardown),
        cmocka_unit_test_setup_teardown(missing_residuals_start_at_zero_with_a_warning, temp_setup,
                                        temp_teardown),
        cmocka_unit_test_setup_teardown(a_number_in_a_reducers_state_is_refused, temp_setup,
                                        temp_teardown),
        cmocka_unit_test_setup_teardown(a_run_without_reducer_state_writes_the_same_file,
                                        temp_setup, temp_teardown),
    };
    if (lt_reducer_register(&keep))
        return 1;
    lt_log_set(hear, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
