/* Requests to the upstreams of the configuration. */
#ifndef SP_GATE_FORWARD_H
#define SP_GATE_FORWARD_H

#include "gate/gate.h"
#include "http/call.h"

struct forward; /* pools of all upstreams: one in the gate */

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
};

/*
 * Context: reactor.  Builds pools and TLS contexts; reads CA files, so before
 * the walls close.
 * Returns: 0; SP_E_NOMEM; SP_E_TLS with a line in err.
 */
int forward_new(struct loop *l, const struct conf *conf, struct metrics *m,
    struct forward **out, struct buf *err) must_check;
void forward_free(struct forward *f);
/*
 * Starts a call.  Dropped on the way up: Authorization, x-api-key, api-key,
 * x-goog-api-key, Cookie, Expect, Host, Content-Length, Accept-Encoding,
 * hop-by-hop fields and those that Connection names.  Source: RFC 9110 s7.6,
 * case H10.
 */
int forward_start(struct forward *f, const struct forward_params *p,
    const struct call_owner *owner, struct call **out) must_check;
struct forward *gate_forward(const struct gate *g);

#endif
