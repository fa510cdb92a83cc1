/* Options that apply to parameters by name (split, one_sided, diagonal), read from flags and from JSON. */

#include "optim/registry/names.h"
#include "optim/registry/splits.h"
#include "optim/shampoo/settings.h"

lt_status lt_shampoo_set_split(void *config, const char *text)
{
    return lt_splits_set(((lt_shampoo_config *)config)->split, text);
}

lt_status lt_shampoo_read_split(void *config, const lt_json_value *v)
{
    return lt_splits_read(((lt_shampoo_config *)config)->split, v);
}

lt_status lt_shampoo_set_one_sided(void *config, const char *text)
{
    return lt_name_regex_set(&((lt_shampoo_config *)config)->one_sided, "--one-sided", text);
}

lt_status lt_shampoo_read_one_sided(void *config, const lt_json_value *v)
{
    return lt_name_regex_set_from_json(&((lt_shampoo_config *)config)->one_sided, v);
}

lt_status lt_shampoo_set_diagonal(void *config, const char *text)
{
    return lt_name_regex_set(&((lt_shampoo_config *)config)->diagonal, "--diagonal", text);
}

lt_status lt_shampoo_read_diagonal(void *config, const lt_json_value *v)
{
    return lt_name_regex_set_from_json(&((lt_shampoo_config *)config)->diagonal, v);
}
