/* train_resnet50: trains residual networks. */

#include "resnet.h"

int main(int argc, char **argv)
{
    return lt_classifier_main(argc, argv, lt_resnet_family());
}
