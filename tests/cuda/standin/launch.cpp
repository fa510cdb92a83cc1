/* Kernel launches: queued on a stream, run by the emulator. */

#include "device.h"

#include <cuda_runtime.h>
#include <map>
#include <string.h>

void (*standin::tracer)(bool begin);

namespace
{

/* Returns true for kernels whose grid.y is a batch of equal matrices. Kernels of rational terms are excluded: several
 * terms share a matrix or a sum. */
bool is_batch(const char *name)
{
    return !strcmp(name, "blocks_split") || !strcmp(name, "sums_store");
}

/* Returns true for the last kernel of a list of norms or sums, one block each. */
bool ends_norms(const char *name)
{
    return !strcmp(name, "finish_norms") || !strcmp(name, "finish_grad_norm")
           || !strcmp(name, "finish_sums");
}

/* Runs a kernel and counts its bytes. With LATHER_STANDIN_ALIKE only the first of equal matrices runs, and only the
 * first product with the same number of blocks. */
void run_traced(dim3 grid, dim3 block, const char *name, const std::function<void()> &thread)
{
    using namespace standin;
    static std::map<unsigned, traffic> products; /* by blocks, which are the matrices' rows */
    const bool first_of_equal = wished().first_of_equal;
    const bool again = first_of_equal && !strcmp(name, "narrow_products");
    const unsigned times = first_of_equal && is_batch(name) ? grid.y : 1;
    if (again && products.count(grid.x)) {
        moved = products[grid.x];
        return;
    }
    tracer(true);
    lt_emulate_run(dim3(grid.x, grid.y / times, grid.z), block, name, thread);
    tracer(false);
    moved.read *= times;
    moved.written *= times;
    if (again)
        products[grid.x] = moved;
}

} /* namespace */

void lt_emulate_queue(dim3 grid, dim3 block, size_t, cudaStream_t stream, const char *name,
                      const std::function<void()> &thread)
{
    using namespace standin;
    locked now(everything);
    note(name);
    if (result(entered("kernel")))
        return;
    if (stream->device != current_device()) {
        result(cudaErrorInvalidResourceHandle);
        return;
    }
    standin_queue(
        stream,
        [=] {
            if (ends_norms(name))
                norms = grid.x;
            moved.types = thread.target_type().name();
            const bool traced = tracer && (in_graph || wished().eager);
            if (wished().dry > 1)
                return;
            if (traced)
                run_traced(grid, block, name, thread);
            else
                lt_emulate_run(grid, block, name, thread);
        },
        name);
}
