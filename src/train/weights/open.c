/* Opening of weight files: the checkpoint of a run folder, and prefixes of names. */

#include "open.h"

#include "base/alloc.h"
#include "names.h"
#include "tensor/safetensors.h"

#include "lather/weights.h"

#include <string.h>
#include <unistd.h>

/* Returns true if a checkpoint has weight averages: its model.safetensors then are not the weights that were best. */
static lt_status has_averages(const char *folder, bool *has)
{
    lt_safetensors *optim = NULL;
    char *path = lt_format("%s/optim.safetensors", folder);
    if (!path)
        return LT_E_NOMEM;
    lt_status st = lt_safetensors_open(&optim, path);
    for (size_t i = 0; !st && i < lt_safetensors_count(optim) && !*has; i++)
        *has = !strncmp(lt_safetensors_at(optim, i)->name, "ema.", 4);
    lt_safetensors_close(&optim);
    lt_free(path);
    return st;
}

/* Finds the weights of a run folder, to be freed; NULL for other paths. The best checkpoint has no averages of weights
 * under the names of the model, so that a run with averages gives its final ones. */
static lt_status find_in_run(char **found, const char *path)
{
    char *best = lt_format("%s/checkpoints/best", path);
    char *last = lt_format("%s/checkpoints/latest", path);
    char *final = lt_format("%s/model.safetensors", path);
    const bool is_final = final && !access(final, F_OK);
    bool averages = false;
    lt_status st = best && last && final ? LT_OK : LT_E_NOMEM;
    if (!st && !access(best, F_OK) && is_final)
        st = has_averages(best, &averages);
    if (!st && !access(best, F_OK) && !averages)
        *found = lt_strdup(best);
    else if (!st && !is_final && !access(last, F_OK))
        *found = lt_strdup(last);
    lt_free(best);
    lt_free(last);
    lt_free(final);
    return st;
}

lt_status lt_weights_find(char **found, const char *path)
{
    char *in_run = NULL;
    LT_TRY(find_in_run(&in_run, path));
    *found = in_run ? in_run : lt_strdup(path);
    return *found ? LT_OK : LT_E_NOMEM;
}

lt_status lt_weights_open(lt_safetensors **out, const char *path)
{
    static const char *const prefixes[] = {"module.", "_orig_mod.", "model.", "backbone."};
    enum { PREFIXES = sizeof prefixes / sizeof *prefixes };
    char *found = NULL;
    LT_TRY(lt_weights_find(&found, path));
    lt_status st = lt_safetensors_open(out, found);
    lt_free(found);
    for (size_t i = 0; !st && i < PREFIXES;)
        i = lt_safetensors_strip_prefix(*out, prefixes[i]) ? 0 : i + 1;
    if (!st)
        st = lt_weights_rename(*out);
    if (st)
        lt_safetensors_close(out);
    return st;
}
