/* Request and reply heads, whatever the version of HTTP. */
#ifndef SP_HTTP_HEAD_H
#define SP_HTTP_HEAD_H

#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/view.h"

/* What a client is told that goes past a limit, with the directive's name. */
#define HEAD_LINE_LONG "request line too long: see header_line_max"
#define HEAD_FIELD_LARGE "a header field too large: see header_line_max"
#define HEAD_FIELDS_LARGE "header fields too large: see header_max"
#define HEAD_FIELDS_MANY "too many header fields: see header_max_n"
#define HEAD_BODY_SLOW \
	"the request body came too slowly: see client_body_timeout"

struct head_field {
	struct view name; /* as received; compared without case */
	struct view value; /* trimmed */
};

/* Fields in order; memory of the list and of what is added is the arena's. */
struct head_fields {
	struct arena *arena;
	struct head_field *v;
	size_t n, cap;
};

struct head_request {
	struct view method;
	struct view target; /* as received (h2: the :path) */
	struct view path; /* target without query, not normalised */
	struct view query; /* after '?', empty none */
	struct view authority; /* Host or :authority, p NULL none */
	/*
	 * What it wants to become: Upgrade, where Connection names that, or
	 * :protocol of an extended CONNECT; empty nothing.
	 */
	struct view upgrade;
	bool tls;
	bool http10; /* the client speaks HTTP/1.0 */
	int64_t content_length; /* -1: none given */
	bool has_body;
	struct head_fields fields; /* without Host, framing, hop-by-hop */
};

struct head_reply {
	unsigned status;
	int64_t content_length; /* -1: not known before the end */
	struct head_fields fields; /* without framing and hop-by-hop */
	struct view upgrade; /* read: as that of a request */
};

/*
 * Context: reactor; no blocking.
 * Returns (int): 0; SP_E_NOMEM; SP_E_SYNTAX for a name that is no token or a
 *          value with CR, LF or NUL.
 */
void head_fields_init(struct head_fields *f, struct arena *a);
/* Copies name and value into the arena. */
int head_add(struct head_fields *f, struct view name,
    struct view value) must_check;
/* Borrows both (literals, or memory that lives as long). */
int head_add_borrowed(struct head_fields *f, struct view name,
    struct view value) must_check;
/* First field of that name: its value, or p NULL. */
struct view head_get(const struct head_fields *f, struct view name);
/* How many fields have that name. */
size_t head_count(const struct head_fields *f, struct view name);
/* Removes all of that name; how many there were. */
size_t head_del(struct head_fields *f, struct view name);
/* True when the comma-separated list value has the token (no case). */
bool head_list_has(struct view list, struct view token);
/*
 * True for hop-by-hop fields that end at a proxy: Connection, Keep-Alive,
 * Proxy-Connection, TE, Trailer, Transfer-Encoding, Upgrade,
 * Proxy-Authenticate, Proxy-Authorization.  Source: RFC 9110 s7.6.1.
 */
bool head_is_hop(struct view name);
/* True for digests of a body: Content-Digest, Repr-Digest, Digest, Content-MD5. */
bool head_is_digest(struct view name);
/*
 * How many content codings the fields list, and the last of them; identity is
 * none.  Source: RFC 9110 s8.4.
 */
size_t head_codings(const struct head_fields *f, struct view *last);
/* One or more token characters.  Source: RFC 9110 s5.6.2. */
bool head_is_token(struct view v);
/* "OK" for 200; "" when unknown. */
const char *head_reason(unsigned status);

#endif
