/* What a keeper is told to build and to run: one encoding. */
#ifndef SP_IPC_SANDBOX_MSG_H
#define SP_IPC_SANDBOX_MSG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "ipc/wire.h"

enum {
	SANDBOX_MSG_SPEC_MAX = 256 * 1024, /* bytes of an encoded spec */
	SANDBOX_MSG_RUN_MAX = 2 * 1024 * 1024, /* of an encoded run */
	SANDBOX_MSG_LIST_MAX = 4096, /* entries of one list */
	SANDBOX_MSG_PATH_MAX = 4095,
	SANDBOX_MSG_NAME_MAX = 64,
	SANDBOX_LINKS_TEXT = 8 * 1024, /* paths in KEEPER_STARTED */
};

/*
 * Index of a listener that no `inside` made (EPISODE_LISTENER): the proxy for
 * `allow host`, and where `via relay` turns connections to.
 */
enum sandbox_door { SANDBOX_DOOR_CONNECT = 1000, SANDBOX_DOOR_RELAY };

enum sandbox_side {
	SANDBOX_AGENT = 1,
	SANDBOX_WORKER,
	SANDBOX_ORACLE, /* a privileged process on a copy */
	SANDBOX_SIDES,
};

/* KEEPER_GIVE: which descriptor comes. */
enum sandbox_fd {
	SANDBOX_FD_NETNS = 1, /* the network namespace to live in */
	SANDBOX_FD_SEED, /* directory: the workspace's lower layer */
	SANDBOX_FD_WORKSPACE, /* detached mount, made by another keeper */
	SANDBOX_FD_UPPER, /* directory whose content the upper layer starts
			     with: copied (an oracle's) */
	SANDBOX_FD_ASSETS, /* directory, bound read-only beneath /openenvd */
	SANDBOX_FD_DISK, /* directory in which the file that the upper layer
			    lies in is made (storage disk) */
	SANDBOX_FD_CGROUP, /* index: enum cgroup_hierarchy; the parent */
	SANDBOX_FD_KINDS,
};

/* In the index of SANDBOX_FD_CGROUP: the hierarchy is of version 1. */
#define SANDBOX_FD_CGROUP_V1 0x100u

struct sandbox_list {
	struct view *v;
	size_t n;
};

enum sandbox_flag {
	SANDBOX_USERNS = 1 << 0, /* no privilege: through a user namespace */
	SANDBOX_LOCAL = 1 << 1, /* enforcement local: plain processes */
	SANDBOX_WATCH_FILES = 1 << 2, /* fanotify on the workspace */
};

/* From the configuration alone: the reactor has no say in it. */
struct sandbox_spec {
	uint32_t slot, generation;
	uint8_t side; /* enum sandbox_side */
	uint32_t flags; /* enum sandbox_flag */
	struct view cgroup; /* name of the leaf: "slot-3-agent" */
	struct view hostname;
	uint32_t init_uid, uid, gid;
	uint64_t memory_bytes; /* processes, and files in memory */
	uint64_t pids, cpu_milli;
	uint64_t files, file_bytes; /* RLIMIT_NOFILE, RLIMIT_FSIZE */
	uint64_t workspace_bytes, workspace_inodes;
	uint64_t tmp_bytes, tmp_inodes, shm_bytes;
	uint64_t teardown_ms;
	struct view rootfs; /* path; empty: read_only is bound */
	struct view assets; /* name beneath /openenvd; empty: "assets" */
	struct sandbox_list read_only; /* absolute paths */
	struct sandbox_list read_write; /* absolute: private tmpfs */
	struct view resolv_conf; /* text of /etc/resolv.conf */
	struct view hosts; /* lines added to /etc/hosts */
	struct sandbox_list env; /* NAME=VALUE, below what a run brings */
};

/*
 * Context: helper writes, keeper reads; neither blocks.
 * Owner:   views are borrowed: from the caller, from the encoded text (lists
 *          themselves from the arena).
 * Returns: 0; SP_E_LIMIT; SP_E_NOMEM; get also SP_E_PROTO for anything that
 *          is missing, left over, too long, holds a NUL, or makes no sense.
 */
int sandbox_msg_spec_put(struct buf *b,
    const struct sandbox_spec *s) must_check;
int sandbox_msg_spec_get(struct view text, struct arena *a,
    struct sandbox_spec *s) must_check;

enum sandbox_run_flag {
	SANDBOX_RUN_STDIN = 1 << 0, /* a pipe; else /dev/null */
	SANDBOX_RUN_STDERR_TO_STDOUT = 1 << 1,
	SANDBOX_RUN_EVENT_FD = 1 << 2, /* a pipe as OPENENVD_EVENT_FD */
	SANDBOX_RUN_PROBE = 1 << 3, /* only looked at: it never starts; errno
				       0 when it could */
};

