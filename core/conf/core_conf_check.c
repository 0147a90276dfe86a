/* health_check of an upstream: a path and what to make of its answers. */
#include "base/num.h"
#include "conf/core_conf.h"

#define MS_DAY 86400000

enum { CHECK_COUNT_MAX = 1000, CHECK_PATH_MAX = 1024 };

static const char check_expected[] =
    "PATH, interval=TIME and timeout=TIME from 1ms to 1d, rise=NUMBER and "
    "fall=NUMBER from 1 to 1000, each once";

/* One of the words behind the path. */
struct check_option {
	const char *name; /* with its "=" */
	size_t at;
	bool is_time;
	uint64_t def;
};

#define UP(field) offsetof(struct conf_upstream, field)

static const struct check_option check_options[] = {
	{ "interval=", UP(check_interval_ms), true, 10000 },
	{ "timeout=", UP(check_timeout_ms), true, 5000 },
	{ "rise=", UP(check_rise), false, 2 },
	{ "fall=", UP(check_fall), false, 3 },
};
enum { CHECK_OPTIONS_N = sizeof(check_options) / sizeof(check_options[0]) };

static uint64_t *
value_of(struct conf_upstream *u, const struct check_option *o)
{
	return (void *)((char *)u + o->at);
}

static bool
read_option(struct conf_upstream *u, struct view arg)
{
	size_t i;

	for (i = 0; i < CHECK_OPTIONS_N; i++) {
		const struct check_option *o = &check_options[i];
		struct view name = view_str(o->name), v;
		uint64_t *to = value_of(u, o);

		if (!view_starts(arg, name))
			continue;
		v = view_from(arg, name.n);
		if (*to != 0) /* it stands there twice */
			return false;
		if (!o->is_time)
			return num_u64(v, 1, CHECK_COUNT_MAX, to) == 0;
		return num_duration_ms(v, to) == 0 && *to > 0 && *to <= MS_DAY;
	}
	return false;
}

/* What may stand in a request line: RFC 9112 s3.2.1. */
static bool
is_path(struct view v)
{
	size_t i;

	for (i = 0; i < v.n; i++)
		if (v.p[i] <= ' ' || v.p[i] >= 0x7f || v.p[i] == '#')
			return false;
	return v.n > 0 && v.n <= CHECK_PATH_MAX && v.p[0] == '/';
}

int
core_conf_check_parse(struct conf_parse *p, const struct conf_directive *row,
    void *base, const struct view *args, size_t n)
{
	struct conf_upstream *u = base;
	size_t i;

	if (!is_path(args[1]))
		return conf_error(p,
		    "bad path \"%.*s\" for \"%s\"; expected one like /health, "
		    "from the root of each server",
		    VIEW_ARG(args[1]), row->name);
	u->check_path = args[1];
	for (i = 2; i < n; i++)
		if (!read_option(u, args[i]))
			return conf_error(p,
			    "bad value \"%.*s\" for \"%s\"; expected %s",
			    VIEW_ARG(args[i]), row->name, check_expected);
	for (i = 0; i < CHECK_OPTIONS_N; i++)
		if (*value_of(u, &check_options[i]) == 0)
			*value_of(u, &check_options[i]) = check_options[i].def;
	return 0;
}

int
core_conf_check_dump(const struct conf_directive *row, const void *base,
    const char *indent, struct buf *out)
{
	const struct conf_upstream *u = base;
	int rc;

	if (u->check_path.n == 0)
		return 0;
	rc = buf_printf(out, "%s%s ", indent, row->name);
	if (rc == 0)
		rc = conf_dump_word(out, u->check_path);
	if (rc == 0)
		rc = buf_printf(out,
		    " interval=%llums timeout=%llums rise=%llu fall=%llu;\n",
		    (unsigned long long)u->check_interval_ms,
		    (unsigned long long)u->check_timeout_ms,
		    (unsigned long long)u->check_rise,
		    (unsigned long long)u->check_fall);
	return rc;
}
