/* core/helper/slot_journal.c: what is known of slots after a crash. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "helper/slot_block.h"
#include "helper/slot_journal.h"
#include "os/fd.h"
#include "tap.h"

static int dir;

static void
test_give_up(const char *what)
{
	perror(what);
	exit(1);
}

static void
put_file(const char *text)
{
	int fd = openat(dir, "slots", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
	    0600);

	if (fd < 0 || fd_write_all(fd, text, strlen(text)) != SP_OK)
		test_give_up("cannot write");
	fd_close(&fd);
}

static int
open_text(const char *text)
{
	struct slot_journal j;
	int rc;

	put_file(text);
	rc = slot_journal_open(&j, dir);
	slot_journal_clear(&j);
	return rc;
}

static void
test_round(void)
{
	struct slot_journal j, k;
	struct cgroup_root r;
	size_t i;

	(void)unlinkat(dir, "slots", 0);
	tap_is_int(slot_journal_open(&j, dir), SP_OK, "none there");
	tap_is_int(j.slots, 0, "covers nothing");
	memset(&r, 0, sizeof(r));
	for (i = 0; i < CGROUP_HIERARCHIES; i++) {
		r.fd[i] = -1;
		buf_init(&r.path[i], 256);
	}
	r.fd[CGROUP_PIDS] = dir;
	tap_ok(buf_add_str(&r.path[CGROUP_PIDS], "/sys/fs/cgroup/pids/a b") ==
		SP_OK,
	    "a path with a space");
	j.block = 3;
	tap_is_int(slot_journal_place(&j, &r), SP_OK, "placed");
	tap_is_int(slot_journal_cover(&j, 1), SP_OK, "covers one");
	tap_ok(j.slots >= 1, "and some ahead");
	tap_is_int(slot_journal_cover(&j, j.slots + 1), SP_OK, "covers more");
	tap_is_int(slot_journal_cover(&j, SLOT_BLOCK_N + 1), SP_E_LIMIT,
	    "no more than a block");
	tap_is_int(slot_journal_open(&k, dir), SP_OK, "read again");
	tap_is_int(k.slots, j.slots, "as many");
	tap_is_int(k.block, 3, "of that block");
	tap_ok(view_eq(buf_view(&k.cgroups[CGROUP_PIDS]),
		   VIEW("/sys/fs/cgroup/pids/a b")),
	    "where they were");
	tap_is_int(slot_journal_reset(&k), SP_OK, "swept");
	slot_journal_clear(&k);
	tap_is_int(slot_journal_open(&k, dir), SP_OK, "read once more");
	tap_is_int(k.slots, 0, "covers nothing");
	slot_journal_clear(&k);
	slot_journal_clear(&j);
	buf_clear(&r.path[CGROUP_PIDS]);
}

static void
test_bad(void)
{
	static const char *const bad[] = {
		"",
		"sallyport-slots 1\n",
		"sallyport-slots 2\nslots 1\nend\n",
		"sallyport-slots 1\nslots 16\n",
		"sallyport-slots 1\nslots 16\nen",
		"sallyport-slots 1\nslots -1\nend\n",
		"sallyport-slots 1\nslots 999999999\nend\n",
		"sallyport-slots 1\nblock 99\nslots 1\nend\n",
		"sallyport-slots 1\nslots 1\nend\nslots 0\n",
		"sallyport-slots 1\ncgroup 9 /x\nslots 1\nend\n",
		"sallyport-slots 1\ncgroup 0 x\nslots 1\nend\n",
		"sallyport-slots 1\ncgroup 0 /x\ncgroup 0 /y\nend\n",
		"sallyport-slots 1\nalien\nend\n",
	};
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		tap_is_int(open_text(bad[i]), SP_E_SYNTAX, "not understood");
	tap_is_int(open_text("sallyport-slots 1\nslots 0\nend\n"), SP_OK,
	    "the least");
}

static void
test_full(void)
{
	struct slot_journal j;
	struct stat st;

	put_file("sallyport-slots 1\nblock 0\nslots 16\nend\n");
	tap_is_int(slot_journal_open(&j, dir), SP_OK, "read");
	/* what stands in the way of the new file stays in the way */
	tap_ok(mkdirat(dir, "slots.new", 0700) == 0, "no place for it");
	tap_ok(slot_journal_cover(&j, 100) != SP_OK, "cannot be written");
	tap_is_int(j.slots, 16, "covers what it did");
	tap_ok(fstatat(dir, "slots", &st, 0) == 0 && st.st_size > 0,
	    "the one before is whole");
	(void)unlinkat(dir, "slots.new", AT_REMOVEDIR);
	tap_is_int(slot_journal_cover(&j, 100), SP_OK, "now it can");
	slot_journal_clear(&j);
}

static void
test_memory(void)
{
	struct slot_journal j;
	unsigned long n;
	int rc = SP_E_NOMEM;

	put_file("sallyport-slots 1\nblock 0\nslots 16\ncgroup 0 /x\nend\n");
	for (n = 1; n < 100 && rc == SP_E_NOMEM; n++) {
		mem_fail_after(n, 0);
		rc = slot_journal_open(&j, dir);
		if (rc == SP_OK)
			rc = slot_journal_cover(&j, 17);
		mem_fail_after(0, 0);
		slot_journal_clear(&j);
	}
	tap_is_int(rc, SP_OK, "each allocation failed once");
	tap_ok(n > 2, "there were some");
}

int
main(void)
{
	char path[] = "/tmp/slots.XXXXXX";
	int probe = -1;

	if (mkdtemp(path) == NULL)
		test_give_up("mkdtemp");
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd_open_beneath(dir, ".", O_RDONLY, 0, &probe) ==
	    SP_E_UNSUPPORTED) {
		tap_skip(1, "openat2 is not to be had (valgrind)");
		fd_close(&dir);
		(void)rmdir(path);
		return tap_done();
	}
	fd_close(&probe);
	test_round();
	test_bad();
	test_full();
	test_memory();
	(void)unlinkat(dir, "slots", 0);
	fd_close(&dir);
	(void)rmdir(path);
	return tap_done();
}
