/* Tokens: drawing, proofs, files. */

#include "base/token.h"

#include "base/encoding/sha256.h"
#include "base/os.h"
#include "base/shared_file.h"
#include "base/text.h"

#include "lather/ext/fail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* 64 characters, so that a byte modulo 64 is uniform. */
static const char alphabet[] = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

lt_status lt_token_draw(char out[LT_TOKEN_NONCE])
{
    uint8_t bytes[LT_TOKEN_NONCE - 1];
    if (!lt_os_random(bytes, sizeof bytes))
        return lt_fail(LT_E_IO, "comm: getrandom: %s", strerror(errno));
    for (size_t i = 0; i < sizeof bytes; i++)
        out[i] = alphabet[bytes[i] % (sizeof alphabet - 1)];
    out[sizeof bytes] = 0;
    return LT_OK;
}

bool lt_token_is_nonce(const char *text)
{
    return strnlen(text, LT_TOKEN_NONCE) == LT_TOKEN_NONCE - 1
           && strspn(text, alphabet) == LT_TOKEN_NONCE - 1;
}

void lt_token_prove(char out[LT_TOKEN_PROOF], const char *token, const char *nonce,
                    const char *words)
{
    uint8_t mac[LT_SHA256_BYTES];
    char text[LT_TOKEN_BYTES];
    const int bytes = snprintf(text, sizeof text, "%s, %s", nonce, words);
    LT_ASSERT(bytes > 0 && (size_t)bytes < sizeof text);
    lt_hmac_sha256(mac, token, strlen(token), text, (size_t)bytes);
    lt_text_hex(out, mac, sizeof mac);
}

bool lt_token_proofs_equal(const char got[LT_TOKEN_PROOF], const char want[LT_TOKEN_PROOF])
{
    volatile unsigned differ = 0; /* volatile: prevents an early exit by the compiler */
    for (int i = 0; i < LT_TOKEN_PROOF; i++)
        differ |= (unsigned char)(got[i] ^ want[i]);
    return !differ;
}

lt_status lt_token_check(const char *token, const char *name)
{
    const size_t bytes = token ? strlen(token) : LT_TOKEN_LEAST;
    if (bytes >= LT_TOKEN_LEAST && bytes < LT_TOKEN_BYTES)
        return LT_OK;
    return lt_fail(LT_E_ARG, "%s: a secret of %zu bytes, want %d to %d", name, bytes,
                   (int)LT_TOKEN_LEAST, LT_TOKEN_BYTES - 1);
}

lt_status lt_token_write(const char *path, const char *token)
{
    enum { OURS_ALONE = 0600 };
    struct stat old;
    if (!lstat(path, &old) && old.st_uid == geteuid())
        unlink(path);
    int fd;
    LT_TRY(lt_shared_open(&fd, path, O_WRONLY | O_CREAT | O_EXCL, OURS_ALONE));
    const ssize_t bytes = (ssize_t)strlen(token);
    const bool written = write(fd, token, (size_t)bytes) == bytes;
    const int why = errno;
    close(fd);
    if (!written)
        unlink(path);
    return written ? LT_OK : lt_fail(LT_E_IO, "comm: the job's token: %s: %s", path, strerror(why));
}

static lt_status check_token_file(int fd, const char *path)
{
    enum { OTHERS = 077, MODE = 0777 };
    struct stat info;
    if (fstat(fd, &info))
        return lt_fail(LT_E_IO, "comm: the job's token: %s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return lt_fail(LT_E_ARG, "comm: the job's token: %s is not a regular file", path);
    if (info.st_uid != geteuid())
        return lt_fail(LT_E_ARG, "comm: the job's token: %s belongs to user %u, not to user %u",
                       path, (unsigned)info.st_uid, (unsigned)geteuid());
    if (info.st_mode & OTHERS)
        return lt_fail(LT_E_ARG, "comm: the job's token: %s has mode %04o, want 0600", path,
                       (unsigned)info.st_mode & MODE);
    return LT_OK;
}

lt_status lt_token_read(char out[LT_TOKEN_BYTES], const char *path)
{
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return lt_fail(LT_E_IO, "comm: the job's token: %s: %s", path,
                       errno == ELOOP ? "a symbolic link: name the file itself" : strerror(errno));
    lt_status st = check_token_file(fd, path);
    const ssize_t got = st ? 0 : read(fd, out, LT_TOKEN_BYTES - 1);
    close(fd);
    out[got > 0 ? got : 0] = 0;
    out[strcspn(out, "\r\n")] = 0;
    return st ? st : lt_token_check(out, path);
}
