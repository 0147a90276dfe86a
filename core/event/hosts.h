/* Names that need no query: literals, /etc/hosts, localhost. */
#ifndef SP_EVENT_HOSTS_H
#define SP_EVENT_HOSTS_H

#include <stdint.h>

#include "base/err.h"
#include "base/view.h"

enum { HOSTS_NAME_MAX = 253, HOSTS_ADDRS_MAX = 16 };

struct hosts_ip {
	bool v6;
	uint8_t a[16]; /* network order; four of them for IPv4 */
};
struct hosts_addrs {
	struct hosts_ip v[HOSTS_ADDRS_MAX];
	size_t n;
};
struct hosts;

/*
 * Source:  hosts(5).
 * Context: start-up; reads the file, which may be missing.
 * Parameters: path, the file.
 * Owner:   the caller; hosts_free(NULL) is allowed.
 * Returns: NULL when there is no memory.
 */
struct hosts *hosts_new(const char *path) must_check;
void hosts_free(struct hosts *h);
/*
 * Source:  RFC 6761 s6.3 for localhost and names below it.
 * Context: any, no I/O.
 * Parameters: name, as hosts_name() wrote it.
 * Returns: borrowed addresses, or NULL when the name has to be asked for.
 */
const struct hosts_addrs *hosts_get(const struct hosts *h,
    struct view name) must_check;
/*
 * An address as text ("192.0.2.1", "2001:db8::1", "[2001:db8::1]").
 * Returns: 0, SP_E_SYNTAX.
 */
int hosts_literal(struct view host, struct hosts_ip *out) must_check;
/*
 * Source:  RFC 1123 s2.1; a last label that is a number is refused, as some
 *          take it for an address (0x7f.1).
 * Parameters: out, at least HOSTS_NAME_MAX bytes: lower case, no final dot.
 * Returns: the length, 0 when host is no name that may be asked for.
 */
size_t hosts_name(struct view host, char *out);

#endif
