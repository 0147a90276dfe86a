/* One sandbox, from its parts to its pid 1: what the keeper builds. */
#ifndef SP_INIT_SBOX_H
#define SP_INIT_SBOX_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/arena.h"
#include "init/sbox_links.h"
#include "init/sbox_why.h"
#include "ipc/sandbox_msg.h"
#include "os/cgroup.h"

struct sbox {
	const struct sandbox_spec *spec; /* borrowed */
	struct arena *arena; /* borrowed: lives as long as the spec */
	int give[SANDBOX_FD_KINDS]; /* by enum sandbox_fd; -1 none; owned */
	int parents[CGROUP_HIERARCHIES]; /* of the leaf; -1 none; owned */
	bool parents_v1[CGROUP_HIERARCHIES];
	int channel; /* borrowed: something to read there ends the building */

	/* who runs in it, as seen from inside: the spec's, or the only one */
	uid_t uid, init_uid;
	gid_t gid;

	bool net_later; /* pid 1 waits for its network; see sbox_prepare() */
	bool cgroup_made;
	struct cgroup cgroup;
	int seed_mnt, assets_mnt; /* not attached yet; -1 none */
	int scratch; /* tmpfs on which it is put together */
	int lower, upper, merged; /* directories of the workspace; -1 none */
	struct buf filter, init_filter; /* seccomp: of workloads, of pid 1 */
	char folder[32]; /* the workspace of a local one; empty: none */
	bool folder_lent; /* by another keeper, whose it is to remove */
	struct sbox_links links; /* taken out of the copy, of an oracle's */
	int ruleset; /* Landlock's, as every process inside gets it */
	int lifeline; /* to pid 1: it leaves when this closes */
	int init_pidfd;
	pid_t idmap_pid; /* made ahead: see sbox_idmap_ahead(); 0 none */
	int init_space; /* pid 1's mounts: they outlive it until sbox_clear() */
	dev_t root_dev; /* what every process inside must see as "/" */
	ino_t root_ino;
	pid_t init_pid; /* 0: none, or reaped */
};

/* Nothing is made yet; every descriptor is -1. */
void sbox_init(struct sbox *b);

/*
 * Makes all but the network: pid 1 builds its root meanwhile, and waits for
 * the network before it gives its privilege up.
 * Context: as sbox_build(), which must follow with the network given.
 * Owner:   sbox_clear(), also after a failure.
 * Returns: as sbox_build().
 */
int sbox_prepare(struct sbox *b, struct sbox_why *why) must_check;

/*
 * Makes everything up to pid 1, or nothing.
 * Context: keeper, after SPEC and GIVEs; leaves the mount namespace that it
 *          shares with the helper; blocks for some milliseconds, longer where
 *          it copies an upper layer, and stops when the channel has something
 *          to say.
 * Owner:   sbox_clear(), also after a failure.
 * Returns: 0; SP_E_AGAIN the channel wants attention; SP_E_* with *why.
 */
int sbox_build(struct sbox *b, struct sbox_why *why) must_check;

/* Kills whatever lives in it; does not wait. */
void sbox_kill(struct sbox *b);

/*
 * Waits until nothing lives in it, at most so long, and reaps pid 1.
 * Context: the other children must have been reaped (pid 1 waits for them).
 * Returns: 0; SP_E_TIMEOUT with *left, how many there are.
 */
int sbox_wait_empty(struct sbox *b, uint64_t ms, uint32_t *left) must_check;

/*
 * Takes mounts, leaf and descriptors away; it must be empty.
 * Returns: 0; the error of what could not be removed (the leaf).
 */
int sbox_clear(struct sbox *b) must_check;

/* A C string of the spec's text. NULL: no memory. */
const char *sbox_text(const struct sbox *b, struct view v) must_check;

/* "/home/agent": by side. */
const char *sbox_home(const struct sbox *b);
/* "agent", "worker", "oracle". */
const char *sbox_user(const struct sbox *b);

#endif
