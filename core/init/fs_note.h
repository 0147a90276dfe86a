/* What fanotify tells, taken apart. */
#ifndef SP_INIT_FS_NOTE_H
#define SP_INIT_FS_NOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/view.h"

enum { FS_NOTE_HANDLE_MAX = 128 };

struct fs_note {
	uint64_t mask; /* FAN_* */
	/*
	 * The directory: file system and struct file_handle, as the kernel
	 * wrote them; p NULL: none.
	 */
	struct view dir;
	struct view name; /* in it; ".": itself */
	struct view target; /* the entry, like dir; p NULL: not told */
};

enum { FS_NOTE_FSID = 8 }; /* bytes of a key in front of the handle */

/*
 * The next event of what one read() gave, which *rest is the rest of.
 * Source:  fanotify(7), "Reading fanotify events".
 * Context: any; linear, no allocation.
 * Owner:   borrowed from the bytes.
 * Returns: 0; SP_E_EOF nothing is left; SP_E_PROTO it is not in that form.
 */
int fs_note_next(struct view *rest, struct fs_note *out) must_check;

#endif
