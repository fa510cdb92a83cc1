/* Lists for the device as parameters of a kernel that writes them down: no memory of the host is read
 * when it runs, so that a captured step has them too. */

#include "launch.cuh"
#include "matrices.h"

#include <string.h>

namespace
{

enum { PACKET_WORDS = 1024 };

struct packet {
    uint64_t word[PACKET_WORDS];
};
static_assert(sizeof(packet) + 64 <= MAX_PARAMETERS, "it is a parameter, beside others");

__global__ void __launch_bounds__(THREADS)
    write_down(const __grid_constant__ packet from, uint64_t *to, int words)
{
    for (int i = (int)(blockIdx.x * THREADS + threadIdx.x); i < words; i += THREADS * gridDim.x)
        to[i] = from.word[i];
}

} /* namespace */

extern "C" void lt_send(lt_cuda_stream stream, void *to, const void *from, size_t bytes)
{
    const size_t most = sizeof(packet);
    for (size_t at = 0; at < bytes; at += most) {
        packet p;
        const size_t some = bytes - at < most ? bytes - at : most;
        const int words = (int)(some / sizeof(uint64_t));
        memcpy(p.word, (const char *)from + at, some);
        write_down<<<blocks_for(words, THREADS), THREADS, 0, stream>>>(
            p, (uint64_t *)((char *)to + at), words);
    }
}
