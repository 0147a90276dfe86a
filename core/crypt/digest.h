/* SHA-256, HMAC-SHA-256, SHA-1 and lower-case hexadecimal. */
#ifndef SP_CRYPT_DIGEST_H
#define SP_CRYPT_DIGEST_H

#include <stdint.h>

#include "base/err.h"
#include "base/view.h"

enum { DIGEST_BYTES = 32, DIGEST_HEX = 64, DIGEST_SHA1_BYTES = 20 };

struct digest; /* a running SHA-256 */

/*
 * Source:  FIPS 180-4, RFC 2104.
 * Context: any role, does not block.
 * Owner:   digest_new()'s caller; digest_free(NULL) is allowed.
 * Returns: digest_new: NULL without memory; the others 0, or SP_E_NOMEM when
 *          the library fails.  digest_final() resets for the next message.
 */
struct digest *digest_new(void) must_check;
void digest_free(struct digest *d);
int digest_update(struct digest *d, const void *p, size_t n) must_check;
int digest_final(struct digest *d, uint8_t out[DIGEST_BYTES]) must_check;
/* The digest of what came so far; more may follow. */
int digest_peek(struct digest *d, uint8_t out[DIGEST_BYTES]) must_check;
int digest_sha256(struct view v, uint8_t out[DIGEST_BYTES]) must_check;
/* For the handshake of RFC 6455 alone: nothing may trust it. */
int digest_sha1(struct view v, uint8_t out[DIGEST_SHA1_BYTES]) must_check;
int digest_hmac(struct view key, struct view v,
    uint8_t out[DIGEST_BYTES]) must_check;

/* 2 * n characters and a NUL into out. */
void digest_hex(const uint8_t *p, size_t n, char *out);
/* 0; SP_E_SYNTAX unless v is exactly 2 * n hexadecimal digits. */
int digest_unhex(struct view v, uint8_t *out, size_t n) must_check;

#endif
