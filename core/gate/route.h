/* Which server and location serve a request. */
#ifndef SP_GATE_ROUTE_H
#define SP_GATE_ROUTE_H

#include "base/buf.h"
#include "conf/conf.h"

struct route_found {
	const struct conf_location *location;
	struct view rest; /* beneath the location: "" or "/..."; borrowed */
};

/*
 * Source:  RFC 9110 s7.2 (Host).
 * Context: reactor, no blocking.
 * Parameters: servers, n: those that share the address, in the text's order;
 *          authority: Host or :authority, may hold a port.
 * Returns: the server that has that name, else the first.
 */
const struct conf_server *route_server(const struct conf_server *const *servers,
    size_t n, struct view authority);
/*
 * The location with the longest path that matches: its exact path, or what
 * lies beneath where its module says so.
 * Parameters: path, normalised.
 * Returns: false: none.
 */
bool route_find(const struct conf_server *server, struct view path,
    struct route_found *out);
/*
 * What names a location whatever the order of the text, so that it is the same
 * one after a reload: its server's first address and first name (or the
 * environment whose `inside` it stands in), and its path; appended.
 * Context: any.
 * Returns: 0; SP_E_LIMIT; SP_E_NOMEM.
 */
int route_place(const struct conf_location *l, struct buf *out) must_check;

#endif
