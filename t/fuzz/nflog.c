/* Packets as the kernel tells of them: net/nflog. */
#include <stdint.h>
#include <stdlib.h>

#include "net/nflog.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct view rest = view_of(p, n);
	struct nflog_packet one;
	size_t before;
	int rc;

	do {
		before = rest.n;
		rc = nflog_next(&rest, &one);
		if (rc != SP_OK && rc != SP_E_EOF && rc != SP_E_PROTO)
			abort();
		/* it goes on, and what it gives is among the bytes */
		if (rc == SP_OK &&
		    (rest.n >= before ||
			(one.prefix.n > 0 &&
			    (one.prefix.p < (const char *)p ||
				one.prefix.p + one.prefix.n >
				    (const char *)p + n)) ||
			(one.has_ports && !one.is_ip)))
			abort();
	} while (rc == SP_OK);
	if (rc == SP_E_EOF && rest.n != 0)
		abort();
	return 0;
}
