/* An environment as configuration text. */
#include "conf/conf_env.h"
#include "conf/core_conf.h"

static int
dump_block(const char *what, struct view name,
    const struct conf_directive *rows, enum conf_scope scope, const void *base,
    struct buf *out)
{
	int rc;

	rc = conf_dump_open(out, "\t", what, name);
	if (rc == 0)
		rc = conf_dump_rows(rows, scope, base, "\t\t", out);
	return rc == 0 ? buf_add_str(out, "\t}\n") : rc;
}

static int
dump_worker(const struct conf_environment *e, struct buf *out)
{
	static const char *const kinds[] = { "none", "stdio", "http",
		"frames" };
	bool block = e->worker_factory.n > 0;
	size_t i;
	int rc;

	rc = buf_printf(out, "\tworker %s", kinds[e->worker]);
	if (rc == 0 && e->worker == CONF_ENV_WORKER_HTTP)
		rc = buf_printf(out, " %u", e->worker_port);
	for (i = 0; i < e->worker_command.n && rc == 0; i++) {
		rc = buf_add_char(out, ' ');
		if (rc == 0)
			rc = conf_dump_word(out, e->worker_command.v[i]);
	}
	if (rc == 0)
		rc = buf_add_str(out, block ? " {\n" : ";\n");
	if (rc != 0 || !block)
		return rc;
	rc = conf_dump_rows(core_conf_env_run_worker, CONF_WORKER, e, "\t\t",
	    out);
	return rc == 0 ? buf_add_str(out, "\t}\n") : rc;
}

static int
dump_assets(const struct conf_environment *e, struct buf *out)
{
	size_t i;
	int rc;

	if (e->assets.n == 0)
		return 0;
	rc = conf_dump_open(out, "\t", "assets", e->assets);
	for (i = 0; i < e->asset_n && rc == 0; i++) {
		const struct conf_env_asset *a = &e->asset[i];

		rc = buf_printf(out, "\t\t%.*s ", VIEW_ARG(a->kind));
		if (rc == 0)
			rc = conf_dump_word(out, a->path);
		if (rc == 0)
			rc = buf_add_str(out, ";\n");
	}
	return rc == 0 ? buf_add_str(out, "\t}\n") : rc;
}

static int
dump_inside(const struct conf_server *s, struct buf *out)
{
	const struct conf_listen *l = &s->listens[0];
	size_t i;
	int rc;

	rc = buf_printf(out, "\tinside %.*s:%u {\n", VIEW_ARG(l->address),
	    l->port);
	if (rc == 0)
		rc = conf_dump_rows(core_conf_limits, CONF_INSIDE, &s->limits,
		    "\t\t", out);
	for (i = 0; i < s->locations_n && rc == 0; i++)
		rc = conf_dump_location(s->locations[i], "\t\t", out);
	return rc == 0 ? buf_add_str(out, "\t}\n") : rc;
}

int
core_conf_env_dump(const struct conf_environment *e, struct buf *out)
{
	size_t i;
	int rc;

	rc = conf_dump_open(out, "", "environment", e->name);
	if (rc == 0)
		rc = conf_dump_rows(core_conf_env, CONF_ENVIRONMENT, e, "\t",
		    out);
	if (rc == 0)
		rc = dump_worker(e, out);
	if (rc == 0)
		rc = dump_assets(e, out);
	if (rc == 0)
		rc = dump_block("sandbox", VIEW_NONE, core_conf_env_sandbox,
		    CONF_SANDBOX, e, out);
	if (rc == 0)
		rc = dump_block("egress", VIEW_NONE, core_conf_env_egress,
		    CONF_EGRESS, e, out);
	for (i = 0; i < e->processes_n && rc == 0; i++)
		rc = dump_block("process", e->processes[i].name,
		    core_conf_env_run_process, CONF_PROCESS, &e->processes[i],
		    out);
	for (i = 0; i < e->insides_n && rc == 0; i++)
		rc = dump_inside(e->insides[i], out);
	return rc == 0 ? buf_add_str(out, "}\n") : rc;
}
