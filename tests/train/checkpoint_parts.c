/* Checkpoints in parts, which the ranks that own the state write. Each rank is a thread. */

#include "base/atomic_dir.h"
#include "joined.h"
#include "ranks.h"
#include "train/checkpoint/checkpoint.h"

#include "lather/ext/comm.h"
#include "lather/ext/fail.h"
#include "lather/log.h"
#include "lather/shard.h"

#include <math.h>

enum { RANKS = 4, MOST_PLAYERS = 8, PARAMS = 9, MOST = 64 * 64 };

typedef struct kind {
    const char *name, *compress; /* NULL: none */
    bool shards;                 /* the optimizer is sharded */
    int size;                    /* rows and columns of the matrices */
} kind;

static const kind kinds[] = {{"topk", "topk:0.25", false, 8},
                             {"powersgd", "powersgd:1", false, 8},
                             {"sharded adam", NULL, true, 8}};

/* Loads a checkpoint, or else takes a step and fills the reducer's state; then saves. */
typedef struct plan {
    const kind *kind;
    const char *load, *save, *run;
    const char *whole; /* run folder to save a checkpoint in whole files to; NULL: none */
    int64_t step;
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
    uint64_t sent; /* bytes that the save sent */
} player;

static lt_status write_values(lt_tensor *tensor, double seed)
{
    float values[MOST];
    for (int i = 0; i < MOST; i++)
        values[i] = (float)sin(seed + 1.7 * i);
    return lt_tensor_write(tensor, values, lt_tensor_bytes(tensor));
}

static lt_status fill_entry(void *context, const lt_state_entry *entry)
{
    double *seed = context;
    *seed += 1;
    return entry->tensor ? write_values(entry->tensor, *seed) : LT_OK;
}

static lt_status open_all(player *p)
{
    const int64_t n = p->plan->kind->size;
    const lt_shape shapes[3] = {LT_SHAPE(n, n - 2), LT_SHAPE(n, n), LT_SHAPE(n)};
    const lt_shard_config shard = {.comm = p->base.comm};
    const lt_data_parallel_config c = {.nodes = &p->nodes, .compress = p->plan->kind->compress};
    for (int i = 0; i < PARAMS; i++) {
        const char name[] = {(char)('a' + i), 0};
        LT_TRY(lt_param_init(&p->param[i], p->base.device, "", name, shapes[i % 3], 0.5));
        LT_TRY(lt_params_add(&p->params, &p->param[i]));
        LT_TRY(write_values(p->param[i].grad, i));
        p->param[i].has_grad = true;
    }
    LT_TRY(lt_tape_new(&p->tape, p->base.device));
    LT_TRY(lt_comm_nodes(&p->nodes, p->base.comm, 1));
    LT_TRY(lt_optim_adam(&p->optim, &p->params, NULL));
    if (p->plan->kind->shards)
        return lt_optim_shard(p->optim, &shard);
    return lt_data_parallel_new(&p->dp, p->base.comm, &p->params, p->tape, &c);
}

static lt_status train_or_load(player *p, const lt_checkpoint_contents *parts,
                               lt_checkpoint_state *state)
{
    char path[TEMP_PATH];
    double seed = 0;
    lt_state_visitor fill = {fill_entry, NULL, &seed};
    if (p->plan->load) {
        LT_TRY(lt_checkpoint_newest(p->plan->load, path, sizeof path));
        return lt_checkpoint_load(path, parts, state);
    }
    for (int64_t t = 1; t <= p->plan->step; t++)
        LT_TRY(lt_optim_step(p->optim, &(lt_step){.lr = 0.05, .attempt = t}));
    return p->dp ? lt_data_parallel_visit(p->dp, &fill) : LT_OK;
}

/* Writes the checkpoint just saved as versions without parts did. */
static lt_status write_whole(const player *p, const lt_checkpoint_contents *parts,
                             const lt_checkpoint_state *state)
{
    static const char *const files[] = {"model.safetensors", "optim.safetensors"};
    char from[TEMP_PATH], to[TEMP_PATH], name[64];
    temp_path(to, p->plan->whole, "checkpoints/step-1");
    LT_TRY(lt_make_folders(to));
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "checkpoints/step-1/%s", files[i]);
        LT_TRY(lt_safetensors_join(temp_path(from, p->plan->save, name),
                                   temp_path(to, p->plan->whole, name)));
    }
    return lt_checkpoint_write_state(temp_path(to, p->plan->whole, "checkpoints/step-1"), parts,
                                     state);
}

