#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "helper/netns_priv.h"
#include "helper/nft_hooks.h"
#include "helper/nl_link.h"
#include "os/fd.h"
#include "os/sock.h"

/* Of the documentation's range: nobody's. */
#define NETNS_PROBE_NET 0xcb0071fcU /* 203.0.113.252/30 */
#define NETNS_PROBE_ADDR 0xcb0071feU
#define NETNS_PROBE_TEXT "203.0.113.254"

enum {
	/* slots that no episode gets */
	NETNS_PROBE_GUEST = NETNS_SLOTS_MAX,
	NETNS_PROBE_OUTSIDE,
	NETNS_PROBE_PORT = 443,
	NETNS_PROBE_CLOSED = 80,
	NETNS_PROBE_MS = 1500,
	NETNS_PROBE_LIST_BYTES = 512,
};

/* One rule: tcp 203.0.113.252/30 443. */
static struct conf_env_rule netns_probe_rule = { .proto = IPPROTO_TCP,
	.net = NETNS_PROBE_NET,
	.prefix = 30,
	.port_low = NETNS_PROBE_PORT,
	.port_high = NETNS_PROBE_PORT };
static struct conf_environment netns_probe_env = { .rules = &netns_probe_rule,
	.rules_n = 1,
	.has_egress = true,
	.connections = 16 };

/* A namespace that plays the world: that address, a listener, a link. */
static int
netns_probe_inside(struct netns_maker *m)
{
	const char *step;
	int rc;

	rc = netns_space(m);
	if (rc == SP_OK)
		rc = netns_inside_base(m);
	if (rc != SP_OK)
		return rc;
	rc = nl_link_address(&m->in, m->lo, NETNS_PROBE_ADDR, 32);
	if (rc != SP_OK)
		return netns_why(m, rc, m->in.error, NETNS_PROBE_TEXT, NULL);
	rc = sock_listen_tcp(VIEW(NETNS_PROBE_TEXT), NETNS_PROBE_PORT, 8,
	    &m->out->listeners[0].fd, &step);
	if (rc != SP_OK)
		return netns_why(m, rc, 0, NETNS_PROBE_TEXT, NULL);
	m->out->listeners_n = 1;
	return SP_OK;
}

static int
netns_probe_link(struct netns_maker *m)
{
	uint32_t there = 0, here = 0;
	int rc;

	rc = nl_sock_open(&m->host, NETLINK_ROUTE);
	if (rc == SP_OK)
		rc = nl_link_veth(&m->host, m->plan->veth, "eth0",
		    m->out->ns_fd);
	if (rc == SP_OK)
		rc = nl_link_index(&m->host, m->plan->veth, &here);
	if (rc == SP_OK)
		rc = nl_link_address(&m->host, here, m->plan->host_addr, 30);
	if (rc == SP_OK)
		rc = nl_link_up(&m->host, here);
	if (rc == SP_OK)
		rc = nl_link_index(&m->in, "eth0", &there);
	if (rc == SP_OK)
		rc = nl_link_address(&m->in, there, m->plan->guest_addr, 30);
	if (rc == SP_OK)
		rc = nl_link_up(&m->in, there);
	if (rc == SP_OK)
		rc = nl_link_route(&m->host, NETNS_PROBE_ADDR, 32,
		    m->plan->guest_addr);
	return rc == SP_OK
	    ? rc
	    : netns_why(m, rc, m->host.error != 0 ? m->host.error : m->in.error,
		  m->plan->veth, NULL);
}

static int
netns_probe_outside(const struct netns_plan *p, struct netns *out,
    struct buf *err)
{
	struct netns_maker m = { .plan = p,
		.out = out,
		.err = err,
		.self_fd = -1 };
	int rc;

	netns_init(out);
	rc = netns_probe_inside(&m);
	netns_return(&m);
	if (rc == SP_OK)
		rc = netns_probe_link(&m);
	nl_sock_close(&m.in);
	nl_sock_close(&m.host);
	return rc;
}

/* From the namespace we are in: 0, or the errno of connect(2). */
static int
netns_probe_connect(uint16_t port)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(NETNS_PROBE_ADDR) };
	struct pollfd wait = { .events = POLLOUT };
	socklen_t n = sizeof(int);
	int en = 0;

	wait.fd =
	    socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (wait.fd < 0)
		return errno;
	if (connect(wait.fd, (struct sockaddr *)&to, sizeof(to)) != 0)
		en = errno;
	if (en == EINPROGRESS) {
		en = ETIMEDOUT;
		if (poll(&wait, 1, NETNS_PROBE_MS) == 1 &&
		    getsockopt(wait.fd, SOL_SOCKET, SO_ERROR, &en, &n) != 0)
			en = errno;
	}
	fd_close(&wait.fd);
	return en;
}

/* Who drops what is forwarded, as far as that can be seen. */
static int
netns_probe_blame(struct netns_maker *m)
{
	struct buf who = BUF_INIT(NETNS_PROBE_LIST_BYTES);
	struct nl_sock n;
	int rc, put;

	rc = nl_sock_open(&n, NETLINK_NETFILTER);
	if (rc == SP_OK)
		rc = nft_hooks_forward(&n, &who);
	nl_sock_close(&n);
	put = buf_printf(m->err,
	    "forwarding: what comes from a link sp-* does not get out: ");
	if (put == SP_OK && rc == SP_OK && buf_len(&who) > 0)
		put = buf_printf(m->err, "the policy of %.*s is drop",
		    VIEW_ARG(buf_view(&who)));
	else if (put == SP_OK)
		put = buf_printf(m->err,
		    "a rule of another firewall table drops it");
	if (put == SP_OK)
		put = buf_printf(m->err,
		    "; accept there what has iifname or oifname \"sp-*\", or "
		    "say via relay");
	(void)put;
	buf_clear(&who);
	return SP_E_UNSUPPORTED;
}

