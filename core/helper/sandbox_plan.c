#include "config.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "helper/netns.h"
#include "helper/sandbox_plan.h"
#include "helper/sweep.h"
#include "os/fd.h"

enum {
	PLAN_ARENA_MAX = 1024 * 1024,
	PLAN_RESOLV_MAX = 4096,
	PLAN_NAMESERVERS_MAX = 3, /* resolv.conf(5) */
	PLAN_BYTES_PER_INODE = 4096, /* of /tmp and the like */
	PLAN_INODES_MIN = 1024,
	PLAN_DNS_PORT = 53,
	/* a copy of a full workspace must fit, with what copying needs */
	PLAN_COPY_BYTES = 1024 * 1024,
	PLAN_COPY_INODES = 1024,
};

uint32_t
sandbox_plan_places(const struct conf_environment *env)
{
	return env->uid_n / CONF_ENV_UIDS_MIN;
}

/* Whoever may be asked for names by rule is who is asked. */
static int
plan_resolv(const struct conf_environment *env, struct buf *out)
{
	unsigned n = 0;
	size_t i;
	int rc = SP_OK;

	for (i = 0; i < env->rules_n && rc == SP_OK; i++) {
		const struct conf_env_rule *r = &env->rules[i];

		if (r->is_host || r->proto != IPPROTO_UDP || r->prefix != 32 ||
		    r->port_low > PLAN_DNS_PORT || r->port_high < PLAN_DNS_PORT)
			continue;
		if (n++ == PLAN_NAMESERVERS_MAX)
			break;
		rc = buf_printf(out, "nameserver %u.%u.%u.%u\n", r->net >> 24,
		    (r->net >> 16) & 255, (r->net >> 8) & 255, r->net & 255);
	}
	return rc;
}

static bool
plan_has_hosts(const struct conf_environment *env)
{
	size_t i;

	for (i = 0; i < env->rules_n; i++)
		if (env->rules[i].is_host)
			return true;
	return false;
}

/* The operator's, and where the door to the allowed names is. */
static int
plan_env(const struct conf_environment *env, uint8_t side, struct arena *a,
    struct sandbox_list *out)
{
	static const char proxy[] = "=http://127.0.0.1:3128";
	static const char *const names[] = { "HTTPS_PROXY", "https_proxy" };
	size_t i, n = env->env.n;

	out->v = arena_zalloc(a, (n + 2) * sizeof(out->v[0]));
	if (out->v == NULL)
		return SP_E_NOMEM;
	for (i = 0; i < n; i++)
		out->v[i] = env->env.v[i];
	out->n = n;
	/* an oracle's sandbox has no network */
	if (side == SANDBOX_ORACLE)
		return SP_OK;
	for (i = 0; i < 2 && plan_has_hosts(env); i++) {
		const char *text = arena_printf(a, "%s%s", names[i], proxy);

		if (text == NULL)
			return SP_E_NOMEM;
		out->v[out->n++] = view_str(text);
	}
	return SP_OK;
}

static void
plan_limits(const struct conf_environment *env, struct sandbox_spec *s)
{
	s->memory_bytes = conf_env_memory(env);
	s->pids = env->pids;
	s->cpu_milli = env->cpu_milli;
	s->files = env->files;
	s->file_bytes = env->file_bytes;
	s->workspace_bytes = env->workspace_bytes;
	s->workspace_inodes = env->workspace_inodes;
	s->tmp_bytes = env->tmp_bytes;
	s->tmp_inodes = env->tmp_bytes / PLAN_BYTES_PER_INODE;
	if (s->tmp_inodes < PLAN_INODES_MIN)
		s->tmp_inodes = PLAN_INODES_MIN;
	s->shm_bytes = env->shm_bytes;
	s->teardown_ms = env->teardown_ms;
}

static int
plan_fill(const struct sandbox_plan *p, const struct conf_environment *env,
    struct arena *a, struct sandbox_spec *s)
{
	uint32_t uids = env->uid_first + p->env_place * CONF_ENV_UIDS_MIN;
	char *leaf = arena_alloc(a, 65);

	if (leaf == NULL)
		return SP_E_NOMEM;
	sweep_leaf(p->slot, p->side, leaf);
	memset(s, 0, sizeof(*s));
	s->slot = p->slot;
	s->generation = p->generation;
	s->side = p->side;
	if (env->enforcement == CONF_ENV_ENFORCE_LOCAL)
		s->flags |= SANDBOX_LOCAL;
	else if (!p->privileged)
		s->flags |= SANDBOX_USERNS;
	if (p->first && p->privileged)
		s->flags |= SANDBOX_WATCH_FILES;
	s->cgroup = view_str(leaf);
	s->hostname = env->name;
	s->init_uid = uids + CONF_ENV_UID_INIT;
	s->uid = uids +
	    (p->side == SANDBOX_AGENT           ? CONF_ENV_UID_AGENT
		    : p->side == SANDBOX_WORKER ? CONF_ENV_UID_WORKER
						: CONF_ENV_UID_ORACLE);
	/* one group for both, so that they can share the workspace */
	s->gid = uids + CONF_ENV_UID_AGENT;
	plan_limits(env, s);
	s->rootfs = env->rootfs;
	s->assets = p->assets;
	s->read_only =
	    (struct sandbox_list){ env->read_only.v, env->read_only.n };
	s->read_write =
	    (struct sandbox_list){ env->read_write.v, env->read_write.n };
	if (p->side == SANDBOX_ORACLE) {
		s->workspace_bytes += PLAN_COPY_BYTES;
		/* on tmpfs each further name of a file counts, and twice */
		s->workspace_inodes *= 2;
		s->workspace_inodes += PLAN_COPY_INODES;
	}
	return plan_env(env, p->side, a, &s->env);
}

int
sandbox_plan_seal(const struct sandbox_plan *p,
    const struct conf_environment *env, int *out)
{
	struct arena *a = arena_new(PLAN_ARENA_MAX);
	struct buf text = BUF_INIT(SANDBOX_MSG_SPEC_MAX);
	struct buf resolv = BUF_INIT(PLAN_RESOLV_MAX);
	struct sandbox_spec s;
	int rc = SP_E_NOMEM;

	if (a != NULL)
		rc = plan_fill(p, env, a, &s);
	if (rc == SP_OK)
		rc = plan_resolv(env, &resolv);
	if (rc == SP_OK) {
		s.resolv_conf = buf_view(&resolv);
		rc = sandbox_msg_spec_put(&text, &s);
	}
	if (rc == SP_OK)
		rc = fd_sealed("sandbox", buf_view(&text).p, buf_len(&text),
		    out);
	buf_clear(&resolv);
	buf_clear(&text);
	arena_free(a);
	return rc;
}
