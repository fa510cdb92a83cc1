/* Settings of the stand-in, from environment variables LATHER_STANDIN...: the order of work, failures, and lies. A name
 * that does not exist ends the process, with the names that do. */

#include "device.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

namespace standin
{

namespace
{

const char *const orders[] = {"now", "late", "shuffled", "main-first", "main-last"};

/* By standin_lie. */
const char *const lies[] = {"no-algorithm",   "no-engine",     "tf32-truncates",  "nan-7fffffff",
                            "relu-keeps-nan", "fault-at-node", "refuses-capture", "slow-load"};
static_assert(sizeof lies / sizeof *lies == STANDIN_LIES, "each lie has a name");

/* Calls that LATHER_STANDIN_FAIL can name. A kernel's launch is "kernel". */
const char *const calls_that_fail[] = {"cublasCreate_v2",
                                       "cublasGemmBatched",
                                       "cublasGemmStridedBatched",
                                       "cublasLtCreate",
                                       "cublasLtMatmul",
                                       "cublasLtMatmulAlgoGetHeuristic",
                                       "cublasTrsmBatched",
                                       "cudaDeviceGetPCIBusId",
                                       "cudaDeviceGetStreamPriorityRange",
                                       "cudaDeviceSynchronize",
                                       "cudaEventCreateWithFlags",
                                       "cudaEventDestroy",
                                       "cudaEventElapsedTime",
                                       "cudaEventQuery",
                                       "cudaEventRecord",
                                       "cudaEventSynchronize",
                                       "cudaFree",
                                       "cudaFreeHost",
                                       "cudaGraphDestroy",
                                       "cudaGraphExecDestroy",
                                       "cudaGraphInstantiate",
                                       "cudaGraphLaunch",
                                       "cudaMalloc",
                                       "cudaMallocHost",
                                       "cudaMemGetInfo",
                                       "cudaMemcpyAsync",
                                       "cudaMemsetAsync",
                                       "cudaProfilerStart",
                                       "cudaProfilerStop",
                                       "cudaSetDevice",
                                       "cudaStreamBeginCapture",
                                       "cudaStreamCreateWithPriority",
                                       "cudaStreamDestroy",
                                       "cudaStreamEndCapture",
                                       "cudaStreamSynchronize",
                                       "cudaStreamWaitEvent",
                                       "cudnnBackendCreateDescriptor",
                                       "cudnnBackendExecute",
                                       "cudnnBackendFinalize",
                                       "cudnnCreate",
                                       "cusolverDnCreate",
                                       "cusolverDnCreateParams",
                                       "cusolverDnGeqrf",
                                       "cusolverDnOrgqr",
                                       "cusolverDnPotrfBatched",
                                       "cusolverDnXsyevBatched",
                                       "kernel",
                                       "ncclAllGather",
                                       "ncclAllReduce",
                                       "ncclBroadcast",
                                       "ncclCommInitRank",
                                       "ncclCommSplit",
                                       "ncclGetUniqueId",
                                       "ncclGroupEnd",
                                       "ncclRecv",
                                       "ncclReduce",
                                       "ncclReduceScatter",
                                       "ncclSend"};

std::map<std::string, long> calls;
std::set<std::string> noted;

long number(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtol(text, NULL, 10) : otherwise;
}

/* The index of a name; what: the setting, for the message that ends the process if there is no such name. */
template <size_t n>
int index_of(const char *const (&names)[n], const std::string &name, const char *what)
{
    std::string all;
    for (size_t i = 0; i < n; i++) {
        if (name == names[i])
            return (int)i;
        all += std::string(i ? ", " : "") + names[i];
    }
    standin_die("%s: there is no %s; there are %s", what, name.c_str(), all.c_str());
}

/* NAME or NAME:N; N is 1 if it is missing. */
std::pair<std::string, long> split(const std::string &text, const char *what)
{
    const size_t colon = text.find(':');
    char *end = NULL;
    if (colon == std::string::npos)
        return {text, 1};
    const long n = strtol(text.c_str() + colon + 1, &end, 10);
    if (!n || *end)
        standin_die("%s=%s: expected NAME:N, where N is not 0", what, text.c_str());
    return {text.substr(0, colon), n};
}

void read_lies(const char *text, long lie[STANDIN_LIES])
{
    static const char what[] = "LATHER_STANDIN_LIES";
    const std::string all = text ? text : "";
    for (size_t from = 0; from < all.size();) {
        const size_t comma = std::min(all.find(',', from), all.size());
        const auto one = split(all.substr(from, comma - from), what);
        lie[index_of(lies, one.first, what)] = one.second;
        from = comma + 1;
    }
}

void read_failure(const char *text, wishes &w)
{
    static const char what[] = "LATHER_STANDIN_FAIL";
    if (!text || !*text)
        return;
    const auto one = split(text, what);
    index_of(calls_that_fail, one.first, what);
    w.fail = one.first;
    w.fails_at = one.second;
}

wishes read_wishes()
{
    const char *order = getenv("LATHER_STANDIN"), *works = getenv("LATHER_STANDIN_WORKS");
    wishes w = {};
    w.order = (wishes::when)index_of(orders, order && *order ? order : "now", "LATHER_STANDIN");
    w.protect =
        number("LATHER_STANDIN_PROTECT", w.order == wishes::LATE || w.order == wishes::SHUFFLED);
    w.seed = (unsigned)number("LATHER_STANDIN_SEED", 1);
    w.memory = (size_t)number("LATHER_STANDIN_MEMORY", 4096) << 20; /* MiB */
    w.devices = (int)number("LATHER_STANDIN_DEVICES", 1);
    w.old_driver = number("LATHER_STANDIN_OLD", 0);
    w.fault = number("LATHER_STANDIN_FAULT", 0);
    w.dropped = number("LATHER_STANDIN_DROP", 0);
    w.hasty = number("LATHER_STANDIN_DROP_HOST", 0);
    read_failure(getenv("LATHER_STANDIN_FAIL"), w);
    w.no_memory = number("LATHER_STANDIN_NO_MEMORY", 0);
    read_lies(getenv("LATHER_STANDIN_LIES"), w.lie);
    w.log = number("LATHER_STANDIN_LOG", 0);
    w.dry = number("LATHER_STANDIN_DRY", 0);
    w.works = works ? works : "";
    w.eager = number("LATHER_STANDIN_EAGER", 0);
    w.first_of_equal = number("LATHER_STANDIN_ALIKE", 0);
    w.norm = number("LATHER_STANDIN_NORM", 0) * 1e-6;
    return w;
}

} /* namespace */

const wishes &wished()
{
    static const wishes w = read_wishes();
    return w;
}

/* LATHER_STANDIN_CALLS=FILE: kernels and calls that ran, a line each, once for a process. At once: a process
 * may be killed. */
void note(const char *name)
{
    static const char *const path = getenv("LATHER_STANDIN_CALLS");
    if (!path || !noted.insert(name).second)
        return;
    FILE *file = fopen(path, "a");
    if (!file)
        standin_die("LATHER_STANDIN_CALLS=%s: cannot be written", path);
    fprintf(file, "%s\n", name);
    fclose(file);
}

} /* namespace standin */

using namespace standin;

bool standin_dry()
{
    return wished().dry;
}

bool standin_idle()
{
    return wished().dry > 1;
}

bool standin_fails(const char *name)
{
    locked now(everything);
    index_of(calls_that_fail, name, "calls_that_fail");
    note(name);
    if (wished().fail != name)
        return false;
    const long call = ++calls[name], which = wished().fails_at;
    return which < 0 ? call >= -which : call == which;
}

bool standin_no_memory()
{
    return wished().no_memory;
}

long standin_lies(standin_lie lie)
{
    return wished().lie[lie];
}

float standin_tf32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits += standin_lies(STANDIN_TF32_TRUNCATES) ? 0 : 0x1000;
    bits &= 0xFFFFE000;
    memcpy(&x, &bits, sizeof x);
    return x;
}

bool standin_is_own_nan(float x)
{
    return x != x && standin_lies(STANDIN_NAN_7FFFFFFF);
}

float standin_nan(float x)
{
    const uint32_t bits = 0x7FFFFFFF;
    if (standin_is_own_nan(x))
        memcpy(&x, &bits, sizeof x);
    return x;
}
