/* Ed25519 signatures (RFC 8032). */
#ifndef SP_CRYPT_SIGN_H
#define SP_CRYPT_SIGN_H

#include <stdint.h>

#include "base/err.h"
#include "base/view.h"

enum { SIGN_KEY_BYTES = 32, SIGN_BYTES = 64 };

struct sign_key; /* a private key */

/*
 * Context: any role, does not block.
 * Owner:   the caller frees with sign_key_free() (NULL allowed), which clears
 *          the secret.
 * Returns: NULL without memory or when the library refuses the bytes; int: 0,
 *          SP_E_NOMEM, and sign_verify SP_E_DENIED when the signature is not
 *          good.
 */
struct sign_key *sign_key_generate(void) must_check;
struct sign_key *sign_key_load(const uint8_t seed[SIGN_KEY_BYTES]) must_check;
void sign_key_free(struct sign_key *k);
int sign_key_seed(const struct sign_key *k,
    uint8_t out[SIGN_KEY_BYTES]) must_check;
int sign_key_public(const struct sign_key *k,
    uint8_t out[SIGN_KEY_BYTES]) must_check;
int sign_make(const struct sign_key *k, struct view v,
    uint8_t out[SIGN_BYTES]) must_check;
int sign_verify(const uint8_t pub[SIGN_KEY_BYTES], struct view v,
    const uint8_t sig[SIGN_BYTES]) must_check;

#endif
