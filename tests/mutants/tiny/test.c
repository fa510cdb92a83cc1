/* A test that notices wrong sums. */

#include "src/base/add.h"

int main(void)
{
    return add(1, 2) != 3;
}
