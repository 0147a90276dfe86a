/* The configuration as text again, defaults and all. */
#include <stdio.h>

#include "conf/core_conf.h"
#include "conf/lexer.h"
#include "conf/parse.h"

int
conf_dump_word(struct buf *out, struct view v)
{
	size_t i;
	int rc;

	if (lexer_is_bare(v))
		return buf_add_view(out, v);
	err_assert(v.n == 0 || v.p != NULL);
	rc = buf_add_char(out, '"');
	for (i = 0; i < v.n && rc == 0; i++) {
		if (v.p[i] == '"' || v.p[i] == '\\')
			rc = buf_add_char(out, '\\');
		if (rc == 0)
			rc = buf_add_char(out, v.p[i]);
	}
	return rc == 0 ? buf_add_char(out, '"') : rc;
}

int
conf_dump_words(struct buf *out, const char *indent, const char *name,
    const struct conf_list *words)
{
	size_t i;
	int rc;

	rc = buf_printf(out, "%s%s", indent, name);
	for (i = 0; i < words->n && rc == 0; i++) {
		rc = buf_add_char(out, ' ');
		if (rc == 0)
			rc = conf_dump_word(out, words->v[i]);
	}
	return rc == 0 ? buf_add_str(out, ";\n") : rc;
}

/* "name value;" */
static int
put_value(const struct conf_directive *row, const char *indent, struct view v,
    struct buf *out)
{
	int rc;

	rc = buf_printf(out, "%s%s ", indent, row->name);
	if (rc == 0)
		rc = conf_dump_word(out, v);
	return rc == 0 ? buf_add_str(out, ";\n") : rc;
}

static int
put_number(const struct conf_directive *row, const char *indent, uint64_t n,
    struct buf *out)
{
	char text[32];

	if (n == 0 && row->min > 0)
		return 0; /* not set, and no default */
	if (row->type == CONF_DURATION && n == 0)
		snprintf(text, sizeof(text), "off");
	else if (row->type == CONF_DURATION)
		conf_type_duration(n, text);
	else if (row->type == CONF_SIZE)
		conf_type_size_text(n, text);
	else
		snprintf(text, sizeof(text), "%llu", (unsigned long long)n);
	return put_value(row, indent, view_str(text), out);
}

static int
put_list(const struct conf_directive *row, const char *indent,
    const struct conf_list *list, struct buf *out)
{
	size_t i;
	int rc = 0;

	for (i = 0; i < list->n && rc == 0; i++)
		rc = put_value(row, indent, list->v[i], out);
	return rc;
}

static int
put_secret(const struct conf_directive *row, const char *indent,
    const struct conf_secret *s, struct buf *out)
{
	struct buf text = BUF_INIT(8192);
	int rc;

	if (s == NULL)
		return 0;
	rc = buf_add_str(&text, s->from_env ? "env:" : "file:");
	if (rc == 0)
		rc = buf_add_view(&text, s->name);
	if (rc == 0)
		rc = put_value(row, indent, buf_view(&text), out);
	buf_clear(&text);
	return rc;
}

/* A block's name is its struct's first member. */
static int
put_ref(const struct conf_directive *row, const char *indent,
    const struct view *name, struct buf *out)
{
	if (name != NULL)
		return put_value(row, indent, *name, out);
	if (row->choices == NULL)
		return 0;
	return put_value(row, indent, view_str(row->choices[0]), out);
}

static int
dump_double(const struct conf_directive *row, const char *indent, double d,
    struct buf *out)
{
	char text[40];

	snprintf(text, sizeof(text), "%.17g", d);
	return put_value(row, indent, view_str(text), out);
}

static int
dump_row(const struct conf_directive *row, const void *base, const char *indent,
    struct buf *out)
{
	const void *at = (const char *)base + row->offset;
	const struct view *v = at;

	switch (row->type) {
	case CONF_HANDLER:
		return buf_printf(out, "%s%s;\n", indent, row->name);
	case CONF_MARK:
		if (!*(const bool *)at)
			return 0;
		return buf_printf(out, "%s%s;\n", indent, row->name);
	case CONF_ONOFF:
		return buf_printf(out, "%s%s %s;\n", indent, row->name,
		    *(const bool *)at ? "on" : "off");
	case CONF_NUMBER:
	case CONF_SIZE:
	case CONF_DURATION:
		return put_number(row, indent, *(const uint64_t *)at, out);
	case CONF_DOUBLE:
		return dump_double(row, indent, *(const double *)at, out);
	case CONF_CHOICE:
		return put_value(row, indent,
		    view_str(row->choices[*(const unsigned *)at]), out);
	case CONF_STRING:
	case CONF_PATH:
		return v->n == 0 ? 0 : put_value(row, indent, *v, out);
	case CONF_LIST:
		return put_list(row, indent, at, out);
	case CONF_SECRET:
		return put_secret(row, indent, *(struct conf_secret *const *)at,
		    out);
	case CONF_REF:
		return put_ref(row, indent, *(const struct view *const *)at,
		    out);
	case CONF_CUSTOM:
		return row->dump == NULL ? 0
					 : row->dump(row, base, indent, out);
	case CONF_BLOCK:
		break;
	}
	return 0;
}

