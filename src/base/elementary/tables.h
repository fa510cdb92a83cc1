/* Made by tests/golden/make_elementary.py. */
#ifndef LT_BASE_ELEMENTARY_TABLES_H
#define LT_BASE_ELEMENTARY_TABLES_H

#include <stdint.h>

/* clang-format off */
/* 2^(i/32), each as the sum of two doubles. */
static const double powers_of_2[64] = {
    0x1p+0, 0x0p+0, 0x1.059b0d3158574p+0, 0x1.d73e2a475b465p-55,
    0x1.0b5586cf9890fp+0, 0x1.8a62e4adc610bp-54, 0x1.11301d0125b51p+0, -0x1.6c51039449b3ap-54,
    0x1.172b83c7d517bp+0, -0x1.19041b9d78a76p-55, 0x1.1d4873168b9aap+0, 0x1.e016e00a2643cp-54,
    0x1.2387a6e756238p+0, 0x1.9b07eb6c70573p-54, 0x1.29e9df51fdee1p+0, 0x1.612e8afad1255p-55,
    0x1.306fe0a31b715p+0, 0x1.6f46ad23182e4p-55, 0x1.371a7373aa9cbp+0, -0x1.63aeabf42eae2p-54,
    0x1.3dea64c123422p+0, 0x1.ada0911f09ebcp-55, 0x1.44e086061892dp+0, 0x1.89b7a04ef80dp-59,
    0x1.4bfdad5362a27p+0, 0x1.d4397afec42e2p-56, 0x1.5342b569d4f82p+0, -0x1.07abe1db13cadp-55,
    0x1.5ab07dd485429p+0, 0x1.6324c054647adp-54, 0x1.6247eb03a5585p+0, -0x1.383c17e40b497p-54,
    0x1.6a09e667f3bcdp+0, -0x1.bdd3413b26456p-54, 0x1.71f75e8ec5f74p+0, -0x1.16e4786887a99p-55,
    0x1.7a11473eb0187p+0, -0x1.41577ee04992fp-55, 0x1.82589994cce13p+0, -0x1.d4c1dd41532d8p-54,
    0x1.8ace5422aa0dbp+0, 0x1.6e9f156864b27p-54, 0x1.93737b0cdc5e5p+0, -0x1.75fc781b57ebcp-57,
    0x1.9c49182a3f09p+0, 0x1.c7c46b071f2bep-56, 0x1.a5503b23e255dp+0, -0x1.d2f6edb8d41e1p-54,
    0x1.ae89f995ad3adp+0, 0x1.7a1cd345dcc81p-54, 0x1.b7f76f2fb5e47p+0, -0x1.5584f7e54ac3bp-56,
    0x1.c199bdd85529cp+0, 0x1.11065895048ddp-55, 0x1.cb720dcef9069p+0, 0x1.503cbd1e949dbp-56,
    0x1.d5818dcfba487p+0, 0x1.2ed02d75b3707p-55, 0x1.dfc97337b9b5fp+0, -0x1.1a5cd4f184b5cp-54,
    0x1.ea4afa2a490dap+0, -0x1.e9c23179c2893p-54, 0x1.f50765b6e454p+0, 0x1.9d3e12dd8a18bp-54,
};

/* c with ten bits, near 1 / (1 + i/32). */
static const double inverses[33] = {
    0x1p+0, 0x1.f08p-1, 0x1.e2p-1, 0x1.d4p-1, 0x1.c7p-1, 0x1.bbp-1, 0x1.afp-1, 0x1.a4p-1,
    0x1.998p-1, 0x1.8f8p-1, 0x1.86p-1, 0x1.7dp-1, 0x1.748p-1, 0x1.6cp-1, 0x1.64p-1, 0x1.5c8p-1,
    0x1.558p-1, 0x1.4e8p-1, 0x1.478p-1, 0x1.418p-1, 0x1.3bp-1, 0x1.35p-1, 0x1.2f8p-1, 0x1.2ap-1,
    0x1.248p-1, 0x1.1f8p-1, 0x1.1a8p-1, 0x1.158p-1, 0x1.11p-1, 0x1.0c8p-1, 0x1.088p-1, 0x1.04p-1,
    0x1p-1,
};

