/* Each emulated instruction gives the bits of the real one, wherever the processor has it. */

#include "instructions.h"

#include "near.h"
#include "random_floats.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 20000, MORE = 20, FLOATS = ROW_BYTES / 4 };

static void fill(uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i += 4) {
        const uint32_t u = random_float();
        memcpy(bytes + i, &u, sizeof u);
    }
    if (random_bits() % 2)
        return;
    for (size_t i = 0; i < count; i += 2) { /* bf16 in the low halves too */
        const uint16_t h = (uint16_t)(random_float() >> 16);
        memcpy(bytes + i, &h, sizeof h);
    }
}

static float at(const uint8_t *bytes, size_t i)
{
    float f;
    memcpy(&f, bytes + 4 * i, sizeof f);
    return f;
}

static bool has_nan(const uint8_t *bytes)
{
    for (size_t i = 0; i < FLOATS; i++)
        if (isnan(at(bytes, i)))
            return true;
    return false;
}

static bool is_same(same how, const operands *in, const result *real, const result *emulated)
{
    if (how == VALUES && has_nan(in->a))
        return true;
    for (size_t i = 0; i < TILE_BYTES / 4; i++) {
        const float x = at(real->byte, i), y = at(emulated->byte, i);
        const bool bits = !memcmp(real->byte + 4 * i, emulated->byte + 4 * i, 4);
        if (!bits && (how == BITS || !(isnan(x) ? isnan(y) : how == VALUES && x == y)))
            return false;
    }
    return true;
}

static void explain(const instruction *i, const operands *in, const result *real,
                    const result *emulated)
{
    printf("%s: a, b, c, real, emulated\n", i->name);
    for (size_t k = 0; k < FLOATS; k++) {
        const uint8_t *const all[] = {in->a, in->b, in->c, real->byte, emulated->byte};
        for (size_t j = 0; j < COUNT_OF(all); j++) {
            uint32_t u;
            memcpy(&u, all[j] + 4 * k, sizeof u);
            printf(" %08x %-14g", u, (double)at(all[j], k));
        }
        printf("\n");
    }
}

/* Returns whether both have the same results for random operands. */
static bool agree(const instruction *real, const instruction *emulated, bool aloud)
{
    static operands in;
    static result want, got;
    const int rounds = getenv("LATHER_TEST_FULL") ? MORE * ROUNDS : ROUNDS;
    for (int round = 0; round < rounds; round++) {
        fill(in.a, sizeof in.a);
        fill(in.b, sizeof in.b);
        fill(in.c, sizeof in.c);
        for (size_t t = 0; real->isa == LT_ISA_AMX && t < COUNT_OF(in.tile); t++)
            fill(in.tile[t], sizeof in.tile[t]);
        in.mask = random_bits();
        memset(&want, 0xA5, sizeof want);
        memset(&got, 0xA5, sizeof got);
        real->run(&in, want.byte);
        emulated->run(&in, got.byte);
        if (is_same(real->same, &in, &want, &got))
            continue;
        if (aloud)
            explain(real, &in, &want, &got);
        return false;
    }
    return true;
}

static void all_agree(lt_cpu_isa isa)
{
    if (lt_cpu_detect() < isa) {
        print_message("%s: not on this processor\n", lt_cpu_isa_name(isa));
        skip();
    }
    for (size_t i = 0; real_instructions[i].name; i++)
        if (real_instructions[i].isa == isa
            && !agree(&real_instructions[i], &emulated_instructions[i], true))
            fail_msg("%s: not what the processor does", real_instructions[i].name);
}

static void avx2(void **state)
{
    (void)state;
    all_agree(LT_ISA_AVX2);
}

static void avx512(void **state)
{
    (void)state;
    all_agree(LT_ISA_AVX512);
}

static void avx512_bf16(void **state)
{
    (void)state;
    all_agree(LT_ISA_AVX512_BF16);
}

static void amx(void **state)
{
    (void)state;
    all_agree(LT_ISA_AMX);
}

/* --- Controls: near misses --- */

