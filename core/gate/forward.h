/* Requests to the upstreams of the configuration. */
#ifndef SP_GATE_FORWARD_H
#define SP_GATE_FORWARD_H

#include "gate/gate.h"
#include "http/call.h"

struct forward; /* the upstreams of one generation */
struct resolver; /* event/resolver.h */

struct forward_params {
	const struct conf_upstream *upstream;
	struct view method;
	struct view endpoint; /* "/chat/completions": joined to the base */
	struct view query; /* empty none */
	/* End-to-end fields of the client, as they came; credentials are taken
	 * out and the upstream's key put in here. */
	const struct head_fields *fields;
	struct arena *arena; /* for the fields that go up */
	struct view body; /* whole; until head() or fail() was called */
	struct view affinity;
	bool manual_progress;
	bool edited; /* the body is not the client's own any more */
};

/*
 * Context: reactor.  Builds pools and TLS contexts; reads CA files, so before
 * the walls close.
 * Returns: 0; SP_E_NOMEM; SP_E_TLS with a line in err.
 */
int forward_new(struct loop *l, const struct conf *conf, struct metrics *m,
    struct forward **out, struct buf *err) must_check;
/* The same; certificates of src->cas come before files that conf names. */
int forward_new_from(struct loop *l, const struct gate_source *src,
    struct metrics *m, struct forward **out, struct buf *err) must_check;
/*
 * Of a later generation: resolver, metrics and, where an upstream is the same,
 * its connections are shared with those before.  No file is read.
 */
int forward_next(const struct forward *before, const struct gate_source *src,
    struct forward **out, struct buf *err) must_check;
struct hub_link;
/* The connections of the upstream with that index; for tests. */
const struct hub_link *forward_link(const struct forward *f, unsigned index);
/* How often an operator has changed the servers of any upstream. */
uint32_t forward_changes(const struct forward *f);
/* Who looks names up; lives as long as any generation. */
struct resolver *forward_resolver(const struct forward *f);
/* No call may be open. */
void forward_free(struct forward *f);
/*
 * Starts a call.  Dropped on the way up: Authorization, x-api-key, api-key,
 * x-goog-api-key, Cookie, Expect, Host, Content-Length, Accept-Encoding,
 * hop-by-hop fields and those that Connection names, all of them also with _
 * for -; of an edited body digests, Range and Content-Encoding; of the query
 * key, api-key, x-api-key and access_token.  Source: RFC 9110 s7.6, case H10.
 */
int forward_start(struct forward *f, const struct forward_params *p,
    const struct call_owner *owner, struct call **out) must_check;
/* Of the request's generation. */
struct forward *gate_forward(const struct gate_request *r);

#endif
