/* The rules about wrong oneDNN primitives, tested without oneDNN: forms with known wrong results are
 * rejected for the implementations that were wrong, on any CPU; the ResNets' forms are not. */

#include "tensor/backend/cpu/onednn/conv_rules.h"

#include "near.h"

#include "lather/ext/fail.h"

#include <string.h>

enum { V2_6 = 2006, V3_2 = 3002, NEWER = 3013 };

/* A form as in the report; d counts from 1, as in this library. */
typedef struct geometry {
    int64_t c, k, h, w, r, s;
    int stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w, groups;
} geometry;

static int64_t outputs(int64_t size, int64_t taps, int stride, int pad, int dilation)
{
    return (size + 2 * pad - (taps - 1) * dilation - 1) / stride + 1;
}

static lt_conv_form form_of(const geometry *g, lt_conv_kind kind)
{
    return (lt_conv_form){
        .kind = kind,
        .config = {g->stride_h, g->stride_w, g->pad_h, g->pad_w, g->dilation_h, g->dilation_w,
                   g->groups},
        .x = LT_SHAPE(1, g->c, g->h, g->w),
        .w = LT_SHAPE(g->k, g->c / g->groups, g->r, g->s),
        .y = LT_SHAPE(1, g->k, outputs(g->h, g->r, g->stride_h, g->pad_h, g->dilation_h),
                      outputs(g->w, g->s, g->stride_w, g->pad_w, g->dilation_w)),
    };
}

typedef struct wrong_row {
    const char *rule;
    int version;
    const char *implementation;
    geometry form;
    bool corrected; /* newer versions compute this form correctly */
} wrong_row;

#define AMX_W26 "jit:avx512_core_amx_bf16"
#define AMX_W32 "brgconv_bwd_w:avx512_core_amx"
#define AMX_Y26 "brgconv:avx512_core_amx_bf16"
#define AMX_Y32 "brgconv:avx512_core_amx"
#define BF16_W  "jit_bf16:avx512_core_bf16"
#define BF16_Y  "brgconv:avx512_core_bf16"
#define F32_Y   "brgconv:avx512_core"
#define BF16_11 "jit_bf16_1x1:avx512_core_bf16"
#define F32_11  "jit_1x1:avx512_core"

#define WIDE_STRIDE "bf16, stride wider than the row"
#define ODD_TAIL_DY "bf16, odd channel tail of dy"
#define SHORT_TAIL  "right padding wider than the tail"

