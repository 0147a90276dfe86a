/* control: a socket for this machine's operator, and the server behind it. */
#include <sys/un.h>

#include "conf/core_conf.h"

enum { CONTROL_PATH_MAX = sizeof(((struct sockaddr_un *)0)->sun_path) };

int
core_conf_control_parse(struct conf_parse *p, const struct conf_directive *row,
    void *base, const struct view *args, size_t n)
{
	struct conf_main *m = base;
	int rc;

	if (args[1].n == 0 || (n > 2 && args[2].n == 0))
		return conf_error(p, "empty value for \"%s\"; expected %s",
		    row->name, row->args);
	if (view_eq(args[1], VIEW("off"))) {
		if (n > 2)
			return conf_error(p,
			    "\"%s off\" has a group; expected %s", row->name,
			    row->args);
		m->control = args[1];
		return 0;
	}
	rc = conf_type_path(p, args[1], &m->control);
	if (rc == 0 && m->control.n >= CONTROL_PATH_MAX)
		rc = conf_error(p,
		    "path of the control socket is too long; expected less "
		    "than %d bytes",
		    (int)CONTROL_PATH_MAX);
	m->control_given = true;
	if (n > 2)
		m->control_group = args[2];
	return rc;
}

int
core_conf_control_dump(const struct conf_directive *row, const void *base,
    const char *indent, struct buf *out)
{
	const struct conf_main *m = base;
	int rc;

	rc = buf_printf(out, "%s%s ", indent, row->name);
	if (rc == 0)
		rc = conf_dump_word(out, m->control);
	if (rc == 0 && m->control_group.n > 0)
		rc = buf_add_char(out, ' ');
	if (rc == 0 && m->control_group.n > 0)
		rc = conf_dump_word(out, m->control_group);
	return rc == 0 ? buf_add_str(out, ";\n") : rc;
}

int
core_conf_control_default(struct conf_parse *p)
{
	static const struct conf_defaults none = { .state_dir = NULL };
	const struct conf_defaults *d =
	    p->defaults != NULL ? p->defaults : &none;
	struct conf_main *m = &p->conf->main;
	struct view dir = view_str(d->run_dir != NULL ? d->run_dir : SP_RUNDIR);
	const char *path;

	if (m->control.n > 0)
		return 0;
	/* without a folder for the like, the one that is there anyway */
	if (d->state_dir != NULL && view_eq(dir, view_str(d->state_dir)))
		dir = m->state_dir;
	path = conf_text(p, "%.*s/sallyport.sock", VIEW_ARG(dir));
	if (path == NULL)
		return SP_E_NOMEM;
	m->control = view_str(path);
	/* nobody asked for it: without it all else works */
	if (m->control.n >= CONTROL_PATH_MAX)
		m->control = VIEW("off");
	return 0;
}

/* One location, as if the file had it: "location PATH { MODULE; }". */
static int
add_location(struct conf_parse *p, struct conf_server *s,
    const struct conf_module *m)
{
	struct conf_block b = { .scope = CONF_LOCATION, .what = "control" };
	struct conf_location *loc = conf_alloc(p, sizeof(*loc)), **grown;
	int i = conf_module_index(m->name), rc;

	grown = conf_more(p, s->locations, s->locations_n, sizeof(void *),
	    "control");
	if (loc == NULL || grown == NULL)
		return p->nomem ? SP_E_NOMEM : SP_E_CONF;
	loc->path = view_str(m->control);
	loc->index = (unsigned)s->locations_n;
	loc->pos = s->pos;
	loc->server = s;
	loc->handler = m;
	loc->limits = s->limits;
	s->locations = grown;
	s->locations[s->locations_n++] = loc;
	loc->module_conf[i] = conf_alloc(p, m->conf_size);
	if (loc->module_conf[i] == NULL)
		return SP_E_NOMEM;
	p->location = loc;
	rc = conf_block_add(p, &b, m->directives, loc->module_conf[i]);
	if (rc == 0)
		rc = conf_block_plain(p, &b, NULL);
	p->location = NULL;
	return rc;
}

int
core_conf_control_build(struct conf_parse *p)
{
	struct conf *c = p->conf;
	struct conf_server *s;
	size_t i;
	int rc = 0;

	if (view_eq(c->main.control, VIEW("off")))
		return 0;
	s = conf_alloc(p, sizeof(*s));
	if (s == NULL)
		return SP_E_NOMEM;
	s->listens = conf_alloc(p, sizeof(*s->listens));
	if (s->listens == NULL)
		return SP_E_NOMEM;
	s->control = true;
	s->index = (unsigned)c->servers_n;
	s->pos = (struct conf_pos){ .file = "control", .line = 0 };
	s->limits = c->main.limits;
	s->listens[0] = (struct conf_listen){
		.index = (unsigned)c->listens_n,
		.pos = s->pos,
		.address = c->main.control,
		.is_unix = true,
		.control = true,
		.backlog = 64,
	};
	s->listens_n = 1;
	for (i = 0; conf_modules[i] != NULL && rc == 0; i++)
		if (conf_modules[i]->control != NULL)
			rc = add_location(p, s, conf_modules[i]);
	c->control = s;
	return rc;
}
