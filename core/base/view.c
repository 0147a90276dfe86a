#include "config.h"

#include <errno.h>
#include <stdint.h>
#include <sys/random.h>

#include "base/err.h"
#include "base/view.h"

bool
view_eq(struct view a, struct view b)
{
	return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

/* The C library's tolower() depends on the locale; protocols do not. */
static unsigned char
view_lower(char c)
{
	unsigned char u = (unsigned char)c;

	return u >= 'A' && u <= 'Z' ? (unsigned char)(u + ('a' - 'A')) : u;
}

bool
view_eq_nocase(struct view a, struct view b)
{
	size_t i;

	if (a.n != b.n)
		return false;
	for (i = 0; i < a.n; i++)
		if (view_lower(a.p[i]) != view_lower(b.p[i]))
			return false;
	return true;
}

bool
view_starts(struct view v, struct view prefix)
{
	return v.n >= prefix.n && view_eq(view_sub(v, 0, prefix.n), prefix);
}

bool
view_ends(struct view v, struct view suffix)
{
	return v.n >= suffix.n && view_eq(view_from(v, v.n - suffix.n), suffix);
}

static bool
view_is_ows(char c)
{
	return c == ' ' || c == '\t';
}

struct view
view_trim(struct view v)
{
	while (v.n > 0 && view_is_ows(v.p[0])) {
		v.p++;
		v.n--;
	}
	while (v.n > 0 && view_is_ows(v.p[v.n - 1]))
		v.n--;
	return v;
}

size_t
view_find(struct view v, char c)
{
	const char *at;

	if (v.n == 0 || (at = memchr(v.p, c, v.n)) == NULL)
		return v.n;
	return (size_t)(at - v.p);
}

size_t
view_search(struct view v, struct view needle)
{
	const char *at;

	if (needle.n == 0)
		return 0;
	if (v.n < needle.n ||
	    (at = memmem(v.p, v.n, needle.p, needle.n)) == NULL)
		return v.n;
	return (size_t)(at - v.p);
}

struct view
view_from(struct view v, size_t from)
{
	if (from == 0)
		return v; /* p may be NULL: no arithmetic on it */
	if (from > v.n)
		from = v.n;
	return view_of(v.n != 0 ? v.p + from : v.p, v.n - from);
}

struct view
view_sub(struct view v, size_t from, size_t n)
{
	v = view_from(v, from);
	if (v.n > n)
		v.n = n;
	return v;
}

/*
 * The end is told apart from an empty last piece ("a," gives "a" and "") by
 * p: NULL once the last piece was cut.
 */
bool
view_split(struct view *rest, char sep, struct view *piece)
{
	size_t at;

	if (rest->p == NULL)
		return false;
	at = view_find(*rest, sep);
	*piece = view_of(rest->p, at);
	*rest = at < rest->n ? view_from(*rest, at + 1) : VIEW_NONE;
	return true;
}

bool
view_eq_secret(struct view a, struct view b)
{
	volatile unsigned char diff = 0;
	size_t i;

	if (a.n != b.n)
		return false;
	for (i = 0; i < a.n; i++)
		diff |= (unsigned char)(a.p[i] ^ b.p[i]);
	return diff == 0;
}

/* ---- SipHash-1-3 (Aumasson, Bernstein: "SipHash: a fast short-input PRF") */

static inline uint64_t
view_rotl(uint64_t x, unsigned by)
{
	return x << by | x >> (64 - by);
}

static inline void
view_sip_round(uint64_t s[4])
{
	s[0] += s[1];
	s[2] += s[3];
	s[1] = view_rotl(s[1], 13) ^ s[0];
	s[3] = view_rotl(s[3], 16) ^ s[2];
	s[0] = view_rotl(s[0], 32);
	s[2] += s[1];
	s[0] += s[3];
	s[1] = view_rotl(s[1], 17) ^ s[2];
	s[3] = view_rotl(s[3], 21) ^ s[0];
	s[2] = view_rotl(s[2], 32);
}

/* Up to eight bytes, least significant first. */
static inline uint64_t
view_le64(const char *p, size_t n)
{
	uint64_t w = 0;
	size_t i;

	for (i = 0; i < n; i++)
		w |= (uint64_t)(unsigned char)p[i] << (8 * i);
	return w;
}

static uint64_t
view_sip13(const uint64_t key[2], struct view v)
{
	uint64_t s[4] = {
		key[0] ^ UINT64_C(0x736f6d6570736575),
		key[1] ^ UINT64_C(0x646f72616e646f6d),
		key[0] ^ UINT64_C(0x6c7967656e657261),
		key[1] ^ UINT64_C(0x7465646279746573),
	};
	uint64_t w;
	size_t i;

	for (i = 0; v.n - i >= 8; i += 8) {
		w = view_le64(v.p + i, 8);
		s[3] ^= w;
		view_sip_round(s);
		s[0] ^= w;
	}
	w = (uint64_t)v.n << 56;
	if (i < v.n)
		w |= view_le64(v.p + i, v.n - i);
	s[3] ^= w;
	view_sip_round(s);
	s[0] ^= w;
	s[2] ^= 0xff;
	view_sip_round(s);
	view_sip_round(s);
	view_sip_round(s);
	return s[0] ^ s[1] ^ s[2] ^ s[3];
}

unsigned long
view_hash(struct view v)
{
	static uint64_t key[2];
	static bool keyed;

	while (!keyed) {
		/* up to 256 bytes come whole or not at all: getrandom(2) */
		ssize_t n = getrandom(key, sizeof(key), 0);

		err_assert(
		    n == (ssize_t)sizeof(key) || (n == -1 && errno == EINTR));
		keyed = n != -1;
	}
	return (unsigned long)view_sip13(key, v);
}
