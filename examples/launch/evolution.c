/* Evolution strategies (Salimans et al. 2017, "Evolution Strategies as a Scalable Alternative to Reinforcement
 * Learning"): a master asks evaluators for scores of perturbed parameters. Only seeds are sent: each side draws the
 * noise of a seed for itself.
 *
 *     cc evolution.c -shared -fPIC -o evolution.so $(pkg-config --cflags --libs lather) -lm
 *     lather launch evolution.ini --on local
 *
 * Evaluators keep nothing, so any of them may answer, and the result does not depend on how many there are. */

#include "lather/launch_node.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 10, POPULATION = 16, SECONDS = 60 };
static const double sigma = 0.1, rate = 0.05;

typedef struct question {
    uint64_t seed;
    double sign, theta[WIDTH];
} question;

lt_status evaluate(lt_launch_node *node, void *context);
lt_status evolve(lt_launch_node *node, void *context);

/* Draws number i of a seed, uniform in [-1, 1), by SplitMix64 (Steele, Lea & Flood 2014). */
static double noise(uint64_t seed, int i)
{
    uint64_t z = seed * 1000003 + (uint64_t)i * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1;
}

static double score(const question *q)
{
    double sum = 0;
    for (int i = 0; i < WIDTH; i++) {
        const double x = q->theta[i] + q->sign * sigma * noise(q->seed, i) - i;
        sum -= x * x;
    }
    return sum;
}

static lt_status handle_request(void *context, const void *request, size_t bytes,
                                lt_response_buffer *reply)
{
    question q;
    (void)context;
    if (bytes != sizeof q)
        return LT_E_FORMAT;
    memcpy(&q, request, bytes);
    const double s = score(&q);
    void *to = lt_response_allocate(reply, sizeof s);
    if (to)
        memcpy(to, &s, sizeof s);
    return to ? LT_OK : LT_E_NOMEM;
}

lt_status evaluate(lt_launch_node *node, void *context)
{
    (void)context;
    return lt_launch_node_serve(node, handle_request, NULL);
}

/* Asks the evaluators, or computes the scores here without any. */
static lt_status request_score(lt_client **client, int count, const question *q, double *out)
{
    lt_response back = {0};
    if (!count) {
        *out = score(q);
        return LT_OK;
    }
    const lt_status st =
        lt_client_call(client[q->seed % (uint64_t)count], q, sizeof *q, SECONDS, &back);
    if (!st && back.bytes == sizeof *out)
        memcpy(out, back.data, sizeof *out);
    lt_response_free(&back);
    return st;
}

static lt_status run_evolution(lt_client **client, int count, long generations, double *theta)
{
    lt_status st = LT_OK;
    for (long g = 0; !st && g < generations; g++) {
        double step[WIDTH] = {0};
        for (int p = 0; !st && p < POPULATION; p++) { /* antithetic pairs */
            question q = {.seed = (uint64_t)(g * POPULATION + p), .sign = 1};
            double up = 0, down = 0;
            memcpy(q.theta, theta, sizeof q.theta);
            st = request_score(client, count, &q, &up);
            q.sign = -1;
            if (!st)
                st = request_score(client, count, &q, &down);
            for (int i = 0; i < WIDTH; i++)
                step[i] += (up - down) * noise(q.seed, i);
        }
        for (int i = 0; i < WIDTH; i++)
            theta[i] += rate * step[i] / (2 * POPULATION * sigma);
    }
    return st;
}

lt_status evolve(lt_launch_node *node, void *context)
{
    const int count = lt_launch_node_count_of(node, "evaluator");
    lt_client **client = calloc((size_t)count, sizeof *client);
    const long generations = lt_launch_node_number(node, "generations", 60);
    double theta[WIDTH] = {0}, alone[WIDTH] = {0}, far = 0;
    lt_status st = client ? LT_OK : LT_E_NOMEM;
    (void)context;
    for (int i = 0; !st && i < count; i++)
        st = lt_launch_node_client(node, "evaluator", i, true, &client[i]);
    if (!st)
        st = run_evolution(client, count, generations, theta);
    if (!st)
        st = run_evolution(NULL, 0, generations, alone);
    for (int i = 0; i < WIDTH; i++)
        far = fmax(far, fabs(theta[i] - i));
    for (int i = 0; client && i < count; i++)
        lt_client_close(&client[i]);
    free((void *)client);
    const int same = !memcmp(theta, alone, sizeof theta);
    printf("%ld generations by %d evaluators: %s one process, %.3f from the best\n", generations,
           count, same ? "the bits of" : "differs from", far);
    fflush(stdout);
    return st ? st : same && far < 4 ? LT_OK : LT_E_FORMAT;
}
