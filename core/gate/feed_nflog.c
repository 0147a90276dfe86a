#include "config.h"

#include "gate/feed_nflog.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/mem.h"
#include "json/jwrite.h"
#include "net/nflog.h"
#include "os/fd.h"

enum {
	FEED_NFLOG_TURN = 256, /* messages in one go: then the others' turn */
	FEED_NFLOG_LAST = 4096, /* at the end, when nobody sends any more */
	FEED_NFLOG_JSON = 512,
};

/* One socket: of an episode where it was. */
struct feed_nflog {
	LIST_ENTRY(feed_nflog) link;
	struct feed_nflogs *set;
	struct episode *ep;
	int fd;
	struct loop_fd *on;
	uint32_t next; /* the number that is due */
	bool failed; /* told once */
};

struct feed_nflogs {
	struct feed_nflog_world w;
	LIST_HEAD(, feed_nflog) all;
};

/* ---- telling ---------------------------------------------------------------- */

static void
feed_nflog_protocol(struct jwrite *w, const struct nflog_packet *p)
{
	static const struct {
		uint8_t number;
		const char *name;
	} names[] = {
		{ IPPROTO_ICMP, "icmp" },
		{ IPPROTO_IGMP, "igmp" },
		{ IPPROTO_TCP, "tcp" },
		{ IPPROTO_UDP, "udp" },
		{ IPPROTO_SCTP, "sctp" },
	};
	char text[16];
	size_t i;

	jwrite_key(w, "protocol");
	if (!p->is_ip) {
		(void)snprintf(text, sizeof(text), "0x%04x", p->ethertype);
		jwrite_cstr(w, p->ethertype == 0x86dd ? "ipv6" : text);
		return;
	}
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].number == p->protocol) {
			jwrite_cstr(w, names[i].name);
			return;
		}
	(void)snprintf(text, sizeof(text), "%u", p->protocol);
	jwrite_cstr(w, text);
}

static void
feed_nflog_dest(struct jwrite *w, const struct nflog_packet *p)
{
	char text[32];
	int n;

	jwrite_key(w, "dest");
	if (!p->is_ip) {
		jwrite_null(w);
		return;
	}
	n = snprintf(text, sizeof(text), "%u.%u.%u.%u", p->dest >> 24,
	    p->dest >> 16 & 255, p->dest >> 8 & 255, p->dest & 255);
	if (p->has_ports)
		(void)snprintf(text + n, sizeof(text) - (size_t)n, ":%u",
		    p->dest_port);
	jwrite_cstr(w, text);
}

static void
feed_nflog_tell(struct feed *f, const struct nflog_packet *p)
{
	bool denied = !view_eq(p->prefix, VIEW("allow"));
	struct buf text = BUF_INIT(FEED_NFLOG_JSON);
	struct jwrite w;

	jwrite_init(&w, &text);
	jwrite_object(&w);
	jwrite_key(&w, "kind");
	jwrite_cstr(&w, "packet");
	feed_nflog_protocol(&w, p);
	feed_nflog_dest(&w, p);
	jwrite_key(&w, "denied");
	jwrite_bool(&w, denied);
	jwrite_key(&w, "outcome");
	jwrite_cstr(&w, denied ? "deny" : "allow");
	jwrite_key(&w, "source");
	jwrite_cstr(&w, "nftables");
	jwrite_end_object(&w);
	if (jwrite_finish(&w) == SP_OK)
		feed_add(f, FEED_NETWORK, buf_view(&text));
	else
		feed_add_gap(f, FEED_NETWORK, 1, "memory");
	buf_clear(&text);
}

/* Nobody knows any more what it was let do: it ends. */
static void
feed_nflog_fail(struct feed_nflog *l, const char *why)
{
	struct feed_nflogs *s = l->set;

	if (l->failed)
		return;
	l->failed = true;
	log_warn("episode %s: %s", l->ep->id, why);
	if (!s->w.allows(s->w.arg, l->ep))
		return;
	feed_add(feed_of(l->ep), FEED_NETWORK,
	    VIEW("{\"kind\":\"failure\",\"reason\":\"network mediation or "
		 "observation failed\"}"));
	if (l->ep->state == EPISODE_LIVE && episode_end(l->ep, NULL, NULL) != 0)
		log_error("episode %s cannot be ended", l->ep->id);
}

