/* What fanotify tells: init/fs_note; and what is said of it in turn. */
#include <stdint.h>
#include <stdlib.h>

#include "init/fs_note.h"
#include "ipc/sandbox_msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void
check_in(struct view v, const uint8_t *p, size_t n)
{
	if (v.n > 0 &&
	    (v.p < (const char *)p || v.p + v.n > (const char *)p + n))
		abort();
}

static void
notes(const uint8_t *p, size_t n)
{
	struct buf again = BUF_INIT(SANDBOX_NOTES_MAX);
	struct sandbox_file_note note;
	struct wire w;
	int rc;

	wire_init(&w, view_of(p, n));
	while ((rc = sandbox_msg_file_note_get(&w, &note)) == SP_OK) {
		check_in(note.path, p, n);
		/* as it was read, it is written */
		if (buf_len(&again) + note.path.n + 64 < SANDBOX_NOTES_MAX &&
		    sandbox_msg_file_note_put(&again, &note) != SP_OK)
			abort();
	}
	if (rc == SP_E_EOF && n > 0 && n < SANDBOX_NOTES_MAX / 2 &&
	    (buf_len(&again) != n || memcmp(buf_view(&again).p, p, n) != 0))
		abort();
	buf_clear(&again);
}

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct view rest = view_of(p, n);
	struct fs_note one;
	size_t before;
	int rc;

	do {
		before = rest.n;
		rc = fs_note_next(&rest, &one);
		if (rc != SP_OK && rc != SP_E_EOF && rc != SP_E_PROTO)
			abort();
		if (rc != SP_OK)
			break;
		if (rest.n >= before)
			abort();
		check_in(one.dir, p, n);
		check_in(one.name, p, n);
		check_in(one.target, p, n);
	} while (rc == SP_OK);
	notes(p, n);
	return 0;
}
