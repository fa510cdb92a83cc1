/* Compares lines "name dtype shape" with a list of parameters. */

#include "keys.h"

#include "near.h"

#include <stdio.h>
#include <stdlib.h>

static FILE *open_keys(const char *name)
{
    char path[512];
    const char *root = getenv("LATHER_TEST_SOURCE");
    snprintf(path, sizeof path, "%s/tests/golden/%s", root ? root : ".", name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    return f;
}

int matching_keys(const char *file, const lt_params *p)
{
    char line[256], want[256], shape[LT_SHAPE_TEXT];
    FILE *f = open_keys(file);
    size_t i = 0, equal = 0;
    while (fgets(line, sizeof line, f)) {
        if (*line == '#')
            continue;
        const lt_tensor *v = i < p->count ? p->item[i]->value : NULL;
        if (v) {
            snprintf(want, sizeof want, "%s %s %s\n", p->item[i]->name,
                     lt_dtype_name(lt_tensor_dtype(v)), lt_shape_text(lt_tensor_shape(v), shape));
            equal += !strcmp(line, want);
        }
        i++;
    }
    fclose(f);
    return i == p->count ? (int)equal : -1;
}
