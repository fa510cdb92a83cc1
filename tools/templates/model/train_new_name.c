/* Trains new_name: the flags, data, optimizers, checkpoints and ranks are the library's. */

#include "new_name.h"

int main(int argc, char **argv)
{
    return lt_classifier_main(argc, argv, new_name_family());
}
