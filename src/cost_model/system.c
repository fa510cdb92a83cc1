/* Predicts the cost of a step from a profile of one rank: the slower one of loading and computing (C + U), or their sum
 * where ranks share all cores; plus exposed communication (X) and the wait for the slowest rank. */

#include "base/alloc.h"
#include "cost_model/parts.h"

#include "lather/ext/fail.h"

#include <math.h>
#include <string.h>

/* --- Checks --- */

static lt_status check_number(const char *name, double value, double least)
{
    if (!(value >= least && isfinite(value)))
        return lt_fail(LT_E_ARG, "plan: %s is %g, want %g or more", name, value, least);
    return LT_OK;
}

static lt_status check_share(const char *name, double value)
{
    if (!(value >= 0 && value <= 1))
        return lt_fail(LT_E_ARG, "plan: %s is %g, want a share from 0 to 1", name, value);
    return LT_OK;
}

static lt_status check_blocks(const lt_plan_profile *p)
{
    for (size_t i = 0; i < p->blocks; i++) {
        LT_TRY(check_number("a block's update", p->block[i].update, 0));
        LT_TRY(check_number("a block's refresh", p->block[i].refresh, 0));
        LT_TRY(check_number("a block's elements", (double)p->block[i].elements, 0));
    }
    return LT_OK;
}

static lt_status check_profile(const lt_plan_profile *p)
{
    const struct {
        const char *name;
        double value;
    } number[] = {
        {"fixed", p->fixed},
        {"per_sample", p->per_sample},
        {"load_per_sample", p->load_per_sample},
        {"staging", p->staging},
        {"update", p->update},
        {"refresh", p->refresh},
        {"state_bytes", p->state_bytes},
        {"parameter_bytes", p->parameter_bytes},
        {"activation_bytes", p->activation_bytes},
    };
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        LT_TRY(check_number(number[i].name, number[i].value, 0));
    LT_TRY(check_share("backward", p->backward));
    for (size_t i = 0; i < p->buckets; i++)
        LT_TRY(check_share("a bucket's ready", p->bucket[i].ready));
    for (size_t i = 0; i < p->steps; i++)
        if (!(p->step_seconds[i] > 0 && isfinite(p->step_seconds[i])))
            return lt_fail(LT_E_ARG, "plan: recorded step %zu took %g s", i, p->step_seconds[i]);
    return check_blocks(p);
}

static lt_status check_setup(const lt_plan_setup *s)
{
    if (s->ranks < 1 || s->ranks_per_node < 0)
        return lt_fail(LT_E_ARG, "plan: %d ranks, %d per node: want at least 1 and 0", s->ranks,
                       s->ranks_per_node);
    if (s->batch_size < 1 || s->grad_accum < 0)
        return lt_fail(LT_E_ARG, "plan: %lld micro-batches of %lld samples",
                       (long long)s->grad_accum, (long long)s->batch_size);
    if (s->frequency < 0)
        return lt_fail(LT_E_ARG, "plan: roots refreshed every %d updates, want 0 or more",
                       s->frequency);
    if (s->backup_workers < 0 || s->backup_workers >= s->ranks)
        return lt_fail(LT_E_ARG, "plan: %d backup workers of %d ranks", s->backup_workers,
                       s->ranks);
    if (s->backup_workers && s->deadline > 0)
        return lt_fail(LT_E_ARG,
                       "plan: %d backup workers and a deadline of %g s: want only one of them",
                       s->backup_workers, s->deadline);
    return check_number("deadline", s->deadline, 0);
}

static lt_status check_machine(const lt_plan_machine *m)
{
    LT_TRY(check_number("memory", m->memory, 0));
    return check_number("slots", m->slots, 0);
}

/* --- Ranks --- */

static lt_status place_ranks(lt_system *s)
{
    const int ranks = s->setup->ranks, most = s->machine->cluster.nodes;
    int per_node =
        s->setup->ranks_per_node ? s->setup->ranks_per_node : s->machine->cluster.per_node;
    per_node = per_node < 1 || per_node > ranks ? ranks : per_node;
    if (ranks % per_node)
        return lt_fail(LT_E_ARG, "plan: %d ranks do not fill nodes of %d", ranks, per_node);
    if (most > 0 && ranks / per_node > most)
        return lt_fail(LT_E_ARG, "plan: %d ranks, %d per node, need %d nodes, and there are %d",
                       ranks, per_node, ranks / per_node, most);
    s->cluster = s->machine->cluster;
    s->cluster.nodes = ranks / per_node;
    s->cluster.per_node = per_node;
    return LT_OK;
}

static int one_at_least(int n)
{
    return n ? n : 1;
}

static lt_status resolve_mesh(lt_system *s)
{
    const lt_mesh_config *c = &s->setup->mesh;
    const int ranks = s->setup->ranks;
    const int depth = one_at_least(c->depth), rows = one_at_least(c->rows),
              columns = one_at_least(c->columns);
    s->model = depth * rows * columns;
    const int replicas = c->data ? c->data : s->model > 0 ? ranks / s->model : 0;
    if (depth < 1 || rows < 1 || columns < 1 || replicas < 1 || replicas * s->model != ranks)
        return lt_fail(LT_E_ARG, "plan: %d replicas on a mesh of %d x %d x %d are not %d ranks",
                       replicas, rows, columns, depth, ranks);
    if (rows > 1 && rows != columns)
        return lt_fail(LT_E_ARG, "plan: a mesh of %d rows and %d columns, want a square", rows,
                       columns);
    s->mesh = (lt_mesh_config){
        .data = replicas, .depth = depth, .rows = rows, .columns = columns, .force = c->force};
    if (s->model > 1
        && !(s->profile->layers > 0 && s->profile->hidden > 0 && s->profile->tokens > 0))
        return lt_fail(
            LT_E_ARG,
            "plan: a model sharded over %d ranks, but the profile has %g layers of width %g",
            s->model, s->profile->layers, s->profile->hidden);
    return LT_OK;
}

