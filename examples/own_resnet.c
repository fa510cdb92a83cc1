/* train_resnet50 as a program of your own: all of its flags and commands, in five lines. Register data sets, optimizers
 * or hooks before the last one.
 *
 *     cc own_resnet.c $(pkg-config --cflags --libs lather-resnet) -o own_resnet
 *     ./own_resnet --data fashion-mnist --arch resnet10 --epochs 1 */

#include "lather/models/resnet.h"

int main(int argc, char **argv)
{
    lt_model_family family = *lt_resnet_family();
    family.program = "own_resnet"; /* the name in messages and --help */
    return lt_classifier_main(argc, argv, &family);
}
