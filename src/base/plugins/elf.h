/* Reads symbols of an ELF shared object in memory without loading it, so that none of its code runs; and the build ids of
 * this process. */
#ifndef LT_BASE_ELF_H
#define LT_BASE_ELF_H

#include "lather/status.h"

#include <stdbool.h>
#include <stddef.h>

/* Checks that the bytes begin as a shared object for this kind of processor. Errors: LT_E_FORMAT, without a name. */
LT_MUST_CHECK lt_status lt_elf_check(const void *file, size_t bytes);
/* Returns true if the shared object defines a dynamic symbol. *text: the NUL-terminated text stored there, within the
 * file; NULL if absent. Returns false for files without section headers. */
bool lt_elf_find_symbol(const void *file, size_t bytes, const char *name, const char **text);

enum { LT_BUILD_ID_TEXT = 17 };
/* Writes 16 hexadecimal digits of a hash of the linker's build ids (NT_GNU_BUILD_ID) of the program and the library; ""
 * if neither has one. Installing or stripping a file does not change its id. */
void lt_elf_build_id(char text[LT_BUILD_ID_TEXT]);

#endif
