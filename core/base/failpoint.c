#include "config.h"

#include <stdint.h>

#include "base/failpoint.h"

#if !SP_CONFINEMENT
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/num.h"
#include "base/view.h"

enum { FAILPOINT_NAME_MAX = 64, FAILPOINT_STEPS_MAX = 1024 * 1024 };

static const char folder_env[] = "SP_FAIL_POINT";
static const char helper_env[] = "SP_FAIL_HELPER";

void
failpoint_init(void)
{
	char text[32];

	if (getenv(folder_env) == NULL)
		return;
	(void)snprintf(text, sizeof(text), "%d", (int)getpid());
	(void)setenv(helper_env, text, 1);
}

static int
failpoint_open(const char *file, int flags)
{
	const char *folder = getenv(folder_env);
	char path[512];
	int n;

	if (folder == NULL)
		return -1;
	n = snprintf(path, sizeof(path), "%s/%s", folder, file);
	if (n < 0 || (size_t)n >= sizeof(path))
		return -1;
	return open(path, flags | O_CLOEXEC, 0600);
}

static struct view
first_line(struct view v)
{
	return view_sub(v, 0, view_find(v, '\n'));
}

/* Whether "at" names this one: then which of its name, else 0. */
static uint64_t
failpoint_wanted(const char *name)
{
	char text[FAILPOINT_NAME_MAX + 32];
	int fd = failpoint_open("at", O_RDONLY);
	struct view rest, word;
	uint64_t which = 0;
	ssize_t n;

	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text));
	(void)close(fd);
	rest = first_line(view_of(text, n > 0 ? (size_t)n : 0));
	if (!view_split(&rest, ' ', &word) || !view_eq(word, view_str(name)) ||
	    num_u64(rest, 1, UINT32_MAX, &which) != SP_OK)
		return 0;
	return which;
}

static uint64_t
failpoint_count(const char *name)
{
	int fd = failpoint_open("steps", O_RDONLY);
	FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
	char line[FAILPOINT_NAME_MAX + 2];
	uint64_t n = 0;
	int i;

	if (f == NULL)
		return 0;
	for (i = 0; i < FAILPOINT_STEPS_MAX && fgets(line, sizeof(line), f);
	     i++)
		n += view_eq(first_line(view_str(line)), view_str(name));
	(void)fclose(f);
	return n;
}

static void
failpoint_kill(void)
{
	const char *text = getenv(helper_env);
	uint64_t pid;

	if (text == NULL ||
	    num_u64(view_str(text), 2, INT32_MAX, &pid) != SP_OK)
		return;
	(void)kill((pid_t)pid, SIGKILL);
	/* what it leaves in between is nobody's: its children die, too */
	(void)raise(SIGKILL);
}

void
failpoint_reach(const char *name)
{
	char line[FAILPOINT_NAME_MAX + 1];
	uint64_t which;
	int fd, n;

	/* 0: the parent is outside of this pid namespace */
	if (getenv(folder_env) == NULL || getppid() == 0)
		return;
	fd = failpoint_open("steps", O_WRONLY | O_APPEND | O_CREAT);
	n = snprintf(line, sizeof(line), "%s\n", name);
	if (fd < 0)
		return;
	if (write(fd, line, (size_t)n) != n)
		abort();
	(void)close(fd);
	which = failpoint_wanted(name);
	if (which > 0 && failpoint_count(name) >= which)
		failpoint_kill();
}
#endif
