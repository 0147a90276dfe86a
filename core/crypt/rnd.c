#include "config.h"

#include <errno.h>
#include <stdint.h>
#include <sys/random.h>

#include "base/err.h"
#include "base/mem.h"
#include "crypt/rnd.h"

void
rnd_bytes(void *out, size_t n)
{
	unsigned char *p = out;
	ssize_t got;

	while (n > 0) {
		got = getrandom(p, n, 0);
		err_assert(got > 0 || (got == -1 && errno == EINTR));
		if (got > 0) {
			p += got;
			n -= (size_t)got;
		}
	}
}

void
rnd_token(char *out, size_t n)
{
	static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				  "abcdefghijklmnopqrstuvwxyz0123456789";
	enum { SET_N = sizeof(set) - 1 };
	uint8_t pool[64];
	size_t at = 0, i;

	while (at < n) {
		rnd_bytes(pool, sizeof(pool));
		/* bytes past the last multiple of 62 would favour some */
		for (i = 0; i < sizeof(pool) && at < n; i++)
			if (pool[i] < 256 / SET_N * SET_N)
				out[at++] = set[pool[i] % SET_N];
	}
	out[n] = '\0';
	mem_zero(pool, sizeof(pool));
}
