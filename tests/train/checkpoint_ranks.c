/* Checkpoints of several ranks, each a thread: the joined files do not depend on the number of ranks. */

#include "joined.h"
#include "optim/shampoo/reference.h"
#include "ranks.h"

#include "lather/checkpoint.h"
#include "lather/detail/checkpoint_hash.h"
#include "lather/ext/fail.h"
#include "lather/layerwise.h"
#include "lather/log.h"
#include "lather/muon.h"
#include "lather/optim_config.h"
#include "lather/plugin.h"
#include "lather/shard.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>

enum { PARAMS = 3, MOST = 49, RANKS = 4, BEFORE = 5, AFTER = 3 };

static const char *const names[PARAMS] = {"matrix", "kernel", "bias"};
static const lt_shape shapes[PARAMS] = {{2, {7, 7}}, {4, {4, 3, 2, 2}}, {1, {6}}};

typedef lt_status make_fn(lt_optim **out, const lt_params *params);

/* Steps to run; some ranks start from a checkpoint, all end by saving one. */
typedef struct plan {
    make_fn *make;
    int group;
    int64_t from, to; /* steps */
    const char *load; /* run folder to resume; NULL: new run */
    const char *save; /* run folder; NULL: do not save */
    char *hash; /* hash of the state after the last step; hashes are made after each. NULL: none */
    bool alone; /* save without the other ranks */
    int gone;   /* rank that exits instead; 0: none */
    int64_t
        fail_at; /* allocation that fails in the load, else in the save, over all ranks; 0: none */
} plan;

typedef struct player {
    test_rank base;
    const plan *plan;
    lt_param param[PARAMS];
    lt_params params;
    lt_optim *optim;
    int64_t attempt; /* the optimizer's last attempt */
} player;

static lt_status make_blocks(lt_optim **out, const lt_params *params, int limit)
{
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.epsilon = 1e-6;
    c.beta2 = 0.9;
    c.max_preconditioner_dim = limit;
    c.precondition_frequency = 3;
    c.momentum = 0.9;
    c.grafting = LT_GRAFTING_ADAM;
    c.weight_decay = 0.01;
    c.refresh_timing = LT_REFRESH_ASYNC; /* roots are pending from step 6 to 9 */
    return lt_optim_shampoo(out, params, &c);
}

static lt_status make_shampoo(lt_optim **out, const lt_params *params)
{
    return make_blocks(out, params, 3);
}

static lt_status make_larger(lt_optim **out, const lt_params *params)
{
    return make_blocks(out, params, 4);
}

/* On two ranks the second one owns the kernel, whose vectors follow its memory order. */
static lt_status make_backward(lt_optim **out, const lt_params *params)
{
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.epsilon = 1e-6;
    c.max_preconditioner_dim = 7;
    c.merge_order = LT_MERGE_BACKWARD;
    c.target_dimensionality = 1;
    c.momentum = 0.9;
    return lt_optim_shampoo(out, params, &c);
}

/* Slices of a joined parameter that differ only in offset, an embedding table, and a diagonal factor. */
static lt_status make_ruled(lt_optim **out, const lt_params *params)
{
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.epsilon = 1e-6;
    c.momentum = 0.9;
    c.split[0] = (lt_param_split){{"kernel", false}, 0, 2};
    c.one_sided = (lt_name_regex){"matrix", false};
    c.diagonal = (lt_name_regex){"bias", false};
    return lt_optim_shampoo(out, params, &c);
}

static lt_status make_muon(lt_optim **out, const lt_params *params)
{
    return lt_optim_muon(out, params, NULL);
}

static lt_status make_adam(lt_optim **out, const lt_params *params)
{
    return lt_optim_adam(out, params, NULL);
}

static lt_status write_values(lt_tensor *tensor, int64_t t, int k, double factor)
{
    float values[MOST];
    for (int i = 0; i < MOST; i++)
        values[i] = (float)(factor * sin(1 + 7.0 * (double)t + 3.0 * k + 1.7 * i));
    return lt_tensor_write(tensor, values, lt_tensor_bytes(tensor));
}

