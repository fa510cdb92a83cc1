/* Launches that are done at once. */

#include <cuda_runtime.h>

void lt_emulate_queue(dim3 grid, dim3 block, size_t, cudaStream_t, const char *name,
                      const std::function<void()> &thread)
{
    lt_emulate_run(grid, block, name, thread);
}
