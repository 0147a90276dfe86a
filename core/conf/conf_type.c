/* Values: from arguments to the field at a row's offset. */
#include <limits.h>
#include <stdio.h>

#include "base/num.h"
#include "conf/parse.h"

size_t
conf_type_size(enum conf_type type)
{
	switch (type) {
	case CONF_MARK:
	case CONF_ONOFF:
		return sizeof(bool);
	case CONF_NUMBER:
	case CONF_SIZE:
	case CONF_DURATION:
		return sizeof(uint64_t);
	case CONF_DOUBLE:
		return sizeof(double);
	case CONF_CHOICE:
		return sizeof(unsigned);
	case CONF_STRING:
	case CONF_PATH:
		return sizeof(struct view);
	case CONF_LIST:
		return sizeof(struct conf_list);
	case CONF_SECRET:
	case CONF_REF:
		return sizeof(void *);
	case CONF_HANDLER:
	case CONF_CUSTOM:
	case CONF_BLOCK:
		break;
	}
	return 0;
}

static void *
field(const struct conf_directive *row, void *base)
{
	return (char *)base + row->offset;
}

void
conf_type_duration(uint64_t ms, char *out)
{
	static const struct {
		uint64_t ms;
		const char *unit;
	} units[] = { { 86400000, "d" }, { 3600000, "h" }, { 60000, "m" },
		{ 1000, "s" } };
	size_t i;

	for (i = 0; i < sizeof(units) / sizeof(*units); i++) {
		if (ms > 0 && ms % units[i].ms == 0) {
			snprintf(out, 32, "%llu%s",
			    (unsigned long long)(ms / units[i].ms),
			    units[i].unit);
			return;
		}
	}
	snprintf(out, 32, "%llums", (unsigned long long)ms);
}

void
conf_type_size_text(uint64_t bytes, char *out)
{
	static const char units[] = "gmk";
	uint64_t unit = 1 << 30;
	size_t i;

	for (i = 0; i < 3; i++, unit >>= 10) {
		if (bytes > 0 && bytes % unit == 0) {
			snprintf(out, 32, "%llu%c",
			    (unsigned long long)(bytes / unit), units[i]);
			return;
		}
	}
	snprintf(out, 32, "%llu", (unsigned long long)bytes);
}

static uint64_t
row_max(const struct conf_directive *row)
{
	return row->max == 0 ? UINT64_MAX : row->max;
}

static int
number_error(struct conf_parse *p, const struct conf_directive *row,
    struct view v)
{
	char min[32], max[32];
	const char *what = "a number";

	snprintf(min, sizeof(min), "%llu", (unsigned long long)row->min);
	snprintf(max, sizeof(max), "%llu", (unsigned long long)row_max(row));
	if (row->type == CONF_SIZE) {
		what = "a size";
		conf_type_size_text(row->min, min);
		conf_type_size_text(row_max(row), max);
	} else if (row->type == CONF_DURATION) {
		what = row->min == 0 ? "off or a time" : "a time";
		conf_type_duration(row->min == 0 ? 1 : row->min, min);
		conf_type_duration(row_max(row), max);
	}
	return conf_error(p,
	    "bad value \"%.*s\" for \"%s\"; expected %s from "
	    "%s to %s",
	    VIEW_ARG(v), row->name, what, min, max);
}

static int
set_number(struct conf_parse *p, const struct conf_directive *row, void *base,
    struct view v)
{
	uint64_t *out = field(row, base);
	uint64_t n = 0;
	int rc;

	if (row->type == CONF_NUMBER)
		rc = num_u64(v, 0, UINT64_MAX, &n);
	else if (row->type == CONF_SIZE)
		rc = num_size(v, &n);
	else if (row->min == 0 && view_eq(v, VIEW("off")))
		rc = 0;
	else
		rc = num_duration_ms(v, &n);
	if (rc != 0 || n < row->min || n > row_max(row))
		return number_error(p, row, v);
	*out = n;
	return 0;
}

/* "a, b or c" */
static int
choice_error(struct conf_parse *p, const struct conf_directive *row,
    struct view v)
{
	struct buf all = BUF_INIT(1024);
	size_t i;
	int rc = 0;

	for (i = 0; rc == 0 && row->choices[i] != NULL; i++)
		rc = buf_printf(&all, "%s%s",
		    i == 0                            ? ""
			: row->choices[i + 1] == NULL ? " or "
						      : ", ",
		    row->choices[i]);
	rc = rc != 0
	    ? conf_nomem(p)
	    : conf_error(p, "bad value \"%.*s\" for \"%s\"; expected %.*s",
		  VIEW_ARG(v), row->name, VIEW_ARG(buf_view(&all)));
	buf_clear(&all);
	return rc;
}

static int
set_choice(struct conf_parse *p, const struct conf_directive *row, void *base,
    struct view v)
{
	unsigned *out = field(row, base);
	unsigned i;

	for (i = 0; row->choices[i] != NULL; i++) {
		if (view_eq(v, view_str(row->choices[i]))) {
			*out = i;
			return 0;
		}
	}
	return choice_error(p, row, v);
}

