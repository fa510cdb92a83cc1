/* A user's program with the library's residual networks. */

#include "resnet.h"

int main(int argc, char **argv)
{
    lt_model_family family = *lt_resnet_family();
    family.program = "own_resnet";
    return lt_classifier_main(argc, argv, &family);
}