static float bf16_at(const uint8_t *bytes, int i)
{
    uint16_t h;
    memcpy(&h, bytes + 2 * i, sizeof h);
    const uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static void put(void *out, int i, float f)
{
    memcpy((char *)out + 4 * i, &f, sizeof f);
}

static void lower_pair_first(const operands *in, void *out)
{
    for (int i = 0; i < FLOATS; i++) {
        const float low = fmaf(bf16_at(in->a, 2 * i), bf16_at(in->b, 2 * i), at(in->c, (size_t)i));
        put(out, i, fmaf(bf16_at(in->a, 2 * i + 1), bf16_at(in->b, 2 * i + 1), low));
    }
}

static void rounds_twice(const operands *in, void *out)
{
    for (int i = 0; i < FLOATS; i++) {
        const double product = (double)at(in->a, (size_t)i) * (double)at(in->b, (size_t)i);
        put(out, i, (float)(product + (double)at(in->c, (size_t)i)));
    }
}

static void truncates(const operands *in, void *out)
{
    for (int i = 0; i < FLOATS; i++)
        memcpy((char *)out + 2 * i, in->a + 4 * i + 2, 2);
}

static void ignores_signs_of_zeros(const operands *in, void *out)
{
    int mask = 0;
    for (int i = 0; i < FLOATS / 2; i++)
        mask |= (at(in->a, (size_t)i) < 0) << i;
    memcpy(out, &mask, sizeof mask);
}

static void near_misses_are_found(void **state)
{
    static const instruction wrong[] = {
        {"_mm512_dpbf16_ps", LT_ISA_AVX512_BF16, NUMBERS, lower_pair_first},
        {"_mm512_fmadd_ps", LT_ISA_AVX512, NUMBERS, rounds_twice},
        {"_mm512_cvtneps_pbh", LT_ISA_AVX512_BF16, BITS, truncates},
        {"_mm256_movemask_ps", LT_ISA_AVX2, BITS, ignores_signs_of_zeros}};
    int compared = 0;
    (void)state;
    for (size_t w = 0; w < COUNT_OF(wrong); w++)
        for (size_t i = 0; real_instructions[i].name; i++) {
            if (strcmp(wrong[w].name, real_instructions[i].name) != 0
                || lt_cpu_detect() < wrong[w].isa)
                continue;
            compared++;
            if (agree(&real_instructions[i], &wrong[w], false))
                fail_msg("%s: a wrong one passes", wrong[w].name);
        }
    if (!compared)
        skip();
}

/* --- The list is whole --- */

static bool is_listed(const char *name, size_t length)
{
    for (size_t i = 0; emulated_instructions[i].name; i++)
        if (strlen(emulated_instructions[i].name) == length
            && !strncmp(emulated_instructions[i].name, name, length))
            return true;
    return false;
}

/* Names that begin so and are called or defined in the text. */
static int check_names(const char *text, const char *prefix)
{
    int found = 0;
    for (const char *p = text; (p = strstr(p, prefix));) {
        p++; /* the space */
        const size_t length = strspn(p, "_abcdefghijklmnopqrstuvwxyz0123456789");
        if (p[length] != '(')
            continue;
        found++;
        if (!is_listed(p, length))
            fail_msg("%.*s: emulated, but in no row of instruction_table.c", (int)length, p);
    }
    return found;
}

static void every_emulated_instruction_is_compared(void **state)
{
    static const char *const headers[] = {"immintrin.h", "tiles.h"};
    (void)state;
    int found = 0;
    for (size_t h = 0; h < COUNT_OF(headers); h++) {
        char path[4096], text[1 << 16] = "";
        snprintf(path, sizeof path, "%s/tests/cpu/emulated/%s", getenv("LATHER_TEST_SOURCE"),
                 headers[h]);
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        const size_t size = fread(text, 1, sizeof text - 1, f);
        assert_in_range(size, 1, sizeof text - 2);
        assert_int_equal(fclose(f), 0);
        found += check_names(text, " _mm") + check_names(text, " _tile_");
    }
    assert_in_range(found, 50, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(avx2),
        cmocka_unit_test(avx512),
        cmocka_unit_test(avx512_bf16),
        cmocka_unit_test(amx),
        cmocka_unit_test(near_misses_are_found),
        cmocka_unit_test(every_emulated_instruction_is_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