/* Known wrong forms: docs/results/onednn-wrong-primitives.md. */
static const wrong_row wrong[] = {
    {"AMX, dilation", V2_6, AMX_W26, {53, 50, 30, 24, 3, 3, 1, 1, 4, 4, 3, 0, 1}, false},
    {"AMX, dilation", V2_6, AMX_W26, {40, 37, 9, 8, 3, 3, 1, 1, 2, 2, 2, 2, 1}, false},
    {"AMX, dilation", V2_6, AMX_W26, {56, 55, 30, 30, 6, 4, 1, 1, 4, 4, 7, 0, 1}, false},
    {"AMX, taps in padding only", V2_6, AMX_W26, {4, 3, 1, 1, 3, 3, 2, 2, 1, 1, 1, 2, 1}, false},
    {"AMX, taps in padding only", V2_6, AMX_W26, {10, 14, 9, 2, 3, 3, 3, 3, 1, 1, 1, 2, 1}, false},
    {"AMX, taps in padding only", V2_6, AMX_W26, {53, 53, 1, 1, 3, 3, 2, 2, 1, 1, 1, 1, 53}, false},
    {"AMX, taps in padding only", V3_2, AMX_W32, {52, 16, 1, 1, 3, 3, 2, 2, 1, 1, 1, 1, 1}, false},
    {"AMX, taps in padding only", V3_2, AMX_W32, {96, 11, 2, 2, 3, 3, 3, 3, 1, 1, 1, 1, 1}, false},
    {"AMX, taps in padding only", V3_2, AMX_W32, {66, 15, 20, 2, 3, 3, 3, 3, 1, 1, 0, 2, 1}, false},
    {"AMX, stride 3", V2_6, AMX_Y26, {16, 64, 25, 25, 2, 2, 3, 3, 1, 1, 0, 0, 1}, true},
    {"AMX, stride 3", V2_6, AMX_Y26, {83, 57, 28, 14, 2, 2, 3, 3, 1, 1, 1, 1, 1}, false},
    {"AMX, wide padding", V2_6, AMX_Y26, {85, 5, 28, 12, 1, 5, 2, 2, 1, 1, 0, 4, 1}, false},
    {"AMX, wide padding", V3_2, AMX_Y32, {8, 4, 1, 13, 3, 3, 3, 3, 2, 2, 3, 2, 1}, false},
    {"AMX, wide padding", V3_2, AMX_Y32, {77, 59, 1, 27, 3, 3, 2, 2, 4, 1, 5, 0, 1}, false},
    {"AMX, outputs in padding only", V3_2, AMX_Y32, {8, 4, 1, 9, 2, 1, 1, 1, 2, 1, 1, 0, 1}, false},
    {"bf16, taps in padding only", V2_6, BF16_W, {13, 35, 1, 1, 3, 3, 2, 2, 1, 1, 1, 1, 1}, false},
    {"bf16, taps in padding only",
     V3_2,
     "jit_bf16:avx512_core",
     {63, 6, 4, 1, 1, 3, 3, 3, 1, 1, 0, 1, 1},
     false},
    {"bf16, dilation", V2_6, BF16_W, {24, 112, 29, 29, 3, 3, 1, 1, 4, 4, 2, 4, 4}, false},
    {"bf16, dilation", V3_2, BF16_W, {18, 3, 30, 30, 3, 3, 1, 1, 2, 2, 2, 2, 3}, false},
    {"bf16, dilation", V2_6, BF16_W, {38, 15, 8, 123, 3, 3, 1, 1, 2, 2, 2, 2, 1}, false},
    {WIDE_STRIDE, V2_6, BF16_W, {1, 63, 1, 1, 1, 1, 3, 3, 1, 1, 0, 0, 1}, false},
    {WIDE_STRIDE, V2_6, BF16_W, {1, 3, 1, 2, 1, 2, 1, 3, 1, 1, 0, 0, 1}, false},
    {"bf16, odd channel tail", V2_6, BF16_Y, {83, 60, 4, 4, 7, 7, 3, 3, 1, 1, 6, 3, 1}, false},
    {"bf16, odd channel tail", V2_6, BF16_Y, {257, 32, 7, 7, 7, 7, 1, 1, 1, 1, 0, 0, 1}, false},
    {ODD_TAIL_DY,
     V3_2,
     "brg_fwd:avx512_core_bf16+brgconv:avx512_core_bf16",
     {128, 257, 7, 7, 7, 7, 1, 1, 1, 1, 0, 0, 1},
     false},
    {SHORT_TAIL, V2_6, BF16_Y, {37, 59, 1, 11, 7, 7, 1, 1, 2, 2, 7, 6, 1}, false},
    {SHORT_TAIL, V2_6, BF16_Y, {6, 96, 2, 47, 2, 7, 1, 1, 1, 1, 0, 6, 1}, true},
    {SHORT_TAIL, V2_6, F32_Y, {48, 64, 8, 9, 1, 6, 1, 1, 1, 2, 0, 5, 1}, true},
    {SHORT_TAIL, V2_6, F32_Y, {64, 16, 11, 11, 13, 13, 1, 1, 1, 1, 6, 6, 1}, true},
    {"bf16 1x1, odd channels of y",
     V2_6,
     BF16_11,
     {15, 7, 30, 30, 1, 1, 1, 1, 1, 1, 0, 0, 1},
     false},
    {"scratchpad overrun", V2_6, F32_11, {8, 16, 56, 56, 1, 1, 2, 2, 1, 1, 0, 0, 1}, false},
    {"scratchpad overrun", V3_2, BF16_11, {12, 16, 6, 6, 1, 1, 1, 2, 1, 1, 0, 0, 1}, false},
    {"scratchpad overrun", V3_2, "jit_1x1:avx2", {7, 38, 22, 22, 1, 1, 1, 2, 1, 1, 0, 0, 1}, false},
};

