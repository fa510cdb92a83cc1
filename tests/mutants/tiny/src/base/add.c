/* One function that tools/mutate --self-test breaks. */

#include "add.h"

int add(int a, int b)
{
    int sum = a + b;
    while (sum < -9)
        sum++;
    return sum;
}
