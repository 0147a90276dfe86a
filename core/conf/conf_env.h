/* environment NAME { ... }: what an episode's sandbox is made from. */
#ifndef SP_CONF_CONF_ENV_H
#define SP_CONF_CONF_ENV_H

#include "conf/conf.h"

enum {
	CONF_ENV_EPISODES_MAX = 1000, /* of all environments together */
	CONF_ENV_RULES_MAX = 1000,
	CONF_ENV_INSIDE_MAX = 16, /* listeners of one environment */
	CONF_ENV_PROCESSES_MAX = 32,
	CONF_ENV_ASSETS_MAX = 64,
	CONF_ENV_PATHS_MAX = 64,
	CONF_ENV_UIDS_MIN = 4, /* of one episode: see conf_env_uids */
	CONF_ENV_UID_MIN = 1000, /* below are the host's own */
	CONF_ENV_UID_DEFAULT = 200000, /* where ranges begin by default */
	CONF_ENV_UID_DEFAULT_N = 4096,
	CONF_ENV_DOOR_PORT = 3128, /* of the proxy for allow host */
};
#define CONF_ENV_UID_MAX ((uint32_t)4294967293) /* 2^32 - 3 */

/* Where the workspace is inside. */
#define CONF_ENV_WORKSPACE "/workspace"

/* Guarantees of `require`, bits; names in conf_env_guarantees. */
enum conf_env_guarantee {
	CONF_ENV_ASSET_ISOLATION = 1 << 0,
	CONF_ENV_EGRESS_CONTROL = 1 << 1,
	CONF_ENV_PRIVILEGE_DROP = 1 << 2,
	CONF_ENV_CONTROL_PLANE_ISOLATION = 1 << 3,
	CONF_ENV_PRINCIPAL_ISOLATION = 1 << 4,
	CONF_ENV_CREDENTIAL_ISOLATION = 1 << 5,
	CONF_ENV_RESOURCE_ISOLATION = 1 << 6,
	CONF_ENV_TRACE_INTEGRITY = 1 << 7,
};
/* By bit, NULL-terminated: "asset_isolation", ... */
extern const char *const conf_env_guarantees[];

enum conf_env_worker {
	CONF_ENV_WORKER_NONE,
	CONF_ENV_WORKER_STDIO,
	CONF_ENV_WORKER_HTTP,
	CONF_ENV_WORKER_FRAMES,
};
enum conf_env_storage { CONF_ENV_STORAGE_MEMORY, CONF_ENV_STORAGE_DISK };
enum conf_env_enforcement { CONF_ENV_ENFORCE_LINUX, CONF_ENV_ENFORCE_LOCAL };
enum conf_env_via { CONF_ENV_VIA_AUTO, CONF_ENV_VIA_VETH, CONF_ENV_VIA_RELAY };

/* One file beneath the directory of assets, by its use. */
struct conf_env_asset {
	struct view kind; /* "oracle", "solution", "rubric", any word */
	struct view path; /* relative, no "..", no leading slash */
	struct conf_pos pos;
};

/* allow tcp CIDR PORTS | udp CIDR PORTS | host NAME PORTS */
struct conf_env_rule {
	struct conf_pos pos;
	uint8_t proto; /* IPPROTO_TCP or IPPROTO_UDP */
	bool is_host;
	struct view host; /* lower case, with is_host; "*.example" allowed */
	uint32_t net; /* host byte order, without host bits */
	uint8_t prefix; /* bits */
	uint16_t port_low, port_high;
};

/* process NAME { trust workload|privileged; command ...; asset KIND; } */
struct conf_env_process {
	struct view name;
	struct conf_pos pos;
	bool privileged;
	struct conf_list command;
	struct view asset; /* kind; empty: none */
};

struct conf_environment {
	struct view name;
	unsigned index; /* in conf->environments */
	struct conf_pos pos;
	unsigned enforcement; /* enum conf_env_enforcement */

	struct view workspace; /* absolute; empty: an empty workspace */
	struct conf_pos workspace_pos; /* file NULL: there is none */
	uint64_t workspace_bytes;
	uint64_t workspace_inodes;
	unsigned storage; /* enum conf_env_storage */

	unsigned worker; /* enum conf_env_worker */
	uint16_t worker_port; /* of CONF_ENV_WORKER_HTTP */
	struct conf_list worker_command;
	struct view worker_factory; /* of frames: MODULE:ATTR */
	struct view worker_action_class; /* of frames: MODULE:CLASS */
	struct view worker_dir; /* inside, absolute; empty: its HOME */
	uint64_t worker_start_ms; /* until it must be ready */
	uint64_t
	    answer_ms; /* for a client to answer what it asks; 0 no bound */

	struct view assets; /* directory; empty: none */
	struct conf_env_asset *asset;
	size_t asset_n;

