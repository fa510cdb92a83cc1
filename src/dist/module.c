/* Loads a module with messages: liblather-mpi.so. */

#include "base/module.h"

#include "dist/comm.h"

#include <stdio.h>

lt_status lt_module_link(const char *kind, const lt_link_ops **out)
{
    char user[64], symbol[64];
    const void *table;
    snprintf(user, sizeof user, "comm %s", kind);
    snprintf(symbol, sizeof symbol, "lt_link_%s", kind);
    LT_TRY(lt_module_open(user, kind, symbol, &table));
    LT_TRY(lt_module_check_version(user, ((const lt_link_ops *)table)->version));
    *out = table;
    return LT_OK;
}
