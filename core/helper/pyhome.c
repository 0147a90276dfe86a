#include "config.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "helper/pyhome.h"
#include "os/fd.h"

enum {
	PYHOME_LINKS_MAX = 40, /* as the kernel's */
	PYHOME_CFG_MAX = 64 * 1024,
	PYHOME_ENTRIES_MAX = 4096, /* of a lib folder that are looked at */
};

static int
add(struct pyhome *h, const char *path)
{
	size_t i;

	for (i = 0; i < h->n; i++)
		if (strcmp(h->v[i], path) == 0)
			return SP_OK;
	if (h->n == PYHOME_PATHS_MAX)
		return SP_E_LIMIT;
	h->v[h->n] = mem_strdup(path);
	if (h->v[h->n] == NULL)
		return SP_E_NOMEM;
	h->n++;
	return SP_OK;
}

static bool
is_beneath(const char *path, const char *folder)
{
	size_t n = strlen(folder);

	return n > 0 && strncmp(path, folder, n) == 0 &&
	    (path[n] == '\0' || path[n] == '/');
}

/* The folder so many above, in place; false when it would be the root. */
static bool
cut(char *path, unsigned up)
{
	char *slash;

	while (up-- > 0) {
		slash = strrchr(path, '/');
		if (slash == NULL)
			return false;
		*slash = '\0';
	}
	return path[0] != '\0';
}

/* A path that is being resolved: what is real so far, and what comes. */
struct way {
	char done[PATH_MAX], rest[PATH_MAX];
	unsigned links;
};

/* done is a link: it is taken back, and what it leads to comes next. */
static bool
follow(struct way *w)
{
	char to[PATH_MAX], next[PATH_MAX];
	ssize_t n = readlink(w->done, to, sizeof(to) - 1);
	int len;

	if (n <= 0 || ++w->links > PYHOME_LINKS_MAX)
		return false;
	to[n] = '\0';
	len = snprintf(next, sizeof(next), "%s/%s", to, w->rest);
	if (len <= 0 || (size_t)len >= sizeof(next))
		return false;
	memcpy(w->rest, next, (size_t)len + 1);
	if (to[0] == '/')
		w->done[0] = '\0';
	else
		(void)cut(w->done, 1);
	return true;
}

/* The next component, in done; false when there is none, or no room. */
static bool
step(struct way *w)
{
	char *name = w->rest + strspn(w->rest, "/");
	size_t n = strcspn(name, "/"), have = strlen(w->done);

	if (n == 0 || have + 1 + n >= sizeof(w->done))
		return false;
	if (n == 2 && memcmp(name, "..", 2) == 0) {
		/* of a real folder, as done has no links */
		(void)cut(w->done, 1);
	} else if (n != 1 || name[0] != '.') {
		w->done[have] = '/';
		memcpy(w->done + have + 1, name, n);
		w->done[have + 1 + n] = '\0';
	}
	memmove(w->rest, name + n, strlen(name + n) + 1);
	return true;
}

/* Its links outside of the venv. */
static int
walk(struct pyhome *h, const char *venv, const char *path)
{
	struct way w = { .links = 0 };
	struct stat st;
	int rc = SP_OK;

	(void)snprintf(w.rest, sizeof(w.rest), "%s", path);
	while (rc == SP_OK && step(&w)) {
		if (w.done[0] == '\0')
			continue;
		if (lstat(w.done, &st) != 0)
			break;
		if (!S_ISLNK(st.st_mode))
			continue;
		if (!is_beneath(w.done, venv))
			rc = add(h, w.done);
		if (!follow(&w))
			break;
	}
	return rc;
}

/* Whether it is one that a python is installed in, and not just a folder. */
static bool
is_prefix(const char *folder)
{
	char lib[PATH_MAX];
	struct dirent *e;
	bool found = false;
	DIR *d;
	int i, n = snprintf(lib, sizeof(lib), "%s/lib", folder);

	if (n <= 0 || (size_t)n >= sizeof(lib))
		return false;
	d = opendir(lib);
	for (i = 0; d != NULL && i < PYHOME_ENTRIES_MAX && !found; i++) {
		e = readdir(d);
		if (e == NULL)
			break;
		found = strncmp(e->d_name, "python", 6) == 0 ||
		    strncmp(e->d_name, "pypy", 4) == 0;
	}
	if (d != NULL)
		(void)closedir(d);
	return found;
}

/* From a python, or its folder: up to where it is installed. */
static int
take(struct pyhome *h, const char *venv, const char *from, unsigned up)
{
	char real[PATH_MAX];
	int rc;

	if (from[0] != '/' || realpath(from, real) == NULL)
		return SP_OK;
	rc = walk(h, venv, from);
	if (rc != SP_OK || is_beneath(real, venv))
		return rc;
	return cut(real, up) && is_prefix(real) ? add(h, real) : SP_OK;
}

/* `home = FOLDER` of the text. */
static struct view
home_of(struct view text)
{
	struct view line;
	size_t eq;

	while (view_split(&text, '\n', &line)) {
		eq = view_find(line, '=');
		if (eq < line.n &&
		    view_eq_nocase(view_trim(view_sub(line, 0, eq)),
			VIEW("home")))
			return view_trim(view_from(line, eq + 1));
	}
	return VIEW_NONE;
}

int
pyhome_find(struct pyhome *h, const char *python)
{
	struct buf text = BUF_INIT(PYHOME_CFG_MAX);
	char venv[PATH_MAX], path[PATH_MAX], cfg[PATH_MAX + 16];
	struct view home = VIEW_NONE;
	struct stat st;
	int rc = SP_OK, n;

	memset(h, 0, sizeof(*h));
	n = snprintf(venv, sizeof(venv), "%s", python);
	if (n <= 0 || (size_t)n >= sizeof(venv))
		return SP_E_LIMIT;
	if (!cut(venv, 2))
		return SP_OK;
	/* a link is shown as one: what it leads to must be there, too */
	if (lstat(venv, &st) == 0 && S_ISLNK(st.st_mode) &&
	    realpath(venv, path) != NULL) {
		rc = add(h, path);
		(void)snprintf(venv, sizeof(venv), "%s", path);
	}
	if (rc == SP_OK)
		rc = take(h, venv, python, 2);
	(void)snprintf(cfg, sizeof(cfg), "%s/pyvenv.cfg", venv);
	if (rc == SP_OK && fd_read_file(cfg, &text) == SP_OK)
		home = home_of(buf_view(&text));
	if (home.n > 0 && home.n < sizeof(path)) {
		(void)snprintf(path, sizeof(path), "%.*s", VIEW_ARG(home));
		rc = take(h, venv, path, 1);
	}
	buf_clear(&text);
	return rc;
}

void
pyhome_clear(struct pyhome *h)
{
	size_t i;

	for (i = 0; i < h->n; i++)
		mem_free(h->v[i]);
	memset(h, 0, sizeof(*h));
}