static lt_status run(void *rank)
{
    player *p = rank;
    LT_TRY(open_all(p));
    const lt_checkpoint_contents parts = {
        .params = &p->params, .optim = p->optim, .comm = p->base.comm, .dp = p->dp};
    lt_checkpoint_state state = {.step = p->plan->step, .seed = 1};
    snprintf(state.optim, sizeof state.optim, "%s", lt_optim_name(p->optim));
    /* another id on each rank, as in training: rank 0's counts */
    snprintf(state.run, sizeof state.run, "%s%.0d", p->plan->run ? p->plan->run : "a",
             p->base.rank);
    LT_TRY(train_or_load(p, &parts, &state));
    if (!p->plan->save)
        return LT_OK;
    const uint64_t before = lt_comm_bytes(p->base.comm);
    LT_TRY(lt_checkpoint_save(p->plan->save, &parts, &state, NULL));
    p->sent = lt_comm_bytes(p->base.comm) - before;
    return p->plan->whole && p->base.rank == 0 ? write_whole(p, &parts, &state) : LT_OK;
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

static void play_all(player *p, int ranks, const plan *what)
{
    const rank_group group = {RANKS_OF(p, ranks), .run = run, .end = end};
    for (int r = 0; r < ranks; r++)
        p[r] = (player){.plan = what};
    play_ranks(&group);
}

static void play_well(int ranks, const plan *what)
{
    player p[MOST_PLAYERS];
    play_all(p, ranks, what);
    expect_ranks(&(rank_group){RANKS_OF(p, ranks)});
}

static char said[4096];
static void hear(void *context, lt_log_level level, const char *area, const char *line)
{
    const size_t used = strlen(said);
    (void)context, (void)level, (void)area;
    snprintf(said + used, sizeof said - used, "%s\n", line);
}

/* --- Rows --- */

static void parts_resume_as_whole_files_on_any_ranks(void **state)
{
    const kind *k = *state;
    char parts[TEMP_PATH], whole[TEMP_PATH], a[TEMP_PATH], b[TEMP_PATH], leaf[32];
    temp_path(parts, folder, "parts");
    temp_path(whole, folder, "whole");
    play_well(RANKS, &(plan){.kind = k, .save = parts, .whole = whole, .step = 1});
    assert_true(is_in_parts(parts, "optim.safetensors"));
    assert_false(is_in_parts(parts, "model.safetensors")); /* replicas: rank 0's */
    for (int ranks = 1; ranks <= RANKS; ranks++) {
        snprintf(leaf, sizeof leaf, "parts-%d", ranks);
        play_well(ranks, &(plan){.kind = k, .load = parts, .save = temp_path(a, folder, leaf)});
        snprintf(leaf, sizeof leaf, "whole-%d", ranks);
        play_well(ranks, &(plan){.kind = k, .load = whole, .save = temp_path(b, folder, leaf)});
        assert_true(joined_same(a, b, "model.safetensors"));
        assert_true(joined_same(a, b, "optim.safetensors"));
        assert_true(joined_same_state(a, b));
        assert_int_equal(is_in_parts(a, "optim.safetensors"), ranks > 1);
        if (ranks == RANKS)
            assert_true(joined_same(a, parts, "optim.safetensors"));
    }
    play_well(RANKS, &(plan){.kind = k, .save = temp_path(b, folder, "control"), .step = 2});
    assert_false(joined_same(a, b, "optim.safetensors"));
}

/* Bytes that a save sends, and those that rank 0 writes, with a model of about 85 kB. */
static void cost_of(const kind *k, int ranks, uint64_t *sent, int64_t *written)
{
    player p[MOST_PLAYERS];
    char path[TEMP_PATH], name[96], leaf[32];
    struct stat info;
    snprintf(leaf, sizeof leaf, "cost-%d", ranks);
    play_all(p, ranks, &(plan){.kind = k, .save = temp_path(path, folder, leaf), .step = 1});
    *sent = 0;
    for (int r = 0; r < ranks; r++)
        *sent += p[r].sent;
    snprintf(name, sizeof name, "%s/checkpoints/step-1/optim-00001-of-%05d.safetensors", leaf,
             ranks);
    assert_int_equal(stat(temp_path(path, folder, name), &info), 0);
    *written = info.st_size;
}

/* Rank 0 receives numbers and names, no tensors; of a sharded optimizer it writes less. */
static void rank_0_does_no_more_work_with_more_ranks(void **state)
{
    kind k = *(const kind *)*state;
    uint64_t sent[2];
    int64_t written[2];
    k.size = 60;
    for (int i = 0; i < 2; i++)
        cost_of(&k, 2 << (2 * i), &sent[i], &written[i]);
    const uint64_t messages = 2 * 8 * 8 * 400; /* a few small all-gathers of 8 ranks */
    assert_in_range(sent[1], 1, messages);
    assert_true(written[1] <= written[0] + 256);
    assert_true(k.shards == (2 * written[1] < written[0] + 1024)); /* a quarter */
}

static void replace(const char *run_folder, const char *with, const char *name)
{
    char from[TEMP_PATH], to[TEMP_PATH], under[96];
    size_t bytes;
    snprintf(under, sizeof under, "checkpoints/step-2/%s", name);
    char *data = temp_read(temp_path(from, with, name), &bytes);
    temp_write(temp_path(to, run_folder, under), data, bytes);
    free(data);
}

/* Checks the error of a damaged step 2, and that a resume takes step 1. */
static void expect_damage(const char *runs, const char *const *texts)
{
    char path[TEMP_PATH];
    lt_checkpoint_state found = {0};
    assert_true(lt_checkpoint_verify(temp_path(path, runs, "checkpoints/step-2"), &found));
    for (; *texts; texts++)
        if (!strstr(lt_error_message(), *texts))
            fail_msg("'%s' lacks '%s'", lt_error_message(), *texts);
    said[0] = 0;
    assert_ok(lt_checkpoint_newest(runs, path, sizeof path));
    assert_non_null(strstr(path, "/step-1"));
    assert_non_null(strstr(said, "DAMAGED CHECKPOINT, trying the one before"));
    play_well(RANKS, &(plan){.kind = &kinds[2], .load = runs});
}

#define PART "optim-00003-of-00004.safetensors"

static void a_bad_part_is_named_and_the_checkpoint_before_taken(void **state)
{
    (void)state;
    char runs[TEMP_PATH], other[TEMP_PATH], step[TEMP_PATH], path[TEMP_PATH];
    struct stat info;
    char bytes[32];
    const kind *k = &kinds[2];
    temp_path(runs, folder, "runs");
    temp_path(other, folder, "other");
    temp_path(step, runs, "checkpoints/step-1");
    play_well(RANKS, &(plan){.kind = k, .save = runs, .run = "run", .step = 1});
    play_well(RANKS, &(plan){.kind = k, .save = runs, .run = "run", .step = 2});
    play_well(RANKS, &(plan){.kind = k, .save = other, .run = "stranger", .step = 2});
    temp_path(path, runs, "checkpoints/step-2/" PART);
    assert_int_equal(stat(path, &info), 0);
    char *good = temp_read(path, NULL);

    replace(runs, step, PART);
    expect_damage(runs, (const char *const[]){PART ": belongs to step 1 of run 'run', but",
                                              "needs the part of step 2 of run 'run'", NULL});
    replace(runs, temp_path(path, other, "checkpoints/step-2"), PART);
    expect_damage(runs, (const char *const[]){PART ": belongs to step 2 of run 'stranger', but",
                                              "needs the part of step 2 of run 'run'", NULL});
    temp_write(temp_path(path, runs, "checkpoints/step-2/" PART), good, (size_t)info.st_size);
    free(good);
    assert_int_equal(truncate(path, info.st_size - 3), 0);
    snprintf(bytes, sizeof bytes, "expected %lld", (long long)info.st_size);
    expect_damage(runs, (const char *const[]){PART ": ", bytes, "damaged", NULL});
    assert_int_equal(truncate(path, info.st_size), 0); /* the last bytes are now 0 */
    expect_damage(runs, (const char *const[]){PART ": checksum ", ", expected ", NULL});
    assert_int_equal(unlink(path), 0);
    expect_damage(runs, (const char *const[]){PART ": No such file or directory: a part that ",
                                              "optim.safetensors.index.json names", NULL});
}

int main(void)
{
    enum { KINDS = COUNT_OF(kinds) };
    static char name[2 * KINDS][96];
    struct CMUnitTest tests[2 * KINDS + 1] = {cmocka_unit_test_setup_teardown(
        a_bad_part_is_named_and_the_checkpoint_before_taken, temp_setup, temp_teardown)};
    for (size_t i = 0; i < 2 * KINDS; i++) {
        const bool costs = i >= KINDS;
        snprintf(name[i], sizeof name[i], "%s: %s", kinds[i % KINDS].name,
                 costs ? "rank 0 does no more work with more ranks"
                       : "parts resume as whole files on any ranks");
        tests[1 + i] =
            (struct CMUnitTest){name[i],
                                costs ? rank_0_does_no_more_work_with_more_ranks
                                      : parts_resume_as_whole_files_on_any_ranks,
                                temp_setup, temp_teardown, (void *)(uintptr_t)&kinds[i % KINDS]};
    }
    lt_log_set(hear, NULL);
    return cmocka_run_group_tests_name("checkpoints in parts", tests, NULL, NULL);
}