static const lt_conv_rule *rule_of(const wrong_row *r)
{
    const lt_conv_rule *rule = lt_conv_rule_at(0);
    for (int i = 1; rule && strcmp(rule->name, r->rule) != 0; i++)
        rule = lt_conv_rule_at(i);
    LT_ASSERT(rule); /* each row must name a rule */
    return rule;
}

/* The pass whose results were wrong, as in the report, not as the rule says. */
static lt_conv_kind wrong_pass(const char *rule)
{
    static const char *const forward[] = {"AMX, stride 3", "AMX, wide padding",
                                          "AMX, outputs in padding only", SHORT_TAIL,
                                          "bf16, odd channel tail"};
    for (size_t i = 0; i < COUNT_OF(forward); i++)
        if (!strcmp(rule, forward[i]))
            return LT_CONV;
    const bool of_input =
        !strcmp(rule, ODD_TAIL_DY) || !strcmp(rule, "bf16 1x1, odd channels of y");
    return of_input ? LT_CONV_GRAD_X : LT_CONV_GRAD_W;
}

static lt_conv_form wrong_form(const wrong_row *r)
{
    return form_of(&r->form, wrong_pass(r->rule));
}

static const char *refused_by(int version, const char *implementation, const lt_conv_form *form)
{
    const lt_conv_rule *r = lt_conv_find_forbidding_rule(version, implementation, form);
    return r ? r->name : "none";
}

static void known_wrong_forms_are_rejected(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        const lt_conv_form f = wrong_form(&wrong[i]);
        if (!lt_conv_find_forbidding_rule(wrong[i].version, wrong[i].implementation, &f)
            || !rule_of(&wrong[i])->forbids(&f))
            fail_msg("row %zu, %s: rejected by %s, want %s", i, wrong[i].implementation,
                     refused_by(wrong[i].version, wrong[i].implementation, &f), wrong[i].rule);
    }
}

/* An untested version is assumed to have the faults of the last tested one, except those that were
 * corrected. */
static void newer_versions_are_not_trusted(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        const lt_conv_form f = wrong_form(&wrong[i]);
        const bool refused = lt_conv_find_forbidding_rule(NEWER, wrong[i].implementation, &f);
        assert_int_equal(refused, !wrong[i].corrected);
    }
}

/* Control: the same forms by correct implementations, and dense forms by wrong ones. */
static void correct_forms_are_allowed(void **state)
{
    static const geometry dense = {64, 64, 28, 28, 3, 3, 1, 1, 1, 1, 1, 1, 1};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        const lt_conv_form f = wrong_form(&wrong[i]);
        const lt_conv_form good = form_of(&dense, f.kind);
        assert_null(lt_conv_find_forbidding_rule(wrong[i].version, "x64:gemm:jit", &f));
        assert_null(lt_conv_find_forbidding_rule(wrong[i].version, "jit:avx512_core", &f));
        assert_null(lt_conv_find_forbidding_rule(wrong[i].version, wrong[i].implementation, &good));
    }
    const geometry large = {64, 64, 28, 28, 5, 5, 1, 1, 1, 1, 2, 2, 1};
    const lt_conv_form f = form_of(&large, LT_CONV);
    assert_non_null(lt_conv_find_forbidding_rule(V2_6, F32_Y, &f));
    assert_null(lt_conv_find_forbidding_rule(V2_6, AMX_Y26, &f));
}

typedef struct right_row {
    const char *rule;
    geometry form;
} right_row;

