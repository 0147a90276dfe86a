/*
 * Makes and removes networks of slots on command, for t/sandbox-net.t: one
 * line of words in, one line of JSON out.  No test of its own.
 */
#include "config.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/num.h"
#include "conf/conf.h"
#include "helper/netns.h"
#include "helper/netns_priv.h"
#include "os/fd.h"
#include "os/poller.h"
#include "tap.h"

enum { SLOTS = 128, RULES = 1100, WORDS = 4000, LISTENS = 4 };

static struct netns slots[SLOTS];
static struct conf_env_rule rules[RULES];
static struct conf_listen listens[LISTENS];
static struct conf_server server = { .listens = listens };
static struct conf_server *servers[] = { &server };
static struct conf_environment env = { .rules = rules,
	.insides = servers,
	.connections = 1024 };
static unsigned fail_step, fail_how; /* how: 0 no, 1 fails, 2 dies, 3 hangs */

#if !SP_CONFINEMENT
static int
failpoint(unsigned step)
{
	if (fail_how == 0 || step != fail_step)
		return SP_OK;
	if (fail_how == 2)
		raise(SIGKILL);
	if (fail_how == 3)
		pause();
	return SP_E_SYS;
}
#endif

static uint64_t
number(const char *s, uint64_t max)
{
	uint64_t v;

	if (s == NULL || num_u64(view_str(s), 0, max, &v) != SP_OK) {
		fprintf(stderr, "net_drive: \"%s\" is no number\n", s ? s : "");
		exit(2);
	}
	return v;
}

/* tcp:203.0.113.0/24:443-444, udp:..., host:443 */
static void
add_rule(char *word)
{
	struct conf_env_rule *r = &rules[env.rules_n++];
	char *save = NULL, *proto = strtok_r(word, ":", &save), *net = NULL,
	     *ports, *slash, *dash;
	struct in_addr a = { 0 };

	memset(r, 0, sizeof(*r));
	r->proto = strcmp(proto, "udp") == 0 ? IPPROTO_UDP : IPPROTO_TCP;
	r->is_host = strcmp(proto, "host") == 0;
	if (!r->is_host) {
		net = strtok_r(NULL, ":", &save);
		slash = strchr(net, '/');
		*slash = 0;
		r->prefix = (uint8_t)number(slash + 1, 32);
		if (inet_pton(AF_INET, net, &a) != 1)
			exit(2);
		r->net = ntohl(a.s_addr);
	}
	ports = strtok_r(NULL, ":", &save);
	dash = strchr(ports, '-');
	if (dash != NULL)
		*dash++ = 0;
	r->port_low = (uint16_t)number(ports, 65535);
	r->port_high =
	    dash != NULL ? (uint16_t)number(dash, 65535) : r->port_low;
}

/* "veth|relay", then rules, "listen:PORT", "connections:N" */
static bool
set_environment(char **words)
{
	bool via_veth = words[0] == NULL || strcmp(words[0], "veth") == 0;
	size_t i;

	env.rules_n = server.listens_n = 0;
	env.connections = 1024;
	for (i = 1; words[0] != NULL && words[i] != NULL; i++) {
		if (strncmp(words[i], "listen:", 7) == 0) {
			listens[server.listens_n] = (struct conf_listen){
				.index = (unsigned)server.listens_n,
				.address = VIEW("127.0.0.1"),
				.port = (uint16_t)number(words[i] + 7, 65535)
			};
			server.listens_n++;
		} else if (strncmp(words[i], "connections:", 12) == 0) {
			env.connections = number(words[i] + 12, 1000000);
		} else {
			add_rule(words[i]);
		}
	}
	env.has_egress = env.rules_n > 0;
	env.insides_n = server.listens_n > 0;
	return via_veth;
}

static void
put_text(struct view v)
{
	size_t i;

	for (i = 0; i < v.n; i++)
		if (v.p[i] == '"' || v.p[i] == '\\' || v.p[i] < ' ')
			putchar('?');
		else
			putchar(v.p[i]);
}

