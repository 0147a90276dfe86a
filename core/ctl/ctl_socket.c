#include "config.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "ctl/ctl_socket.h"
#include "os/xdg.h"

enum { SOCKET_URL_MAX = 8192 };

static const char *ctl_socket_named;

void
ctl_socket_set(const char *path)
{
	ctl_socket_named = path;
}

/* Whether there is something at the path of that URL. */
static bool
is_there(struct buf *url)
{
	const char *path;
	bool there;

	if (buf_add_char(url, '\0') != SP_OK)
		return false;
	path = buf_view(url).p;
	there = path != NULL && access(path + 5, F_OK) == 0;
	buf_truncate(url, buf_len(url) - 1);
	return there;
}

static bool
is_own(enum xdg_dir which, const char *folder, struct buf *url)
{
	int rc;

	buf_reset(url, SIZE_MAX);
	rc = buf_add_str(url, "unix:");
	if (rc == SP_OK)
		rc = xdg_dir(which, url);
	if (rc == SP_OK)
		rc = buf_printf(url, "%s/sallyport.sock", folder);
	return rc == SP_OK && is_there(url);
}

/* What is not below / is meant from where the caller stands. */
static int
put_path(struct buf *url, const char *path)
{
	char here[PATH_MAX];
	int rc = buf_add_str(url, "unix:");

	if (rc == SP_OK && path[0] != '/') {
		if (getcwd(here, sizeof(here)) == NULL)
			return err_from_errno(errno);
		rc = buf_printf(url, "%s/", here);
	}
	if (rc == SP_OK)
		rc = buf_add_str(url, path);
	return rc == SP_OK ? buf_add_char(url, '\0') : rc;
}

const char *
ctl_socket_url(void)
{
	static struct buf url = BUF_INIT(SOCKET_URL_MAX);
	const char *path = ctl_socket_named;

	if (path == NULL)
		path = getenv("SALLYPORT_CONTROL");
	if (path == NULL && geteuid() != 0 &&
	    (is_own(XDG_RUNTIME, "", &url) ||
		is_own(XDG_STATE, "/sallyport", &url)))
		return buf_add_char(&url, '\0') == SP_OK ? buf_view(&url).p
							 : NULL;
	if (path == NULL)
		path = SP_RUNDIR "/sallyport.sock";
	buf_reset(&url, SIZE_MAX);
	return path[0] != '\0' && put_path(&url, path) == SP_OK
	    ? buf_view(&url).p
	    : NULL;
}
