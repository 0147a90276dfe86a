#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/num.h"
#include "helper/outcome.h"
#include "os/dir.h"
#include "os/fd.h"

enum {
	OUTCOME_WAIT_MS = 120 * 1000,
	OUTCOME_LOOK_NS = 20 * 1000 * 1000,
};

static const char outcome_file[] = "reload";
static const char outcome_new[] = "reload.new";

static const char *const outcome_words[] = {
	[OUTCOME_PENDING] = "pending",
	[OUTCOME_TAKEN] = "taken",
	[OUTCOME_REFUSED] = "refused",
};

void
outcome_begin(int state_fd)
{
	(void)unlinkat(state_fd, outcome_file, 0);
}

/* "NUMBER WORD\n" and the lines that say why. */
static int
outcome_put(int state_fd, struct view text)
{
	int fd, rc;

	/* state_dir is ours alone; a link would have to be our own */
	fd = openat(state_fd, outcome_new,
	    O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_from_errno(errno);
	rc = fd_write_all(fd, text.p, text.n);
	fd_close(&fd);
	if (rc == SP_OK &&
	    renameat(state_fd, outcome_new, state_fd, outcome_file) != 0)
		rc = err_from_errno(errno);
	return rc;
}

void
outcome_write(int state_fd, uint64_t number, enum outcome outcome,
    struct view why)
{
	struct buf b = BUF_INIT(OUTCOME_MAX);
	int rc;

	rc = buf_printf(&b, "%llu %s\n", (unsigned long long)number,
	    outcome_words[outcome]);
	if (rc == SP_OK)
		rc = buf_add_view(&b, why);
	if (rc == SP_OK)
		rc = outcome_put(state_fd, buf_view(&b));
	if (rc != SP_OK)
		log_warn("state_dir/%s: %s: -s reload will not hear of it",
		    outcome_file, err_str(rc));
	buf_clear(&b);
}

/* SP_E_NOTFOUND: there was no reload yet. */
static int
outcome_read(int state_fd, uint64_t *number, enum outcome *outcome,
    struct buf *text)
{
	struct view v, head;
	size_t i, n;
	int fd, rc;

	buf_truncate(text, 0);
	fd = openat(state_fd, outcome_file,
	    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return err_from_errno(errno);
	rc = fd_read_all(fd, text);
	fd_close(&fd);
	if (rc != SP_OK)
		return rc;
	v = buf_view(text);
	n = view_find(v, '\n');
	head = view_sub(v, 0, n);
	i = view_find(head, ' ');
	if (n >= v.n || i >= head.n ||
	    num_u64(view_sub(head, 0, i), 0, UINT64_MAX, number) != SP_OK)
		return SP_E_SYNTAX;
	head = view_from(head, i + 1);
	buf_consume(text, n + 1);
	for (i = 0; i < sizeof(outcome_words) / sizeof(outcome_words[0]); i++)
		if (view_eq(head, view_str(outcome_words[i]))) {
			*outcome = (enum outcome)i;
			return SP_OK;
		}
	return SP_E_SYNTAX;
}

uint64_t
outcome_number(int state_fd)
{
	struct buf text = BUF_INIT(OUTCOME_MAX);
	enum outcome outcome = OUTCOME_PENDING;
	uint64_t number;

	if (state_fd < 0 ||
	    outcome_read(state_fd, &number, &outcome, &text) != SP_OK)
		number = 0;
	buf_clear(&text);
	return number;
}

int
outcome_wait(int state_fd, uint64_t number, const char *lock, struct buf *why)
{
	const struct timespec look = { .tv_nsec = OUTCOME_LOOK_NS };
	uint64_t until = clock_ms() + OUTCOME_WAIT_MS, got = 0;
	enum outcome outcome = OUTCOME_PENDING;
	bool runs;
	pid_t pid;
	int rc;

	for (;;) {
		/* in this order: its last word is read after its end, too */
		runs = dir_lock_holder(state_fd, lock, &pid) == SP_OK;
		rc = outcome_read(state_fd, &got, &outcome, why);
		if (rc != SP_OK && rc != SP_E_NOTFOUND)
			return rc;
		if (rc == SP_OK && got > number && outcome != OUTCOME_PENDING)
			return outcome == OUTCOME_TAKEN ? SP_OK : SP_E_CONF;
		if (!runs)
			return SP_E_GONE;
		if (clock_ms() >= until)
			return SP_E_TIMEOUT;
		(void)nanosleep(&look, NULL);
	}
}
