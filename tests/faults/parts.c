/* Saves of checkpoints in parts during which one call of any rank fails, or ends the process: the earlier checkpoint or
 * the new one is complete, no rank waits forever, and the next save works. A rank is a thread. */

#include "base/atomic_dir.h"
#include "faults.h"
#include "joined.h"
#include "ranks.h"

#include "lather/checkpoint.h"
#include "lather/shard.h"

#include <sys/wait.h>

enum { RANKS = 3, PARAMS = 4, ELEMENTS = 6, KILLED = 77 };

typedef struct player {
    test_rank at;
    lt_param param[PARAMS];
    lt_params list;
    lt_optim *optim;
} player;

typedef struct scene {
    unsigned kinds;
    player player[RANKS];
} scene;

static const char *checkpoints(char *path)
{
    return temp_path(path, folder, "checkpoints");
}

static void open_model(player *p)
{
    static const float values[ELEMENTS] = {1, -2, 3, -4, 5, -6};
    for (int i = 0; i < PARAMS; i++) {
        const char name[] = {(char)('a' + i), 0};
        lt_param *param = &p->param[i];
        assert_ok(lt_param_init(param, p->at.device, "", name, LT_SHAPE(2, 3), 0));
        assert_ok(lt_params_add(&p->list, param));
        assert_ok(lt_tensor_write(param->grad, values, sizeof values));
        param->has_grad = true;
    }
    assert_ok(lt_optim_adam(&p->optim, &p->list, NULL));
}

static lt_status save_step(player *p, int64_t step)
{
    const lt_checkpoint_contents parts = {
        .params = &p->list, .optim = p->optim, .comm = p->at.comm};
    lt_checkpoint_state state = {.step = step, .seed = 1, .run = "run"};
    const lt_checkpoint_policy policy = {.keep = 1, .is_best = step == 1};
    snprintf(state.optim, sizeof state.optim, "%s", lt_optim_name(p->optim));
    return lt_checkpoint_save(folder, &parts, &state, &policy);
}

static lt_status save_first(void *rank)
{
    player *p = rank;
    const lt_shard_config c = {.comm = p->at.comm};
    LT_TRY(lt_optim_shard(p->optim, &c));
    LT_TRY(lt_optim_step(p->optim, &(lt_step){.lr = 0.1, .attempt = 1}));
    LT_TRY(save_step(p, 1));
    return lt_optim_step(p->optim, &(lt_step){.lr = 0.1, .attempt = 2});
}

static lt_status save_second(void *rank)
{
    return save_step(rank, 2);
}

static rank_group group_of(scene *s, lt_status (*act)(void *rank))
{
    return (rank_group){RANKS_OF(s->player, RANKS), .run = act};
}

static void begin(void *context)
{
    scene *s = context;
    const rank_group group = group_of(s, save_first);
    char path[TEMP_PATH];
    assert_ok(lt_remove_tree(checkpoints(path)));
    for (int r = 0; r < RANKS; r++)
        s->player[r] = (player){0};
    open_ranks(&group);
    for (int r = 0; r < RANKS; r++)
        open_model(&s->player[r]);
    run_ranks(&group);
    expect_ranks(&group);
    for (int r = 0; r < RANKS; r++)
        faults_attach(s->player[r].at.device);
}

static void end(void *context)
{
    scene *s = context;
    const rank_group group = group_of(s, NULL);
    for (int r = 0; r < RANKS; r++) {
        player *p = &s->player[r];
        lt_optim_free(&p->optim);
        for (int i = 0; i < PARAMS; i++)
            lt_param_clear(&p->param[i]);
        lt_params_clear(&p->list);
    }
    close_ranks(&group);
}

/* Status of the rank whose call failed. */
static lt_status act(void *context)
{
    const rank_group group = group_of(context, save_second);
    run_ranks(&group);
    const test_rank *failed = failed_rank(&group);
    return failed ? failed->status : LT_OK;
}

/* Verifies all files of the newest checkpoint. */
static int64_t newest_step(void)
{
    char path[TEMP_PATH];
    lt_checkpoint_state found = {0};
    assert_ok(lt_checkpoint_newest(folder, path, sizeof path));
    assert_ok(lt_checkpoint_verify(path, &found));
    return found.step;
}

