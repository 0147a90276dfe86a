#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <errno.h>

#include "base/mem.h"
#include "crypt/digest.h"
#include "os/fd.h"
#include "recorder/signer.h"

enum {
	PEM_MAX = 512,
	SPKI_HEAD = 12,
	SPKI_BYTES = SPKI_HEAD + SIGN_KEY_BYTES,
	SPKI_BASE64 = (SPKI_BYTES + 2) / 3 * 4,
};
static const char pem_begin[] = "-----BEGIN PUBLIC KEY-----\n";
static const char pem_end[] = "\n-----END PUBLIC KEY-----\n";
/* RFC 8410 s4: SEQUENCE { SEQUENCE { id-Ed25519 } BIT STRING } */
static const uint8_t spki_head[SPKI_HEAD] = { 0x30, 0x2a, 0x30, 0x05, 0x06,
	0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00 };
static const char base64_digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* 44 bytes make 59 digits and one "=" (RFC 4648 s4). */
static void
spki_encode(const uint8_t pub[SIGN_KEY_BYTES], char out[SPKI_BASE64 + 1])
{
	uint8_t der[SPKI_BYTES + 1] = { 0 };
	size_t i, o = 0;
	uint32_t v;

	memcpy(der, spki_head, SPKI_HEAD);
	memcpy(der + SPKI_HEAD, pub, SIGN_KEY_BYTES);
	for (i = 0; i < SPKI_BYTES; i += 3) {
		v = (uint32_t)der[i] << 16 | (uint32_t)der[i + 1] << 8 |
		    (i + 2 < SPKI_BYTES ? der[i + 2] : 0);
		out[o++] = base64_digits[v >> 18];
		out[o++] = base64_digits[v >> 12 & 63];
		out[o++] = base64_digits[v >> 6 & 63];
		out[o++] = i + 2 < SPKI_BYTES ? base64_digits[v & 63] : '=';
	}
	out[o] = '\0';
}

static int
write_new(int dir, const char *name, const void *p, size_t n, mode_t mode)
{
	char tmp[64];
	int fd, rc;

	(void)snprintf(tmp, sizeof(tmp), ".%s.tmp", name);
	(void)unlinkat(dir, tmp, 0);
	rc = fd_open_beneath(dir, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW,
	    mode, &fd);
	if (rc != 0)
		return rc;
	rc = fd_write_all(fd, p, n);
	if (rc == 0 && fchmod(fd, mode) != 0)
		rc = err_from_errno(errno);
	if (rc == 0 && fsync(fd) != 0)
		rc = err_from_errno(errno);
	fd_close(&fd);
	if (rc == 0 && renameat(dir, tmp, dir, name) != 0)
		rc = err_from_errno(errno);
	if (rc == 0)
		(void)fsync(dir); /* not every filesystem can */
	else
		(void)unlinkat(dir, tmp, 0);
	return rc;
}

static int
read_small(int dir, const char *name, struct buf *out)
{
	int fd, rc;

	rc = fd_open_beneath(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0,
	    &fd);
	if (rc != 0)
		return rc;
	rc = fd_read_all(fd, out);
	fd_close(&fd);
	return rc;
}

static int
load_or_make(struct signer *s, int key_dir)
{
	struct buf seed = BUF_INIT(SIGN_KEY_BYTES + 1);
	uint8_t raw[SIGN_KEY_BYTES];
	int rc = read_small(key_dir, SIGNER_KEY_FILE, &seed);

	if (rc == 0 && buf_len(&seed) != SIGN_KEY_BYTES)
		rc = SP_E_SYNTAX;
	if (rc == 0) {
		s->key = sign_key_load((const uint8_t *)buf_view(&seed).p);
		rc = s->key != NULL ? 0 : SP_E_NOMEM;
	} else if (rc == SP_E_NOTFOUND) {
		s->key = sign_key_generate();
		rc = s->key == NULL ? SP_E_NOMEM : sign_key_seed(s->key, raw);
		if (rc == 0)
			rc = write_new(key_dir, SIGNER_KEY_FILE, raw,
			    sizeof(raw), 0600);
		mem_zero(raw, sizeof(raw));
	}
	if (seed.mem != NULL)
		mem_zero(seed.mem, seed.cap);
	buf_clear(&seed);
	return rc;
}