static lt_status open_model(player *p)
{
    for (int k = 0; k < PARAMS; k++) {
        LT_TRY(shapes[k].ndim == 4
                   ? lt_param_init_filter(&p->param[k], p->base.device, "", names[k], shapes[k])
                   : lt_param_init(&p->param[k], p->base.device, "", names[k], shapes[k], 0));
        LT_TRY(write_values(p->param[k].value, 0, k, 0.5));
        LT_TRY(lt_params_add(&p->params, &p->param[k]));
    }
    return p->plan->make(&p->optim, &p->params);
}

static lt_checkpoint_contents parts_of(player *p)
{
    return (lt_checkpoint_contents){
        .params = &p->params, .optim = p->optim, .comm = p->plan->alone ? NULL : p->base.comm};
}

static lt_status hash_state(player *p, int64_t step)
{
    const lt_checkpoint_contents parts = parts_of(p);
    const lt_checkpoint_state state = {.step = step};
    lt_checkpoint_hashes hashes = {0};
    const lt_status st = lt_checkpoint_hash(&parts, &state, &hashes);
    if (!p->base.rank)
        memcpy(p->plan->hash, hashes.all, sizeof hashes.all);
    lt_checkpoint_hashes_clear(&hashes);
    return st;
}

static lt_status all_steps(player *p)
{
    for (int64_t t = p->plan->from + 1; t <= p->plan->to; t++) {
        for (int k = 0; k < PARAMS; k++) {
            LT_TRY(write_values(p->param[k].grad, t, k, 1));
            p->param[k].has_grad = true;
        }
        const lt_step step = {.lr = 0.05, .attempt = t};
        LT_TRY(lt_optim_step(p->optim, &step));
        if (p->plan->hash)
            LT_TRY(hash_state(p, t));
    }
    return LT_OK;
}

/* Rank 0 starts counting when it begins. */
static void fail_later(const player *p)
{
    if (p->plan->fail_at && !p->base.rank)
        lt_alloc_fail_at(p->plan->fail_at);
}

static lt_status load(player *p)
{
    char path[TEMP_PATH];
    lt_checkpoint_state state = {0};
    lt_checkpoint_contents parts = parts_of(p);
    LT_TRY(lt_checkpoint_newest(p->plan->load, path, sizeof path));
    fail_later(p);
    LT_TRY(lt_checkpoint_load(path, &parts, &state));
    return state.step == p->plan->from ? LT_OK : lt_fail(LT_E_ARG, "another step");
}

static lt_status save(player *p)
{
    lt_checkpoint_contents parts = parts_of(p);
    lt_checkpoint_state state = {.step = p->plan->to, .seed = 1};
    snprintf(state.optim, sizeof state.optim, "%s", lt_optim_name(p->optim));
    if (p->plan->gone && p->base.rank == p->plan->gone)
        return lt_fail(LT_E_ARG, "this rank exits");
    if (p->plan->alone && p->base.rank) /* the threads share one temporary folder */
        return LT_OK;
    fail_later(p);
    return lt_checkpoint_save(p->plan->save, &parts, &state, NULL);
}

static lt_status run(void *rank)
{
    player *p = rank;
    const lt_shard_config config = {.comm = p->base.comm, .group = p->plan->group};
    LT_TRY(open_model(p));
    LT_TRY(lt_optim_shard(p->optim, &config));
    if (p->plan->load)
        LT_TRY(load(p));
    LT_TRY(all_steps(p));
    return p->plan->save ? save(p) : LT_OK;
}

static lt_status read_attempt(void *context, const char *name, int64_t *value)
{
    if (!strcmp(name, "attempt"))
        *(int64_t *)context = *value;
    return LT_OK;
}

static lt_status no_entry(void *context, const lt_state_entry *entry)
{
    (void)context, (void)entry;
    return LT_OK;
}

