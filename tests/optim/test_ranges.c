/* Both limits of the range of each option of each optimizer: in its config, and as a flag. */

#include "fixture.h"
#include "optim/registry/field.h"
#include "optim/registry/registry.h"
#include "option_limits.h"

#include "lather/detail/optim_flags.h"
#include "lather/optim_config.h"

#include <float.h>
#include <limits.h>
#include <string.h>

/* An option of an optimizer, in a copy of its first preset. */
typedef struct setting {
    const lt_optim_family *family;
    const lt_optim_field *field;
    char config[4096];
} setting;

static void put_number(setting *s, double value)
{
    void *to = s->config + s->field->offset;
    if (s->field->type == LT_FIELD_REAL)
        *(double *)to = value;
    else if (s->field->type == LT_FIELD_SMALL || s->field->type == LT_FIELD_CHOICE)
        *(int *)to = (int)value;
    else
        *(int64_t *)to = value < 0x1p63 ? (int64_t)value : INT64_MAX;
}

static void expect(setting *s, double value, bool accepted)
{
    char text[64], message[160];
    put_number(s, value);
    const lt_status st = lt_optim_check(s->family, s->config);
    if (st != (accepted ? LT_OK : LT_E_ARG))
        fail_msg("%s: %s %g: %s", s->family->name, s->field->name, value,
                 st ? lt_error_message() : "is accepted");
    if (accepted)
        return;
    if (s->field->type == LT_FIELD_CHOICE)
        snprintf(message, sizeof message, "%s: %s has no value %g; they are in [0,",
                 s->family->name, s->field->name, value);
    else
        snprintf(message, sizeof message, "%s: %s %s is not in [", s->family->name, s->field->name,
                 lt_field_text(s->field, s->config, text, sizeof text));
    if (!strstr(lt_error_message(), message))
        fail_msg("'%s' does not say '%s'", lt_error_message(), message);
}

static void check_real(setting *s)
{
    const lt_optim_field *f = s->field;
    expect(s, f->low, true);
    expect(s, nextafter(f->low, (double)-INFINITY), f->unset_means != NULL); /* counts as unset */
    expect(s, (double)NAN, false);
    expect(s, nextafter(f->high, f->low), true); /* nextafter of infinity: the largest double */
    expect(s, f->high, !f->below && !isinf(f->high));
    if (!isinf(f->high))
        expect(s, nextafter(f->high, (double)INFINITY), false);
}

static void check_integer(setting *s)
{
    const lt_optim_field *f = s->field;
    const double most = f->type == LT_FIELD_SMALL ? INT_MAX : 0x1p63;
    const double below = f->unset_means && f->unset == f->low - 1 ? f->low - 2 : f->low - 1;
    expect(s, f->low, true);
    expect(s, below, false);
    if (f->unset_means)
        expect(s, f->unset, true);
    if (f->high >= most) {
        expect(s, most, true);
        return;
    }
    expect(s, f->high - 1, true);
    expect(s, f->high, !f->below);
    expect(s, f->high + 1, false);
}

static void check_choice(setting *s)
{
    int bytes, count = 0;
    while (lt_options_item(s->field->choices, count, &bytes))
        expect(s, count++, true);
    expect(s, count, false);
    expect(s, -1, false);
}

static void each_setting_has_its_range_in_the_config(void **state)
{
    (void)state;
    int count = 0;
    const lt_optim_family *family;
    for (size_t i = 0; (family = lt_optim_family_at(i)); i++)
        for (size_t k = 0; k < family->fields; k++) {
            setting s = {.family = family, .field = &family->field[k]};
            assert_true(family->config_bytes <= sizeof s.config);
            memcpy(s.config, family->preset[0].config, family->config_bytes);
            assert_ok(lt_optim_check(family, s.config));
            count++;
            if (s.field->type == LT_FIELD_REAL)
                check_real(&s);
            else if (s.field->type == LT_FIELD_CHOICE)
                check_choice(&s);
            else if (s.field->type == LT_FIELD_COUNT || s.field->type == LT_FIELD_LIMIT
                     || s.field->type == LT_FIELD_SMALL)
                check_integer(&s);
            else
                count--;
        }
    assert_true(count > 60);
}

static void each_flag_has_its_range(void **state)
{
    (void)state;
    lt_optim_flags flags = {0};
    int limits = 0;
    assert_ok(lt_optim_flags_open(&flags));
    for (int k = 0; k < 2; k++) {
        const lt_option_table t =
            lt_optim_flags_table(&flags, k ? LT_OPTIM_FLAGS_OWN : LT_OPTIM_FLAGS_COMMON);
        for (size_t i = 0; i < t.count; i++)
            limits += check_limits(&t.option[i]);
    }
    lt_optim_flags_close(&flags);
    assert_true(limits > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_setting_has_its_range_in_the_config),
        cmocka_unit_test(each_flag_has_its_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