/* Returns true for elementwise optimizers: with a mesh each rank updates its own shards; others have owners. */
static bool is_elementwise(const char *optim)
{
    static const char *const names[] = {"sgd", "adam", "adamw", "adagrad", "lion"};
    for (size_t i = 0; optim && i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], optim))
            return true;
    return false;
}

/* Scales seconds where ranks share cores, also of links within a node, as cores copy. Communication overlaps with
 * backward as far as a rank has more than the core that backward uses. */
static void scale_for_shared_cores(lt_system *s)
{
    const lt_plan_machine *m = s->machine;
    const double ranks = m->slots > 0 ? s->cluster.per_node / m->slots : 1;
    const double sharing = ranks > 1 ? ranks : 1;
    s->cluster.cores = m->slots > 0 ? sharing / ranks : 0;
    s->slow = sharing;
    s->cluster.within.bandwidth /= sharing;
    s->cluster.within.gather /= sharing;
    s->cluster.unit *= s->slow;
    s->cluster.copy *= s->slow;
    s->cluster.carry *= s->slow;
    s->cluster.wake *= s->slow;
}

/* Checks the inputs of a prediction and applies defaults. Errors: LT_E_ARG, naming the field. */
static lt_status init_system(lt_system *out, const lt_plan_profile *profile,
                             const lt_plan_machine *machine, const lt_plan_setup *setup)
{
    lt_system s = {.profile = profile, .machine = machine, .setup = setup};
    LT_TRY(check_profile(profile));
    LT_TRY(check_machine(machine));
    LT_TRY(check_setup(setup));
    LT_TRY(place_ranks(&s));
    LT_TRY(resolve_mesh(&s));
    scale_for_shared_cores(&s);
    s.accum = setup->grad_accum ? setup->grad_accum : 1;
    s.sharded = setup->shard_optimizer || setup->exchange.sharded
                || setup->exchange.scheme == LT_COST_SHARD_GRADIENTS
                || (s.model > 1 && !is_elementwise(setup->optim));
    *out = s;
    return LT_OK;
}

/* --- The sum --- */

/* Returns the seconds of copying gradients to buckets and back; sharded gradients are not copied back. */
static double gradient_copy_seconds(const lt_system *s)
{
    const lt_cost_scheme scheme = s->setup->exchange.scheme;
    const int replicas = s->mesh.data * s->mesh.depth;
    if (replicas == 1 || (scheme == LT_COST_LOCAL_STEPS && s->cluster.per_node == 1))
        return 0;
    return s->slow * s->profile->staging / (s->mesh.rows * s->mesh.columns)
           / (scheme == LT_COST_SHARD_GRADIENTS ? 2 : 1);
}

/* Returns a step's seconds without communication: at least the loader's, and those that a node's ranks and loaders need
 * on its cores. */
static double seconds_without_communication(const lt_system *s, const lt_plan_cost *c)
{
    const double own = c->compute + c->update, slots = s->machine->slots;
    const double busy = slots > 0 ? fmin(1, s->cluster.per_node / slots) : 0;
    return fmax(fmax(c->load, own), busy * (c->load + own));
}

/* Returns the bytes of the rank that needs most: values, gradients, optimizer state, activations, reducers' buffers.
 * share: the largest owner's share of the elements. */
static double memory_of(const lt_system *s, double share)
{
    const lt_plan_profile *p = s->profile;
    const lt_cost_row *row = lt_cost_row_of(&s->setup->exchange);
    const double parameters = p->parameter_bytes / (s->mesh.rows * s->mesh.columns);
    const double samples = (double)s->setup->batch_size / s->model;
    return 2 * parameters + p->state_bytes * share + p->activation_bytes * samples
           + parameters * row->kept / (row->by_node ? s->cluster.per_node : 1);
}

static lt_status add_up_step_cost(lt_plan_cost *out, const lt_system *s,
                                  const lt_system_owner *owner)
{
    const double samples = (double)s->setup->batch_size * (double)s->accum;
    double share, kept;
    lt_plan_cost c = {.compute = (double)s->accum * lt_system_micro_batch_seconds(s),
                      .load = s->slow * s->profile->load_per_sample * samples / s->model};
    LT_TRY(lt_system_predict_waiting(&c.waiting, &kept, s, c.compute));
    LT_TRY(lt_system_exchange_seconds(&c.exposed, s, owner));
    c.update = lt_system_update_seconds(owner, s, &share);
    c.compute += lt_system_layer_comm_seconds(s) + gradient_copy_seconds(s);
    c.seconds = seconds_without_communication(s, &c) + c.exposed + c.waiting;
    c.samples = kept * samples * s->mesh.data;
    c.memory = memory_of(s, share);
    c.fits = s->machine->memory <= 0 || c.memory <= s->machine->memory;
    *out = c;
    return LT_OK;
}

lt_status lt_plan_predict(lt_plan_cost *out, const lt_plan_profile *profile,
                          const lt_plan_machine *machine, const lt_plan_setup *setup)
{
    lt_system s;
    lt_system_owner *owner = NULL;
    LT_TRY(init_system(&s, profile, machine, setup));
    lt_status st = lt_system_assign_blocks(&owner, &s);
    if (!st)
        st = add_up_step_cost(out, &s, owner);
    lt_free(owner);
    return st;
}