/* Forms one step away from one that the rule rejects. */
static const right_row right[] = {
    {"scratchpad overrun", {16, 16, 56, 56, 1, 1, 2, 2, 1, 1, 0, 0, 1}},
    {"scratchpad overrun", {8, 16, 56, 56, 1, 1, 1, 1, 1, 1, 0, 0, 1}},
    {"scratchpad overrun", {8, 16, 56, 56, 1, 2, 2, 2, 1, 1, 0, 0, 1}},
    {"AMX, dilation", {53, 50, 30, 24, 3, 3, 1, 1, 1, 1, 1, 0, 1}},
    {"bf16, dilation", {24, 112, 29, 29, 3, 3, 1, 1, 1, 1, 1, 1, 4}},
    {"AMX, taps in padding only", {4, 3, 2, 2, 3, 3, 1, 1, 1, 1, 1, 1, 1}},
    {"bf16, taps in padding only", {13, 35, 2, 2, 3, 3, 1, 1, 1, 1, 1, 1, 1}},
    {"bf16, taps in padding only", {52, 16, 3, 3, 3, 3, 2, 2, 1, 1, 1, 1, 1}},
    {WIDE_STRIDE, {1, 3, 1, 3, 1, 2, 1, 3, 1, 1, 0, 0, 1}},
    {WIDE_STRIDE, {1, 3, 1, 4, 1, 1, 1, 3, 1, 1, 0, 0, 1}},
    {WIDE_STRIDE, {2, 3, 1, 2, 1, 2, 1, 3, 1, 1, 0, 0, 1}},
    {"bf16 1x1, odd channels of y", {15, 8, 30, 30, 1, 1, 1, 1, 1, 1, 0, 0, 1}},
    {SHORT_TAIL, {48, 64, 8, 8, 1, 6, 1, 1, 1, 2, 0, 5, 1}},
    {SHORT_TAIL, {48, 64, 8, 30, 1, 6, 1, 2, 1, 2, 0, 5, 1}},
    {"bf16, odd channel tail", {84, 60, 4, 4, 7, 7, 3, 3, 1, 1, 6, 3, 1}},
    {"bf16, odd channel tail", {31, 60, 4, 4, 7, 7, 3, 3, 1, 1, 6, 3, 1}},
    {ODD_TAIL_DY, {128, 256, 7, 7, 7, 7, 1, 1, 1, 1, 0, 0, 1}},
    {ODD_TAIL_DY, {128, 31, 7, 7, 7, 7, 1, 1, 1, 1, 0, 0, 1}},
    {"AMX, stride 3", {16, 64, 25, 25, 2, 2, 2, 2, 1, 1, 0, 0, 1}},
    {"AMX, wide padding", {8, 4, 9, 13, 3, 3, 1, 1, 2, 2, 2, 2, 1}},
    {"AMX, outputs in padding only", {8, 4, 1, 9, 2, 1, 1, 1, 1, 1, 0, 0, 1}},
    {"AMX, outputs in padding only", {8, 4, 3, 9, 2, 1, 1, 1, 2, 1, 0, 0, 1}},
};

static const wrong_row *row_of(const char *rule)
{
    for (size_t i = 0; i < COUNT_OF(wrong); i++)
        if (!strcmp(wrong[i].rule, rule))
            return &wrong[i];
    return NULL;
}

/* Uses the implementation that the rule is about. */
static void each_rule_allows_similar_correct_forms(void **state)
{
    (void)state;
    for (int i = 0; lt_conv_rule_at(i); i++) {
        const lt_conv_rule *rule = lt_conv_rule_at(i);
        const wrong_row *seen = row_of(rule->name);
        int compared = 0;
        assert_non_null(seen);
        for (size_t j = 0; j < COUNT_OF(right); j++) {
            if (strcmp(right[j].rule, rule->name) != 0)
                continue;
            const lt_conv_form f = form_of(&right[j].form, rule->kind);
            if (rule->forbids(&f)
                || lt_conv_find_forbidding_rule(seen->version, seen->implementation, &f))
                fail_msg("right[%zu], %s: rejected by %s", j, rule->name,
                         refused_by(seen->version, seen->implementation, &f));
            compared++;
        }
        if (!compared)
            fail_msg("rule %s: no adjacent form is allowed", rule->name);
    }
}

