/* train_vit: trains vision transformers. */

#include "vit.h"

int main(int argc, char **argv)
{
    return lt_classifier_main(argc, argv, lt_vit_family());
}
