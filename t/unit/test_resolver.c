/* core/event/resolver and hosts, against a name server in this process. */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>

#include "base/mem.h"
#include "event/hosts.h"
#include "event/resolver.h"
#include "net_peer.h"

enum { A = 1, AAAA = 28, ANSWERS_MAX = 20 };

struct answer {
	int called, err;
	size_t n;
	char text[400];
	struct resolver_query *q;
};

static struct resolver *r;
static int dns_fd, dns_queries;
static bool inside;

/* ---- the name server ----------------------------------------------------- */

static size_t
put_answers(unsigned char *p, size_t n, int type, int count)
{
	static const unsigned char six[16] = { 0x20, 1, 0xd, 0xb8 };

	for (int i = 0; i < count; i++) {
		size_t len = type == A ? 4 : 16;
		unsigned char head[12] = { 0xc0, 12, 0, (unsigned char)type, 0,
			1, 0, 0, 0, 30, 0, (unsigned char)len };

		memcpy(p + n, head, 12);
		n += 12;
		memcpy(p + n, type == A ? (const void *)"\xc0\0\2" : six, len);
		p[n + len - 1] = (unsigned char)(i + 1);
		n += len;
	}
	p[7] = (unsigned char)count;
	return n;
}

/* What to say about a name begins its first label. */
static size_t
dns_reply(unsigned char *p, size_t n, char c, int type)
{
	p[2] |= 0x80;
	p[3] = 0x80;
	switch (c) {
	case 'b': /* both families */
		return put_answers(p, n, type, 2);
	case 'f': /* IPv4 only */
		return type == A ? put_answers(p, n, type, 1) : n;
	case 'm': /* too many */
		return type == A ? put_answers(p, n, type, ANSWERS_MAX) : n;
	case 'h': /* the other one is never answered */
		return type == A ? put_answers(p, n, type, 1) : 0;
	case 'n':
		p[3] |= 3;
		return n;
	case 's': /* a failing server */
		p[3] |= 2;
		return n;
	case 'g': /* noise behind a good header */
		memset(p + 12, 0xff, 40);
		return 52;
	case 'l': /* a name that points at itself */
		p[7] = 1;
		p[n] = 0xc0;
		p[n + 1] = (unsigned char)n;
		memset(p + n + 2, 0, 14);
		return n + 16;
	case 'c': /* cut short */
		return put_answers(p, n, type, 2) - 3;
	default:
		return 0; /* silence */
	}
}

static void
dns_ready(void *arg, unsigned ready)
{
	struct sockaddr_storage from;
	socklen_t len = sizeof(from);
	unsigned char p[1500];
	ssize_t got;
	size_t n = 12;
	char c;

	(void)arg;
	(void)ready;
	got = recvfrom(dns_fd, p, 512, 0, (struct sockaddr *)&from, &len);
	if (got < 17)
		return;
	dns_queries++;
	c = (char)(p[13] | 0x20);
	while (n < (size_t)got && p[n] != 0)
		n += 1 + (size_t)p[n];
	n = dns_reply(p, n + 5, c, p[n + 2]);
	if (n > 0)
		(void)!sendto(dns_fd, p, n, 0, (struct sockaddr *)&from, len);
}

/* ---- asking -------------------------------------------------------------- */

static void
on_answer(void *arg, int err, const struct resolver_addr *v, size_t n)
{
	struct answer *a = arg;
	char ip[INET6_ADDRSTRLEN];

	if (inside)
		tap_ok(false, "called back from within resolver_start()");
	a->called++;
	a->err = err;
	a->n = n;
	for (size_t i = 0; i < n; i++) {
		const struct sockaddr_in6 *in6 = (const void *)&v[i].sa;
		const struct sockaddr_in *in = (const void *)&v[i].sa;
		bool six = v[i].sa.ss_family == AF_INET6;
		size_t at = strlen(a->text);

		inet_ntop(v[i].sa.ss_family,
		    six ? (const void *)&in6->sin6_addr : &in->sin_addr, ip,
		    sizeof(ip));
		snprintf(a->text + at, sizeof(a->text) - at, "%s%s:%d",
		    i ? " " : "", ip,
		    ntohs(six ? in6->sin6_port : in->sin_port));
	}
	loop_stop(loop);
}

static int
ask(struct answer *a, const char *name)
{
	int rc;

	memset(a, 0, sizeof(*a));
	inside = true;
	rc = resolver_start(r, view_str(name), 80, on_answer, a, &a->q);
	inside = false;
	return rc;
}

static void
expect(const char *name, int err, const char *text)
{
	struct answer a;

	if (!tap_ok(ask(&a, name) == 0, "%s: asked", name))
		return;
	while (a.called == 0)
		peer_run();
	tap_is_int(a.err, err, name);
	if (err == 0)
		tap_is_str(a.text, text, name);
}