/* One process inside: what the reactor chose. */
struct sandbox_run {
	uint32_t flags; /* enum sandbox_run_flag */
	uint64_t timeout_ms; /* then it is killed with its group; 0 none */
	struct view cwd; /* absolute, inside; empty: /workspace */
	struct sandbox_list argv; /* at least one */
	struct sandbox_list env; /* NAME=VALUE */
};
int sandbox_msg_run_put(struct buf *b, const struct sandbox_run *r) must_check;
int sandbox_msg_run_get(struct view text, struct arena *a,
    struct sandbox_run *r) must_check;

/* Where building or starting failed; names in sandbox_msg_stage(). */
enum sandbox_stage {
	SANDBOX_STAGE_SPEC = 1,
	SANDBOX_STAGE_CGROUP,
	SANDBOX_STAGE_LIMITS,
	SANDBOX_STAGE_NAMESPACES,
	SANDBOX_STAGE_IDMAP,
	SANDBOX_STAGE_NETWORK,
	SANDBOX_STAGE_WORKSPACE,
	SANDBOX_STAGE_ROOT,
	SANDBOX_STAGE_DEV,
	SANDBOX_STAGE_PROC,
	SANDBOX_STAGE_PIVOT,
	SANDBOX_STAGE_INIT,
	SANDBOX_STAGE_ENTER, /* a process: joining the namespaces */
	SANDBOX_STAGE_STDIO,
	SANDBOX_STAGE_CREDENTIALS,
	SANDBOX_STAGE_LANDLOCK,
	SANDBOX_STAGE_SECCOMP,
	SANDBOX_STAGE_EXEC,
	SANDBOX_STAGE_CHECK, /* what the kernel says of it is not as meant */
	SANDBOX_STAGES,
};
const char *sandbox_msg_stage(unsigned stage); /* "?" when unknown */

/* File work in the episode: EPISODE_FILE, KEEPER_FILE. */
enum sandbox_file_op {
	SANDBOX_FILE_READ = 1, /* whole file, at most limit bytes */
	SANDBOX_FILE_DIFF, /* changes of the workspace: sandbox_change each */
	SANDBOX_FILE_LIST, /* one directory: sandbox_dirent each */
	SANDBOX_FILE_PUT, /* with a descriptor: content of a new file */
	SANDBOX_FILE_MKDIR,
	SANDBOX_FILE_REMOVE, /* a file or a tree */
	SANDBOX_FILE_SNAPSHOT, /* the upper layer, copied into a directory */
	SANDBOX_FILE_UPPER, /* the upper layer itself: the helper's alone */
	SANDBOX_FILE_DIFF_FROZEN, /* DIFF while nothing runs: the reactor's */
	SANDBOX_FILE_OPS,
};
enum sandbox_file_result {
	SANDBOX_FILE_OK = 1,
	SANDBOX_FILE_NOT_FOUND,
	SANDBOX_FILE_ESCAPES, /* a link, a mount, or out of the root */
	SANDBOX_FILE_SPECIAL, /* not a regular file */
	SANDBOX_FILE_TOO_LARGE,
	SANDBOX_FILE_NO_SPACE,
	SANDBOX_FILE_BUSY, /* changed under the reader */
	SANDBOX_FILE_FAILED,
	SANDBOX_FILE_NO_LAYERS, /* enforcement local: nothing to compare */
	SANDBOX_FILE_UNSUPPORTED, /* the reactor's own: it was refused so */
};

/* What an entry of a file system is. */
enum sandbox_type {
	SANDBOX_TYPE_FILE = 1,
	SANDBOX_TYPE_DIR,
	SANDBOX_TYPE_SYMLINK,
	SANDBOX_TYPE_FIFO,
	SANDBOX_TYPE_SOCKET,
	SANDBOX_TYPE_DEVICE,
	SANDBOX_TYPES,
};

/*
 * SANDBOX_FILE_LIST: records one behind the other, to the end.  Names and
 * paths are bytes, UTF-8 or not, without NUL.
 */
