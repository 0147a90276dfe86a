/*
 * Both roles in little, for t/helper.t: speaks the helper's protocol and does
 * what it is told.  Named sallyport-reactor it takes one command a connection:
 *   info | crash | lie | hold | busy | record N | log TEXT
 * Named sallyport-recorder it appends what it sees to "events" in its trace
 * directory; record 666 makes it crash, 667 makes it break the protocol.
 */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/num.h"
#include "ipc/role.h"
#include "ipc/wire.h"
#include "os/fd.h"
#include "os/poller.h"

static struct role role, next;
static struct channel *peer;
static struct poller *loop;
static struct poller_fd *peer_handle;
static int hold;
static struct poller_timer *work; /* busy: no PING is answered */
static unsigned worked;

static void
event(const char *what, unsigned n)
{
	char line[64];
	int fd = -1, len;

	if (role.trace_dirs_n == 0 ||
	    fd_open_beneath(role.trace_dirs[0].fd, "events",
		O_WRONLY | O_APPEND | O_CREAT, 0640, &fd) != SP_OK)
		return;
	len = snprintf(line, sizeof(line), "%s %u\n", what, n);
	if (fd_write_all(fd, line, (size_t)len) != SP_OK)
		abort();
	fd_close(&fd);
}

static void
lie(void)
{
	(void)!send(ROLE_CHANNEL_FD, "nonsense", 8, 0);
}

static void
read_peer(void)
{
	struct channel_msg m;
	struct wire w;
	unsigned n;
	int rc;

	while (peer != NULL) {
		rc = channel_recv(peer, &m);
		if (rc == SP_E_AGAIN)
			return;
		if (rc != SP_OK) {
			poller_remove(peer_handle);
			peer_handle = NULL;
			channel_free(peer);
			peer = NULL;
			return;
		}
		wire_init(&w, m.body);
		n = wire_u32(&w);
		event("delivered", n);
		if (n == 666)
			abort();
		if (n == 667)
			lie();
	}
}

static void
on_peer(void *arg, unsigned ready)
{
	(void)arg;
	(void)ready;
	read_peer();
}

static void
take_peer(int fd, unsigned me)
{
	poller_remove(peer_handle);
	channel_free(peer);
	peer = channel_new(fd, me, me ^ (MESSAGE_REACTOR | MESSAGE_RECORDER),
	    65536);
	if (peer == NULL)
		abort();
	channel_set_state(peer, MESSAGE_RUN);
	peer_handle =
	    poller_add(loop, channel_fd(peer), POLLER_READ, on_peer, NULL);
	event("peer", 0);
}

static int
record(unsigned n)
{
	struct buf b = BUF_INIT(16);
	int rc = SP_E_GONE;

	if (peer != NULL && wire_put_u32(&b, n) == SP_OK &&
	    wire_put_u8(&b, 1) == SP_OK)
		rc = channel_send(peer, MESSAGE_TURN_DELIVERED, buf_view(&b),
		    -1);
	buf_clear(&b);
	return rc;
}

static void
answer_info(int fd)
{
	char line[512];
	int n;

	n = snprintf(line, sizeof(line),
	    "pid=%ld uid=%u gid=%u reactor=%u recorder=%u secrets=%zu "
	    "secret=%.*s confine=%u proxy=%u conf=%u nnp=%d worked=%u\n",
	    (long)getpid(), (unsigned)geteuid(), (unsigned)getegid(),
	    role.reactor_restarts, role.recorder_restarts, role.secrets_n,
	    role.secrets_n ? (int)role.secrets[0].n : 0,
	    role.secrets_n ? role.secrets[0].value : "",
	    role.flags & ROLE_CONFINE, role.flags & ROLE_PROXY,
	    buf_len(&role.conf) > 0, prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0),
	    worked);
	(void)!write(fd, line, (size_t)n);
}

static void
on_work(void *arg)
{
	(void)arg;
	worked++;
	if (role_alive(&role, false) != SP_OK)
		abort();
	poller_timer_set(work, 100);
}

static void
obey(int fd, const char *line)
{
	const char *reply = "ok\n";

	if (strcmp(line, "info") == 0) {
		answer_info(fd);
		return;
	}
	if (strcmp(line, "crash") == 0)
		abort();
	if (strcmp(line, "lie") == 0)
		lie();
	if (strcmp(line, "hold") == 0)
		hold = 1;
	if (strcmp(line, "busy") == 0) {
		work = poller_timer_new(loop, on_work, NULL);
		if (work == NULL)
			abort();
		poller_timer_set(work, 0);
	}
	if (strncmp(line, "log ", 4) == 0)
		log_error("%s", line + 4);
	if (strncmp(line, "record ", 7) == 0 &&
	    record((unsigned)strtoul(line + 7, NULL, 10)) != SP_OK)
		reply = "gone\n";
	(void)!write(fd, reply, strlen(reply));
}

