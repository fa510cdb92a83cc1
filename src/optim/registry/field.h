/* Fields of optimizers' configs: values as numbers, text and JSON. */
#ifndef LT_OPTIM_REGISTRY_FIELD_H
#define LT_OPTIM_REGISTRY_FIELD_H

#include "lather/ext/optim_family.h"

/* Returns the optimizer's field of that name, or NULL. */
const lt_optim_field *lt_optim_find_field(const lt_optim_family *family, const char *name);
/* Writes the field as in a command line, "1e-8", or "" for lists. Returns text. */
const char *lt_field_text(const lt_optim_field *field, const void *config, char *text, size_t size);
/* Sets the field from text that is in range. Errors: those of a list's set. */
lt_status lt_field_set_from_text(const lt_optim_field *field, void *config, const char *text);
/* Sets the field from JSON. Errors: LT_E_ARG, naming the key and the expected value. */
lt_status lt_field_set_from_json(const lt_optim_field *field, void *config,
                                 const lt_json_value *value);
/* Returns a number, flag or choice as a number. */
double lt_field_number(const lt_optim_field *field, const void *config);

#endif
