/* The recorder's own key: made at the first start, never leaves. */
#ifndef SP_RECORDER_SIGNER_H
#define SP_RECORDER_SIGNER_H

#include "base/view.h"
#include "crypt/sign.h"

enum { SIGNER_HEX = 2 * SIGN_BYTES, SIGNER_PUB_HEX = 2 * SIGN_KEY_BYTES };

#define SIGNER_KEY_FILE "recorder.key"
#define SIGNER_PUB_FILE "sallyport.pub"

struct signer {
	struct sign_key *key;
	uint8_t pub[SIGN_KEY_BYTES];
	char pub_hex[SIGNER_PUB_HEX + 1];
};

/*
 * Loads the seed from the key directory, or makes one (recorder.key, 0600, 32
 * bytes); without a directory (-1) the key lives as long as the process.
 * Context: recorder, at start; blocks on the disk.
 * Owner:   signer_clear() frees.
 * Returns: 0; SP_E_SYNTAX the file is not a seed; the call's error.
 */
int signer_open(struct signer *s, int key_dir) must_check;
void signer_clear(struct signer *s);
/*
 * Puts the public key beside the traces, as PEM (SubjectPublicKeyInfo, RFC
 * 8410).  Another key that stands there is renamed sallyport.pub.<8 hex>.
 */
int signer_publish(const struct signer *s, int dir, unsigned mode) must_check;
/* The signature in hex. */
int signer_sign(const struct signer *s, struct view text,
    char hex[SIGNER_HEX + 1]) must_check;
/* Reads a PEM of that form: 0; SP_E_SYNTAX. */
int signer_parse_pem(struct view pem, uint8_t pub[SIGN_KEY_BYTES]) must_check;

#endif