static void
tell(int rc, const struct netns *n, struct view why)
{
	size_t i;

	printf("{\"rc\": %d, \"err\": \"%s\", \"why\": \"", rc, err_str(rc));
	put_text(why);
	printf("\"");
	if (n != NULL) {
		printf(", \"ns\": %d, \"log\": %d, \"nft\": %d, "
		       "\"listeners\": {",
		    n->ns_fd, n->nflog_fd, n->nft_fd);
		for (i = 0; i < n->listeners_n; i++)
			printf("%s\"%u\": %d", i ? ", " : "",
			    n->listeners[i].index, n->listeners[i].fd);
		printf("}");
	}
	printf("}\n");
	fflush(stdout);
}

static void
do_make(uint32_t slot, char **words)
{
	struct buf why = BUF_INIT(1024);
	struct netns_plan p;
	int rc;

	netns_plan(&p, slot, 1, &env, set_environment(words));
	rc = netns_make(&p, &slots[slot], &why);
	tell(rc, &slots[slot], buf_view(&why));
	buf_clear(&why);
}

static void
do_cut(uint32_t slot)
{
	struct buf why = BUF_INIT(1024);
	struct netns_plan p;
	int rc;

	netns_plan(&p, slot, 1, NULL, true);
	rc = netns_cut(&p, &why);
	tell(rc, NULL, buf_view(&why));
	buf_clear(&why);
}

static void
do_count(uint32_t slot, char **words)
{
	struct netns_counts c;
	struct netns_plan p;
	int rc;

	netns_plan(&p, slot, 1, &env, set_environment(words));
	rc = netns_count(&p, slots[slot].ns_fd, &c);
	printf("{\"rc\": %d, \"allowed\": %llu, \"denied\": %llu}\n", rc,
	    (unsigned long long)c.allowed, (unsigned long long)c.denied);
	fflush(stdout);
}

struct job {
	struct poller *po;
	uint32_t slot;
	bool quiet;
	int rc;
	size_t *left;
};

static void
on_done(void *arg, int rc, struct netns *made, struct view why)
{
	struct job *j = arg;

	if (made != NULL)
		slots[j->slot] = *made;
	j->rc = rc;
	if (!j->quiet || rc != SP_OK)
		tell(rc, made, why);
	if (--*j->left == 0)
		poller_stop(j->po);
}

/* Networks first..first+n-1 at once, each in a child of its own. */
static void
do_jobs(uint32_t first, uint32_t n, bool cut, char **words)
{
	struct job jobs[SLOTS];
	struct netns_plan p;
	struct poller *po = poller_new();
	bool via_veth = set_environment(words);
	size_t left = n;
	uint32_t i;
	int bad = 0;

	for (i = 0; i < n; i++) {
		jobs[i] = (struct job){ po, first + i, n > 1, 0, &left };
		netns_plan(&p, first + i, 1, &env, via_veth);
		if (cut)
			netns_clear(&slots[first + i]);
		if (netns_start(po, &p, cut, on_done, &jobs[i]) == NULL)
			exit(2);
	}
	if (poller_run(po) != SP_OK)
		exit(2);
	poller_free(po);
	for (i = 0; i < n; i++)
		bad += jobs[i].rc != SP_OK;
	if (n > 1) {
		printf("{\"bad\": %d}\n", bad);
		fflush(stdout);
	}
}

/* The job is dropped at once; then all is waited for. */
static void
on_quiet(void *arg)
{
	poller_stop(arg);
}

static void
do_drop(uint32_t slot, char **words)
{
	struct netns_plan p;
	struct poller *po = poller_new();
	struct poller_timer *t = poller_timer_new(po, on_quiet, po);
	size_t left = 1;
	struct job job = { po, slot, false, 0, &left };
	struct netns_job *j;

	netns_plan(&p, slot, 1, &env, set_environment(words));
	j = netns_start(po, &p, false, on_done, &job);
	if (j == NULL)
		exit(2);
	netns_job_drop(j);
	poller_timer_set(t, 2000);
	if (poller_run(po) != SP_OK)
		exit(2);
	poller_timer_free(t);
	poller_free(po);
	printf("{\"heard\": %zu}\n", 1 - left);
	fflush(stdout);
}

