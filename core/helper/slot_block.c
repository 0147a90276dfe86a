#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "helper/slot_block.h"
#include "os/fd.h"

/* A name without a file: it is free again whatever this process dies of. */
static int
hold_net(uint32_t block, int *out)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd, n;

	n = snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1,
	    "sallyport-slots-%" PRIu32, block);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_from_errno(errno);
	if (bind(fd, (struct sockaddr *)&a,
		(socklen_t)offsetof(struct sockaddr_un, sun_path) + 1 +
		    (socklen_t)n) != 0) {
		n = errno;
		fd_close(&fd);
		return n == EADDRINUSE ? SP_E_EXISTS : err_from_errno(n);
	}
	*out = fd;
	return SP_OK;
}

/*
 * The directory is never removed: another process might hold the lock of one
 * that is gone.
 */
static int
hold_cgroup(const struct cgroup_root *r, uint32_t block, int *out)
{
	int tree = r->fd[CGROUP_UNIFIED], fd, en;
	char name[32];

	if (tree < 0)
		tree = r->fd[CGROUP_FREEZER];
	if (tree < 0)
		return SP_OK;
	(void)snprintf(name, sizeof(name), "block-%" PRIu32, block);
	if (mkdirat(tree, name, 0755) != 0 && errno != EEXIST)
		return err_from_errno(errno);
	fd = openat(tree, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_from_errno(errno);
	if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		en = errno;
		fd_close(&fd);
		return en == EWOULDBLOCK ? SP_E_EXISTS : err_from_errno(en);
	}
	*out = fd;
	return SP_OK;
}

static int
claim(struct slot_block *b, const struct cgroup_root *r, uint32_t block)
{
	int rc;

	b->net_fd = b->cgroup_fd = -1;
	b->block = block;
	rc = hold_net(block, &b->net_fd);
	if (rc == SP_OK)
		rc = hold_cgroup(r, block, &b->cgroup_fd);
	if (rc != SP_OK)
		slot_block_release(b);
	return rc;
}

int
slot_block_claim(struct slot_block *b, const struct cgroup_root *r,
    uint32_t wanted)
{
	uint32_t i;
	int rc = SP_E_EXISTS;

	if (wanted < SLOT_BLOCKS)
		rc = claim(b, r, wanted);
	for (i = 0; i < SLOT_BLOCKS && rc == SP_E_EXISTS; i++)
		rc = claim(b, r, i);
	return rc;
}

void
slot_block_release(struct slot_block *b)
{
	fd_close(&b->net_fd);
	fd_close(&b->cgroup_fd);
}