/* -log(c), each as the sum of two doubles, the first a multiple of 2^-42. */
static const double logs[66] = {
    0x0p+0, 0x0p+0, 0x1.f7a9b1678p-6, 0x1.42ad9271be7d7p-45,
    0x1.eea31c0068p-5, 0x1.c3dd83606d891p-44, 0x1.700d30aeacp-4, 0x1.c1e8da99ded32p-49,
    0x1.e3707ee304p-4, 0x1.0f684e6766abdp-45, 0x1.28753bc11ap-3, 0x1.7494e359302e6p-44,
    0x1.60b3100b0ap-3, -0x1.71456c988f814p-44, 0x1.95a5adcf7p-3, 0x1.7f22858a0ff6fp-47,
    0x1.c97f8079d4p-3, 0x1.3b161a8c6e6c5p-45, 0x1.fc218be62p-3, 0x1.4bba46f1cf6ap-44,
    0x1.16b5ccbadp-2, -0x1.23299042d74bfp-44, 0x1.2e9e2bce12p-2, 0x1.4300c128d1dc2p-45,
    0x1.45b8c0a17ep-2, -0x1.d9120e7d0a853p-47, 0x1.5d5bddf596p-2, -0x1.a0b2a08a465dcp-47,
    0x1.741d876c68p-2, -0x1.13a7b5b11cfa7p-44, 0x1.89eb3af433p-2, -0x1.e2e9f9f0ddd8fp-44,
    0x1.9eb246cb4fp-2, -0x1.5ed18b0c6c46fp-46, 0x1.b3e77d046dp-2, 0x1.c9da811ca2675p-44,
    0x1.c98f869a9dp-2, -0x1.11056cbc9dd6ap-44, 0x1.dc7eb3d192p-2, -0x1.853e42391a209p-44,
    0x1.f168f7fb06p-2, -0x1.d6fb40a7c0c6ep-45, 0x1.028d2d6a96p-1, 0x1.fa3fec303d08p-44,
    0x1.0bbf2fd23ep-1, -0x1.5f8bfa94a1946p-44, 0x1.151c3f6f298p-1, -0x1.edd97a293ae49p-45,
    0x1.1ea5f6e70e8p-1, 0x1.c1747eb80651cp-44, 0x1.2779e1ec94p-1, -0x1.35b991994c90fp-45,
    0x1.30757344f1p-1, -0x1.ec82f533a1f99p-45, 0x1.399a157a6p-1, 0x1.f399c62286d89p-44,
    0x1.41f8ff8472p-1, -0x1.4f7845166b2e1p-44, 0x1.4a7b87bf1f8p-1, 0x1.4123a4eb6653dp-44,
    0x1.522ae0738ap-1, 0x1.ebe708164c759p-44, 0x1.5af405c3648p-1, 0x1.dfa63ac10c9fbp-45,
    0x1.62e42fefa38p-1, 0x1.ef35793c7673p-45,
};

/* 64 zeros, then the bits of 2/pi after the point. */
static const uint64_t two_over_pi[20] = {
    0x0000000000000000, 0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041,
    0xfe5163abdebbc561, 0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e,
    0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b,
    0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d,
    0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab,
};

/* (1 + 2x) exp(x^2) erfc(x) as a polynomial in t = (x - 3.75) / (x + 3.75), ascending. */
static const double erfc_coef[26] = {
    0x1.3ccda0b5d5dc2p+0, -0x1.1f367683f89a7p-3, 0x1.d5f294815a448p-9, 0x1.510169d096803p-4,
    -0x1.bda9309a294fdp-4, 0x1.7a14188a99b3p-4, -0x1.e0d0fa6ddf01ap-5, 0x1.d0b0037dcc906p-6,
    -0x1.3f603c39af06fp-7, 0x1.cc3a0e2212f44p-10, 0x1.33fb298161868p-12, -0x1.303f9d8ceda2dp-12,
    0x1.b14395a551aeep-15, 0x1.778a276cd97c4p-16, -0x1.80005da99b005p-17, -0x1.052525efa669bp-20,
    0x1.d63256489b33bp-20, -0x1.f4941f05a731dp-25, -0x1.15b8e4af3e51ap-22, 0x1.a1809ecfcbfep-26,
    0x1.4c1b8fe94af13p-25, -0x1.2e2777e7e9c1ap-28, -0x1.63376daa748f8p-28, 0x1.2d8bb3ae3b809p-31,
    0x1.d28e6270e10c9p-32, -0x1.4e14d07a8416dp-35,
};
/* clang-format on */

#endif
