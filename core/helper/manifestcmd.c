#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/num.h"
#include "conf/conf_env.h"
#include "helper/manifestcmd.h"

#define BOOTSTRAP "sallyport_worker.py"

enum {
	MANIFESTCMD_PORT = 8100,
	MANIFESTCMD_TIMEOUT_S = 300,
	MANIFESTCMD_UID_MIN = 1000,
	MANIFESTCMD_PATH_MAX = 2 * PATH_MAX,
	MANIFESTCMD_ERRORS_MAX = 64 * 1024,
};

enum manifestcmd_option {
	OPT_MANIFEST = 256,
	OPT_HOST,
	OPT_PORT,
	OPT_FACTORY,
	OPT_ACTION,
	OPT_WORKSPACE,
	OPT_ASSETS,
	OPT_UID,
	OPT_GID,
	OPT_TIMEOUT,
	OPT_CGROUP,
	OPT_PYTHON,
	OPT_BOOTSTRAP,
};

static const struct option options[] = {
	{ "manifest", required_argument, NULL, OPT_MANIFEST },
	{ "host", required_argument, NULL, OPT_HOST },
	{ "port", required_argument, NULL, OPT_PORT },
	{ "factory", required_argument, NULL, OPT_FACTORY },
	{ "action-class", required_argument, NULL, OPT_ACTION },
	{ "workspace", required_argument, NULL, OPT_WORKSPACE },
	{ "asset-root", required_argument, NULL, OPT_ASSETS },
	{ "uid", required_argument, NULL, OPT_UID },
	{ "gid", required_argument, NULL, OPT_GID },
	{ "timeout", required_argument, NULL, OPT_TIMEOUT },
	{ "cgroup-root", required_argument, NULL, OPT_CGROUP },
	{ "python", required_argument, NULL, OPT_PYTHON },
	{ "bootstrap", required_argument, NULL, OPT_BOOTSTRAP },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

static void
usage(FILE *to)
{
	fputs("usage: sallyport --manifest FILE [-tT] [-g directives]\n"
	      "                 [--host ADDRESS] [--port PORT]\n"
	      "                 [--factory MODULE:ATTR]\n"
	      "                 [--action-class MODULE:CLASS]\n"
	      "                 [--workspace DIRECTORY]\n"
	      "                 [--asset-root DIRECTORY] [--uid UID]\n"
	      "                 [--gid GID] [--timeout SECONDS]\n"
	      "                 [--cgroup-root DIRECTORY]\n"
	      "                 [--python PROGRAM] [--bootstrap FILE]\n"
	      "       sallyport -m FILE [the same flags]\n"
	      "Tokens are read from OPENENVD_ORCHESTRATOR_TOKEN,\n"
	      "OPENENVD_GRADER_TOKEN and OPENENVD_OBSERVER_TOKEN.\n",
	    to);
}

bool
manifestcmd_asked(int argc, char **argv)
{
	int i;

	for (i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		if (strncmp(argv[i], "-m", 2) == 0 ||
		    strcmp(argv[i], "--manifest") == 0 ||
		    strncmp(argv[i], "--manifest=", 11) == 0)
			return true;
		if (argv[i][0] != '-')
			return false;
		/* the value of an option that stands before it */
		if (strcmp(argv[i], "-c") == 0 || strcmp(argv[i], "-g") == 0 ||
		    strcmp(argv[i], "-s") == 0 ||
		    (argv[i][1] == '-' && strchr(argv[i], '=') == NULL))
			i++;
	}
	return false;
}

static int
bad(const char *flag, const char *value, const char *expected)
{
	fprintf(stderr, "sallyport: bad value \"%.100s\" for %s; expected %s\n",
	    value, flag, expected);
	return SP_E_ARG;
}

static int
bad_path(const char *flag, const char *value, int en)
{
	fprintf(stderr,
	    "sallyport: bad value \"%.100s\" for %s: %s; expected a path that "
	    "can be reached\n",
	    value, flag, strerror(en));
	return SP_E_ARG;
}

/* Absolute, its links followed: a sandbox binds what is really there. */
static int
path_of(const char *flag, const char *arg, char **out)
{
	char real[PATH_MAX];

	mem_free(*out);
	*out = NULL;
	if (realpath(arg, real) == NULL)
		return bad_path(flag, arg, errno);
	*out = mem_strdup(real);
	return *out != NULL ? SP_OK : SP_E_NOMEM;
}

/* As it is written: a venv's python is a link out of it. */
static int
python_of(const char *arg, char **out)
{
	mem_free(*out);
	*out = NULL;
	if (arg[0] != '/' || access(arg, X_OK) != 0)
		return bad("--python", arg,
		    "the absolute path of a program that can be run");
	*out = mem_strdup(arg);
	return *out != NULL ? SP_OK : SP_E_NOMEM;
}

static int
number(const char *flag, uint64_t min, uint64_t max, const char *expected,
    uint64_t *out)
{
	if (num_u64(view_str(optarg), min, max, out) == SP_OK)
		return SP_OK;
	return bad(flag, optarg, expected);
}

static int
symbol(const char *flag, const char *expected)
{
	if (conf_env_symbol(view_str(optarg)))
		return SP_OK;
	return bad(flag, optarg, expected);
}

static int
host_of(struct manifestcmd *c)
{
	unsigned char addr[sizeof(struct in6_addr)];

	c->site.host = strcmp(optarg, "localhost") == 0 ? "127.0.0.1" : optarg;
	if (inet_pton(AF_INET, c->site.host, addr) == 1 ||
	    inet_pton(AF_INET6, c->site.host, addr) == 1)
		return SP_OK;
	return bad("--host", optarg, "an address");
}

static int
timeout_of(struct manifestcmd *c)
{
	double s;

	if (num_double(view_str(optarg), &s) != SP_OK || s < 0.001 ||
	    s > 7.0 * 24 * 3600)
		return bad("--timeout", optarg,
		    "seconds, more than 0 and at most 604800");
	c->site.timeout_ms = (uint64_t)(s * 1000 + 0.5);
	return SP_OK;
}

static int
number_option(struct manifestcmd *c, int opt)
{
	uint64_t n = 0;
	int rc;

	switch (opt) {
	case OPT_PORT:
		rc = number("--port", 0, 65535, "a port", &n);
		c->site.port = (unsigned)n;
		c->has_port = true;
		return rc;
	case OPT_UID:
		rc = number("--uid", MANIFESTCMD_UID_MIN, 4294960000ULL,
		    "an id from 1000 on, of which 64 are free", &n);
		c->site.uid = (uint32_t)n;
		return rc;
	default: /* each sandbox has groups of its own */
		return number("--gid", 1, 4294960000ULL, "an id above 0", &n);
	}
}

static int
path_option(struct manifestcmd *c, int opt)
{
	char *ignored = NULL;
	int rc;

	switch (opt) {
	case OPT_WORKSPACE:
		return path_of("--workspace", optarg, &c->workspace);
	case OPT_ASSETS:
		return path_of("--asset-root", optarg, &c->asset_root);
	case OPT_PYTHON:
		return python_of(optarg, &c->python);
	case OPT_BOOTSTRAP:
		return path_of("--bootstrap", optarg, &c->bootstrap);
	default: /* found by itself, and per hierarchy */
		rc = path_of("--cgroup-root", optarg, &ignored);
		mem_free(ignored);
		return rc;
	}
}

static int
take_option(struct manifestcmd *c, int opt)
{
	switch (opt) {
	case OPT_MANIFEST:
		return path_of("--manifest", optarg, &c->path);
	case 'm':
		c->what = MANIFESTCMD_PRINT;
		return path_of("-m", optarg, &c->path);
	case OPT_HOST:
		return host_of(c);
	case OPT_FACTORY:
		c->site.factory = optarg;
		return symbol("--factory", "MODULE:ATTR");
	case OPT_ACTION:
		c->site.action_class = optarg;
		return symbol("--action-class", "MODULE:CLASS");
	case OPT_PORT:
	case OPT_UID:
	case OPT_GID:
		return number_option(c, opt);
	case OPT_TIMEOUT:
		return timeout_of(c);
	case OPT_WORKSPACE:
	case OPT_ASSETS:
	case OPT_PYTHON:
	case OPT_BOOTSTRAP:
	case OPT_CGROUP:
		return path_option(c, opt);
	case 't':
		c->what = MANIFESTCMD_CHECK;
		return SP_OK;
	case 'T':
		c->what = MANIFESTCMD_DUMP;
		return SP_OK;
	case 'g':
		c->extra = optarg;
		return SP_OK;
	case 'h':
		usage(stdout);
		return SP_E_NOTFOUND;
	default:
		usage(stderr);
		return SP_E_ARG;
	}
}

/* What an app that runs as it is has nothing to do with. */
static const char *
boxed_name(int opt)
{
	const struct option *o;

	if (opt == 'g')
		return "-g";
	for (o = options; o->name != NULL; o++)
		if (o->val == opt && opt != OPT_MANIFEST && opt != OPT_HOST &&
		    opt != OPT_PORT && opt != OPT_PYTHON && opt != 'h')
			return o->name;
	return NULL;
}

/* A venv that is active, else the system's. */
static int
default_python(struct manifestcmd *c)
{
	const char *venv = getenv("VIRTUAL_ENV");
	struct buf b = BUF_INIT(MANIFESTCMD_PATH_MAX);
	int rc = SP_OK;

	if (c->python != NULL)
		return SP_OK;
	if (venv != NULL && venv[0] == '/')
		rc = buf_printf(&b, "%s/bin/python3", venv);
	else
		rc = buf_add_str(&b, "/usr/bin/python3");
	if (rc == SP_OK)
		c->python = mem_strndup(buf_view(&b).p, buf_len(&b));
	buf_clear(&b);
	return rc == SP_OK && c->python == NULL ? SP_E_NOMEM : rc;
}

/* Beside the program where that was not installed, else where it would be. */
static int
find_bootstrap(struct manifestcmd *c)
{
	char exe[PATH_MAX], at[PATH_MAX];
	struct buf b = BUF_INIT(MANIFESTCMD_PATH_MAX);
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	char *slash;
	int rc = SP_OK;

	exe[n > 0 ? n : 0] = 0;
	slash = strrchr(exe, '/');
	if (slash != NULL) {
		*slash = 0;
		rc = buf_printf(&b, "%s/contrib/python/" BOOTSTRAP, exe);
		if (rc == SP_OK)
			rc = buf_add_char(&b, 0);
	}
	/* a build's is a link to the source, and a sandbox shows no link's end */
	if (slash == NULL || rc != SP_OK ||
	    realpath(buf_view(&b).p, at) == NULL)
		(void)snprintf(at, sizeof(at), "%s",
		    SP_PKGDATADIR "/" BOOTSTRAP);
	if (rc == SP_OK) {
		c->bootstrap = mem_strdup(at);
		rc = c->bootstrap != NULL ? SP_OK : SP_E_NOMEM;
	}
	buf_clear(&b);
	return rc;
}

/* What the flags left out, of a manifest at c->path. */
static int
complete(struct manifestcmd *c)
{
	int rc = default_python(c);

	c->dir =
	    mem_strndup(c->path, (size_t)(strrchr(c->path, '/') - c->path));
	if (rc == SP_OK && c->dir == NULL)
		rc = SP_E_NOMEM;
	if (rc == SP_OK && c->bootstrap == NULL)
		rc = find_bootstrap(c);
	if (rc == SP_OK)
		rc = pyhome_find(&c->pyhome, c->python);
	c->site.dir = c->dir;
	c->site.python = c->python;
	c->site.pyhome = &c->pyhome;
	c->site.bootstrap = c->bootstrap;
	c->site.workspace = c->workspace;
	c->site.asset_root = c->asset_root;
	return rc;
}

static void
begin(struct manifestcmd *c)
{
	memset(c, 0, sizeof(*c));
	c->site.host = "127.0.0.1";
	c->site.port = MANIFESTCMD_PORT;
	c->site.timeout_ms = MANIFESTCMD_TIMEOUT_S * 1000;
	c->site.action_class =
	    "openenv.core.env_server.mcp_types:CallToolAction";
}

int
manifestcmd_parse(struct manifestcmd *c, int argc, char **argv)
{
	int opt, rc = SP_OK;

	begin(c);
	optind = 0;
	while (rc == SP_OK &&
	    (opt = getopt_long(argc, argv, "+m:tTg:h", options, NULL)) != -1) {
		rc = take_option(c, opt);
		if (boxed_name(opt) != NULL)
			c->boxed = boxed_name(opt);
	}
	if (rc == SP_OK && optind < argc)
		rc = bad("the command line", argv[optind], "flags alone");
	if (rc == SP_OK && c->path == NULL)
		rc = bad("--manifest", "", "the path of an openenv.yaml");
	return rc == SP_OK ? complete(c) : rc;
}

void
manifestcmd_clear(struct manifestcmd *c)
{
	mem_free(c->path);
	mem_free(c->dir);
	mem_free(c->python);
	mem_free(c->bootstrap);
	mem_free(c->workspace);
	mem_free(c->asset_root);
	pyhome_clear(&c->pyhome);
	memset(c, 0, sizeof(*c));
}

static int
note_disabled(const struct manifest *m, struct buf *out)
{
	if (m->enabled)
		return SP_OK;
	return buf_add_str(out,
	    "# openenvd.enabled is not true: with --manifest the app runs as "
	    "it is\n");
}

int
manifestcmd_text(const struct manifestcmd *c, struct buf *out, struct buf *err)
{
	struct manifest m;
	int rc = manifest_read(&m, c->path, err);

	if (rc == SP_OK)
		rc = note_disabled(&m, out);
	if (rc == SP_OK)
		rc = manifest_text(&m, &c->site, out, err);
	manifest_clear(&m);
	return rc;
}

int
manifestcmd_inner(const char *path, struct buf *out, struct buf *err)
{
	struct manifestcmd c;
	struct manifest m;
	int rc;

	begin(&c);
	memset(&m, 0, sizeof(m));
	c.path = mem_strdup(path);
	rc = c.path == NULL ? SP_E_NOMEM : complete(&c);
	if (rc == SP_OK)
		rc = manifest_read(&m, path, err);
	if (rc == SP_OK) /* as -m has it, so that lines are the same */
		rc = note_disabled(&m, out);
	if (rc == SP_OK)
		rc = manifest_text_inner(&m, &c.site, out, err);
	manifest_clear(&m);
	manifestcmd_clear(&c);
	return rc;
}

static void
say(const struct manifestcmd *c, int rc, const struct buf *err)
{
	if (buf_len(err) > 0)
		fprintf(stderr, "%.*s", (int)buf_len(err), buf_view(err).p);
	else
		fprintf(stderr, "sallyport: %s: %s\n", c->path, err_str(rc));
}

int
manifestcmd_print(const struct manifestcmd *c)
{
	struct buf out = BUF_INIT(MANIFEST_TEXT_MAX);
	struct buf err = BUF_INIT(MANIFESTCMD_ERRORS_MAX);
	int rc = manifestcmd_text(c, &out, &err);

	if (rc == SP_OK)
		fwrite(buf_view(&out).p, 1, buf_len(&out), stdout);
	else
		say(c, rc, &err);
	buf_clear(&out);
	buf_clear(&err);
	return rc == SP_OK ? 0 : 1;
}

/* Does not return when it works. */
static int
become(const struct manifestcmd *c, const struct manifest *m)
{
	char *app = mem_strndup(m->app.p, m->app.n), *paths = NULL, port[8];
	const char *path = getenv("PYTHONPATH");
	struct buf b = BUF_INIT(64 * 1024);
	int rc = app == NULL ? SP_E_NOMEM : SP_OK;

	snprintf(port, sizeof(port), "%u",
	    c->has_port ? c->site.port : m->port);
	if (rc == SP_OK)
		rc = buf_printf(&b, "%s%s%s", c->dir,
		    path != NULL && path[0] != 0 ? ":" : "",
		    path != NULL ? path : "");
	if (rc == SP_OK) {
		paths = mem_strndup(buf_view(&b).p, buf_len(&b));
		if (paths == NULL)
			rc = SP_E_NOMEM;
	}
	if (rc == SP_OK &&
	    (chdir(c->dir) != 0 || setenv("PYTHONPATH", paths, 1) != 0))
		rc = err_from_errno(errno);
	if (rc == SP_OK) {
		execl(c->python, c->python, "-m", "uvicorn", app, "--host",
		    c->site.host, "--port", port, (char *)NULL);
		rc = err_from_errno(errno);
	}
	fprintf(stderr,
	    "sallyport: %s: cannot run the app with %s: %s; expected a python "
	    "with uvicorn, see --python\n",
	    c->path, c->python, err_str(rc));
	buf_clear(&b);
	mem_free(paths);
	mem_free(app);
	return rc;
}

static const char *
dashes(const char *flag)
{
	return flag[0] == '-' ? "" : "--";
}

int
manifestcmd_app(const struct manifestcmd *c)
{
	struct buf err = BUF_INIT(MANIFESTCMD_ERRORS_MAX);
	struct manifest m;
	int rc = manifest_read(&m, c->path, &err);

	if (rc != SP_OK) {
		say(c, rc, &err);
	} else if (!m.enabled && m.app.n == 0) {
		fprintf(stderr,
		    "sallyport: %s: openenvd is not enabled and there is no "
		    "\"app\" to run; expected one of them\n",
		    c->path);
		rc = SP_E_CONF;
	} else if (!m.enabled && c->boxed != NULL) {
		fprintf(stderr,
		    "sallyport: %s%s has no effect: %s has no openenvd with "
		    "\"enabled: true\", and its app would run as it is, "
		    "without a sandbox; expected that, or no %s%s\n",
		    dashes(c->boxed), c->boxed, c->path, dashes(c->boxed),
		    c->boxed);
		rc = SP_E_CONF;
	} else if (!m.enabled) {
		log_warn("%s has no openenvd with \"enabled: true\": its app "
			 "runs as it is%s, without a sandbox, doors or a trace",
		    c->path, geteuid() == 0 ? ", as root" : "");
		if (c->what == MANIFESTCMD_RUN)
			rc = become(c, &m);
	}
	buf_clear(&err);
	manifest_clear(&m);
	return rc;
}
