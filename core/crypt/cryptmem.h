/* The memory of the cryptographic library, counted with the rest. */
#ifndef SP_CRYPT_CRYPTMEM_H
#define SP_CRYPT_CRYPTMEM_H

#include "base/err.h"

/*
 * Has the library take its memory from base/mem.h, as MEM_TLS.
 * Source:  CRYPTO_set_mem_functions(3).
 * Context: any role, before anything else of the library is used.
 * Returns: 0; SP_E_STATE it has memory of its own already, and keeps to that.
 */
int cryptmem_count(void) must_check;

#endif