static void
test_no_query(void)
{
	int before = dns_queries;

	expect("192.0.2.7", 0, "192.0.2.7:80");
	expect("::1", 0, "::1:80");
	expect("[2001:db8::1]", 0, "2001:db8::1:80");
	expect("a.localhost", 0, "127.0.0.1:80 ::1:80");
	expect("a.LOCALHOST.", 0, "127.0.0.1:80 ::1:80");
	tap_is_int(dns_queries, before, "none of them was a query");
}

static void
test_bad_names(void)
{
	static const char *const bad[] = { "", ".", "..", "a..b", "-a.b",
		"a-.b", "a b", "a/b", "a\nb", "1.2.3", "1.2.3.4.5", "0x7f.1",
		"127.1", "017700000001", "0x7f000001", "fe80::1%eth0",
		"[192.0.2.1]", "[::1", "\xc3\xa4.test", "a.test..", "*.test",
		"a@b.test" };
	struct answer a;
	char name[300];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		tap_ok(ask(&a, bad[i]) == SP_E_SYNTAX, "refused: bad[%zu]", i);
	memset(name, 'a', sizeof(name));
	name[64] = '\0';
	tap_ok(ask(&a, name) == SP_E_SYNTAX, "refused: a label of 64 bytes");
	name[64] = 'a';
	for (size_t i = 50; i < sizeof(name); i += 50)
		name[i] = '.';
	name[254] = '\0';
	tap_ok(ask(&a, name) == SP_E_SYNTAX, "refused: 254 bytes");
	tap_ok(resolver_start(r, view_of("a\0.test", 7), 80, on_answer, &a,
		   &a.q) == SP_E_SYNTAX,
	    "refused: a NUL");
}

static void
test_queries(void)
{
	struct answer a = { 0 };
	int before;

	expect("both.test", 0,
	    "192.0.2.1:80 2001:db8::1:80 192.0.2.2:80 2001:db8::2:80");
	before = dns_queries;
	expect("BOTH.test.", 0,
	    "192.0.2.1:80 2001:db8::1:80 192.0.2.2:80 2001:db8::2:80");
	tap_is_int(dns_queries, before, "the second time without a query");
	expect("four.test", 0, "192.0.2.1:80");
	expect("half.test", 0, "192.0.2.1:80");
	expect("many.test", 0,
	    "192.0.2.1:80 192.0.2.2:80 192.0.2.3:80 192.0.2.4:80 "
	    "192.0.2.5:80 192.0.2.6:80 192.0.2.7:80 192.0.2.8:80");
	expect("nx.test", SP_E_DNS, "");
	if (ask(&a, "server-failure.test") == 0)
		while (a.called == 0)
			peer_run();
	tap_ok(a.err == SP_E_DNS || a.err == SP_E_TIMEOUT,
	    "a failing name server (%d)", a.err);
	expect("looped.test", SP_E_DNS, "");
}

static void
test_silence(void)
{
	struct answer a;

	resolver_set_timeout(r, 300);
	expect("xsilent.test", SP_E_TIMEOUT, "");
	if (ask(&a, "garbage.test") == 0)
		while (a.called == 0)
			peer_run();
	tap_ok(a.err == SP_E_TIMEOUT || a.err == SP_E_DNS,
	    "noise is no answer (%d)", a.err);
	if (ask(&a, "cut.test") == 0)
		while (a.called == 0)
			peer_run();
	tap_ok(a.called == 1, "an answer cut short (%d, %zu)", a.err, a.n);
	resolver_set_timeout(r, 5000);
	expect("both2.test", 0,
	    "192.0.2.1:80 2001:db8::1:80 192.0.2.2:80 2001:db8::2:80");
}

static void
test_together(void)
{
	struct answer a[20];
	int before = dns_queries, rc = 0, done = 0;

	for (int i = 0; i < 20; i++)
		rc |= ask(&a[i], "both3.test");
	for (int i = 0; i < 20; i += 2)
		resolver_cancel(a[i].q);
	while (done < 10) {
		peer_run();
		done = 0;
		for (int i = 0; i < 20; i++)
			done += a[i].called;
	}
	for (int i = 0; i < 20; i++)
		rc |= a[i].called != i % 2 || (i % 2 && a[i].n != 4);
	tap_is_int(rc, 0, "twenty ask, half of them cancel");
	tap_is_int(dns_queries, before + 2, "one query a family");
}

/* Cancels its sibling, which is answered in the same turn. */
static void
cancel_other(void *arg, int err, const struct resolver_addr *v, size_t n)
{
	struct answer *a = arg;

	(void)err;
	(void)v;
	(void)n;
	resolver_cancel(a->q);
	a->q = NULL;
	loop_stop(loop);
}

