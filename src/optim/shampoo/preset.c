/* Shampoo's settings under a name.
 *
 *   paper        the release of 2023 that Shi et al. describe (arXiv 2309.06497)
 *   reference    the defaults of its present version
 *   recommended  ours, LT_SHAMPOO_DEFAULTS: docs/guides/shampoo.md says why
 *   soap         Vyas et al., "SOAP: Improving and Stabilizing Shampoo using Adam", 2024 */

#include "base/nearest.h"
#include "optim/shampoo/reference.h"
#include "optim/shampoo/shampoo.h"

#include <limits.h>
#include <string.h>

/* AdaGrad grafting with its large epsilon, forward merging, epsilon after the decomposition, and
 * warnings only when a root fails. */
static void make_paper(lt_shampoo_config *c)
{
    c->grafting = LT_GRAFTING_ADAGRAD;
    c->grafting_epsilon = 1e-3;
    c->merge_order = LT_MERGE_FORWARD;
    c->epsilon_rule = LT_EPSILON_AFTER;
    c->tolerated_failures = INT_MAX;
}

static void make_reference(lt_shampoo_config *c)
{
    (void)c; /* LT_SHAMPOO_REFERENCE is this */
}

static void make_recommended(lt_shampoo_config *c)
{
    *c = LT_SHAMPOO_DEFAULTS;
}

/* Vectors get Adam's update, as there. Blocks of 1024 and merged windows are ours: a basis of the
 * 4608 inputs of a 3x3 convolution costs 90 times one of 1024. */
static void make_soap(lt_shampoo_config *c)
{
    c->preconditioner = LT_PRECONDITIONER_CORRECTED;
    c->beta1 = 0.95;
    c->beta2 = 0.95;
    c->epsilon = 1e-8;
    c->weight_decay = 0.01;
    c->rank_rtol = -1;
    c->precondition_frequency = 10;
    c->diagonal_vectors = true;
}

static const char *const names[] = {"paper", "reference", "recommended", "soap"};
enum { PRESETS = sizeof names / sizeof *names };

lt_status lt_shampoo_preset(const char *name, lt_shampoo_config *out)
{
    static void (*const make[PRESETS])(lt_shampoo_config *) = {make_paper, make_reference,
                                                               make_recommended, make_soap};
    for (int i = 0; i < PRESETS; i++) {
        if (strcmp(names[i], name) != 0)
            continue;
        *out = LT_SHAMPOO_REFERENCE;
        make[i](out);
        return LT_OK;
    }
    return lt_fail(LT_E_ARG,
                   "shampoo: no preset '%s'; the nearest is '%s', there are paper, reference, "
                   "recommended, soap",
                   name, lt_nearest(name, names, PRESETS));
}