static int
by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Microseconds of making and of removing, one after another. */
static void
do_bench(uint32_t n, char **words)
{
	static uint64_t make_us[1000], cut_us[1000];
	struct buf why = BUF_INIT(1024);
	struct netns_plan p;
	struct netns made;
	uint64_t t0, t1;
	uint32_t i;

	netns_plan(&p, 100, 1, &env, set_environment(words));
	for (i = 0; i < n && i < 1000; i++) {
		t0 = clock_us();
		if (netns_make(&p, &made, &why) != SP_OK)
			exit(2);
		t1 = clock_us();
		netns_clear(&made);
		if (netns_cut(&p, &why) != SP_OK)
			exit(2);
		cut_us[i] = clock_us() - t1;
		make_us[i] = t1 - t0;
	}
	qsort(make_us, n, sizeof(*make_us), by_number);
	qsort(cut_us, n, sizeof(*cut_us), by_number);
	printf("{\"make_us\": %llu, \"cut_us\": %llu}\n",
	    (unsigned long long)make_us[n / 2],
	    (unsigned long long)cut_us[n / 2]);
	fflush(stdout);
}

static void
do_probe(bool via_veth)
{
	struct buf why = BUF_INIT(1024);
	int rc = netns_probe(via_veth, &why);

	tell(rc, NULL, buf_view(&why));
	buf_clear(&why);
}

static void
command(char **w, size_t n)
{
	uint32_t slot = n > 1 ? (uint32_t)number(w[1], SLOTS - 1) : 0;

	if (strcmp(w[0], "make") == 0) {
		do_make(slot, w + 2);
	} else if (strcmp(w[0], "cut") == 0) {
		do_cut(slot);
	} else if (strcmp(w[0], "clear") == 0) {
		netns_clear(&slots[slot]);
		tell(SP_OK, NULL, VIEW_NONE);
	} else if (strcmp(w[0], "probe") == 0) {
		do_probe(slot == 1);
	} else if (strcmp(w[0], "disown") == 0) {
		fd_close(&slots[slot].nft_fd);
		tell(SP_OK, NULL, VIEW_NONE);
	} else if (strcmp(w[0], "count") == 0) {
		do_count(slot, w + 2);
	} else if (strcmp(w[0], "start") == 0) {
		do_jobs(slot, 1, false, w + 2);
	} else if (strcmp(w[0], "many") == 0) {
		do_jobs(0, slot, false, w + 2);
	} else if (strcmp(w[0], "end") == 0) {
		do_jobs(0, slot, true, w + 2);
	} else if (strcmp(w[0], "drop") == 0) {
		do_drop(slot, w + 2);
	} else if (strcmp(w[0], "bench") == 0) {
		do_bench(slot, w + 2);
	} else if (strcmp(w[0], "fail") == 0) {
		fail_step = slot;
		fail_how = (unsigned)number(w[2], 3);
#if !SP_CONFINEMENT
		netns_job_ms = fail_how == 3 ? 300 : 0;
#endif
		tell(SP_CONFINEMENT ? SP_E_UNSUPPORTED : SP_OK, NULL,
		    VIEW_NONE);
	} else {
		fprintf(stderr, "net_drive: what is %s?\n", w[0]);
		exit(2);
	}
}

int
main(void)
{
	static char line[100000];
	static char *words[WORDS];
	char *save, *w;
	size_t i, n;

#if !SP_CONFINEMENT
	netns_failpoint = failpoint;
#endif
	for (i = 0; i < SLOTS; i++)
		netns_init(&slots[i]);
	while (fgets(line, sizeof(line), stdin) != NULL) {
		save = NULL;
		n = 0;
		for (w = strtok_r(line, " \n", &save);
		     w != NULL && n + 1 < WORDS;
		     w = strtok_r(NULL, " \n", &save))
			words[n++] = w;
		words[n] = NULL;
		if (n > 0)
			command(words, n);
	}
	return 0;
}
