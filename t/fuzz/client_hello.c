/* The first message of a connection: gate/relay_hello. */
#include <stdint.h>
#include <stdlib.h>

#include "event/hosts.h"
#include "gate/relay_hello.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	char name[RELAY_HELLO_NAME_MAX], again[HOSTS_NAME_MAX];
	struct view v = view_of(p, n);
	size_t len = 0, less = 0;
	int rc = relay_hello_read(v, name, &len);

	if (rc != SP_OK && rc != SP_E_AGAIN && rc != SP_E_SYNTAX &&
	    rc != SP_E_LIMIT)
		abort();
	/* as many as that are enough for everybody */
	if (rc == SP_E_AGAIN && n >= RELAY_HELLO_BYTES)
		abort();
	if (rc != SP_OK)
		return 0;
	if (len > 0 &&
	    (hosts_name(view_of(name, len), again) != len ||
		memcmp(name, again, len) != 0))
		abort();
	/* all but its end is not the message yet, or another one */
	if (n > 0) {
		rc = relay_hello_read(view_sub(v, 0, n - 1), again, &less);
		if (rc == SP_OK &&
		    (less != len || memcmp(name, again, len) != 0))
			abort();
	}
	return 0;
}
