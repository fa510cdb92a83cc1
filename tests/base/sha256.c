/* src/base/encoding/sha256.c against the vectors of FIPS 180-4's examples (NIST, "SHA256.pdf") and RFC 4231. */

#include "base/encoding/sha256.h"

#include "base/token.h"
#include "near.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEX = 2 * LT_SHA256_BYTES + 1, MOST = 1000000 };

static void hex(char out[HEX], const uint8_t bytes[LT_SHA256_BYTES])
{
    for (size_t i = 0; i < LT_SHA256_BYTES; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

static void hashes(void **state)
{
    static const struct {
        const char *text;
        int times;
        const char *want;
    } rows[] = {
        {"abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"a", MOST, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
    };
    char got[HEX], *data = malloc(MOST + 1);
    uint8_t out[LT_SHA256_BYTES];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const size_t bytes = strlen(rows[i].text);
        for (int k = 0; k < rows[i].times; k++)
            memcpy(data + (size_t)k * bytes, rows[i].text, bytes);
        lt_sha256(out, data, (size_t)rows[i].times * bytes);
        hex(got, out);
        assert_string_equal(got, rows[i].want);
    }
    free(data);
}

static void codes(void **state)
{
    static const struct {
        int key, key_bytes; /* a byte, repeated; 0: the text "Jefe"; -1: 1, 2, ... */
        const char *text;   /* NULL: 50 times */
        int byte;
        const char *want;
    } rows[] = {
        {0x0b, 20, "Hi There", 0,
         "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
        {0, 4, "what do ya want for nothing?", 0,
         "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
        {0xaa, 20, NULL, 0xdd, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
        {-1, 25, NULL, 0xcd, "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
        {0xaa, 131, "Test Using Larger Than Block-Size Key - Hash Key First", 0,
         "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
        {0xaa, 131,
         "This is a test using a larger than block-size key and a larger than block-size data. The "
         "key needs to be hashed before being used by the HMAC algorithm.",
         0, "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
    };
    char got[HEX], fifty[51] = "";
    uint8_t out[LT_SHA256_BYTES];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        uint8_t key[131];
        memset(key, rows[i].key, sizeof key);
        for (int k = 0; rows[i].key < 0 && k < rows[i].key_bytes; k++)
            key[k] = (uint8_t)(k + 1);
        memset(fifty, rows[i].byte, sizeof fifty - 1);
        const char *text = rows[i].text ? rows[i].text : fifty;
        lt_hmac_sha256(out, rows[i].key ? (const void *)key : "Jefe", (size_t)rows[i].key_bytes,
                       text, strlen(text));
        hex(got, out);
        assert_string_equal(got, rows[i].want);
    }
}

static void proofs(void **state)
{
    char one[LT_TOKEN_PROOF], other[LT_TOKEN_PROOF];
    (void)state;
    lt_token_prove(one, "the token of a job", "0123456789abcdef", "rank 1");
    for (int i = 0; i < LT_TOKEN_PROOF; i++) {
        memcpy(other, one, sizeof other);
        assert_true(lt_token_proofs_equal(other, one));
        other[i] ^= 1;
        assert_false(lt_token_proofs_equal(other, one));
    }
    lt_token_prove(other, "the token of a jog", "0123456789abcdef", "rank 1");
    assert_string_not_equal(one, other);
    lt_token_prove(other, "the token of a job", "0123456789abcdeg", "rank 1");
    assert_string_not_equal(one, other);
    lt_token_prove(other, "the token of a job", "0123456789abcdef", "rank 2");
    assert_string_not_equal(one, other);
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        {"SHA-256 of NIST's examples", hashes, NULL, NULL, NULL},
        {"HMAC-SHA256 of RFC 4231", codes, NULL, NULL, NULL},
        {"a proof differs by token, nonce and words, and is compared to its last character", proofs,
         NULL, NULL, NULL},
    };
    return cmocka_run_group_tests_name("sha256", rows, NULL, NULL);
}