int
conf_dump_rows(const struct conf_directive *rows, enum conf_scope scope,
    const void *base, const char *indent, struct buf *out)
{
	int rc = 0;

	for (; rows->name != NULL && rc == 0; rows++) {
		if ((rows->scopes & scope) != 0)
			rc = dump_row(rows, base, indent, out);
	}
	return rc;
}

int
conf_dump_open(struct buf *out, const char *indent, const char *what,
    struct view name)
{
	int rc;

	rc = buf_printf(out, "%s%s ", indent, what);
	if (rc == 0 && name.n > 0)
		rc = conf_dump_word(out, name);
	return rc == 0 ? buf_add_str(out, name.n > 0 ? " {\n" : "{\n") : rc;
}

static int
dump_named(const char *what, struct view name,
    const struct conf_directive *rows, enum conf_scope scope, const void *base,
    struct buf *out)
{
	int rc;

	rc = conf_dump_open(out, "", what, name);
	if (rc == 0)
		rc = conf_dump_rows(rows, scope, base, "\t", out);
	return rc == 0 ? buf_add_str(out, "}\n") : rc;
}

int
conf_dump_location(const struct conf_location *loc, const char *indent,
    struct buf *out)
{
	const struct conf_module *m = loc->handler;
	char in[8];
	int i = conf_module_index(m->name);
	int rc;

	snprintf(in, sizeof(in), "%s\t", indent);
	rc = conf_dump_open(out, indent, "location", loc->path);
	if (rc == 0)
		rc = conf_dump_rows(m->directives, CONF_LOCATION,
		    loc->module_conf[i], in, out);
	if (rc == 0)
		rc = conf_dump_rows(core_conf_location, CONF_LOCATION, loc, in,
		    out);
	if (rc == 0)
		rc = conf_dump_rows(core_conf_limits, CONF_LOCATION,
		    &loc->limits, in, out);
	return rc == 0 ? buf_printf(out, "%s}\n", indent) : rc;
}

static int
dump_server(const struct conf_server *s, struct buf *out)
{
	size_t i;
	int rc;

	rc = conf_dump_open(out, "", "server", VIEW_NONE);
	if (rc == 0)
		rc =
		    conf_dump_rows(core_conf_server, CONF_SERVER, s, "\t", out);
	if (rc == 0)
		rc = conf_dump_rows(core_conf_limits, CONF_SERVER, &s->limits,
		    "\t", out);
	for (i = 0; i < s->locations_n && rc == 0; i++)
		rc = conf_dump_location(s->locations[i], "\t", out);
	return rc == 0 ? buf_add_str(out, "}\n") : rc;
}

int
conf_dump(const struct conf *c, struct buf *out)
{
	size_t i;
	int rc;

	rc = conf_dump_rows(core_conf_main, CONF_MAIN, &c->main, "", out);
	if (rc == 0)
		rc = conf_dump_rows(core_conf_limits, CONF_MAIN,
		    &c->main.limits, "", out);
	for (i = 0; i < c->upstreams_n && rc == 0; i++)
		rc = dump_named("upstream", c->upstreams[i]->name,
		    core_conf_upstream, CONF_UPSTREAM, c->upstreams[i], out);
	for (i = 0; i < c->captures_n && rc == 0; i++)
		rc = dump_named("capture", c->captures[i]->name,
		    core_conf_capture, CONF_CAPTURE, c->captures[i], out);
	for (i = 0; i < c->environments_n && rc == 0; i++)
		rc = core_conf_env_dump(c->environments[i], out);
	for (i = 0; i < c->servers_n && rc == 0; i++)
		rc = dump_server(c->servers[i], out);
	return rc;
}

int
conf_restart_changes(const struct conf *was, const struct conf *is,
    struct buf *out)
{
	const struct conf_directive *row;
	struct buf a = BUF_INIT(65536), b = BUF_INIT(65536);
	int rc = 0;

	for (row = core_conf_main; row->name != NULL && rc == 0; row++) {
		if ((row->flags & CONF_RESTART) == 0)
			continue;
		buf_reset(&a, SIZE_MAX);
		buf_reset(&b, SIZE_MAX);
		rc = dump_row(row, &was->main, "", &a);
		if (rc == 0)
			rc = dump_row(row, &is->main, "", &b);
		if (rc == 0 && !view_eq(buf_view(&a), buf_view(&b)))
			rc = buf_printf(out, "%s%s",
			    buf_len(out) > 0 ? ", " : "", row->name);
	}
	buf_clear(&a);
	buf_clear(&b);
	return rc;
}