	/* sandbox { } */
	struct conf_list read_only; /* absolute paths */
	struct conf_list read_write; /* absolute: private, bounded, empty */
	struct view rootfs; /* absolute; empty: read_only is used */
	/* of the first `read_only`, of `rootfs`; file NULL: there is none */
	struct conf_pos read_only_pos, rootfs_pos;
	uint32_t uid_first, uid_n; /* the range that sandboxes draw from */
	struct conf_pos uid_pos; /* of `uid`; file NULL: there is none */
	uint64_t memory_bytes; /* of processes */
	uint64_t pids;
	uint64_t cpu_milli; /* 1000: one processor; 0 no bound */
	uint64_t timeout_ms; /* of one operation; 0 no bound */
	uint64_t lifetime_ms; /* of an episode; 0 no bound */
	uint64_t tmp_bytes; /* each of read_write, and HOME */
	uint64_t shm_bytes;
	uint64_t files; /* RLIMIT_NOFILE */
	uint64_t file_bytes; /* RLIMIT_FSIZE; 0 no bound */
	struct conf_list env; /* NAME=VALUE for every process */

	/* egress { } */
	bool has_egress; /* at least one rule */
	unsigned via; /* enum conf_env_via */
	struct conf_env_rule *rules;
	size_t rules_n;
	uint64_t connections; /* at once, of one episode */

	struct conf_env_process *processes;
	size_t processes_n;
	unsigned require; /* enum conf_env_guarantee bits */
	uint64_t episodes; /* at once */
	uint64_t warm;
	uint64_t teardown_ms; /* until a cgroup must be empty */

	/*
	 * inside ADDR:PORT { location ... }: servers whose listener is in
	 * each episode; not in conf->servers.  conf_server.environment is
	 * this, and conf_listen.index counts within the environment.
	 */
	struct conf_server **insides;
	size_t insides_n;
};

/*
 * Uids that one slot takes from the range, in this order.
 */
enum conf_env_uids {
	CONF_ENV_UID_INIT, /* pid 1 */
	CONF_ENV_UID_AGENT,
	CONF_ENV_UID_WORKER,
	CONF_ENV_UID_ORACLE,
};

/* The environment of that name, or NULL. */
struct conf_environment *conf_env_find(const struct conf *c, struct view name);
/*
 * Bytes that one episode may take: processes, workspace (when it is in
 * memory), each of read_write, HOME and shm; UINT64_MAX when over.
 */
uint64_t conf_env_memory(const struct conf_environment *e);
/* Whether something may run in an oracle's sandbox, beside an episode's. */
bool conf_env_grades(const struct conf_environment *e);
/*
 * Bytes that all episodes and warm ones may take at once, of so many sandboxes
 * each, and one more of each episode that may be graded; UINT64_MAX when over.
 */
uint64_t conf_env_admitted(const struct conf_environment *e, unsigned sides);
/*
 * Uids that its range must hold: CONF_ENV_UIDS_MIN for each episode and each
 * warm slot, twice, for those in quarantine.
 */
uint64_t conf_env_uids_needed(const struct conf_environment *e);
/*
 * Whether both say the same: a reload may take b for a while episodes of a
 * live.  What a secret's name stands for does not count.
 * Context: helper; does not block.
 * Returns: false also when there is no memory to tell.
 */
bool conf_env_same(const struct conf_environment *a,
    const struct conf_environment *b) must_check;
/*
 * What `read_only` is by default, NULL-terminated.  Hosts differ: one of
 * these that the host lacks is left out, written or not; any other path of
 * read_only must exist at the start.
 */
extern const char *const conf_env_read_only[];
bool conf_env_optional(struct view path);
/*
 * Whether the whole network addr/prefix lies in ranges that no rule may open.
 * Source:  the design's list: loopback, this-network, RFC 1918, 100.64/10,
 *          link-local, 192.0.0.0/24, 192.88.99.0/24, 198.18/15, multicast,
 *          reserved, broadcast.
 * Parameters: addr, host byte order.
 */
bool conf_env_protected(uint32_t addr, uint8_t prefix);
/* The same as (network, prefix) pairs, in host byte order; *n of them. */
struct conf_env_range {
	uint32_t net;
	uint8_t prefix;
};
const struct conf_env_range *conf_env_ranges(size_t *n);

/* Whether it is MODULE:NAME, as a worker of frames imports it. */
bool conf_env_symbol(struct view v);

/* Of a door: whose episodes are meant; in the owner's struct a pointer. */
/* clang-format off */
#define CONF_ENVIRONMENT_ROW(owner, field, row_flags, text) \
	{ .name = "environment", \
	    .scopes = CONF_LOCATION, \
	    .type = CONF_REF, \
	    .flags = (row_flags), \
	    .offset = offsetof(owner, field), \
	    .ref = CONF_ENVIRONMENT, \
	    .args = "NAME", \
	    .doc = (text) }
/* clang-format on */

/* Of a door that serves WebSockets; in the owner's struct a uint64_t. */
/* clang-format off */
#define CONF_PING_ROW(owner, field) \
	{ .name = "ping", \
	    .scopes = CONF_LOCATION, \
	    .type = CONF_DURATION, \
	    .offset = offsetof(owner, field), \
	    .max = 60ULL * 60 * 1000, \
	    .def = "20s", \
	    .args = "off | TIME", \
	    .doc = "How often the client of a WebSocket is pinged, and how " \
		   "long it may take to answer\nthat." }
/* clang-format on */

#endif