static int
set_onoff(struct conf_parse *p, const struct conf_directive *row, void *base,
    struct view v)
{
	bool *out = field(row, base);

	*out = view_eq(v, VIEW("on"));
	if (*out || view_eq(v, VIEW("off")))
		return 0;
	return conf_error(p,
	    "bad value \"%.*s\" for \"%s\"; expected on or off", VIEW_ARG(v),
	    row->name);
}

static int
set_double(struct conf_parse *p, const struct conf_directive *row, void *base,
    struct view v)
{
	double *out = field(row, base);

	if (num_double(v, out) == 0)
		return 0;
	return conf_error(p,
	    "bad value \"%.*s\" for \"%s\"; expected a decimal number",
	    VIEW_ARG(v), row->name);
}

static int
set_string(struct conf_parse *p, const struct conf_directive *row, void *base,
    struct view v)
{
	struct view *out = field(row, base);

	if (v.n == 0)
		return conf_error(p, "empty value for \"%s\"; expected %s",
		    row->name, row->args != NULL ? row->args : "a value");
	if (row->type == CONF_PATH)
		return conf_type_path(p, v, out);
	*out = v;
	return 0;
}

int
conf_type_path(struct conf_parse *p, struct view path, struct view *out)
{
	struct view dir = p->node->file->dir;
	char *mem;

	while (path.n > 2 && view_starts(path, VIEW("./")))
		path = view_from(path, 2);
	if (path.n >= PATH_MAX)
		return conf_error(p,
		    "path is too long; expected at most %d bytes",
		    PATH_MAX - 1);
	if (path.n > 0 && path.p[0] == '/') {
		*out = path;
		return 0;
	}
	if (dir.n == 0 && p->defaults != NULL)
		dir = view_str(p->defaults->conf_dir);
	if (dir.n == 0)
		dir = VIEW(SP_SYSCONFDIR);
	while (dir.n > 0 && dir.p[dir.n - 1] == '/')
		dir.n--;
	mem = conf_alloc(p, dir.n + 1 + path.n);
	if (mem == NULL)
		return SP_E_NOMEM;
	memcpy(mem, dir.p, dir.n);
	mem[dir.n] = '/';
	memcpy(mem + dir.n + 1, path.p, path.n);
	*out = view_of(mem, dir.n + 1 + path.n);
	return 0;
}

int
conf_type_list_add(struct conf_parse *p, struct conf_list *list, struct view v)
{
	struct view *grown;

	grown = conf_more(p, list->v, list->n, sizeof(*list->v), "value");
	if (grown == NULL)
		return p->nomem ? SP_E_NOMEM : SP_E_CONF;
	list->v = grown;
	list->v[list->n++] = v;
	return 0;
}

static int
set_list(struct conf_parse *p, const struct conf_directive *row, void *base,
    const struct view *args, size_t n)
{
	size_t i;
	int rc = 0;

	for (i = 1; i < n && rc == 0; i++) {
		if (args[i].n == 0)
			return conf_error(p,
			    "empty value for \"%s\"; expected %s", row->name,
			    row->args != NULL ? row->args : "values");
		rc = conf_type_list_add(p, field(row, base), args[i]);
	}
	return rc;
}

static bool
is_choice(const struct conf_directive *row, struct view v)
{
	size_t i;

	for (i = 0; row->choices != NULL && row->choices[i] != NULL; i++) {
		if (view_eq(v, view_str(row->choices[i])))
			return true;
	}
	return false;
}

/* A reference; one of choices instead of a name leaves NULL. */
static int
set_ref(struct conf_parse *p, const struct conf_directive *row, void *base,
    struct view v)
{
	struct conf_ref *r;

	if (is_choice(row, v))
		return 0;
	r = conf_alloc(p, sizeof(*r));
	if (r == NULL)
		return SP_E_NOMEM;
	r->node = p->node;
	r->row = row;
	r->name = v;
	r->slot = field(row, base);
	r->next = p->refs;
	p->refs = r;
	return 0;
}

int
conf_type_set(struct conf_parse *p, const struct conf_directive *row,
    void *base, const struct view *args, size_t n)
{
	switch (row->type) {
	case CONF_MARK:
		*(bool *)field(row, base) = true;
		return 0;
	case CONF_HANDLER:
		return 0;
	case CONF_ONOFF:
		return set_onoff(p, row, base, args[1]);
	case CONF_NUMBER:
	case CONF_SIZE:
	case CONF_DURATION:
		return set_number(p, row, base, args[1]);
	case CONF_DOUBLE:
		return set_double(p, row, base, args[1]);
	case CONF_CHOICE:
		return set_choice(p, row, base, args[1]);
	case CONF_STRING:
	case CONF_PATH:
		return set_string(p, row, base, args[1]);
	case CONF_LIST:
		return set_list(p, row, base, args, n);
	case CONF_SECRET:
		return conf_secret_parse(p, row, args[1], field(row, base));
	case CONF_REF:
		return set_ref(p, row, base, args[1]);
	case CONF_CUSTOM:
	case CONF_BLOCK:
		return row->parse(p, row, base, args, n);
	}
	return SP_E_CONF;
}
