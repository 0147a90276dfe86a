/* What changed in a workspace, as graders are told. */
#include "config.h"

#include "gate/mcp.h"
#include "gate/path_json.h"
#include "ipc/sandbox_msg.h"
#include "ipc/wire.h"

enum { CHANGE_PATH_MAX = 4096 + 64 }; /* with the workspace before it */

/* What a change is to clients of openenvd, and what stands there now. */
static int
put_change(struct buf *out, struct view path, const struct sandbox_change *c)
{
	static const char *const types[SANDBOX_TYPES] = {
		[SANDBOX_TYPE_FILE] = "file",
		[SANDBOX_TYPE_DIR] = "directory",
		[SANDBOX_TYPE_SYMLINK] = "symlink",
		[SANDBOX_TYPE_FIFO] = "fifo",
		[SANDBOX_TYPE_SOCKET] = "socket",
		[SANDBOX_TYPE_DEVICE] = "device",
	};
	const char *kind = c->kind == SANDBOX_CREATED ? "create"
	    : c->kind == SANDBOX_DELETED              ? "delete"
						      : "modify";
	int rc = buf_add_str(out, "{\"path\":");

	if (rc == SP_OK)
		rc = path_json_put(path, out);
	if (rc == SP_OK)
		rc = buf_printf(out, ",\"kind\":\"%s\"", kind);
	/* a file that can be read is the usual, and says no more */
	if (rc == SP_OK && c->type != SANDBOX_TYPE_FILE)
		rc = buf_printf(out, ",\"type\":\"%s\"", types[c->type]);
	if (rc == SP_OK && (c->flags & SANDBOX_CHANGE_UNREADABLE) != 0)
		rc = buf_add_str(out, ",\"unreadable\":true");
	return rc == SP_OK ? buf_add_char(out, '}') : rc;
}

int
mcp_change_list(struct view records, const struct conf_list *globs,
    struct buf *out)
{
	struct buf path = BUF_INIT(CHANGE_PATH_MAX);
	struct sandbox_change c;
	struct wire w;
	size_t n = 0;
	int rc = buf_add_char(out, '['), got = SP_OK;

	wire_init(&w, records);
	while (rc == SP_OK && (got = sandbox_msg_change_get(&w, &c)) == SP_OK) {
		buf_reset(&path, SIZE_MAX);
		rc = buf_add_str(&path, CONF_ENV_WORKSPACE "/");
		if (rc == SP_OK)
			rc = buf_add_view(&path, c.path);
		if (rc != SP_OK || !door_match_any(globs, buf_view(&path)))
			continue;
		if (n++ > 0)
			rc = buf_add_char(out, ',');
		if (rc == SP_OK)
			rc = put_change(out, buf_view(&path), &c);
	}
	buf_clear(&path);
	if (rc == SP_OK && got != SP_E_EOF)
		rc = SP_E_PROTO;
	return rc == SP_OK ? buf_add_char(out, ']') : rc;
}
