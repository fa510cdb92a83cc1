/* Measures the CPU time of communication: two ranks as threads, each a node, reduce gradients through memory. It is the
 * CPU time of the whole process, which other load on the machine changes little. */

#include "base/clock.h"
#include "planner.h"

#include "lather/data_parallel.h"
#include "lather/detail/topology.h"
#include "lather/ext/fail.h"
#include "lather/init.h"
#include "lather/layers.h"
#include "lather/ops.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum {
    RANKS = 2,
    LEAST_SIDE = 512,
    MOST_SIDE = 2048,
    ROUNDS = 5,
    WARM = 2,
    KINDS = 1 + PLAN_UNITS /* number of timed ways to reduce: plain all-reduce, then each reducer */
};

/* State of one rank, which is a thread. */
typedef struct bench_rank {
    lt_device *device;
    lt_comm *comm;
    lt_nodes nodes;
    lt_module *model;
    lt_params params;
    lt_tensor *x, *label;
    lt_tape *tape;
    int side;              /* rows and columns of the square weight */
    const bool *wanted;    /* [KINDS] */
    lt_tensor *copy;       /* like the gradient */
    double seconds[KINDS]; /* CPU time of all ranks per all-reduce */
    lt_status status;
    char why[PLAN_TEXT];
    pthread_t thread;
} bench_rank;

/* Opens a linear layer of one matrix, and one sample, so that compute is negligible. */
static lt_status open_rank_model(bench_rank *p)
{
    const int32_t first = 0;
    float x[MOST_SIDE];
    const int side = p->side;
    LT_TRY(lt_comm_nodes(&p->nodes, p->comm, 1));
    LT_TRY(lt_layer_linear(&p->model, p->device, "exchanged", side, side, false));
    LT_TRY(lt_module_params(p->model, &p->params));
    LT_TRY(lt_tape_new(&p->tape, p->device));
    LT_TRY(lt_tensor_new(&p->x, p->device, LT_F32, LT_SHAPE(1, side)));
    LT_TRY(lt_tensor_new(&p->label, p->device, LT_I32, LT_SHAPE(1)));
    LT_TRY(lt_tensor_new(&p->copy, p->device, LT_F32, LT_SHAPE(side, side)));
    for (int i = 0; i < side; i++)
        x[i] = (float)sin(i * (1.0 + lt_comm_rank(p->comm)));
    LT_TRY(lt_tensor_write(p->x, x, (size_t)side * sizeof *x));
    LT_TRY(lt_tensor_write(p->label, &first, sizeof first));
    return lt_init_uniform(p->params.item[0], 1 / sqrt(side), 1);
}

static void close_rank_model(bench_rank *p)
{
    lt_tape_free(&p->tape);
    lt_tensor_free(&p->x);
    lt_tensor_free(&p->label);
    lt_tensor_free(&p->copy);
    lt_params_clear(&p->params);
    lt_module_free(&p->model);
    lt_nodes_clear(&p->nodes);
}

/* Times copying the means back to gradients, to subtract it: the profile counts it as staging. */
static lt_status time_copy_to_gradients(bench_rank *p, double *seconds)
{
    LT_TRY(lt_comm_barrier(p->comm));
    const double begin = lt_clock_process_cpu_seconds();
    LT_TRY(lt_tensor_copy(p->copy, p->params.item[0]->grad));
    LT_TRY(lt_device_sync(p->device));
    LT_TRY(lt_comm_barrier(p->comm));
    *seconds = lt_clock_process_cpu_seconds() - begin;
    return LT_OK;
}

/* Times an all-reduce, from all gradients to all means, without the copies. */
static lt_status time_allreduce(bench_rank *p, lt_data_parallel *dp, double *seconds)
{
    lt_tape_reset(p->tape, LT_PASS_TRAIN);
    lt_tensor *logits = lt_module_forward(p->model, p->tape, p->x);
    lt_tensor *loss = lt_softmax_xent(p->tape, logits, p->label, 0);
    lt_params_zero_grad(&p->params);
    lt_data_parallel_begin(dp, true);
    LT_TRY(lt_tape_backward(p->tape, loss, 1));
    LT_TRY(lt_comm_barrier(p->comm));
    const double begin = lt_clock_process_cpu_seconds();
    LT_TRY(lt_data_parallel_finish(dp));
    LT_TRY(lt_data_parallel_commit(dp, true));
    LT_TRY(lt_comm_barrier(p->comm));
    const double all = lt_clock_process_cpu_seconds() - begin;
    double copies;
    LT_TRY(time_copy_to_gradients(p, &copies));
    *seconds += fmax(all - copies, 0);
    return LT_OK;
}

