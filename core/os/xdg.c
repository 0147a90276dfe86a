#include "config.h"

#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

#include "os/xdg.h"

static const struct {
	const char *variable;
	const char *under_home; /* NULL: no default */
} xdg_rows[] = {
	[XDG_STATE] = { "XDG_STATE_HOME", "/.local/state" },
	[XDG_CONFIG] = { "XDG_CONFIG_HOME", "/.config" },
	[XDG_RUNTIME] = { "XDG_RUNTIME_DIR", NULL },
};

int
xdg_dir(enum xdg_dir which, struct buf *out)
{
	const char *value = getenv(xdg_rows[which].variable);
	const struct passwd *pw;

	/* relative ones are invalid and to be ignored */
	if (value != NULL && value[0] == '/')
		return buf_add_str(out, value);
	if (xdg_rows[which].under_home == NULL)
		return SP_E_NOTFOUND;
	value = getenv("HOME");
	if (value == NULL || value[0] != '/') {
		pw = getpwuid(geteuid());
		value = pw != NULL ? pw->pw_dir : NULL;
	}
	if (value == NULL || value[0] != '/')
		return SP_E_NOTFOUND;
	return buf_printf(out, "%s%s", value, xdg_rows[which].under_home);
}