/* ---- reading ---------------------------------------------------------------- */

static void
feed_nflog_packet(struct feed_nflog *l, const struct nflog_packet *p)
{
	uint32_t lost;

	if (p->has_seq) {
		lost = p->seq - l->next;
		l->next = p->seq + 1;
		if (lost > 0) {
			feed_add_gap(feed_of(l->ep), FEED_NETWORK, lost,
			    "overrun");
			feed_nflog_fail(l,
			    "the kernel could not tell of all its packets");
		}
	}
	feed_nflog_tell(feed_of(l->ep), p);
}

static void
feed_nflog_datagram(struct feed_nflog *l, struct view bytes)
{
	struct nflog_packet p;
	int rc;

	while ((rc = nflog_next(&bytes, &p)) == SP_OK)
		feed_nflog_packet(l, &p);
	if (rc != SP_E_EOF)
		feed_nflog_fail(l, "the kernel's word of packets is malformed");
}

/* At most so many datagrams: false when the socket has failed. */
static bool
feed_nflog_read(struct feed_nflog *l, unsigned most)
{
	char *mem = loop_scratch(l->set->w.loop);
	ssize_t n;

	while (most-- > 0) {
		n = recv(l->fd, mem, LOOP_SCRATCH_BYTES, MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == ENOBUFS)
			continue; /* the next one's number says how many */
		if (n < 0)
			return errno == EAGAIN;
		feed_nflog_datagram(l, view_of(mem, (size_t)n));
	}
	return true;
}

static void
feed_nflog_on_ready(void *arg, unsigned ready)
{
	struct feed_nflog *l = arg;

	(void)ready;
	if (feed_nflog_read(l, FEED_NFLOG_TURN))
		return;
	(void)!loop_fd_want(l->on, 0);
	feed_nflog_fail(l, "the kernel tells nothing more of its packets");
}

/* ---- life ------------------------------------------------------------------- */

static void
feed_nflog_close(struct feed_nflog *l)
{
	LIST_REMOVE(l, link);
	loop_fd_free(l->on);
	fd_close(&l->fd);
	mem_free(l);
}

struct feed_nflogs *
feed_nflog_new(const struct feed_nflog_world *w)
{
	struct feed_nflogs *s = mem_calloc(1, sizeof(*s));

	if (s != NULL) {
		s->w = *w;
		LIST_INIT(&s->all);
	}
	return s;
}

void
feed_nflog_free(struct feed_nflogs *s)
{
	struct feed_nflog *l;

	if (s == NULL)
		return;
	while ((l = LIST_FIRST(&s->all)) != NULL)
		feed_nflog_close(l);
	mem_free(s);
}

void
feed_nflog_open(struct feed_nflogs *s, struct episode *ep, int fd)
{
	struct feed_nflog *l = mem_calloc(1, sizeof(*l));

	if (l == NULL) {
		log_error("episode %s: its packets are not told: %s", ep->id,
		    err_str(SP_E_NOMEM));
		fd_close(&fd);
		return;
	}
	l->set = s;
	l->ep = ep;
	l->fd = fd;
	LIST_INSERT_HEAD(&s->all, l, link);
	l->on = loop_fd_new(s->w.loop, fd, feed_nflog_on_ready, l);
	if (l->on != NULL && loop_fd_want(l->on, LOOP_READ) == SP_OK)
		return;
	feed_nflog_fail(l, "its packets are not told: out of memory");
	feed_nflog_close(l);
}

void
feed_nflog_news(struct feed_nflogs *s, struct episode *ep,
    const struct episode_news *n)
{
	struct feed_nflog *l, *next;

	if (n->what != EPISODE_MADE && n->what != EPISODE_ENDED)
		return;
	/* of where it was: nothing is sent there any more */
	for (l = LIST_FIRST(&s->all); l != NULL; l = next) {
		next = LIST_NEXT(l, link);
		if (l->ep != ep)
			continue;
		l->failed = true;
		(void)feed_nflog_read(l, FEED_NFLOG_LAST);
		feed_nflog_close(l);
	}
}