int
signer_open(struct signer *s, int key_dir)
{
	int rc;

	*s = (struct signer){ .key = NULL };
	if (key_dir >= 0) {
		rc = load_or_make(s, key_dir);
	} else {
		s->key = sign_key_generate();
		rc = s->key != NULL ? 0 : SP_E_NOMEM;
	}
	if (rc == 0)
		rc = sign_key_public(s->key, s->pub);
	if (rc != 0) {
		signer_clear(s);
		return rc;
	}
	digest_hex(s->pub, sizeof(s->pub), s->pub_hex);
	return 0;
}

void
signer_clear(struct signer *s)
{
	sign_key_free(s->key);
	s->key = NULL;
}

int
signer_publish(const struct signer *s, int dir, unsigned mode)
{
	struct buf there = BUF_INIT(PEM_MAX);
	char b64[SPKI_BASE64 + 1], pem[PEM_MAX], old[64];
	uint8_t other[SIGN_KEY_BYTES];
	int rc;

	rc = read_small(dir, SIGNER_PUB_FILE, &there);
	if (rc == 0 && signer_parse_pem(buf_view(&there), other) == 0) {
		if (memcmp(other, s->pub, sizeof(other)) == 0) {
			buf_clear(&there);
			return 0;
		}
		(void)snprintf(old, sizeof(old), "%s.%02x%02x%02x%02x",
		    SIGNER_PUB_FILE, other[0], other[1], other[2], other[3]);
		if (renameat(dir, SIGNER_PUB_FILE, dir, old) != 0) {
			buf_clear(&there);
			return err_from_errno(errno);
		}
	}
	buf_clear(&there);
	spki_encode(s->pub, b64);
	(void)snprintf(pem, sizeof(pem), "%s%s%s", pem_begin, b64, pem_end);
	return write_new(dir, SIGNER_PUB_FILE, pem, strlen(pem), mode);
}

int
signer_sign(const struct signer *s, struct view text, char hex[SIGNER_HEX + 1])
{
	uint8_t sig[SIGN_BYTES];
	int rc = sign_make(s->key, text, sig);

	if (rc == 0)
		digest_hex(sig, sizeof(sig), hex);
	return rc;
}

int
signer_parse_pem(struct view pem, uint8_t pub[SIGN_KEY_BYTES])
{
	const struct view begin = view_str(pem_begin), end = view_str(pem_end);
	uint8_t der[SPKI_BASE64 / 4 * 3];
	const char *digit;
	uint32_t v = 0;
	size_t i;

	if (pem.p == NULL || pem.n != begin.n + SPKI_BASE64 + end.n ||
	    !view_starts(pem, begin) || !view_ends(pem, end))
		return SP_E_SYNTAX;
	for (i = 0; i < SPKI_BASE64; i++) {
		char c = pem.p[begin.n + i];

		digit = c != '\0' ? strchr(base64_digits, c) : NULL;
		if (i == SPKI_BASE64 - 1 && c == '=')
			digit = base64_digits;
		if (digit == NULL)
			return SP_E_SYNTAX;
		v = v << 6 | (uint32_t)(digit - base64_digits);
		if (i % 4 != 3)
			continue;
		der[i / 4 * 3] = v >> 16 & 255;
		der[i / 4 * 3 + 1] = v >> 8 & 255;
		der[i / 4 * 3 + 2] = v & 255;
	}
	if (memcmp(der, spki_head, SPKI_HEAD) != 0)
		return SP_E_SYNTAX;
	memcpy(pub, der + SPKI_HEAD, SIGN_KEY_BYTES);
	return 0;
}
