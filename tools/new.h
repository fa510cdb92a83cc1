/* The command `lather new`. */
#ifndef LT_TOOLS_NEW_H
#define LT_TOOLS_NEW_H

/* `lather new KIND NAME [--folder DIR]`; argv[0] is "new". Returns the exit status. */
int new_main(int argc, char *const *argv);

#endif
