/* Checks parts of a checkpoint against their index. */

#include "tensor/weight_file/index.h"

#include "lather/ext/fail.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

lt_status lt_index_check_origin(const lt_index_part *at, const char *step, const char *run)
{
    const char *want_step = NULL, *want_run = NULL;
    if (!lt_json_member(at->metadata, LT_PART_STEP))
        return LT_OK;
    if (lt_json_string(at->metadata, LT_PART_STEP, &want_step)
        || lt_json_string(at->metadata, LT_PART_RUN, &want_run))
        return lt_fail(LT_E_FORMAT, "%s: %s", at->index, lt_error_message());
    if (step && run && !strcmp(step, want_step) && !strcmp(run, want_run))
        return LT_OK;
    return lt_fail(LT_E_FORMAT,
                   "%s: belongs to step %.20s of run '%.64s', but %s needs the part of step %.20s "
                   "of run '%.64s'",
                   at->path, step ? step : "(none)", run ? run : "(none)", at->index, want_step,
                   want_run);
}

lt_status lt_index_check_size(const lt_index_part *at)
{
    struct stat info;
    int64_t want = 0;
    const lt_json_value *file =
        lt_json_member(lt_json_member(at->metadata, LT_PART_FILES), at->name);
    if (stat(at->path, &info))
        return lt_fail(LT_E_IO, "%s: %s: a part that %s names", at->path, strerror(errno),
                       at->index);
    if (file && lt_json_integer(file, "bytes", &want))
        return lt_fail(LT_E_FORMAT, "%s: %s", at->index, lt_error_message());
    return !file || want == (int64_t)info.st_size
               ? LT_OK
               : lt_fail(LT_E_FORMAT, "%s: %lld bytes, expected %lld: damaged", at->path,
                         (long long)info.st_size, (long long)want);
}
