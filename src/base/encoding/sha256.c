/* SHA-256 by FIPS 180-4, section 6.2, and HMAC by RFC 2104. */

#include "sha256.h"

#include "base/big_endian.h"

#include <string.h>

enum { BLOCK = 64, WORDS = 8, ROUNDS = 64, LENGTH_AT = 56, BYTE_BITS = 8, WORD_BITS = 32 };

typedef struct hash {
    uint32_t h[WORDS];
    uint8_t block[BLOCK];
    uint64_t bytes; /* bytes hashed so far */
} hash;

/* Initial hash value: FIPS 180-4, section 5.3.3. */
static const hash begin = {.h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                                 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};

/* Round constants: FIPS 180-4, section 4.2.2. */
static const uint32_t constants[ROUNDS] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate_right(uint32_t x, int by)
{
    return x >> by | x << (WORD_BITS - by);
}

/* Hashes one full block; the standard's variables a to h are v[0] to v[7]. */
static void hash_block(hash *s)
{
    uint32_t w[ROUNDS], v[WORDS];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)lt_read_big_endian(s->block + i * sizeof *w, sizeof *w);
    for (int i = 16; i < ROUNDS; i++) {
        const uint32_t x = w[i - 15], y = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (rotate_right(x, 7) ^ rotate_right(x, 18) ^ x >> 3)
               + (rotate_right(y, 17) ^ rotate_right(y, 19) ^ y >> 10);
    }
    memcpy(v, s->h, sizeof v);
#pragma GCC unroll 8 /* as many rounds as words: the compiler then moves none */
    for (int i = 0; i < ROUNDS; i++) {
        const uint32_t e = v[4], a = v[0];
        const uint32_t t1 = v[7] + (rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25))
                            + ((e & v[5]) ^ (~e & v[6])) + constants[i] + w[i];
        const uint32_t t2 = (rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22))
                            + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        for (int k = WORDS - 1; k > 0; k--)
            v[k] = v[k - 1];
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < WORDS; i++)
        s->h[i] += v[i];
}

static void hash_bytes(hash *s, const void *data, size_t bytes)
{
    for (const uint8_t *at = data; bytes > 0;) {
        const size_t used = s->bytes % BLOCK, left = BLOCK - used,
                     some = bytes < left ? bytes : left;
        memcpy(s->block + used, at, some);
        at += some;
        bytes -= some;
        s->bytes += some;
        if (some == left)
            hash_block(s);
    }
}

static void finish_hash(hash *s, uint8_t out[LT_SHA256_BYTES])
{
    const uint64_t bits = s->bytes * BYTE_BITS;
    hash_bytes(s, "\x80", 1);
    while (s->bytes % BLOCK != LENGTH_AT)
        hash_bytes(s, "", 1);
    for (int i = 0; i < BLOCK - LENGTH_AT; i++)
        s->block[LENGTH_AT + i] = (uint8_t)(bits >> (BYTE_BITS * (BLOCK - LENGTH_AT - 1 - i)));
    hash_block(s);
    for (size_t i = 0; i < LT_SHA256_BYTES; i++)
        out[i] = (uint8_t)(s->h[i / 4] >> (BYTE_BITS * (3 - i % 4)));
}

void lt_sha256(uint8_t out[LT_SHA256_BYTES], const void *data, size_t bytes)
{
    hash s = begin;
    hash_bytes(&s, data, bytes);
    finish_hash(&s, out);
}

void lt_hmac_sha256(uint8_t out[LT_SHA256_BYTES], const void *key, size_t key_bytes,
                    const void *data, size_t bytes)
{
    static const uint8_t pad[] = {0x36, 0x5c}; /* inner, outer */
    uint8_t block[BLOCK] = {0};
    hash s[2] = {begin, begin};
    if (key_bytes > BLOCK)
        lt_sha256(block, key, key_bytes);
    else
        memcpy(block, key, key_bytes);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < BLOCK; i++)
            hash_bytes(&s[k], &(uint8_t){block[i] ^ pad[k]}, 1);
    hash_bytes(&s[0], data, bytes);
    finish_hash(&s[0], out);
    hash_bytes(&s[1], out, LT_SHA256_BYTES);
    finish_hash(&s[1], out);
}
