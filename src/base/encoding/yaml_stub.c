/* Stub of the YAML reader for a build without libyaml. */

#include "yaml.h"

#include "lather/ext/fail.h"

lt_status lt_yaml_read(const char *path, lt_yaml_fn *fn, void *context)
{
    (void)fn;
    (void)context;
    return lt_fail(LT_E_UNSUPPORTED,
                   "%s: config files need libyaml, which this build lacks (package libyaml-dev)",
                   path);
}
