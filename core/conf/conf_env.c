/* Environments as others see them: names, ranges, sizes, sameness. */
#include "conf/conf_env.h"
#include "conf/core_conf.h"

const char *const conf_env_guarantees[] = { "asset_isolation", "egress_control",
	"privilege_drop", "control_plane_isolation", "principal_isolation",
	"credential_isolation", "resource_isolation", "trace_integrity", NULL };

const char *const conf_env_read_only[] = { "/usr", "/bin", "/sbin", "/lib",
	"/lib64", "/etc/ssl", "/etc/alternatives", NULL };

/* RFC 6890 and RFC 5735; of 240.0.0.0/4 the last is broadcast. */
static const struct conf_env_range ranges[] = {
	{ 0x00000000, 8 }, /* this network */
	{ 0x0a000000, 8 }, /* RFC 1918 */
	{ 0x64400000, 10 }, /* shared, RFC 6598 */
	{ 0x7f000000, 8 }, /* loopback */
	{ 0xa9fe0000, 16 }, /* link-local and metadata */
	{ 0xac100000, 12 }, /* RFC 1918 */
	{ 0xc0000000, 24 }, /* protocol assignments */
	{ 0xc0586300, 24 }, /* 6to4 relays */
	{ 0xc0a80000, 16 }, /* RFC 1918 */
	{ 0xc6120000, 15 }, /* benchmarks; and our own links */
	{ 0xe0000000, 3 }, /* multicast and reserved */
};

const struct conf_env_range *
conf_env_ranges(size_t *n)
{
	*n = sizeof(ranges) / sizeof(*ranges);
	return ranges;
}

/* No two of the ranges are neighbours: what they cover, one of them does. */
bool
conf_env_protected(uint32_t addr, uint8_t prefix)
{
	size_t i;

	for (i = 0; i < sizeof(ranges) / sizeof(*ranges); i++) {
		if (prefix >= ranges[i].prefix &&
		    ((addr ^ ranges[i].net) >> (32 - ranges[i].prefix)) == 0)
			return true;
	}
	return false;
}

struct conf_environment *
conf_env_find(const struct conf *c, struct view name)
{
	size_t i;

	for (i = 0; i < c->environments_n; i++) {
		if (view_eq(c->environments[i]->name, name))
			return c->environments[i];
	}
	return NULL;
}

bool
conf_env_optional(struct view path)
{
	size_t i;

	for (i = 0; conf_env_read_only[i] != NULL; i++) {
		if (view_eq(path, view_str(conf_env_read_only[i])))
			return true;
	}
	return false;
}

uint64_t
conf_env_memory(const struct conf_environment *e)
{
	uint64_t tmp = 0, sum = e->memory_bytes;
	bool over;

	over = __builtin_mul_overflow(e->tmp_bytes, e->read_write.n + 1, &tmp);
	over |= __builtin_add_overflow(sum, tmp, &sum);
	over |= __builtin_add_overflow(sum, e->shm_bytes, &sum);
	if (e->storage == CONF_ENV_STORAGE_MEMORY)
		over |= __builtin_add_overflow(sum, e->workspace_bytes, &sum);
	return over ? UINT64_MAX : sum;
}

bool
conf_env_grades(const struct conf_environment *e)
{
	size_t i;

	for (i = 0; i < e->asset_n; i++)
		if (view_eq(e->asset[i].kind, VIEW("oracle")))
			return true;
	for (i = 0; i < e->processes_n; i++)
		if (e->processes[i].privileged)
			return true;
	return false;
}

uint64_t
conf_env_admitted(const struct conf_environment *e, unsigned sides)
{
	uint64_t n = (e->episodes + e->warm) * sides, sum;

	if (conf_env_grades(e))
		n += e->episodes;
	return __builtin_mul_overflow(conf_env_memory(e), n, &sum) ? UINT64_MAX
								   : sum;
}

uint64_t
conf_env_uids_needed(const struct conf_environment *e)
{
	return (uint64_t)CONF_ENV_UIDS_MIN * 2 * (e->episodes + e->warm);
}

bool
conf_env_same(const struct conf_environment *a,
    const struct conf_environment *b)
{
	struct buf x = BUF_INIT((size_t)64 << 20);
	struct buf y = BUF_INIT((size_t)64 << 20);
	bool same;

	same = core_conf_env_dump(a, &x) == 0 &&
	    core_conf_env_dump(b, &y) == 0 &&
	    view_eq(buf_view(&x), buf_view(&y));
	buf_clear(&x);
	buf_clear(&y);
	return same;
}

static bool
is_dotted(struct view v)
{
	size_t i;

	for (i = 0; i < v.n; i++) {
		char c = v.p[i];

		if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
		    (c >= '0' && c <= '9') || c == '_' || c == '.')
			continue;
		return false;
	}
	return v.n > 0 && v.n <= 256;
}

bool
conf_env_symbol(struct view v)
{
	size_t colon = view_find(v, ':');

	return is_dotted(view_sub(v, 0, colon)) &&
	    is_dotted(view_from(v, colon + 1));
}
