/* Reads symbols of an ELF shared object in memory without loading it, so that none of its code runs. */
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

#endif
