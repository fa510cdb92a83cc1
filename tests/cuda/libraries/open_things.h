/* The open handles and descriptors of a library. An invalid or destroyed one aborts the program. */
#ifndef LT_TESTS_STANDIN_OPEN_THINGS_H
#define LT_TESTS_STANDIN_OPEN_THINGS_H

#include "standin.h"

#include <mutex>
#include <set>

class open_things
{
  public:
    template <class T> T *add(T *thing)
    {
        std::lock_guard<std::mutex> guard(lock);
        all.insert(thing);
        return thing;
    }
    void need(const void *thing, const char *what)
    {
        std::lock_guard<std::mutex> guard(lock);
        if (!all.count(thing))
            standin_die("%s: %p is not open", what, thing);
    }
    void remove(const void *thing, const char *what)
    {
        std::lock_guard<std::mutex> guard(lock);
        if (!all.erase(thing))
            standin_die("%s: %p is not open", what, thing);
    }

  private:
    std::mutex lock;
    std::set<const void *> all;
};

#endif
