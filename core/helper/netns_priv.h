/* Making a network, step by step: what the files behind netns.h share. */
#ifndef SP_HELPER_NETNS_PRIV_H
#define SP_HELPER_NETNS_PRIV_H

#include "helper/netns.h"
#include "helper/nft_allow.h"
#include "helper/nl_sock.h"

/* Points at which tests let it fail or die, in this order. */
enum netns_step {
	NETNS_STEP_START,
	NETNS_STEP_SPACE, /* there is a namespace */
	NETNS_STEP_IPV6, /* IPv6 is off */
	NETNS_STEP_LISTEN, /* listeners are open */
	NETNS_STEP_INSIDE, /* its rules are in place */
	NETNS_STEP_LOG, /* NFLOG is bound */
	NETNS_STEP_LINK, /* the pair is there, down */
	NETNS_STEP_RULES, /* the host's table is there */
	NETNS_STEP_UP, /* the host's end is up */
	NETNS_STEP_DONE,
	NETNS_STEPS,
};
#if !SP_CONFINEMENT
/* Tests: what it returns is the step's result. */
extern int (*netns_failpoint)(unsigned step);
/* Instead of NETNS_JOB_MS, when not 0. */
extern uint64_t netns_job_ms;
#endif

struct netns_maker {
	const struct netns_plan *plan;
	struct netns *out;
	struct buf *err;
	int self_fd; /* the namespace that we come from */
	struct nl_sock in, in_nf; /* rtnetlink, netfilter: the new namespace */
	struct nl_sock host, host_nf;
	uint32_t lo, veth; /* indices: inside, on the host */
	bool made_link, made_table;
	bool owned; /* the host's table */
	uint16_t group; /* of NFLOG, that was free */
	struct nft_allow allow;
};

#define NETNS_DOOR_PORTS "3128 and 3129"

/* How traffic leaves. */
enum netns_way { NETNS_NO_WAY, NETNS_RELAY, NETNS_VETH };
enum netns_way netns_way(const struct netns_plan *p);

/*
 * Context: as netns_make().  Each adds its reason to m->err.
 * Returns: 0 or SP_E_*.
 */
int netns_reach(struct netns_maker *m, enum netns_step step) must_check;
/* "what: why, remedy" of a failed call; error, errno or 0; remedy or NULL. */
int netns_why(struct netns_maker *m, int rc, int error, const char *what,
    const char *remedy) must_check;
/* The namespace that the process is in. */
int netns_here(int *fd) must_check;
/* The new namespace, and rtnetlink in it; the process is in it afterwards. */
int netns_space(struct netns_maker *m) must_check;
void netns_return(struct netns_maker *m);
/* Writes a file below /proc/sys. */
int netns_setting(const char *path, const char *value) must_check;
/* In the new namespace: IPv6 off, lo, ports. */
int netns_inside_base(struct netns_maker *m) must_check;
/* In the new namespace: all listeners. */
int netns_inside_listen(struct netns_maker *m) must_check;

/* In the process's namespace: a free group of NFLOG, m->group. */
int netns_rules_log(struct netns_maker *m) must_check;
/* What the rules allow, into m->allow. */
int netns_rules_allow(struct netns_maker *m, bool hosts) must_check;
/* A table, by a socket of the namespace that it is for. */
enum netns_rules {
	NETNS_RULES_HOST,
	NETNS_RULES_INSIDE, /* with a link */
	NETNS_RULES_ALONE, /* without one */
	NETNS_RULES_RELAY,
};
int netns_rules_put(struct netns_maker *m, struct nl_sock *n,
    unsigned kind) must_check;
int netns_rules_drop(struct nl_sock *n, const char *table) must_check;
/* On the host: NFLOG, the link, the table, up. */
int netns_host_make(struct netns_maker *m) must_check;
void netns_host_undo(struct netns_maker *m);

#endif