/* A save by new ranks. */
static void save_again(void)
{
    static scene again;
    begin(&again);
    assert_ok(act(&again));
    end(&again);
    assert_int_equal(newest_step(), 2);
    assert_int_equal(temp_count(folder, "checkpoints"), 4); /* the best, the latest, two links */
}

static void after(void *context, lt_status st)
{
    (void)context;
    assert_in_range(newest_step(), st ? 1 : 2, 2);
}

static void a_save_that_fails_leaves_the_earlier_one(void **state)
{
    scene s = {.kinds = *(const unsigned *)*state};
    const fault_case c = {.name = "parts",
                          .survives = " fopen64 opendir open64 fstat64 fdopen fread ",
                          .kinds = s.kinds,
                          .any_status = true,
                          .open = begin,
                          .act = act,
                          .after = after,
                          .close = end,
                          .context = &s,
                          .least = 30};
    (void)faults_each(&c);
    save_again();
}

/* Returns false if the save ended before call k. */
static bool kill_at(int64_t k)
{
    int status;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        static scene s;
        begin(&s);
        atomic_store(&fault_exit, KILLED);
        faults_arm(FAULT_FILE, k);
        _exit(act(&s) != LT_OK);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_true(WEXITSTATUS(status) == KILLED || WEXITSTATUS(status) == 0);
    return WEXITSTATUS(status) == KILLED;
}

static void a_process_that_ends_leaves_the_earlier_one_or_the_new_one(void **state)
{
    int64_t count[3] = {0};
    (void)state;
    for (int64_t k = 1; kill_at(k); k++) {
        const int64_t step = newest_step();
        assert_in_range(step, 1, 2);
        count[step]++;
    }
    assert_in_range(count[1], 30, 2000);
    assert_in_range(count[2], 3, 2000); /* links, and the removal of old checkpoints */
    assert_int_equal(newest_step(), 2);
    save_again();
}

/* --- A folder that a rank does not see --- */

static _Thread_local bool blind;

int __real_access(const char *path, int how);
int __wrap_access(const char *path, int how)
{
    if (!blind || !strstr(path, ".tmp-"))
        return __real_access(path, how);
    errno = ENOENT;
    return -1;
}

static lt_status save_blindly(void *rank)
{
    blind = ((const player *)rank)->at.rank == 1;
    return save_second(rank);
}

static char said[1024];
static void hear(void *context, lt_log_level level, const char *area, const char *line)
{
    (void)context, (void)level, (void)area;
    snprintf(said, sizeof said, "%s", line);
}

static void rank_0_writes_everything_if_a_rank_does_not_see_its_folder(void **state)
{
    (void)state;
    scene s = {0};
    const rank_group group = group_of(&s, save_blindly);
    char parts[TEMP_PATH], whole[TEMP_PATH];
    begin(&s);
    assert_ok(act(&s));
    end(&s);
    assert_true(is_in_parts(folder, "optim.safetensors"));
    joined(parts, folder, "optim.safetensors", "parts");
    begin(&s);
    lt_log_set(hear, NULL);
    run_ranks(&group);
    expect_ranks(&group);
    end(&s);
    assert_false(is_in_parts(folder, "optim.safetensors"));
    temp_path(whole, folder, "checkpoints/latest/optim.safetensors");
    assert_true(temp_same(parts, whole));
    assert_int_equal(newest_step(), 2);
    if (!strstr(said, "rank 1: ") || !strstr(said, "rank 0 receives and writes the state of all"))
        fail_msg("'%s'", said);
}

int main(void)
{
    static unsigned files = FAULT_FILE, memory = FAULT_MEMORY | FAULT_KERNEL;
    const struct CMUnitTest tests[] = {
        {"files", a_save_that_fails_leaves_the_earlier_one, temp_setup, temp_teardown, &files},
        {"memory and kernels", a_save_that_fails_leaves_the_earlier_one, temp_setup, temp_teardown,
         &memory},
        {"killed at each call", a_process_that_ends_leaves_the_earlier_one_or_the_new_one,
         temp_setup, temp_teardown, NULL},
        {"a folder that a rank does not see",
         rank_0_writes_everything_if_a_rank_does_not_see_its_folder, temp_setup, temp_teardown,
         NULL},
    };
    return faults_run("faults in a checkpoint in parts", tests, COUNT_OF(tests), NULL, NULL);
}
