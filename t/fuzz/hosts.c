/* Names and addresses as peers write them: event/hosts. */
#include <stdint.h>
#include <stdlib.h>

#include "event/hosts.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	char name[HOSTS_NAME_MAX], again[HOSTS_NAME_MAX];
	struct view v = view_of(p, n);
	struct hosts_ip ip;
	size_t len;

	len = hosts_name(v, name);
	if (len > HOSTS_NAME_MAX)
		abort();
	/* what came out is a name, and the same one */
	if (len != 0 &&
	    (hosts_name(view_of(name, len), again) != len ||
		memcmp(name, again, len) != 0))
		abort();
	/* and none that is an address as well */
	if (hosts_literal(v, &ip) == 0 && len != 0)
		abort();
	return 0;
}
