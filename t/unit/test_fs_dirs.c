/* core/init/fs_dirs.c: bounded by number and by bytes. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "init/fs_dirs.h"
#include "tap.h"

/* n directories whose paths have that length, the last as its number. */
static void
add(struct fs_dirs *d, int n, size_t length)
{
	static char path[FS_DIRS_BYTES];
	char key[16];
	int i;

	memset(path, 'p', sizeof(path));
	for (i = 0; i < n; i++) {
		(void)snprintf(key, sizeof(key), "%d", i);
		fs_dirs_add(d, view_str(key), view_of(path, length));
	}
}

static void
test_bounds(struct fs_dirs *d)
{
	add(d, FS_DIRS_MAX, 1);
	tap_is_int((long long)fs_dirs_count(d), FS_DIRS_MAX, "as many");
	fs_dirs_add(d, VIEW("one more"), VIEW(""));
	tap_is_int((long long)fs_dirs_count(d), 1, "one more begins anew");
	tap_is_str(fs_dirs_find(d, VIEW("one more")), "", "the root itself");
	fs_dirs_forget(d);
	add(d, 256, 4095);
	tap_is_int((long long)fs_dirs_count(d), 256, "long paths");
	tap_is_int((long long)fs_dirs_bytes(d), FS_DIRS_BYTES, "fill it");
	fs_dirs_add(d, VIEW("0"), VIEW("else"));
	tap_is_int((long long)fs_dirs_count(d), 256, "what is known is kept");
	fs_dirs_add(d, VIEW("short"), VIEW("a/b"));
	tap_is_int((long long)fs_dirs_bytes(d), 4, "then all are forgotten");
	tap_is_str(fs_dirs_find(d, VIEW("short")), "a/b", "but the new one");
}

int
main(void)
{
	struct fs_dirs *d;
	unsigned long n;

	for (n = 1; n < 10; n++) {
		mem_fail_after(n, 0);
		d = fs_dirs_new();
		mem_fail_after(0, 0);
		if (d != NULL)
			break;
	}
	tap_ok(n > 2 && d != NULL, "made, once there is memory");
	test_bounds(d);
	fs_dirs_forget(d);
	for (n = 1; n < 10 && fs_dirs_count(d) == 0; n++) {
		mem_fail_after(n, 0);
		fs_dirs_add(d, VIEW("k"), VIEW("path"));
		mem_fail_after(0, 0);
	}
	tap_ok(n > 2 && fs_dirs_bytes(d) == 5, "added, once there is memory");
	fs_dirs_free(d);
	fs_dirs_free(NULL);
	return tap_done();
}