static void end(void *rank)
{
    player *p = rank;
    lt_state_visitor v = {no_entry, read_attempt, &p->attempt};
    if (p->optim && lt_optim_visit(p->optim, &v))
        p->attempt = -1;
    lt_optim_free(&p->optim);
    lt_params_clear(&p->params);
    for (int k = 0; k < PARAMS; k++)
        lt_param_clear(&p->param[k]);
}

static rank_group play_all(player *p, int ranks, const plan *what)
{
    const rank_group group = {RANKS_OF(p, ranks), .run = run, .end = end};
    for (int r = 0; r < ranks; r++)
        p[r] = (player){.plan = what};
    play_ranks(&group);
    return group;
}

static void play_well(int ranks, const plan *what)
{
    player p[RANKS];
    const rank_group group = play_all(p, ranks, what);
    expect_ranks(&group);
}

/* --- Files --- */

static bool same_checkpoints(const char *a, const char *b)
{
    return joined_same(a, b, "model.safetensors") && joined_same(a, b, "optim.safetensors")
           && joined_same_state(a, b);
}

static const char *run_folder(char *path, const char *name, int ranks)
{
    char leaf[64];
    snprintf(leaf, sizeof leaf, "%s-%d", name, ranks);
    return temp_path(path, folder, leaf);
}

/* --- Rows --- */

static void test_any_ranks(void **state)
{
    make_fn *const *make = *state;
    char first[TEMP_PATH], other[TEMP_PATH], whole[TEMP_PATH], resumed[TEMP_PATH];
    run_folder(first, "first", 1);
    run_folder(whole, "whole", 1);
    for (int ranks = 1; ranks <= RANKS; ranks++) {
        run_folder(other, "first", ranks);
        play_well(ranks, &(plan){.make = *make, .to = BEFORE + 1, .save = other});
        assert_true(same_checkpoints(first, other));
    }
    play_well(1, &(plan){.make = *make, .to = BEFORE + 1 + AFTER, .save = whole});
    assert_false(same_checkpoints(first, whole)); /* the control */
    for (int from = 1; from <= RANKS; from++)
        for (int to = 1; to <= RANKS; to++) {
            run_folder(other, "first", from);
            run_folder(resumed, "resumed", 10 * from + to);
            play_well(to, &(plan){.make = *make,
                                  .from = BEFORE + 1,
                                  .to = BEFORE + 1 + AFTER,
                                  .load = other,
                                  .save = resumed});
            assert_true(same_checkpoints(whole, resumed));
        }
}

/* Hashes do not depend on the number of ranks, and change nothing that a checkpoint stores, nor do pending roots. */
static void test_hashes(void **state)
{
    make_fn *const *make = *state;
    char without[TEMP_PATH], with[TEMP_PATH], hash[RANKS + 1][LT_HASH_TEXT], before[LT_HASH_TEXT];
    run_folder(without, "without", 1);
    play_well(1, &(plan){.make = *make, .to = BEFORE + AFTER, .hash = before});
    play_well(1, &(plan){.make = *make, .to = BEFORE + 1 + AFTER, .save = without});
    for (int ranks = 1; ranks <= RANKS; ranks++) {
        run_folder(with, "with", ranks);
        play_well(
            ranks,
            &(plan){.make = *make, .to = BEFORE + 1 + AFTER, .save = with, .hash = hash[ranks]});
        assert_true(same_checkpoints(without, with));
        assert_string_equal(hash[ranks], hash[1]);
    }
    assert_string_not_equal(hash[1], before); /* the control */
}

