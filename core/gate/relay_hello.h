/* The first message of TLS, for the name in it. */
#ifndef SP_GATE_RELAY_HELLO_H
#define SP_GATE_RELAY_HELLO_H

#include "base/err.h"
#include "base/view.h"

enum {
	RELAY_HELLO_NAME_MAX = 253,
	RELAY_HELLO_MAX = 16 * 1024, /* of the message */
	RELAY_HELLO_RECORDS = 64, /* that it may be cut into */
	/* of both: who has as many has enough */
	RELAY_HELLO_BYTES = 4 + RELAY_HELLO_MAX + 5 * RELAY_HELLO_RECORDS,
};

/*
 * Reads a ClientHello, in one record or in several, strictly: what two
 * readers could take in two ways is none.
 * Source:  RFC 8446 s4.1.2, s5.1; RFC 5246 s7.4.1.2; RFC 6066 s3.
 * Context: any, no blocking.
 * Parameters: bytes, everything from the connection's start; name, room for
 *          RELAY_HELLO_NAME_MAX bytes: in lower case, no NUL; *n, 0: the
 *          message has no name.
 * Returns: 0; SP_E_AGAIN more is needed; SP_E_SYNTAX that is none, or its
 *          name is no host's name; SP_E_LIMIT it is too long; SP_E_NOMEM.
 */
int relay_hello_read(struct view bytes, char *name, size_t *n) must_check;

#endif
