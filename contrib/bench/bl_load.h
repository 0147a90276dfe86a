/* Load: closed loops of requests, or streams that are held open. */
#ifndef SP_BL_LOAD_H
#define SP_BL_LOAD_H

#include <netinet/in.h>

#include "bl_hist.h"
#include "bl_reply.h"

enum { BL_LOAD_PIDS = 16 };

struct bl_load_plan {
	struct sockaddr_in to;
	struct view request; /* head and body */
	unsigned conns;
	bool stamps; /* of events are scripted-model's */
	bool paced; /* each connection carries one stream, to its end */
	uint64_t events; /* a stream with fewer is short; 0: any will do */
	uint64_t ramp_us; /* over which connections are begun */
	uint64_t settle_us; /* from there to the window */
	uint64_t window_us; /* in which is counted */
	uint64_t deadline_us; /* in all; what is open then has failed */
	uint64_t requests_max; /* closed loops stop there */
	int pids[BL_LOAD_PIDS]; /* whose CPU time is read */
	unsigned pids_n;
};

struct bl_load_result {
	uint64_t wall_us; /* of the window, as it was */
	uint64_t replies; /* whole, in the window */
	uint64_t events; /* in the window */
	uint64_t body_bytes; /* of whole replies in the window */
	uint64_t all_replies; /* in the whole run */
	uint64_t open_max;
	uint64_t cpu_ns[BL_LOAD_PIDS]; /* spent in the window */
	/* what went wrong, in the whole run */
	uint64_t refused; /* no connection */
	uint64_t bad_status;
	uint64_t malformed;
	uint64_t lost; /* the connection ended within the reply */
	uint64_t short_streams; /* whole, but events or [DONE] are missing */
	uint64_t late; /* open at the deadline */
	int last_status; /* of a bad one */
	struct bl_hist reply_us; /* request sent to reply whole */
	struct bl_hist first_us; /* request sent to first event; whole run */
	struct bl_hist event_us; /* sent upstream to arrival, in the window */
};

/*
 * Context: its own process; blocks until the load is over, at most
 *          deadline_us.  Prints {"at":"open"} when the window begins.
 * Owner:   *res is the caller's.
 * Returns: 0, also when replies failed; SP_E_NOMEM; SP_E_SYS.
 */
int bl_load_run(const struct bl_load_plan *plan,
    struct bl_load_result *res) must_check;

#endif