struct sandbox_dirent {
	struct view name; /* one component */
	uint8_t type; /* enum sandbox_type */
	uint32_t mode; /* with set-id bits */
	uint32_t uid, gid; /* as the sandbox's own are numbered */
	uint64_t size; /* of a file; bytes of a link's target */
	uint64_t mtime_us; /* since 1970 */
};
enum sandbox_change_kind {
	SANDBOX_CREATED = 1,
	SANDBOX_MODIFIED, /* content, mode, target */
	SANDBOX_DELETED, /* of a directory, what was in it follows */
	SANDBOX_REPLACED, /* by another type */
	SANDBOX_CHANGES,
};
enum sandbox_change_flag {
	SANDBOX_CHANGE_UNREADABLE = 1 << 0, /* could not be looked into */
	SANDBOX_CHANGE_CONTENT = 1 << 1, /* modified: its bytes, or target */
	SANDBOX_CHANGE_MODE = 1 << 2, /* modified: its mode */
	SANDBOX_CHANGE_UNCOMPARED = 1
	    << 3, /* too large to tell: maybe the same */
};
/* SANDBOX_FILE_DIFF, in the same way; each path once, in no order of paths. */
struct sandbox_change {
	struct view path; /* relative to the workspace */
	uint8_t kind; /* enum sandbox_change_kind */
	uint8_t type; /* enum sandbox_type: of what was deleted, else now */
	uint8_t flags; /* enum sandbox_change_flag */
	uint32_t mode;
	uint64_t size;
};
/*
 * Of a workspace's watch (EPISODE_WATCH, a SOCK_SEQPACKET socket), in the same
 * way, several in a message of at most SANDBOX_NOTES_MAX bytes.
 */
enum { SANDBOX_NOTES_MAX = 32 * 1024 };
enum sandbox_note_kind {
	/* enum sandbox_change_kind, of which REPLACED is not used; then: */
	SANDBOX_NOTE_OVERFLOW =
	    SANDBOX_CHANGES, /* nobody knows what was lost */
	SANDBOX_NOTE_LOST, /* so many, in directories that have gone */
	SANDBOX_NOTES,
};
struct sandbox_file_note {
	uint8_t kind;
	bool dir; /* it is, or was, a directory */
	uint64_t lost; /* of NOTE_LOST */
	struct view path; /* relative to the workspace; of the others empty */
};
/*
 * Context: keeper writes, reactor reads; neither blocks.
 * Owner:   views are borrowed from the text.
 * Returns: put: 0; SP_E_LIMIT; SP_E_NOMEM.  get: 0; SP_E_EOF at the end;
 *          SP_E_PROTO for anything that is missing or makes no sense.
 */
int sandbox_msg_dirent_put(struct buf *b,
    const struct sandbox_dirent *d) must_check;
int sandbox_msg_dirent_get(struct wire *w, struct sandbox_dirent *d) must_check;
int sandbox_msg_change_put(struct buf *b,
    const struct sandbox_change *c) must_check;
int sandbox_msg_change_get(struct wire *w, struct sandbox_change *c) must_check;
int sandbox_msg_file_note_put(struct buf *b,
    const struct sandbox_file_note *n) must_check;
int sandbox_msg_file_note_get(struct wire *w,
    struct sandbox_file_note *n) must_check;

/* Why there is no episode. */
enum sandbox_refusal {
	SANDBOX_REFUSED_UNKNOWN = 1, /* no such environment, slot, generation */
	SANDBOX_REFUSED_CAPACITY, /* all episodes of it are in use */
	SANDBOX_REFUSED_FAILED, /* building failed: text names the stage */
	SANDBOX_REFUSED_UNCLEAN, /* the old cgroup did not empty */
	SANDBOX_REFUSED_STATE, /* not now: it is being reset, or ends */
	SANDBOX_REFUSED_UNSUPPORTED, /* never on this host: text says why */
};

/* EPISODE_FROZEN. */
enum sandbox_frozen {
	SANDBOX_THAWED,
	SANDBOX_FROZEN,
	SANDBOX_FROZEN_FAILED,
	SANDBOX_FROZEN_NEVER, /* there is no control group */
};
/* What helps against SANDBOX_FROZEN_NEVER. */
#define SANDBOX_FROZEN_NEVER_TEXT \
	"the episode has no control group to be frozen by: start sallyport " \
	"as root, or with a group delegated (systemd: Delegate=yes)"

/* KEEPER_EVENT. */
enum sandbox_event {
	SANDBOX_EVENT_SAMPLE = 1, /* u64 wall us, u64 cpu us, u64 memory bytes,
				     u32 processes: of the cgroup; u64 bytes
				     in the workspace, u64 user us, u64 system
				     us */
	SANDBOX_EVENT_PROCESS, /* JSON object: sampled descendants */
	SANDBOX_EVENT_OOM, /* u32 kills so far, u8 1: for what sockets held */
	SANDBOX_EVENT_GAP, /* u64 events that were lost */
};

/* How a process or a sandbox came to its end. */
enum sandbox_end {
	SANDBOX_END_EXIT = 1, /* status is the exit status */
	SANDBOX_END_SIGNAL, /* status is the signal */
	SANDBOX_END_TIMEOUT,
	SANDBOX_END_OOM,
	SANDBOX_END_LOST, /* nobody knows: its keeper died */
};

#endif
