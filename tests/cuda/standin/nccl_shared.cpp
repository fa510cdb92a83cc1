/* Memory that ranks share: a file that each maps, whose name is the unique id. A rank that lives holds
 * a lock on one byte of it, which the system gives up when the process ends, whatever ended it. */

#include "nccl_shared.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

namespace standin_nccl
{

static double now()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static std::string path_of(const std::string &name)
{
    const char *folder = getenv("TMPDIR");
    return std::string(folder && *folder ? folder : "/dev/shm") + "/" + name;
}

std::string new_name()
{
    static std::atomic<unsigned> made{0};
    char text[64];
    timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    snprintf(text, sizeof text, "standin-nccl-%d-%u-%lx", (int)getpid(), made++,
             (unsigned long)t.tv_nsec);
    return text;
}

void make_file(const std::string &name)
{
    const int file = open(path_of(name).c_str(), O_RDWR | O_CREAT, 0600);
    if (file >= 0)
        close(file);
}

static size_t bytes_of_all(int size)
{
    const size_t n = (size_t)size;
    return sizeof(segment) + n * SLOTS * SLOT + n * n * SLOTS * PIPE;
}

char *end::slot(int from, uint64_t piece) const
{
    return (char *)(shared + 1) + ((size_t)from * SLOTS + piece % SLOTS) * SLOT;
}

char *end::pipe(int from, int to, uint64_t piece) const
{
    const size_t number = (size_t)from * (size_t)size + (size_t)to;
    return (char *)(shared + 1) + (size_t)size * SLOTS * SLOT
           + (number * SLOTS + piece % SLOTS) * PIPE;
}

end::~end()
{
    if (shared)
        munmap(shared, bytes_of_all(size));
    if (file >= 0)
        close(file);
}

void end::fail(ncclResult_t code, const std::string &reason)
{
    std::lock_guard<std::mutex> lock(mutex);
    if (failure == ncclSuccess)
        why = reason;
    int none = ncclSuccess;
    failure.compare_exchange_strong(none, code);
}

static struct flock byte_of(int rank)
{
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = rank;
    lock.l_len = 1;
    return lock;
}

static bool lives(const end *e, int rank)
{
    struct flock lock = byte_of(rank);
    return fcntl(e->file, F_OFD_GETLK, &lock) || lock.l_type != F_UNLCK;
}

void end::look_for_dead(bool at_once)
{
    enum { EVERY = 64 };
    static thread_local unsigned calls;
    if (!at_once && calls++ % EVERY)
        return;
    for (int r = 0; r < size; r++)
        if (r != rank && shared->rank[r].place != LEFT && !lives(this, r))
            fail(ncclRemoteError, "rank " + std::to_string(r) + " is gone");
}

static bool map(end *e)
{
    const size_t bytes = bytes_of_all(e->size);
    e->file = open(path_of(e->name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (e->file < 0 || ftruncate(e->file, (off_t)bytes))
        return false;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, e->file, 0);
    if (memory == MAP_FAILED)
        return false;
    e->shared = (segment *)memory;
    struct flock lock = byte_of(e->rank);
    return !fcntl(e->file, F_OFD_SETLK, &lock);
}

static double patience()
{
    const char *text = getenv("LATHER_STANDIN_PATIENCE");
    return text ? atof(text) : 60;
}

std::shared_ptr<end> attach(const std::string &name, int rank, int size, std::string *why)
{
    auto e = std::make_shared<end>();
    e->name = name;
    e->rank = rank;
    e->size = size;
    if (size > MOST_RANKS || !map(e.get())) {
        *why = name + ": cannot be mapped for rank " + std::to_string(rank);
        return nullptr;
    }
    e->shared->rank[rank].place = HERE;
    if (++e->shared->attached == size)
        unlink(path_of(name).c_str());
    const double until = now() + patience();
    while (e->shared->attached < size) {
        const timespec pause = {0, 1000000};
        if (now() > until) {
            *why = "not all ranks have come";
            unlink(path_of(name).c_str());
            return nullptr;
        }
        nanosleep(&pause, NULL);
    }
    return e;
}

} /* namespace standin_nccl */
