/* The blocks of SHA-256 by the processor's own instructions for it. */
#ifndef SP_CRYPT_SHANI_H
#define SP_CRYPT_SHANI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHANI_BLOCK = 64 };

/* A message: its state, as FIPS 180-4 numbers the words, and what comes. */
struct shani_lane {
	uint32_t *h; /* 8 of them */
	const uint8_t *p;
};

/*
 * Source:  FIPS 180-4 s6.2.2.
 * Context: any role, does not block, no allocation.  The others may be called
 *          only where shani_usable().
 */
bool shani_usable(void);
/* Takes n blocks from p. */
void shani_one(const struct shani_lane *a, size_t n);
/*
 * n blocks of each of two messages: about as fast as one alone, since the
 * rounds of a message wait for each other and those of two do not.
 */
void shani_two(const struct shani_lane *a, const struct shani_lane *b,
    size_t n);

#endif
