/* The file system that a workspace on a disk lies in, as e2fsck sees it. */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init/disk_image.h"
#include "tap.h"

static int
check(const char *path)
{
	pid_t pid = fork();
	int status = 0, null;

	if (pid == 0) {
		null = open("/dev/null", O_WRONLY);
		if (null >= 0)
			(void)dup2(null, 1);
		(void)execlp("e2fsck", "e2fsck", "-fn", path, (char *)NULL);
		(void)execl("/sbin/e2fsck", "e2fsck", "-fn", path,
		    (char *)NULL);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void
test_size(const char *path, uint64_t bytes, uint64_t inodes)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	char what[96];
	struct stat st;
	int rc;

	(void)snprintf(what, sizeof(what), "%llu bytes, %llu inodes",
	    (unsigned long long)bytes, (unsigned long long)inodes);
	tap_is_int(disk_image_format(fd, bytes, inodes), SP_OK, what);
	tap_ok(fstat(fd, &st) == 0 && (uint64_t)st.st_size >= bytes &&
		(uint64_t)st.st_blocks * 512 >= bytes,
	    "are reserved");
	close(fd);
	rc = check(path);
	if (rc == 127)
		tap_skip(1, "e2fsck is not here");
	else
		tap_is_int(rc, 0, "e2fsck finds nothing wrong");
}

int
main(void)
{
	char path[] = "/var/tmp/sp-image-XXXXXX";
	int fd = mkstemp(path);

	if (fd < 0)
		return 1;
	test_size(path, 1, 1);
	test_size(path, 4096, 16);
	test_size(path, 1 << 20, 1 << 20);
	test_size(path, 64 << 20, 4096);
	/* about where another group begins, with little in it */
	test_size(path, 134000000, 3000);
	test_size(path, 134217728 - 4096 * 300, 256);
	test_size(path, 134217728, 262144);
	test_size(path, 300 << 20, 100000);
	tap_is_int(disk_image_format(fd, 1ULL << 44, 1), SP_E_LIMIT,
	    "too large");
	tap_is_int(disk_image_format(fd, 1 << 20, 1ULL << 40), SP_E_LIMIT,
	    "too many inodes");
	tap_is_int(disk_image_format(fd, 1ULL << 41, 16), SP_E_NOSPC,
	    "more than the disk has");
	close(fd);
	fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	tap_ok(disk_image_format(fd, 4096, 16) != SP_OK, "no file");
	close(fd);
	(void)unlink(path);
	return tap_done();
}
