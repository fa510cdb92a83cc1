/* Checkpoints of ranks that hold shards of parameters: the joined files equal those of one rank. */

#include "../optim/sharded_ranks.h"
#include "joined.h"

#include "lather/checkpoint.h"

enum { HALF = STEPS / 2 };

/* Run folder to save a checkpoint to, and one to load from; NULL: start new. */
static const char *save_to, *load_from;

static lt_checkpoint_contents parts_of(rank_run *p)
{
    return (lt_checkpoint_contents){.params = &p->list, .optim = p->optim, .comm = p->base.comm};
}

static lt_status begin(rank_run *p, int t)
{
    char path[TEMP_PATH];
    lt_checkpoint_state state = {0};
    lt_checkpoint_contents parts = parts_of(p);
    if (!load_from || t != p->scenario->from)
        return LT_OK;
    LT_TRY(lt_checkpoint_newest(load_from, path, sizeof path));
    LT_TRY(lt_checkpoint_load(path, &parts, &state));
    return state.step == t - 1 ? LT_OK : lt_fail(LT_E_ARG, "wrong step");
}

static lt_status end(rank_run *p)
{
    lt_checkpoint_contents parts = parts_of(p);
    lt_checkpoint_state state = {.step = p->scenario->to ? p->scenario->to : STEPS, .seed = 1};
    snprintf(state.optim, sizeof state.optim, "%s", lt_optim_name(p->optim));
    return lt_checkpoint_save(save_to, &parts, &state, NULL);
}

static void run_steps(const scenario *s, int from, int to, const grid *layout, int copies)
{
    static rank_run p[RANKS];
    scenario part = *s;
    part.from = from;
    part.to = to;
    part.before = begin;
    part.after = end;
    if (!layout) {
        run_whole(p, &part, NULL);
        free_records(p, 1);
        return;
    }
    const int ranks = ranks_of(*layout) * copies;
    run_shards(p, &part, *layout, copies, NULL);
    for (int r = 0; r < ranks; r++)
        if (p[r].base.status)
            fail_msg("rank %d of %d: %s", r, ranks, p[r].base.message);
    free_records(p, ranks);
}

static bool same_checkpoints(const char *a, const char *b)
{
    return joined_same(a, b, "optim.safetensors") && joined_same(a, b, "model.safetensors");
}

/* Ten steps on one rank and on two replicas of 2x2, or 2x2x2; then ten more on 1, 4 and 3 ranks. */
static void test_any_mesh(void **state)
{
    static char one[TEMP_PATH], whole[TEMP_PATH], mesh[TEMP_PATH], resumed[TEMP_PATH];
    static const grid meshes[] = {{0, 2, 1}, {0, 2, 2}},
                      lines[] = {{1, 0, 0}, {4, 0, 0}, {3, 0, 0}};
    const scenario *s = *state;
    save_to = temp_path(one, folder, "one");
    load_from = NULL;
    run_steps(s, 1, HALF, NULL, 1);
    load_from = one;
    save_to = temp_path(whole, folder, "whole");
    run_steps(s, HALF + 1, STEPS, NULL, 1);
    assert_false(same_checkpoints(one, whole)); /* the control */
    for (int m = 0; m < 2; m++) {
        load_from = NULL;
        save_to = temp_path(mesh, folder, m ? "2x2x2" : "2x2");
        run_steps(s, 1, HALF, &meshes[m], 2 - m);
        assert_true(same_checkpoints(one, mesh));
    }
    load_from = mesh;
    for (int k = 0; k < 3; k++) {
        char leaf[16];
        snprintf(leaf, sizeof leaf, "on-%d", lines[k].line);
        save_to = temp_path(resumed, folder, leaf);
        run_steps(s, HALF + 1, STEPS, &lines[k], 1);
        assert_true(same_checkpoints(whole, resumed));
    }
}

int main(void)
{
    static scenario shampoo = {.make = make_shampoo, .clip = 0.5};
    static scenario pending = {.make = make_async};
    static scenario adamw = {.make = make_adamw};
    static scenario boxes = {.make = make_adamw, .in_place = true};
    static scenario soap = {.preset = "soap"};
    const struct CMUnitTest tests[] = {
        {"shampoo: files of any mesh resume on any other", test_any_mesh, temp_setup, temp_teardown,
         &shampoo},
        {"pending roots: files of any mesh resume on any other", test_any_mesh, temp_setup,
         temp_teardown, &pending},
        {"adamw: files of any mesh resume on any other", test_any_mesh, temp_setup, temp_teardown,
         &adamw},
        {"adamw, in-place shards: files of any mesh resume on any other", test_any_mesh, temp_setup,
         temp_teardown, &boxes},
        {"soap: files of any mesh resume on any other", test_any_mesh, temp_setup, temp_teardown,
         &soap},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
