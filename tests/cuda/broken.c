/* Plugins for tests/cuda/plugins.c, each broken in the way its name says (BROKEN_...). */

#include "lather/detail/backend.h"

#if defined(BROKEN_NEEDS)
int cudnn_gone(void);
int lt_broken(void);
int lt_broken(void)
{
    return cudnn_gone();
}
#elif defined(BROKEN_SYMBOL)
int cudnn_of_tomorrow(void);
int lt_broken(void);
int lt_broken(void)
{
    return cudnn_of_tomorrow();
}
#elif defined(BROKEN_GONE)
int cudnn_gone(void);
int cudnn_gone(void)
{
    return 0;
}
#elif defined(BROKEN_EMPTY)
extern const int lt_broken;
const int lt_broken = 1;
#else
#ifdef BROKEN_VERSION
#define VERSION "0.0.9"
#else
#define VERSION LT_VERSION
#endif
LT_API extern const lt_backend_plugin lt_plugin_cuda;
const lt_backend_plugin lt_plugin_cuda = {
    .version = VERSION,
    .table_bytes = 8,
};
#endif