/* Each rule must reject a known wrong form; a rule without one would be a guess. */
static void every_rule_has_a_form(void **state)
{
    (void)state;
    for (int i = 0; lt_conv_rule_at(i); i++) {
        bool found = false;
        for (size_t j = 0; j < COUNT_OF(wrong) && !found; j++) {
            const lt_conv_form f = wrong_form(&wrong[j]);
            found = lt_conv_find_forbidding_rule(wrong[j].version, wrong[j].implementation, &f)
                    == lt_conv_rule_at(i);
        }
        if (!found)
            fail_msg("rule %s: it rejects no form", lt_conv_rule_at(i)->name);
    }
}

static void allow(int64_t c, int64_t k, int64_t size, int64_t filter, int stride)
{
    static const char *const names[] = {AMX_W26,
                                        AMX_W32,
                                        AMX_Y26,
                                        AMX_Y32,
                                        BF16_W,
                                        BF16_Y,
                                        F32_Y,
                                        BF16_11,
                                        F32_11,
                                        "jit_1x1:avx2",
                                        "brgconv_1x1:avx512_core_amx"};
    static const int versions[] = {V2_6, V3_2, NEWER};
    const int pad = (int)filter / 2;
    const geometry g = {c, k, size, size, filter, filter, stride, stride, 1, 1, pad, pad, 1};
    for (int kind = LT_CONV; kind <= LT_CONV_GRAD_W; kind++)
        for (size_t n = 0; n < COUNT_OF(names); n++)
            for (size_t v = 0; v < COUNT_OF(versions); v++) {
                const lt_conv_form f = form_of(&g, (lt_conv_kind)kind);
                if (lt_conv_find_forbidding_rule(versions[v], names[n], &f))
                    fail_msg("%lld to %lld channels, %lldx%lld, %lld pixels, stride %d, %s: %s",
                             (long long)c, (long long)k, (long long)filter, (long long)filter,
                             (long long)size, stride, names[n],
                             refused_by(versions[v], names[n], &f));
            }
}

/* All convolutions of ResNet-18 to 152 after the stem; size: pixels of the first stage's images. */
static void allow_stages(int64_t size)
{
    int64_t narrow = 64, wide = 64; /* channels of a stage's input */
    for (int64_t planes = 64; planes <= 512; planes *= 2) {
        const int stride = planes == 64 ? 1 : 2;
        allow(narrow, planes, size, 3, stride); /* basic blocks */
        allow(narrow, planes, size, 1, stride);
        allow(wide, planes, size, 1, 1); /* bottlenecks */
        allow(planes, planes, size, 3, stride);
        allow(wide, 4 * planes, size, 1, stride);
        size /= stride;
        allow(planes, planes, size, 3, 1);
        allow(planes, 4 * planes, size, 1, 1);
        allow(4 * planes, planes, size, 1, 1);
        narrow = planes;
        wide = 4 * planes;
    }
}

static void the_resnets_forms_are_allowed(void **state)
{
    (void)state;
    allow(3, 64, 224, 7, 2);
    allow(3, 64, 32, 3, 1);
    allow_stages(56); /* 224 pixels */
    allow_stages(32); /* the small stem: 32 pixels */
    allow_stages(16); /* 64 pixels */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_wrong_forms_are_rejected),
        cmocka_unit_test(newer_versions_are_not_trusted),
        cmocka_unit_test(correct_forms_are_allowed),
        cmocka_unit_test(each_rule_allows_similar_correct_forms),
        cmocka_unit_test(every_rule_has_a_form),
        cmocka_unit_test(the_resnets_forms_are_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
