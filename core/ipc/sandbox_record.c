#include "config.h"

#include "ipc/sandbox_msg.h"

enum { NAME_BYTES_MAX = 255, CHANGE_PATH_MAX = 16 * 1024 * 1024 };

/* Neither a NUL, which no name has, nor a way to another directory. */
static bool
is_component(struct view v)
{
	return v.n > 0 && v.n <= NAME_BYTES_MAX &&
	    memchr(v.p, '/', v.n) == NULL && memchr(v.p, 0, v.n) == NULL &&
	    !view_eq(v, VIEW(".")) && !view_eq(v, VIEW(".."));
}

static bool
is_relative(struct view path)
{
	struct view piece;

	if (path.n == 0 || path.n > CHANGE_PATH_MAX ||
	    path.p[path.n - 1] == '/')
		return false;
	while (view_split(&path, '/', &piece))
		if (!is_component(piece))
			return false;
	return true;
}

int
sandbox_msg_dirent_put(struct buf *b, const struct sandbox_dirent *d)
{
	size_t before = buf_len(b);
	int rc;

	rc = wire_put_bytes(b, d->name);
	if (rc == SP_OK)
		rc = wire_put_u8(b, d->type);
	if (rc == SP_OK)
		rc = wire_put_u32(b, d->mode);
	if (rc == SP_OK)
		rc = wire_put_u32(b, d->uid);
	if (rc == SP_OK)
		rc = wire_put_u32(b, d->gid);
	if (rc == SP_OK)
		rc = wire_put_u64(b, d->size);
	if (rc == SP_OK)
		rc = wire_put_u64(b, d->mtime_us);
	if (rc != SP_OK)
		buf_truncate(b, before);
	return rc;
}

int
sandbox_msg_dirent_get(struct wire *w, struct sandbox_dirent *d)
{
	memset(d, 0, sizeof(*d));
	if (!wire_more(w))
		return w->bad ? SP_E_PROTO : SP_E_EOF;
	d->name = wire_bytes(w);
	d->type = wire_u8(w);
	d->mode = wire_u32(w);
	d->uid = wire_u32(w);
	d->gid = wire_u32(w);
	d->size = wire_u64(w);
	d->mtime_us = wire_u64(w);
	if (w->bad || d->type == 0 || d->type >= SANDBOX_TYPES ||
	    d->mode > 07777 || !is_component(d->name))
		return SP_E_PROTO;
	return SP_OK;
}

int
sandbox_msg_change_put(struct buf *b, const struct sandbox_change *c)
{
	size_t before = buf_len(b);
	int rc;

	rc = wire_put_bytes(b, c->path);
	if (rc == SP_OK)
		rc = wire_put_u8(b, c->kind);
	if (rc == SP_OK)
		rc = wire_put_u8(b, c->type);
	if (rc == SP_OK)
		rc = wire_put_u8(b, c->flags);
	if (rc == SP_OK)
		rc = wire_put_u32(b, c->mode);
	if (rc == SP_OK)
		rc = wire_put_u64(b, c->size);
	if (rc != SP_OK)
		buf_truncate(b, before);
	return rc;
}

int
sandbox_msg_change_get(struct wire *w, struct sandbox_change *c)
{
	const unsigned known = SANDBOX_CHANGE_UNREADABLE |
	    SANDBOX_CHANGE_CONTENT | SANDBOX_CHANGE_MODE |
	    SANDBOX_CHANGE_UNCOMPARED;

	memset(c, 0, sizeof(*c));
	if (!wire_more(w))
		return w->bad ? SP_E_PROTO : SP_E_EOF;
	c->path = wire_bytes(w);
	c->kind = wire_u8(w);
	c->type = wire_u8(w);
	c->flags = wire_u8(w);
	c->mode = wire_u32(w);
	c->size = wire_u64(w);
	if (w->bad || c->kind == 0 || c->kind >= SANDBOX_CHANGES ||
	    c->type == 0 || c->type >= SANDBOX_TYPES || c->mode > 07777 ||
	    (c->flags & ~known) != 0 || !is_relative(c->path))
		return SP_E_PROTO;
	return SP_OK;
}

int
sandbox_msg_file_note_put(struct buf *b, const struct sandbox_file_note *n)
{
	size_t before = buf_len(b);
	int rc;

	rc = wire_put_u8(b, n->kind);
	if (rc == SP_OK)
		rc = wire_put_u8(b, n->dir);
	if (rc == SP_OK)
		rc = wire_put_u64(b, n->lost);
	if (rc == SP_OK)
		rc = wire_put_bytes(b, n->path);
	if (rc != SP_OK)
		buf_truncate(b, before);
	return rc;
}

int
sandbox_msg_file_note_get(struct wire *w, struct sandbox_file_note *n)
{
	uint8_t dir;

	memset(n, 0, sizeof(*n));
	if (!wire_more(w))
		return w->bad ? SP_E_PROTO : SP_E_EOF;
	n->kind = wire_u8(w);
	dir = wire_u8(w);
	n->dir = dir == 1;
	n->lost = wire_u64(w);
	n->path = wire_bytes(w);
	if (w->bad || dir > 1 || n->kind == 0 || n->kind >= SANDBOX_NOTES ||
	    n->kind == SANDBOX_REPLACED)
		return SP_E_PROTO;
	if (n->kind >= SANDBOX_NOTE_OVERFLOW)
		return n->path.n == 0 && !n->dir ? SP_OK : SP_E_PROTO;
	return n->lost == 0 && is_relative(n->path) ? SP_OK : SP_E_PROTO;
}