/* Connects from the guest: what is allowed, then what is not. */
static int
netns_probe_try(struct netns_maker *m, int guest_fd)
{
	int allowed, denied;

	if (setns(guest_fd, CLONE_NEWNET) != 0)
		return netns_why(m, err_from_errno(errno), errno, "setns",
		    NULL);
	allowed = netns_probe_connect(NETNS_PROBE_PORT);
	denied = netns_probe_connect(NETNS_PROBE_CLOSED);
	err_assert(setns(m->self_fd, CLONE_NEWNET) == 0);
	if (denied != ECONNREFUSED)
		return netns_why(m, SP_E_UNSUPPORTED, denied,
		    "a connection that the rules deny was not refused",
		    "another firewall table interferes, or nf_tables lacks "
		    "reject");
	return allowed == 0 ? SP_OK : netns_probe_blame(m);
}

static int
netns_probe_forwards(struct netns_maker *m)
{
	struct buf text = BUF_INIT(16);
	bool on;
	int rc = fd_read_file("/proc/sys/net/ipv4/ip_forward", &text);

	on = rc == SP_OK && view_starts(buf_view(&text), VIEW("1"));
	buf_clear(&text);
	if (on)
		return SP_OK;
	return netns_why(m, SP_E_UNSUPPORTED, 0, "net.ipv4.ip_forward is not 1",
	    "sysctl -w net.ipv4.ip_forward=1, or say via relay");
}

static int
netns_probe_way(struct netns_maker *m, const struct netns_plan *guest,
    const struct netns_plan *outside)
{
	struct netns in, out;
	int rc;

	rc = netns_make(guest, &in, m->err);
	if (rc != SP_OK)
		return rc;
	rc = netns_probe_outside(outside, &out, m->err);
	if (rc == SP_OK)
		rc = netns_probe_try(m, in.ns_fd);
	netns_clear(&out);
	netns_clear(&in);
	return rc;
}

static int
netns_probe_relay(struct buf *err)
{
	struct netns_plan p;
	struct netns n;
	int rc;

	netns_plan(&p, NETNS_PROBE_GUEST, 0, &netns_probe_env, false);
	rc = netns_make(&p, &n, err);
	netns_clear(&n);
	return rc;
}

int
netns_probe(bool via_veth, struct buf *err)
{
	struct netns_plan guest, outside;
	struct netns_maker m = { .err = err };
	int rc, rc2, rc3;

	if (!via_veth)
		return netns_probe_relay(err);
	netns_plan(&guest, NETNS_PROBE_GUEST, 0, &netns_probe_env, true);
	netns_plan(&outside, NETNS_PROBE_OUTSIDE, 0, &netns_probe_env, true);
	rc = netns_probe_forwards(&m);
	if (rc != SP_OK)
		return rc;
	/* of a probe that was killed */
	rc = netns_cut(&guest, err);
	if (rc == SP_OK)
		rc = netns_cut(&outside, err);
	if (rc != SP_OK)
		return rc;
	rc = netns_here(&m.self_fd);
	if (rc != SP_OK)
		return netns_why(&m, rc, 0, "/proc/self/ns/net",
		    "is /proc mounted?");
	rc = netns_probe_way(&m, &guest, &outside);
	fd_close(&m.self_fd);
	rc2 = netns_cut(&outside, err);
	rc3 = netns_cut(&guest, err);
	return rc != SP_OK ? rc : rc2 != SP_OK ? rc2 : rc3;
}

/* What the child has to say of it: rc, then why. */
static int
netns_probe_hear(int fd, struct buf *err)
{
	char text[NETNS_PROBE_LIST_BYTES];
	int32_t rc = SP_E_GONE;
	ssize_t n;

	do
		n = recv(fd, &rc, sizeof(rc), MSG_WAITALL);
	while (n < 0 && errno == EINTR);
	if (n != (ssize_t)sizeof(rc)) {
		(void)!buf_add_str(err, "network: its process died");
		return SP_E_GONE;
	}
	do
		n = recv(fd, text, sizeof(text), MSG_WAITALL);
	while (n < 0 && errno == EINTR);
	if (n > 0)
		(void)!buf_add_view(err, view_of(text, (size_t)n));
	return rc;
}

static void __attribute__((noreturn)) netns_probe_child(int fd, bool egress)
{
	static const struct conf_environment none;
	struct buf err = BUF_INIT(NETNS_PROBE_LIST_BYTES);
	struct netns_plan p;
	struct netns n;
	int32_t rc;

	netns_plan(&p, NETNS_PROBE_GUEST, 0, egress ? &netns_probe_env : &none,
	    false);
	p.userns = true;
	rc = netns_make(&p, &n, &err);
	(void)!send(fd, &rc, sizeof(rc), MSG_NOSIGNAL);
	if (buf_len(&err) > 0)
		(void)!send(fd, buf_view(&err).p, buf_len(&err), MSG_NOSIGNAL);
	_exit(0);
}

int
netns_probe_user(bool egress, struct buf *err)
{
	int pair[2], rc;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
		return err_from_errno(errno);
	pid = fork();
	if (pid == 0)
		netns_probe_child(pair[1], egress);
	fd_close(&pair[1]);
	rc = pid < 0 ? err_from_errno(errno) : netns_probe_hear(pair[0], err);
	fd_close(&pair[0]);
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return rc;
}
