/* What a run will need, said before its first step. */

#include "session.h"

#include "lather/ext/fail.h"

#include <unistd.h>

/* Bytes of activations that live at the end of the forward pass: what backward reads. With cheap
 * recomputation the outputs of batch norm within blocks are made again; about half of
 * block_outputs is left. */
static double activation_bytes(const session *s, const resnet_cost *cost)
{
    double item = s->args.amp == AMP_BF16 ? 2 : 4;
    double outputs = (double)cost->block_outputs * (s->args.recompute ? 0.5 : 1);
    double gradients = 3 * (double)cost->largest;
    return (double)s->args.batch_size * item * ((double)cost->conv_outputs + outputs + gradients);
}

static double machine_bytes(void)
{
    return (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

lt_status session_summary(session *s)
{
    const double gib = 0x1p30, train_factor = 3; /* backward costs two forward passes */
    resnet_cost cost;
    LT_TRY(resnet_count(&cost, &s->shape, s->transform.size));
    double weights = (double)lt_device_memory(s->device).used;
    double activations = activation_bytes(s, &cost), need = weights + activations;
    lt_run_note(s->run, "%s: %.2f M parameters, %.3f GFLOP per picture of %d x %d to train",
                s->args.arch, 1e-6 * (double)cost.params,
                2e-9 * train_factor * (double)cost.multiply_adds, s->transform.size,
                s->transform.size);
    lt_run_note(s->run,
                "memory: %.2f GiB parameters, gradients and %s state, about %.2f GiB activations",
                weights / gib, lt_optim_name(s->optim), activations / gib);
    if (need > machine_bytes())
        return lt_fail(LT_E_NOMEM,
                       "this run needs about %.1f GiB, the machine has %.1f; a smaller "
                       "--batch-size with --grad-accum needs less",
                       need / gib, machine_bytes() / gib);
    return LT_OK;
}
