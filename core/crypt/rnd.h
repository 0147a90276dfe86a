/* Random bytes of the kernel (getrandom(2)); cannot fail after boot. */
#ifndef SP_CRYPT_RND_H
#define SP_CRYPT_RND_H

#include <stddef.h>

/* Context: any role.  Aborts if the kernel has none to give. */
void rnd_bytes(void *out, size_t n);
/* n characters of [A-Za-z0-9] and a NUL into out (n + 1 bytes). */
void rnd_token(char *out, size_t n);

#endif
