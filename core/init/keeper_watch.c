#include "config.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/log.h"
#include "init/fs_watch.h"
#include "init/keeper_sample.h"
#include "init/keeper_watch.h"
#include "init/sbox_local.h"
#include "os/fd.h"

enum { SAMPLE_MS = 1000 };

/*
 * The host has no watch left (fs.fanotify.max_user_groups): one that has ended
 * is handed over, so that who observes is told of the gap.
 */
static int
watch_not(struct sbox_why *why, int *fd)
{
	int pair[2];

	log_warn("changes of files are not watched: %s: %s; see "
		 "fs.fanotify.max_user_groups",
	    why->what, strerror(why->en));
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
		return sbox_why_errno(why, errno, "watching the workspace");
	fd_close(&pair[1]);
	*fd = pair[0];
	return SP_OK;
}

int
keeper_watch_start(struct keeper *k, struct sbox_why *why)
{
	const struct fs_watch w = { .workspace = k->box.merged,
		.shared = sbox_local(&k->box),
		.uid = k->spec.init_uid,
		.gid = k->spec.gid };
	int fd = -1, rc;

	if (!(k->spec.flags & SANDBOX_WATCH_FILES))
		return SP_OK;
	why->stage = SANDBOX_STAGE_WORKSPACE;
	rc = fs_watch_start(&w, &k->watcher, &fd, why);
	if (rc != SP_OK && (why->en == EMFILE || why->en == ENOSPC))
		rc = watch_not(why, &fd);
	if (rc == SP_OK)
		keeper_send(k, MESSAGE_KEEPER_WATCH, NULL, fd);
	return rc;
}

void
keeper_watch_stop(struct keeper *k)
{
	if (k->watcher > 0)
		(void)kill(k->watcher, SIGKILL);
}

void
keeper_watch_reap(struct keeper *k)
{
	while (k->watcher > 0 && waitpid(k->watcher, NULL, 0) < 0 &&
	    errno == EINTR)
		continue;
	k->watcher = 0;
}

static int
begin_event(struct keeper *k, struct buf *b, enum sandbox_event kind)
{
	int rc = wire_put_u8(b, (uint8_t)kind);

	if (rc == SP_OK)
		rc = wire_put_u64(b, ++k->event_seq);
	return rc == SP_OK ? wire_put_u8(b, k->spec.side) : rc;
}

static void
say_oom(struct keeper *k, uint64_t kills, bool sockets)
{
	struct buf *b = keeper_body(k);

	if (begin_event(k, b, SANDBOX_EVENT_OOM) == SP_OK &&
	    wire_put_u32(b, (uint32_t)kills) == SP_OK &&
	    wire_put_u8(b, sockets) == SP_OK)
		keeper_send(k, MESSAGE_KEEPER_EVENT, b, -1);
}

uint64_t
keeper_watch_oom_kills(struct keeper *k)
{
	uint64_t kills = 0;

	if (k->box.cgroup_made &&
	    cgroup_oom_kills(&k->box.cgroup, &kills) == SP_OK &&
	    kills > k->oom_kills) {
		k->oom_kills = kills;
		say_oom(k, kills, false);
		/* v1 picks one; half a workload is no better than none */
		if (k->box.cgroup.v1[CGROUP_MEMORY])
			sbox_kill(&k->box);
	}
	return k->oom_kills;
}

/* What the kernel lets sockets have beyond their bound, nobody pays for. */
static void
look_at_sockets(struct keeper *k)
{
	if (!k->box.cgroup_made || !cgroup_sockets_over(&k->box.cgroup))
		return;
	log_warn("sockets hold more than all the memory that there may be: "
		 "all is killed");
	say_oom(k, ++k->oom_kills, true);
	sbox_kill(&k->box);
}

void
keeper_watch_wake(struct keeper *k)
{
	if (!k->box.cgroup_made || k->state != KEEPER_SERVE || k->sampling)
		return;
	k->sampling = true;
	poller_timer_set(k->sample, SAMPLE_MS);
}

/* What the workspace's upper layer takes where it lies. */
static uint64_t
disk_bytes(const struct keeper *k)
{
	struct statfs s;

	if (k->box.upper < 0 || fstatfs(k->box.upper, &s) != 0 ||
	    s.f_bfree > s.f_blocks)
		return 0;
	return (uint64_t)(s.f_blocks - s.f_bfree) * (uint64_t)s.f_bsize;
}

void
keeper_watch_sample(void *arg)
{
	struct keeper *k = arg;
	struct buf *b = keeper_body(k);
	struct cgroup_usage u;

	if (k->state != KEEPER_SERVE)
		return;
	memset(&u, 0, sizeof(u));
	if (cgroup_usage(&k->box.cgroup, &u) == SP_OK &&
	    begin_event(k, b, SANDBOX_EVENT_SAMPLE) == SP_OK &&
	    wire_put_u64(b, clock_wall_us()) == SP_OK &&
	    wire_put_u64(b, u.cpu_us) == SP_OK &&
	    wire_put_u64(b, u.memory_bytes) == SP_OK &&
	    wire_put_u32(b, (uint32_t)u.pids) == SP_OK &&
	    wire_put_u64(b, disk_bytes(k)) == SP_OK &&
	    wire_put_u64(b, u.user_us) == SP_OK &&
	    wire_put_u64(b, u.system_us) == SP_OK)
		keeper_send(k, MESSAGE_KEEPER_EVENT, b, -1);
	b = keeper_body(k);
	if (begin_event(k, b, SANDBOX_EVENT_PROCESS) == SP_OK &&
	    keeper_sample_processes(k, b) == SP_OK)
		keeper_send(k, MESSAGE_KEEPER_EVENT, b, -1);
	(void)keeper_watch_oom_kills(k);
	look_at_sockets(k);
	/* pid 1 is one; what others left behind runs, too */
	k->sampling = k->procs_n > 0 || u.pids > 1;
	if (k->sampling)
		poller_timer_set(k->sample, SAMPLE_MS);
}
