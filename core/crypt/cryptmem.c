#include "config.h"

#include <openssl/crypto.h>

#include "base/mem.h"
#include "crypt/cryptmem.h"

/* Nothing is asked for in vain: the library takes NULL for that. */
static void *
take(size_t n, const char *file, int line)
{
	(void)file;
	(void)line;
	return n != 0 ? mem_alloc_for(MEM_TLS, n) : NULL;
}

static void *
resize(void *p, size_t n, const char *file, int line)
{
	(void)file;
	(void)line;
	return mem_realloc_for(MEM_TLS, p, n);
}

static void
give(void *p, const char *file, int line)
{
	(void)file;
	(void)line;
	mem_free_for(MEM_TLS, p);
}

int
cryptmem_count(void)
{
	return CRYPTO_set_mem_functions(take, resize, give) == 1 ? 0
								 : SP_E_STATE;
}
