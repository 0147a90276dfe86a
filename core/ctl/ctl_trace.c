#include "config.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "ctl/ctl_print.h"
#include "ctl/ctl_trace.h"
#include "ctl/ctl_trace_usage.h"
#include "os/fd.h"
#include "os/xdg.h"

enum { PATH_BYTES = 4096, EXIT_BROKEN = 1, EXIT_USAGE = 2 };

struct options {
	bool all, train, json, stats, verify;
	const char *state_dir, *target;
};

struct view_of_trace {
	const struct options *o;
	const struct ctl_verify *v;
	struct ctl_totals totals;
	bool colour;
	uint64_t line, skipped;
};

static int
usage(void)
{
	(void)fputs(ctl_trace_usage, stderr);
	return EXIT_USAGE;
}

static bool
parse_options(int argc, char **argv, struct options *o)
{
	int i;

	*o = (struct options){ .all = false };
	for (i = 1; i < argc; i++) {
		const char *a = argv[i];

		if (strcmp(a, "--all") == 0)
			o->all = true;
		else if (strcmp(a, "--train") == 0)
			o->train = true;
		else if (strcmp(a, "--json") == 0)
			o->json = true;
		else if (strcmp(a, "--stats") == 0)
			o->stats = true;
		else if (strcmp(a, "--verify") == 0)
			o->verify = true;
		else if (strcmp(a, "--state-dir") == 0 && i + 1 < argc)
			o->state_dir = argv[++i];
		else if (a[0] == '-' || o->target != NULL)
			return false;
		else
			o->target = a;
	}
	return o->target != NULL && (o->all + o->train + o->json) <= 1;
}

static int
state_dir(const struct options *o, struct buf *out)
{
	int rc;

	if (o->state_dir != NULL)
		return buf_add_str(out, o->state_dir);
	if (geteuid() == 0)
		return buf_add_str(out, SP_STATEDIR);
	rc = xdg_dir(XDG_STATE, out);
	return rc == 0 ? buf_add_str(out, "/sallyport") : rc;
}

/* A file that is there, else a session's trace in the state directory. */
static int
find_trace(const struct options *o, struct buf *path)
{
	int rc;

	if (strchr(o->target, '/') != NULL || access(o->target, F_OK) == 0) {
		rc = buf_add_str(path, o->target);
	} else {
		rc = state_dir(o, path);
		if (rc == 0)
			rc = buf_printf(path, "/traces/%s.jsonl", o->target);
	}
	return rc == 0 ? buf_add_char(path, '\0') : rc;
}

/*
 * Where the file itself lies: `sallyport proxy` as root leaves a link to it,
 * and its rolls, its seal and the key are beside the file, not the link.
 */
static void
resolve(const char *path, char real[PATH_MAX])
{
	if (realpath(path, real) == NULL)
		(void)snprintf(real, PATH_MAX, "%s", path);
}

static bool
is_directory(const char *path)
{
	struct stat st;

	if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
		return false;
	(void)fprintf(stderr,
	    "sallyportctl: %s is a directory: name a file of it, or a "
	    "session\n",
	    path);
	return true;
}

/* The directory, opened, and the name in it. */
static int
open_dir(char *path, int *dir, const char **name)
{
	char *slash = strrchr(path, '/');
	const char *where = ".";

	*name = path;
	if (slash != NULL) {
		*name = slash + 1;
		*slash = '\0';
		where = slash == path ? "/" : path;
	}
	*dir = open(where, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (slash != NULL)
		*slash = '/';
	return *dir >= 0 ? 0 : SP_E_NOTFOUND;
}

static int
show_line(void *arg, struct view line)
{
	struct view_of_trace *t = arg;
	struct ctl_record r;
	int rc = 0;

	t->line++;
	if (ctl_record_read(&r, line) != 0) {
		t->skipped++;
		return 0;
	}
	ctl_print_add(&t->totals, &r, t->v->any_tools);
	if (t->o->verify || (t->o->stats && !t->o->all && !t->o->train))
		return 0;
	if (t->o->all)
		(void)(fwrite(line.p, 1, line.n, stdout) == line.n &&
		    fputc('\n', stdout));
	else if (t->o->train)
		rc = ctl_print_train(stdout, &r, t->v->any_tools);
	else if (t->o->json)
		rc = ctl_print_turn_json(stdout, &r);
	else
		ctl_print_turn(stdout, &r, t->colour);
	return rc < 0 ? rc : 0;
}

static int
show(const struct options *o, const struct ctl_verify *v, int dir,
    const char *name)
{
	struct view_of_trace t = { .o = o, .v = v };
	FILE *totals_to = o->all || o->train ? stderr : stdout;
	uint64_t torn;
	int fd, rc;

	t.colour = isatty(STDOUT_FILENO) == 1;
	fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return SP_E_NOTFOUND;
	rc = ctl_record_lines(fd, &torn, show_line, &t);
	fd_close(&fd);
	if (!ctl_verify_good(v)) /* --train prints none of it */
		t.totals.trainable = 0;
	if (rc == 0 && o->json)
		rc = ctl_print_totals_json(stdout, &t.totals, v);
	else if (rc == 0 && (totals_to == stdout || o->stats))
		ctl_print_totals(totals_to, &t.totals, v);
	return rc;
}

static void
complain(const char *path, const struct ctl_verify *v)
{
	if (v->broken_line > 0)
		(void)fprintf(stderr,
		    "sallyportctl: %s: line %llu: the chain is broken: %s\n",
		    path, (unsigned long long)v->broken_line, v->why);
	if (v->seal > CTL_SEAL_GOOD)
		(void)fprintf(stderr,
		    "sallyportctl: %s: its seal is not to be trusted (see "
		    "--stats)\n",
		    path);
	if (v->torn > 0)
		(void)fprintf(stderr,
		    "sallyportctl: %s: a torn last line of %llu bytes is "
		    "skipped\n",
		    path, (unsigned long long)v->torn);
}

int
ctl_trace(int argc, char **argv)
{
	struct buf path = BUF_INIT(PATH_BYTES);
	struct ctl_verify v = { .lines = 0 };
	struct options o;
	const char *name;
	char real[PATH_MAX];
	int dir = -1, rc;

	if (!parse_options(argc, argv, &o))
		return usage();
	rc = find_trace(&o, &path);
	if (rc == 0 && is_directory(path.mem + path.off)) {
		buf_clear(&path);
		return EXIT_USAGE;
	}
	if (rc == 0) {
		resolve(path.mem + path.off, real);
		rc = open_dir(real, &dir, &name);
	}
	if (rc == 0)
		rc = ctl_verify(dir, name, &v);
	if (rc == 0)
		complain(buf_view(&path).p, &v);
	/* nobody is to train on what does not verify */
	if (rc == 0 && !(o.train && !ctl_verify_good(&v)))
		rc = show(&o, &v, dir, name);
	if (rc != 0)
		(void)fprintf(stderr, "sallyportctl: %s: %s\n",
		    buf_len(&path) > 0 ? buf_view(&path).p : o.target,
		    err_str(rc));
	ctl_verify_clear(&v);
	fd_close(&dir);
	buf_clear(&path);
	if (fflush(stdout) != 0 && rc == 0)
		rc = SP_E_SYS;
	if (rc != 0)
		return EXIT_USAGE;
	return ctl_verify_good(&v) ? 0 : EXIT_BROKEN;
}
