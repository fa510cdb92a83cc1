/* Declares what add.c implements. */
#ifndef TINY_ADD_H
#define TINY_ADD_H

int add(int a, int b);

#endif