static void
on_client(void *arg, unsigned ready)
{
	int listener = *(int *)arg,
	    fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	char line[256];
	ssize_t n;

	(void)ready;
	if (fd < 0)
		return;
	n = read(fd, line, sizeof(line) - 1);
	if (n > 0) {
		line[n - (line[n - 1] == '\n')] = 0;
		obey(fd, line);
	}
	close(fd);
}

static void
on_stop(unsigned me)
{
	if (me == MESSAGE_REACTOR) {
		(void)!record(999); /* its last word */
	} else {
		read_peer();
		event("stop", 0);
	}
	poller_stop(loop);
}

/* Another generation: with fake_refuse in it, it cannot be had. */
static void
take_next(struct channel_msg *m)
{
	struct view v;
	bool whole;

	if (role_next_take(&next, m, &whole) != SP_OK)
		abort();
	if (!whole)
		return;
	v = buf_view(&next.conf);
	if (view_search(v, VIEW("fake_crash")) < v.n)
		abort();
	if (role_prepared(&role, next.generation,
		view_search(v, VIEW("fake_refuse")) < v.n ? VIEW("told to")
							  : VIEW_NONE) != SP_OK)
		abort();
	role.generation = next.generation;
	role_clear(&next);
}

static void
on_message(struct channel_msg *m, unsigned me)
{
	struct wire w;
	unsigned which;

	wire_init(&w, m->body);
	switch (m->type) {
	case MESSAGE_PEER:
		take_peer(m->fd, me);
		m->fd = -1;
		break;
	case MESSAGE_RESTARTS:
		role.reactor_restarts = wire_u32(&w);
		role.recorder_restarts = wire_u32(&w);
		break;
	case MESSAGE_LOG:
		which = wire_u8(&w);
		if (which == MESSAGE_LOG_ERROR) {
			log_set_fd(m->fd);
			m->fd = -1;
		}
		break;
	case MESSAGE_DRAIN_REQ:
		channel_set_state(role.helper, MESSAGE_DRAIN);
		if (!hold)
			(void)!channel_send(role.helper, MESSAGE_DRAINED,
			    VIEW_NONE, -1);
		break;
	case MESSAGE_STOP:
		on_stop(me);
		break;
	case MESSAGE_COMMIT:
		if (role_committed(&role, wire_u32(&w)) != SP_OK)
			abort();
		break;
	case MESSAGE_PING:
		if (work == NULL && role_alive(&role, true) != SP_OK)
			abort();
		break;
	case MESSAGE_ABANDON:
		role_clear(&next);
		break;
	default:
		take_next(m);
		break;
	}
	fd_close(&m->fd);
}

static void
on_helper(void *arg, unsigned ready)
{
	unsigned me = *(unsigned *)arg;
	struct channel_msg m;
	int rc;

	(void)ready;
	while ((rc = channel_recv(role.helper, &m)) == SP_OK)
		on_message(&m, me);
	if (rc != SP_E_AGAIN)
		poller_stop(loop);
}

static bool
told(const char *what)
{
	struct view conf = buf_view(&role.conf);

	return view_search(conf, view_str(what)) < conf.n;
}

int
main(int argc, char **argv)
{
	static unsigned me;
	size_t i;

	(void)argc;
	me = strstr(argv[0], "reactor") != NULL ? MESSAGE_REACTOR
						: MESSAGE_RECORDER;
	log_init(me == MESSAGE_REACTOR ? "reactor" : "recorder");
	role_next_init(&next);
	if (role_boot(&role, me) != SP_OK)
		return 3;
	if (role.error_log_fd >= 0)
		log_set_fd(role.error_log_fd);
	if (told("fake_fail_reactor") && me == MESSAGE_REACTOR)
		role_fail(&role, "told to \"fail\"");
	if (told("fake_die_recorder") && me == MESSAGE_RECORDER)
		return 7;
	loop = poller_new();
	if (loop == NULL)
		return 4;
	take_peer(role.peer_fd, me);
	role.peer_fd = -1;
	if (poller_add(loop, channel_fd(role.helper), POLLER_READ, on_helper,
		&me) == NULL)
		return 5;
	for (i = 0; i < role.listeners_n; i++)
		if (poller_add(loop, role.listeners[i].fd, POLLER_READ,
			on_client, &role.listeners[i].fd) == NULL)
			return 6;
	event("start", (unsigned)geteuid());
	if (role_ready(&role) != SP_OK)
		return 8;
	return poller_run(loop) == SP_OK ? 0 : 9;
}
