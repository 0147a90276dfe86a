#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/num.h"
#include "helper/slot_journal.h"
#include "helper/slot_block.h"
#include "os/fd.h"

enum { JOURNAL_MAX = 64 * 1024, JOURNAL_STEP = 16 };

static const char journal_name[] = "slots";
static const char journal_new[] = "slots.new";
static const char journal_magic[] = "sallyport-slots 1";

/*
 * One fact a line, the last of them "end": what was torn is not taken for
 * less than there was.
 */
static int
journal_line(struct slot_journal *j, struct view line, bool *ended)
{
	struct view word;
	uint64_t n;
	int rc;

	if (*ended)
		return SP_E_SYNTAX;
	if (view_eq(line, VIEW("end"))) {
		*ended = true;
		return SP_OK;
	}
	if (!view_split(&line, ' ', &word))
		return SP_E_SYNTAX;
	if (view_eq(word, VIEW("block"))) {
		rc = num_u64(line, 0, SLOT_BLOCKS - 1, &n);
		j->block = rc == SP_OK ? (uint32_t)n : 0;
		return rc == SP_OK ? SP_OK : SP_E_SYNTAX;
	}
	if (view_eq(word, VIEW("slots"))) {
		rc = num_u64(line, 0, SLOT_BLOCK_N, &n);
		j->slots = rc == SP_OK ? (uint32_t)n : 0;
		return rc == SP_OK ? SP_OK : SP_E_SYNTAX;
	}
	if (!view_eq(word, VIEW("cgroup")) || !view_split(&line, ' ', &word) ||
	    num_u64(word, 0, CGROUP_HIERARCHIES - 1, &n) != SP_OK ||
	    line.n == 0 || line.p[0] != '/' || buf_len(&j->cgroups[n]) > 0)
		return SP_E_SYNTAX;
	return buf_add_view(&j->cgroups[n], line);
}

static int
journal_parse(struct slot_journal *j, struct view text)
{
	struct view line;
	bool ended = false;
	int rc = SP_OK;

	if (!view_split(&text, '\n', &line) ||
	    !view_eq(line, view_str(journal_magic)))
		return SP_E_SYNTAX;
	while (rc == SP_OK && text.n > 0 && view_split(&text, '\n', &line))
		rc = journal_line(j, line, &ended);
	if (rc == SP_OK && !ended)
		rc = SP_E_SYNTAX;
	return rc == SP_E_LIMIT ? SP_E_SYNTAX : rc;
}

int
slot_journal_open(struct slot_journal *j, int dir_fd)
{
	struct buf text = BUF_INIT(JOURNAL_MAX);
	size_t i;
	int fd = -1, rc;

	memset(j, 0, sizeof(*j));
	j->dir_fd = dir_fd;
	for (i = 0; i < CGROUP_HIERARCHIES; i++)
		buf_init(&j->cgroups[i], 4096);
	if (dir_fd < 0)
		return SP_OK;
	rc = fd_open_beneath(dir_fd, journal_name, O_RDONLY, 0, &fd);
	if (rc == SP_E_NOTFOUND)
		return SP_OK;
	if (rc == SP_OK)
		rc = fd_read_all(fd, &text);
	if (rc == SP_OK)
		rc = journal_parse(j, buf_view(&text));
	else if (rc == SP_E_LIMIT)
		rc = SP_E_SYNTAX;
	fd_close(&fd);
	buf_clear(&text);
	return rc;
}

static int
journal_text(const struct slot_journal *j, uint32_t slots, struct buf *out)
{
	size_t i;
	int rc;

	rc = buf_printf(out, "%s\nblock %u\nslots %u\n", journal_magic,
	    j->block, slots);
	for (i = 0; i < CGROUP_HIERARCHIES && rc == SP_OK; i++)
		if (buf_len(&j->cgroups[i]) > 0)
			rc = buf_printf(out, "cgroup %zu %.*s\n", i,
			    VIEW_ARG(buf_view(&j->cgroups[i])));
	return rc == SP_OK ? buf_add_str(out, "end\n") : rc;
}

/* The file is there whole, or the one before it is. */
static int
journal_replace(int dir_fd, struct view text)
{
	int fd = -1, rc;

	(void)unlinkat(dir_fd, journal_new, 0);
	failpoint_reach("journal.begin");
	rc = fd_open_beneath(dir_fd, journal_new, O_WRONLY | O_CREAT | O_EXCL,
	    0600, &fd);
	if (rc == SP_OK)
		rc = fd_write_all(fd, text.p, text.n);
	if (rc == SP_OK && fsync(fd) != 0)
		rc = err_from_errno(errno);
	fd_close(&fd);
	failpoint_reach("journal.written");
	if (rc == SP_OK &&
	    renameat(dir_fd, journal_new, dir_fd, journal_name) != 0)
		rc = err_from_errno(errno);
	failpoint_reach("journal.renamed");
	if (rc == SP_OK && fsync(dir_fd) != 0)
		rc = err_from_errno(errno);
	failpoint_reach("journal.synced");
	if (rc != SP_OK)
		(void)unlinkat(dir_fd, journal_new, 0);
	return rc;
}

static int
journal_write(struct slot_journal *j, uint32_t slots)
{
	struct buf text = BUF_INIT(JOURNAL_MAX);
	int rc;

	rc = journal_text(j, slots, &text);
	if (rc == SP_OK && j->dir_fd >= 0)
		rc = journal_replace(j->dir_fd, buf_view(&text));
	if (rc == SP_OK)
		j->slots = slots;
	buf_clear(&text);
	return rc;
}

int
slot_journal_place(struct slot_journal *j, const struct cgroup_root *r)
{
	size_t i;
	int rc = SP_OK;

	for (i = 0; i < CGROUP_HIERARCHIES && rc == SP_OK; i++) {
		buf_truncate(&j->cgroups[i], 0);
		if (r->fd[i] >= 0)
			rc =
			    buf_add_view(&j->cgroups[i], buf_view(&r->path[i]));
	}
	return rc;
}

int
slot_journal_cover(struct slot_journal *j, uint32_t slots)
{
	uint32_t step = JOURNAL_STEP;

	if (slots <= j->slots)
		return SP_OK;
	if (slots > SLOT_BLOCK_N)
		return SP_E_LIMIT;
	/* ahead, so that not every new slot waits for the disk */
	while (step < slots)
		step *= 2;
	return journal_write(j, step);
}

int
slot_journal_reset(struct slot_journal *j)
{
	return j->slots == 0 ? SP_OK : journal_write(j, 0);
}

void
slot_journal_clear(struct slot_journal *j)
{
	size_t i;

	for (i = 0; i < CGROUP_HIERARCHIES; i++)
		buf_clear(&j->cgroups[i]);
}