static void test_groups(void **state)
{
    make_fn *const *make = *state;
    char one[TEMP_PATH], pairs[TEMP_PATH], resumed[TEMP_PATH], whole[TEMP_PATH];
    run_folder(one, "one", 1);
    run_folder(pairs, "pairs", 4);
    run_folder(whole, "whole", 1);
    run_folder(resumed, "resumed", 3);
    play_well(1, &(plan){.make = *make, .to = BEFORE, .save = one});
    play_well(4, &(plan){.make = *make, .group = 2, .to = BEFORE, .save = pairs});
    assert_true(same_checkpoints(one, pairs));
    play_well(1, &(plan){.make = *make, .to = BEFORE + AFTER, .save = whole});
    play_well(3, &(plan){.make = *make,
                         .group = 1,
                         .from = BEFORE,
                         .to = BEFORE + AFTER,
                         .load = pairs,
                         .save = resumed});
    assert_true(same_checkpoints(whole, resumed));
}

/* Blocks of 4 instead of 3: all ranks reject them, naming the parameter and both shapes. */
static void test_other_blocks(void **state)
{
    (void)state;
    char path[TEMP_PATH];
    player p[RANKS];
    run_folder(path, "run", 2);
    play_well(2, &(plan){.make = make_shampoo, .to = BEFORE, .save = path});
    play_all(p, 3,
             &(plan){.make = make_larger, .from = BEFORE, .to = BEFORE + AFTER, .load = path});
    for (int r = 0; r < 3; r++) {
        assert_int_equal(p[r].base.status, LT_E_FORMAT);
        assert_int_equal(p[r].attempt, 0); /* nothing changed */
        assert_non_null(strstr(p[r].base.message,
                               "block 0 of matrix has offset [0,0] shape [3,3] there, "
                               "offset [0,0] shape [4,4] here"));
    }
}

/* RLIMIT_FSIZE gives EFBIG, which is handled like ENOSPC. At a limit that the weights fit in, ranks fail at their parts. */
static void test_full_disk(void **state)
{
    (void)state;
    char path[TEMP_PATH];
    struct rlimit old, small;
    player p[RANKS];
    const plan all = {.make = make_shampoo, .to = BEFORE, .save = run_folder(path, "run", 3)};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_IGN);
    for (rlim_t limit = 0; limit < 9000; limit += 3000) {
        small = old;
        small.rlim_cur = limit;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        play_all(p, 3, &all);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        for (int r = 0; r < 3; r++) {
            assert_int_equal(p[r].base.status, LT_E_IO);
            assert_int_equal(strncmp(p[r].base.message, limit ? "rank 1: /" : "rank 0: /", 9), 0);
        }
        assert_int_equal(temp_count(path, "checkpoints"), 0);
    }
    play_well(3, &all);                                   /* the disk has space again */
    assert_int_equal(temp_count(path, "checkpoints"), 2); /* step-5 and latest */
}

/* One rank does not take part: the others end and leave no partial files. */
static void test_gone(void **state)
{
    (void)state;
    char path[TEMP_PATH];
    player p[RANKS];
    for (int gone = 1; gone < 3; gone++) {
        run_folder(path, "gone", gone);
        play_all(p, 3, &(plan){.make = make_shampoo, .to = BEFORE, .save = path, .gone = gone});
        for (int r = 0; r < 3; r++)
            assert_int_equal(p[r].base.status, r == gone ? LT_E_ARG : LT_E_COMM);
    }
}

/* Saving fails if a shard is on a rank that does not take part. */
static void test_alone(void **state)
{
    (void)state;
    char path[TEMP_PATH];
    player p[RANKS];
    run_folder(path, "alone", 1);
    play_all(p, 2, &(plan){.make = make_adam, .to = BEFORE, .save = path, .alone = true});
    assert_int_equal(p[0].base.status, LT_E_ARG);
    assert_non_null(strstr(p[0].base.message, "is on rank 1: save with all ranks"));
}

/* Whichever allocation fails on whichever rank, all ranks fail and none waits forever; without a failure all succeed. */
static void fail_each(plan what)
{
    for (bool failed = true; failed; what.fail_at++) {
        player p[RANKS];
        assert_in_range(what.fail_at, 1, 20000);
        play_all(p, 2, &what);
        lt_alloc_fail_at(0);
        failed = p[0].base.status;
        assert_int_equal(failed, p[1].base.status != LT_OK);
    }
}