static void
test_cancel(void)
{
	struct resolver_query *q;
	struct answer a, b;

	tap_is_int(ask(&a, "127.0.0.1"), 0, "a literal");
	resolver_cancel(a.q);
	tap_is_int(resolver_start(r, VIEW("::1"), 1, cancel_other, &b, &q), 0,
	    "cancels");
	tap_is_int(ask(&b, "::1"), 0, "another one");
	peer_run();
	tap_ok(a.called == 0 && b.called == 0, "neither is called");
	tap_is_int(ask(&a, "xsilent2.test"), 0, "on its way");
	resolver_cancel(a.q);
	resolver_cancel(NULL);
	expect("127.0.0.1", 0, "127.0.0.1:80");
	tap_is_int(ask(&a, "xsilent3.test"), 0, "left behind");
	tap_is_int(ask(&a, "127.0.0.1"), 0, "left behind, too");
}

static void
test_hosts(void)
{
	char file[] = "/tmp/sallyport-hosts-XXXXXX";
	static const char text[] =
	    "# comment\n127.0.0.9\tOne two # three\n"
	    "::9 one\nnonsense four\n10.0.0.1\n\n192.0.2.1 -bad 1.2.3 five\r\n";
	const struct hosts_addrs *a;
	struct hosts *h = NULL;
	unsigned long n;
	int fd;

	fd = mkstemp(file);
	tap_ok(write(fd, text, sizeof(text) - 1) == sizeof(text) - 1, "hosts");
	close(fd);
	for (n = 1; n < 100 && h == NULL; n++) {
		mem_fail_after(n, 0);
		h = hosts_new(file);
		mem_fail_after(0, 0);
	}
	tap_ok(h != NULL && n > 4, "read, after failing for want of memory");
	a = hosts_get(h, VIEW("one"));
	tap_ok(a != NULL && a->n == 2 && !a->v[0].v6 && a->v[0].a[3] == 9 &&
		a->v[1].v6,
	    "two lines, one name");
	a = hosts_get(h, VIEW("two"));
	tap_ok(a != NULL && a->n == 1, "an alias");
	tap_ok(hosts_get(h, VIEW("three")) == NULL &&
		hosts_get(h, VIEW("four")) == NULL &&
		hosts_get(h, VIEW("-bad")) == NULL &&
		hosts_get(h, VIEW("five")) != NULL,
	    "comments and nonsense are skipped");
	a = hosts_get(h, VIEW("localhost"));
	tap_ok(a != NULL && a->n == 2, "localhost even so");
	hosts_free(h);
	unlink(file);
	h = hosts_new("/nonexistent/hosts");
	tap_ok(h != NULL, "no file is no error");
	hosts_free(h);
	hosts_free(NULL);
}

static void
test_no_memory(const struct view *server)
{
	struct resolver *x = NULL;
	unsigned long n;
	int rc = -1;

	for (n = 1; n < 400 && x == NULL; n++) {
		mem_fail_after(n, 0);
		x = resolver_new(loop, server, 1);
		mem_fail_after(0, 0);
	}
	tap_ok(x != NULL && n > 5, "resolver_new, %lu failures", n - 1);
	for (n = 1; n < 100 && rc != 0; n++) {
		struct answer a = { 0 };

		mem_fail_after(n, 0);
		rc = resolver_start(x, VIEW("both4.test"), 80, on_answer, &a,
		    &a.q);
		mem_fail_after(0, 0);
		if (rc == 0)
			resolver_cancel(a.q);
	}
	tap_ok(rc == 0 && n > 3, "resolver_start, %lu failures", n - 1);
	resolver_free(x);
}

int
main(void)
{
	struct loop_fd *lf;
	struct view server;
	uint16_t port;
	char text[40];

	peer_init();
	dns_fd = peer_bound(SOCK_DGRAM, &port);
	lf = loop_fd_new(loop, dns_fd, dns_ready, NULL);
	tap_is_int(loop_fd_want(lf, LOOP_READ), 0, "a name server");
	snprintf(text, sizeof(text), "127.0.0.1:%u", port);
	server = view_str(text);
	r = resolver_new(loop, &server, 1);
	tap_ok(r != NULL, "a resolver that asks it");
	test_no_query();
	test_bad_names();
	test_queries();
	test_silence();
	test_together();
	test_cancel();
	test_hosts();
	resolver_free(r);
	test_no_memory(&server);
	server = VIEW("no address");
	tap_ok(resolver_new(loop, &server, 1) == NULL, "a bad server");
	r = resolver_new(loop, NULL, 0);
	tap_ok(r != NULL, "the system's servers");
	resolver_free(r);
	resolver_free(NULL);
	loop_fd_free(lf);
	close(dns_fd);
	peer_done();
	return tap_done();
}
