#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init/run_probe.h"

enum { PROBE_LINKS_MAX = 40, PROBE_HEAD = 256 };

/* Where the link at path leads, in its place; false when it is none. */
static bool
follow(char path[SANDBOX_MSG_PATH_MAX + 1])
{
	char to[SANDBOX_MSG_PATH_MAX + 1], at[SANDBOX_MSG_PATH_MAX + 1];
	const char *slash = strrchr(path, '/');
	ssize_t n = readlink(path, to, sizeof(to) - 1);
	int len;

	if (n <= 0 || slash == NULL)
		return false;
	to[n] = '\0';
	len = to[0] == '/' ? snprintf(at, sizeof(at), "%s", to)
			   : snprintf(at, sizeof(at), "%.*s/%s",
				 (int)(slash - path), path, to);
	if (len < 0 || (size_t)len >= sizeof(at))
		return false;
	memcpy(path, at, (size_t)len + 1);
	return true;
}

/* script: the one that names it, or NULL. */
static bool
there(struct sbox_why *w, const char *script, const char *path)
{
	const char *names = script != NULL ? ": its #! names " : "";
	char at[SANDBOX_MSG_PATH_MAX + 1];
	struct stat st;
	int en = 0, i;

	if (stat(path, &st) != 0 || access(path, X_OK) != 0)
		en = errno;
	else if (!S_ISREG(st.st_mode))
		en = EACCES;
	if (en == 0)
		return true;
	(void)snprintf(at, sizeof(at), "%s", path);
	for (i = 0; i < PROBE_LINKS_MAX && follow(at); i++)
		continue;
	if (script == NULL)
		script = "";
	if (i > 0)
		(void)sbox_why_errno(w, en, "%s%s%s is a link to %s", script,
		    names, path, at);
	else
		(void)sbox_why_errno(w, en, "%s%s%s", script, names, path);
	return false;
}

void
run_probe(struct sbox_why *w, const char *path)
{
	char head[PROBE_HEAD + 1], *name;
	ssize_t n;
	int fd;

	w->en = 0;
	w->what[0] = '\0';
	if (!there(w, NULL, path))
		return;
	/* one that can be run and not be read is no script */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return;
	n = read(fd, head, PROBE_HEAD);
	(void)close(fd);
	head[n > 0 ? n : 0] = '\0';
	if (strncmp(head, "#!", 2) != 0)
		return;
	name = head + 2 + strspn(head + 2, " \t");
	name[strcspn(name, " \t\n")] = '\0';
	if (name[0] == '/')
		(void)there(w, path, name);
}