static lt_status measure_reducer(bench_rank *p, const char *compress, double *seconds)
{
    const lt_data_parallel_config config = {
        .no_overlap = true, .compress = compress, .nodes = &p->nodes};
    lt_data_parallel *dp = NULL;
    LT_TRY(lt_data_parallel_new(&dp, p->comm, &p->params, p->tape, &config));
    lt_status st = LT_OK;
    for (int i = 0; !st && i < WARM + ROUNDS; i++) {
        *seconds = i == WARM ? 0 : *seconds;
        st = time_allreduce(p, dp, seconds);
    }
    *seconds /= ROUNDS;
    lt_data_parallel_free(&dp);
    return st;
}

static void *measure_on_rank(void *argument)
{
    bench_rank *p = argument;
    char compress[PLAN_NAME];
    p->status = open_rank_model(p);
    for (size_t i = 0; !p->status && i < KINDS; i++) {
        const lt_cost_row *row = i ? lt_cost_of_reducer(i - 1) : NULL;
        if (row)
            snprintf(compress, sizeof compress, "%s:%s", row->name, row->sample);
        p->status =
            !p->wanted[i] ? LT_OK : measure_reducer(p, row ? compress : NULL, &p->seconds[i]);
    }
    if (p->status) {
        snprintf(p->why, sizeof p->why, "%s", lt_error_message());
        lt_comm_abort(p->comm);
    }
    close_rank_model(p);
    return NULL;
}

static lt_status open_ranks(bench_rank *p)
{
    const lt_device_config one = {.threads = 1};
    lt_device *device[RANKS];
    lt_comm *comm[RANKS];
    for (int r = 0; r < RANKS; r++) {
        LT_TRY(lt_device_open(&p[r].device, "cpu", &one));
        device[r] = p[r].device;
    }
    LT_TRY(lt_comm_open_threads(comm, device, RANKS));
    for (int r = 0; r < RANKS; r++)
        p[r].comm = comm[r];
    return LT_OK;
}

static lt_status run_ranks(bench_rank *p)
{
    int started = 0;
    lt_status st = LT_OK;
    for (;
         started < RANKS && !pthread_create(&p[started].thread, NULL, measure_on_rank, &p[started]);
         started++)
        continue;
    if (started < RANKS)
        lt_comm_abort(p[started].comm);
    for (int r = 0; r < started; r++)
        pthread_join(p[r].thread, NULL);
    for (int r = 0; r < started && !st; r++)
        st = p[r].status ? lt_fail(p[r].status, "%s", p[r].why) : LT_OK;
    return started < RANKS ? lt_fail(LT_E_NOMEM, "plan: no thread for rank %d", started) : st;
}

static lt_status measure_all_reducers(double *seconds, int side, const bool *wanted)
{
    bench_rank ranks[RANKS] = {{.side = side, .wanted = wanted}, {.side = side, .wanted = wanted}};
    lt_status st = open_ranks(ranks);
    if (!st)
        st = run_ranks(ranks);
    memcpy(seconds, ranks[0].seconds, sizeof ranks[0].seconds);
    for (int r = 0; r < RANKS; r++) {
        lt_comm_close(&ranks[r].comm);
        lt_device_close(&ranks[r].device);
    }
    return st;
}

/* Returns the side of a square matrix with as many elements as the model, clamped: small ones fit in caches. */
static int choose_matrix_side(const plan_profile *p)
{
    const double side = sqrt(p->base.parameter_bytes / sizeof(float));
    return (int)fmin(fmax(side, LEAST_SIDE), MOST_SIDE);
}

lt_status lt_plan_measure_exchange(plan_profile *p, const lt_cost_row *reducer, bool all)
{
    enum { BYTES = 2 * sizeof(float) }; /* sent and received per element by a rank */
    const lt_cost_row *row;
    bool wanted[KINDS] = {!(p->copy > 0)}, is_any = wanted[0];
    const int side = choose_matrix_side(p);
    const double elements = (double)side * side;
    double seconds[KINDS];
    for (size_t i = 0; i < PLAN_UNITS && (row = lt_cost_of_reducer(i)); i++) {
        wanted[1 + i] = row->unit && (all || row == reducer) && !(p->unit[i] > 0);
        is_any = is_any || wanted[1 + i];
    }
    if (!is_any)
        return LT_OK;
    LT_TRY(measure_all_reducers(seconds, side, wanted));
    if (wanted[0])
        p->copy = seconds[0] / RANKS / (BYTES * elements);
    for (size_t i = 0; i < PLAN_UNITS; i++)
        if (wanted[1 + i])
            p->unit[i] = seconds[1 + i] / RANKS / (lt_cost_of_reducer(i)->units * elements);
    return LT_OK;
}
