#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/num.h"
#include "init/sbox_local.h"
#include "os/fd.h"
#include "os/tree.h"

enum {
	LOCAL_COPY_MS = 60 * 1000,
	LOCAL_REMOVE_MS = 30 * 1000,
	LOCAL_CHILDREN_MAX = 256 * 1024, /* bytes of their list */
};

static int
copy_seed(struct sbox *b, struct sbox_why *w)
{
	struct buf where = BUF_INIT(SANDBOX_MSG_PATH_MAX * 4);
	struct tree_bounds bounds;
	struct tree_copied copied;
	int from = b->give[SANDBOX_FD_UPPER], rc;

	/* without layers, another's upper one is all that it has */
	if (from < 0)
		from = b->give[SANDBOX_FD_SEED];
	if (from < 0)
		return SP_OK;
	bounds.bytes = b->spec->workspace_bytes;
	bounds.entries = b->spec->workspace_inodes;
	bounds.deadline_ms = clock_ms() + LOCAL_COPY_MS;
	rc = tree_copy(from, b->merged, &bounds, false, &copied, &where);
	if (rc != SP_OK)
		rc = sbox_why_rc(w, rc, "copying %.*s",
		    VIEW_ARG(buf_view(&where)));
	buf_clear(&where);
	return rc;
}

/* The one that another keeper shares; its processes are told where it is. */
static int
take_folder(struct sbox *b, struct sbox_why *w)
{
	char link[32];
	ssize_t n;

	b->merged = b->give[SANDBOX_FD_WORKSPACE];
	b->give[SANDBOX_FD_WORKSPACE] = -1;
	b->folder_lent = true;
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", b->merged);
	n = readlink(link, b->folder, sizeof(b->folder) - 1);
	if (n < 0)
		return sbox_why_errno(w, errno, "%s", link);
	b->folder[n] = '\0';
	return SP_OK;
}

int
sbox_local_make(struct sbox *b, struct sbox_why *w)
{
	int rc = sbox_why_stage(w, SANDBOX_STAGE_WORKSPACE);

	if (rc != SP_OK)
		return rc;
	b->uid = geteuid();
	b->gid = getegid();
	if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
		return sbox_why_errno(w, errno, "subreaper");
	if (b->give[SANDBOX_FD_WORKSPACE] >= 0)
		return take_folder(b, w);
	(void)snprintf(b->folder, sizeof(b->folder), "/tmp/sallyport-XXXXXX");
	if (mkdtemp(b->folder) == NULL) {
		rc = sbox_why_errno(w, errno, "%s", b->folder);
		b->folder[0] = '\0';
		return rc;
	}
	b->merged = open(b->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (b->merged < 0)
		return sbox_why_errno(w, errno, "%s", b->folder);
	return copy_seed(b, w);
}

uint32_t
sbox_local_kill(void)
{
	struct buf text = BUF_INIT(LOCAL_CHILDREN_MAX);
	struct view rest, one;
	char path[64];
	uint32_t n = 0;
	uint64_t pid;

	(void)snprintf(path, sizeof(path), "/proc/self/task/%d/children",
	    (int)getpid());
	if (fd_read_file(path, &text) != SP_OK) {
		buf_clear(&text);
		return 0;
	}
	rest = buf_view(&text);
	/* children: not reaped yet, so that the numbers are theirs */
	while (view_split(&rest, ' ', &one))
		if (num_u64(one, 1, INT32_MAX, &pid) == SP_OK) {
			(void)kill((pid_t)pid, SIGKILL);
			n++;
		}
	buf_clear(&text);
	return n;
}

void
sbox_local_clear(struct sbox *b)
{
	if (b->folder[0] == '\0' || b->folder_lent)
		return;
	if (b->merged >= 0)
		(void)!tree_remove(b->merged, clock_ms() + LOCAL_REMOVE_MS);
	(void)rmdir(b->folder);
	b->folder[0] = '\0';
}

int
sbox_local_chdir(int folder, const char *cwd)
{
	static const char workspace[] = "/workspace";
	size_t n = sizeof(workspace) - 1;

	if (strncmp(cwd, workspace, n) != 0 ||
	    (cwd[n] != '\0' && cwd[n] != '/'))
		return chdir(cwd);
	if (fchdir(folder) != 0)
		return -1;
	cwd += n;
	cwd += strspn(cwd, "/");
	return cwd[0] != '\0' ? chdir(cwd) : 0;
}