static void test_no_memory(void **state)
{
    (void)state;
    char path[TEMP_PATH];
    run_folder(path, "memory", 2);
    fail_each((plan){.make = make_adam, .to = 1, .save = path, .fail_at = 1});
    fail_each((plan){.make = make_adam, .from = 1, .to = 1, .load = path, .fail_at = 1});
}

static lt_status make_lars(lt_optim **out, const lt_params *params)
{
    return lt_optim_lars(out, params, NULL);
}

static lt_status make_lamb(lt_optim **out, const lt_params *params)
{
    return lt_optim_lamb(out, params, NULL);
}

lt_status lt_plugin(const lt_plugin_host *host);

/* Ranks are threads: main() registered it. */
static lt_status make_one_sided(lt_optim **out, const lt_params *params)
{
    return lt_optim_open(out, "one_sided", params);
}

int main(void)
{
    static make_fn *const makers[] = {make_shampoo, make_adam, make_backward, make_ruled,
                                      make_muon,    make_lars, make_lamb,     make_one_sided};
    void *const one_sided = (void *)(uintptr_t)&makers[7];
    void *const shampoo = (void *)(uintptr_t)&makers[0];
    void *const adam = (void *)(uintptr_t)&makers[1];
    void *const backward = (void *)(uintptr_t)&makers[2];
    void *const ruled = (void *)(uintptr_t)&makers[3];
    void *const muon = (void *)(uintptr_t)&makers[4];
    void *const lars = (void *)(uintptr_t)&makers[5];
    void *const lamb = (void *)(uintptr_t)&makers[6];
    const struct CMUnitTest tests[] = {
        {"shampoo, merged window: saved and loaded on any number of ranks", test_any_ranks,
         temp_setup, temp_teardown, backward},
        {"shampoo, pending roots: saved and loaded on any number of ranks", test_any_ranks,
         temp_setup, temp_teardown, shampoo},
        {"shampoo, joined slices and tables: saved and loaded on any number of ranks",
         test_any_ranks, temp_setup, temp_teardown, ruled},
        {"muon: saved and loaded on any number of ranks", test_any_ranks, temp_setup, temp_teardown,
         muon},
        {"lars: saved and loaded on any number of ranks", test_any_ranks, temp_setup, temp_teardown,
         lars},
        {"lamb: saved and loaded on any number of ranks", test_any_ranks, temp_setup, temp_teardown,
         lamb},
        {"one-sided example: saved and loaded on any number of ranks", test_any_ranks, temp_setup,
         temp_teardown, one_sided},
        {"adam: saved and loaded on any number of ranks", test_any_ranks, temp_setup, temp_teardown,
         adam},
        {"shampoo, pending roots: hashes on any number of ranks", test_hashes, temp_setup,
         temp_teardown, shampoo},
        {"muon: hashes on any number of ranks", test_hashes, temp_setup, temp_teardown, muon},
        {"shampoo: groups of ranks", test_groups, temp_setup, temp_teardown, shampoo},
        {"adam: groups of ranks", test_groups, temp_setup, temp_teardown, adam},
        {"blocks of a different size are rejected by name", test_other_blocks, temp_setup,
         temp_teardown, NULL},
        {"a full disk leaves no partial files on any rank", test_full_disk, temp_setup,
         temp_teardown, NULL},
        {"a lack of memory on one rank fails all", test_no_memory, temp_setup, temp_teardown, NULL},
        {"a rank that exits ends the others", test_gone, temp_setup, temp_teardown, NULL},
        {"saving alone fails if another rank has state", test_alone, temp_setup, temp_teardown,
         NULL},
    };
    if (lt_plugin(&(lt_plugin_host){sizeof(lt_plugin_host), LT_VERSION, "test"}))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
