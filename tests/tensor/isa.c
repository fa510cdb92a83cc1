/* Instruction sets of the cpu backend: those of this machine, those hidden by a variable, and the condition
 * for AMX. */

#include "near.h"
#include "tensor/backend/cpu/conv/wgrad.h"
#include "tensor/backend/cpu/cpu.h"

#include "lather/status.h"

#include <stdlib.h>
#include <string.h>

#if defined(__aarch64__)
static const char *const names[] = {"generic", "neon", "neon_bf16"};
#else
static const char *const names[] = {"generic", "avx2", "avx512", "avx512_bf16", "amx"};
#endif

static lt_cpu_isa found(const char *limit)
{
    lt_cpu_isa isa = LT_ISA_GENERIC;
    assert_int_equal(setenv("LATHER_CPU_ISA", limit, 1), 0);
    assert_ok(lt_cpu_choose_isa(&isa));
    return isa;
}

static void a_chosen_instruction_set_is_an_upper_limit(void **state)
{
    (void)state;
    lt_cpu_isa best = found("");
    for (int i = 0; i < (int)COUNT_OF(names); i++) {
        lt_cpu_isa isa = found(names[i]);
        assert_int_equal(isa, i < (int)best ? i : (int)best);
        assert_int_equal(strcmp(lt_cpu_isa_name(isa), names[isa]), 0);
    }
}

static void an_unknown_instruction_set_is_an_error(void **state)
{
    (void)state;
    lt_cpu_isa isa;
    assert_int_equal(setenv("LATHER_CPU_ISA", "avx3", 1), 0);
    assert_status(lt_cpu_choose_isa(&isa), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "avx3"));
    assert_non_null(strstr(lt_error_message(), names[COUNT_OF(names) - 1]));
}

static size_t packed(lt_cpu_isa isa, lt_dtype dtype)
{
    const lt_cpu cpu = {.isa = isa, .kernels = lt_cpu_isa_kernels(isa, false)};
    return lt_wgrad_microkernel_for(&cpu, dtype).size;
}

/* bf16 is fast where a micro-kernel multiplies it, and never on a reproducible device. */
static void bf16_is_fast_with_its_instructions_only(void **state)
{
    (void)state;
    for (int i = 0; i < (int)COUNT_OF(names); i++)
        for (int reproducible = 0; reproducible < 2; reproducible++) {
            const lt_cpu_isa isa = found(names[i]);
            const bool has = strstr(names[isa], "bf16") || !strcmp(names[isa], "amx");
            void *ctx;
            const lt_device_config config = {.threads = 1, .reproducible = reproducible};
            assert_ok(lt_backend_cpu()->open(&ctx, 0, &config));
            assert_int_equal(lt_backend_cpu()->has_fast(ctx, LT_BF16), has && !reproducible);
            lt_backend_cpu()->close(ctx);
        }
}

/* In bf16 where that is fast, else in f32. */
static void the_weight_gradient_has_a_packed_dtype_on_every_set(void **state)
{
    (void)state;
    for (lt_cpu_isa isa = LT_ISA_GENERIC; isa < (lt_cpu_isa)COUNT_OF(names); isa++)
        assert_int_equal(packed(isa, LT_F32), sizeof(float));
    assert_int_equal(packed(LT_ISA_GENERIC, LT_BF16), sizeof(float));
#if defined(__x86_64__)
    assert_int_equal(packed(LT_ISA_AVX512, LT_BF16), sizeof(float));
    assert_int_equal(packed(LT_ISA_AVX512_BF16, LT_BF16), sizeof(uint16_t));
    assert_int_equal(packed(LT_ISA_AMX, LT_BF16), sizeof(uint16_t));
#endif
}

/* Bits as Intel's manual numbers them: OSXSAVE 27, AMX-BF16 22, AMX-TILE 24; XCR0's 17 and 18. */
static void amx_needs_cpu_and_system(void **state)
{
    const uint32_t osxsave = 1U << 27, both = 1U << 22 | 1U << 24;
    const uint64_t saved = UINT64_C(3) << 17;
    (void)state;
    assert_true(lt_amx_reported(osxsave, both, saved));
    assert_true(lt_amx_reported(UINT32_MAX, UINT32_MAX, UINT64_MAX));
    assert_false(lt_amx_reported(0, both, saved));
    assert_false(lt_amx_reported(osxsave, 1U << 24, saved)); /* tiles, but no bf16 */
    assert_false(lt_amx_reported(osxsave, 1U << 22, saved));
    assert_false(lt_amx_reported(osxsave, both, UINT64_C(1) << 17));
    assert_false(lt_amx_reported(osxsave, both, UINT64_C(1) << 18));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chosen_instruction_set_is_an_upper_limit),
        cmocka_unit_test(an_unknown_instruction_set_is_an_error),
        cmocka_unit_test(bf16_is_fast_with_its_instructions_only),
        cmocka_unit_test(the_weight_gradient_has_a_packed_dtype_on_every_set),
        cmocka_unit_test(amx_needs_cpu_and_system),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
