/* The network of an episode: a namespace, its listeners, its way out. */
#ifndef SP_HELPER_NETNS_H
#define SP_HELPER_NETNS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "conf/conf_env.h"
#include "ipc/sandbox_msg.h"
#include "os/poller.h"

enum {
	NETNS_LISTENERS_MAX = CONF_ENV_INSIDE_MAX + 2,
	/* networks of 198.18/15, but the first, and two of netns_probe() */
	NETNS_SLOTS_MAX = 32765,
	NETNS_CONNECT_PORT = 3128,
	NETNS_RELAY_PORT = 3129,
	NETNS_JOB_MS = 10000, /* a child that takes longer is killed */
};

/*
 * Listeners of ours besides those of `inside`, by index from here: the
 * CONNECT door (127.0.0.1:3128), and where `via relay` turns connections to.
 */
enum netns_door {
	NETNS_DOOR_CONNECT = SANDBOX_DOOR_CONNECT,
	NETNS_DOOR_RELAY = SANDBOX_DOOR_RELAY,
};

/* Everything about a slot's network derives from its number. */
struct netns_plan {
	uint32_t slot;
	uint32_t generation;
	const struct conf_environment *env; /* borrowed for the call */
	bool via_veth; /* else relay, or nothing without rules */
	/*
	 * For an ordinary user: in a user namespace of its own, which whoever
	 * joins it maps; nothing of it is on the host, and no veth.
	 */
	bool userns;
	uint32_t host_addr, guest_addr; /* of a /30 in 198.18/15, host order */
	char veth[16]; /* host end: "sp-3" */
	char table[32]; /* nft: "sallyport-3" */
	uint32_t ct_mark;
	uint16_t nflog_group; /* first choice; see netns_make() */
};
/*
 * Fills in the names, addresses and numbers of a slot.
 * Parameters: slot, below NETNS_SLOTS_MAX.
 */
void netns_plan(struct netns_plan *p, uint32_t slot, uint32_t generation,
    const struct conf_environment *env, bool via_veth);

struct netns_listener {
	uint32_t index; /* conf_listen.index, or enum netns_door */
	int fd;
};
struct netns {
	int ns_fd; /* the namespace */
	int nflog_fd; /* bound; -1: none */
	/*
	 * Owns the table of the host: while it is open nobody else can change
	 * or flush that, and when it is closed the table stays until
	 * netns_cut().  -1: a kernel without owned tables that outlive their
	 * owner (before 6.9), or no table.
	 */
	int nft_fd;
	struct netns_listener listeners[NETNS_LISTENERS_MAX];
	size_t listeners_n;
};
void netns_init(struct netns *n); /* nothing is open */
void netns_clear(struct netns *n); /* closes what is open */

/*
 * Makes it all, in the order in which nothing is ever open: namespace with
 * IPv6 off and lo up, listeners, default deny inside, veth with both ends
 * down, host rules in one transaction, then up.  A group of NFLOG that is
 * taken is replaced by another one.
 * Source:  rtnetlink(7), the nf_tables and nfnetlink_log wire formats;
 *          rules in the design's section on the network.
 * Context: a short-lived child of the helper (netns_start), blocks.  With
 *          userns the process stays in the new namespaces, without a way
 *          back: it has to end soon.
 * Parameters: err, a line "what: why, remedy".
 * Owner:   netns_clear() and netns_cut().
 * Returns: 0; SP_E_EXISTS link or table is there: sweep; SP_E_UNSUPPORTED
 *          the kernel lacks what it needs; SP_E_*.  Nothing is left then.
 */
int netns_make(const struct netns_plan *p, struct netns *out,
    struct buf *err) must_check;
/*
 * Takes away what a slot may have on the host: the link, conntrack entries by
 * mark, the table, in this order; what is not there is fine, twice is fine.
 * Whoever holds the nft_fd closes it first: the table of another is refused.
 * Context: as above; blocks.
 * Returns: 0; the first error, after the rest was tried.
 */
int netns_cut(const struct netns_plan *p, struct buf *err) must_check;

/*
 * What the rules have counted since they were made: packets that began a flow
 * which is allowed, packets that were denied.  They are exact, also where
 * NFLOG's messages are bounded or lost.
 * Context: helper; a few system calls, in another namespace without a link.
 * Parameters: p, with its env; ns_fd, of struct netns.
 * Returns: 0; SP_E_NOTFOUND there are no rules; SP_E_DENIED an ordinary user
 *          does not get in; SP_E_*.
 */
struct netns_counts {
	uint64_t allowed, denied;
};
int netns_count(const struct netns_plan *p, int ns_fd,
    struct netns_counts *out) must_check;

/*
 * The same in a child of its own, so that the loop does not wait.  done() is
 * called once, from the poller: rc as above; made is the callee's to take
 * (NULL for a cut).
 * Context: helper.  When the child died (SP_E_GONE) or took longer than
 *          NETNS_JOB_MS and was killed (SP_E_TIMEOUT), a netns_cut() is due.
 * Owner:   the job frees itself after done(); netns_job_drop() lets it end
 *          unheard (what it made is taken away again).  p's env lives until
 *          netns_start() returns.
 * Returns: NULL without memory, descriptors or a process.
 */
struct netns_job;
struct netns_job *netns_start(struct poller *po, const struct netns_plan *p,
    bool cut,
    void (*done)(void *arg, int rc, struct netns *made, struct view why),
    void *arg) must_check;
void netns_job_drop(struct netns_job *j);

/*
 * What this host can do: for `-t` and the start.
 * Context: blocks; makes and removes a namespace, a veth, a table.
 * Returns: 0; SP_E_UNSUPPORTED with err naming what is missing and the remedy
 *          (ip_forward, a FORWARD policy of drop, no nf_tables, no NFLOG).
 */
int netns_probe(bool via_veth, struct buf *err) must_check;
/*
 * The same for an ordinary user: a network in a user namespace, with egress
 * one with rules that lead to the relay.  Asked in a child.
 */
int netns_probe_user(bool egress, struct buf *err) must_check;

#endif
