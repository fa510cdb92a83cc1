/* Local steps of two ranks, each a group, with their state taken as for a checkpoint and back, in which one call of either
 * rank fails: both ranks fail; nothing leaks, nothing waits for ever, and the same steps then work. */

#include "lather/local_steps.h"

#include "faults.h"
#include "ranks.h"

enum { RANKS = 2, ELEMENTS = 12 };

typedef struct player {
    test_rank at;
    const char *compress;
    lt_param param;
    lt_params list;
    lt_nodes nodes;
    lt_local_steps *local;
} player;

typedef struct scene {
    const char *compress;
    player player[RANKS];
} scene;

static void begin(void *context)
{
    scene *s = context;
    for (int r = 0; r < RANKS; r++)
        s->player[r] = (player){.compress = s->compress};
    open_ranks(&(rank_group){RANKS_OF(s->player, RANKS)});
    for (int r = 0; r < RANKS; r++) {
        player *p = &s->player[r];
        assert_ok(lt_param_init(&p->param, p->at.device, "", "weight", LT_SHAPE(ELEMENTS), r));
        assert_ok(lt_params_add(&p->list, &p->param));
        faults_attach(p->at.device);
    }
}

static lt_status close_local_steps(void *context)
{
    player *p = context;
    lt_local_steps_free(&p->local);
    lt_nodes_clear(&p->nodes);
    return LT_OK;
}

static void end(void *context)
{
    scene *s = context;
    run_ranks(&(rank_group){RANKS_OF(s->player, RANKS), .run = close_local_steps});
    for (int r = 0; r < RANKS; r++) {
        lt_params_clear(&s->player[r].list);
        lt_param_clear(&s->player[r].param);
    }
    close_ranks(&(rank_group){RANKS_OF(s->player, RANKS)});
}

static lt_status open_step_and_reload(player *p)
{
    const float changed[ELEMENTS] = {(float)p->at.rank, 1, -2};
    const lt_local_steps_config c = {
        .every = 1, .lr = 0.7, .momentum = 0.9, .compress = p->compress};
    bool met;
    LT_TRY(lt_comm_nodes(&p->nodes, p->at.comm, 1));
    LT_TRY(lt_local_steps_new(&p->local, p->at.comm, &p->nodes, &p->list, &c));
    LT_TRY(lt_tensor_write(p->param.value, changed, sizeof changed));
    LT_TRY(lt_local_steps_step(p->local, &met));
    LT_TRY(lt_local_steps_gather_state(p->local));
    return lt_local_steps_free_gathered(p->local, true);
}

static lt_status play(void *context)
{
    player *p = context;
    const lt_status st = open_step_and_reload(p);
    if (st)
        lt_comm_abort(p->at.comm);
    return st;
}

/* Status of the rank whose call failed; the other was aborted with LT_E_COMM. */
static lt_status act(void *context)
{
    scene *s = context;
    run_ranks(&(rank_group){RANKS_OF(s->player, RANKS), .run = play});
    const lt_status a = s->player[0].at.status, b = s->player[1].at.status;
    return a && a != LT_E_COMM ? a : b ? b : a;
}

static void ranks_fail_together(void **state)
{
    scene s = {.compress = *state};
    const fault_case c = {.name = s.compress,
                          .kinds = FAULT_KERNEL | FAULT_MEMORY,
                          .any_status = true,
                          .open = begin,
                          .act = act,
                          .close = end,
                          .context = &s,
                          .least = 20};
    (void)faults_each(&c);
}

int main(void)
{
    static char off[] = "off", sparse[] = "topk:0.5,bf16";
    const struct CMUnitTest tests[] = {
        {"dense", ranks_fail_together, NULL, NULL, off},
        {"sparse", ranks_fail_together, NULL, NULL, sparse},
    };
    return faults_run("faults in local steps", tests, COUNT_OF(tests), NULL, NULL);
}
