#include "config.h"

#include "init/fs_note.h"

#include <string.h>
#include <sys/fanotify.h>

/* A struct file_handle: length, type, that many bytes. */
enum { FS_NOTE_HANDLE_HEAD = 8, FS_NOTE_NAME_MAX = 255 };

/* "fsid handle [name]": the first two are a key. */
static int
fs_note_record(struct view v, struct view *key, struct view *name)
{
	uint32_t bytes;
	size_t n;

	if (v.n < FS_NOTE_FSID + FS_NOTE_HANDLE_HEAD)
		return SP_E_PROTO;
	memcpy(&bytes, v.p + FS_NOTE_FSID, sizeof(bytes));
	n = FS_NOTE_FSID + FS_NOTE_HANDLE_HEAD;
	if (bytes > FS_NOTE_HANDLE_MAX || v.n - n < bytes)
		return SP_E_PROTO;
	n += bytes;
	*key = view_sub(v, 0, n);
	v = view_from(v, n);
	*name = view_sub(v, 0, view_find(v, '\0'));
	return name->n <= FS_NOTE_NAME_MAX ? SP_OK : SP_E_PROTO;
}

static int
fs_note_infos(struct view v, struct fs_note *out)
{
	struct fanotify_event_info_header h;
	struct view body, none;
	int rc = SP_OK;

	while (v.n > 0 && rc == SP_OK) {
		if (v.n < sizeof(h))
			return SP_E_PROTO;
		memcpy(&h, v.p, sizeof(h));
		if (h.len < sizeof(h) || h.len > v.n)
			return SP_E_PROTO;
		body = view_sub(v, sizeof(h), h.len - sizeof(h));
		v = view_from(v, h.len);
		if (h.info_type == FAN_EVENT_INFO_TYPE_DFID_NAME)
			rc = fs_note_record(body, &out->dir, &out->name);
		else if (h.info_type == FAN_EVENT_INFO_TYPE_FID)
			rc = fs_note_record(body, &out->target, &none);
	}
	return rc;
}

int
fs_note_next(struct view *rest, struct fs_note *out)
{
	struct fanotify_event_metadata m;
	struct view infos;

	if (rest->n == 0)
		return SP_E_EOF;
	if (rest->n < sizeof(m))
		return SP_E_PROTO;
	memcpy(&m, rest->p, sizeof(m));
	if (m.vers != FANOTIFY_METADATA_VERSION || m.metadata_len < sizeof(m) ||
	    m.metadata_len > m.event_len || m.event_len > rest->n)
		return SP_E_PROTO;
	memset(out, 0, sizeof(*out));
	out->mask = m.mask;
	infos = view_sub(*rest, m.metadata_len, m.event_len - m.metadata_len);
	*rest = view_from(*rest, m.event_len);
	return fs_note_infos(infos, out);
}
