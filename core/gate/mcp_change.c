/* What changed in a workspace, as graders are told. */
#include "config.h"

#include <string.h>

#include "gate/mcp.h"
#include "gate/path_json.h"
#include "ipc/sandbox_msg.h"
#include "ipc/wire.h"
#include "json/jwrite.h"

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
	if (rc == SP_OK && (c->flags & SANDBOX_CHANGE_UNCOMPARED) != 0)
		rc = buf_add_str(out, ",\"uncompared\":true");
	return rc == SP_OK ? buf_add_char(out, '}') : rc;
}

static int
put_more(struct buf *out, struct view last)
{
	int rc = buf_add_str(out,
	    "{\"path\":\"" CONF_ENV_WORKSPACE "\",\"kind\":\"modify\","
	    "\"type\":\"directory\",\"truncated\":true,\"next\":");

	if (rc == SP_OK)
		rc = path_json_put(last, out);
	return rc == SP_OK ? buf_add_char(out, '}') : rc;
}

/* Whether it comes behind that path, in the order of bytes. */
static bool
is_behind(struct view path, struct view after)
{
	size_t n = path.n < after.n ? path.n : after.n;
	int c =
	    path.p != NULL && after.p != NULL ? memcmp(path.p, after.p, n) : 0;

	return c > 0 || (c == 0 && path.n > after.n);
}

/* The next one; 1: there is no more room for it, and it is not there. */
static int
put_next(const struct mcp_page *page, uint64_t n, struct view path,
    const struct sandbox_change *c, size_t *used, struct buf *out)
{
	size_t before = buf_len(out);
	int rc = n > 0 ? buf_add_char(out, ',') : SP_OK;

	if (rc == SP_OK)
		rc = put_change(out, path, c);
	if (rc != SP_OK)
		return rc;
	*used += jwrite_again_bytes(view_from(buf_view(out), before));
	if (n == 0 || (*used <= page->room && n != page->limit))
		return SP_OK;
	buf_truncate(out, before);
	return 1;
}

int
mcp_change_list(struct view records, const struct conf_list *globs,
    const struct mcp_page *page, struct buf *out)
{
	struct buf last = BUF_INIT(CHANGE_PATH_MAX);
	struct buf path = BUF_INIT(CHANGE_PATH_MAX);
	struct sandbox_change c;
	struct wire w;
	size_t used = 0;
	uint64_t n = 0;
	int rc = buf_add_char(out, '['), got = SP_OK;

	wire_init(&w, records);
	while (rc == SP_OK && (got = sandbox_msg_change_get(&w, &c)) == SP_OK) {
		buf_reset(&path, SIZE_MAX);
		rc = buf_add_str(&path, CONF_ENV_WORKSPACE "/");
		if (rc == SP_OK)
			rc = buf_add_view(&path, c.path);
		if (rc != SP_OK || !is_behind(buf_view(&path), page->after) ||
		    !door_match_any(globs, buf_view(&path)))
			continue;
		rc = put_next(page, n, buf_view(&path), &c, &used, out);
		if (rc != SP_OK)
			break;
		n++;
		buf_reset(&last, SIZE_MAX);
		rc = buf_add_view(&last, buf_view(&path));
	}
	if (rc == 1) {
		rc = buf_add_char(out, ',');
		if (rc == SP_OK)
			rc = put_more(out, buf_view(&last));
		got = SP_E_EOF;
	}
	buf_clear(&path);
	buf_clear(&last);
	if (rc == SP_OK && got != SP_E_EOF)
		rc = SP_E_PROTO;
	return rc == SP_OK ? buf_add_char(out, ']') : rc;
}
