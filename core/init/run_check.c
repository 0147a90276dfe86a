#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "init/run_check.h"
#include "init/sbox_local.h"
#include "os/fd.h"

enum { CHECK_FILE_MAX = 16 * 1024 };

struct view
run_check_field(struct view text, const char *name)
{
	struct view line, key = view_str(name);

	while (view_split(&text, '\n', &line))
		if (view_starts(line, key))
			return view_trim(view_from(line, key.n));
	return VIEW_NONE;
}

static int
expect(struct sbox_why *w, struct view text, const char *name, const char *want)
{
	struct view is = run_check_field(text, name);

	if (view_eq(is, view_str(want)))
		return SP_OK;
	(void)sbox_why_errno(w, EPERM, "%s is %.*s, not %s", name, VIEW_ARG(is),
	    want);
	return SP_E_DENIED;
}

static int
check_status(struct sbox_why *w, const struct sbox *b, struct view text)
{
	static const char *const empty[] = { "CapInh:", "CapPrm:", "CapEff:",
		"CapBnd:", "CapAmb:" };
	bool userns = (b->spec->flags & SANDBOX_USERNS) != 0;
	char ids[64];
	int rc;
	size_t i;

	rc = expect(w, text, "NoNewPrivs:", "1");
	/* 3: it had a filter, which has killed it by now */
	if (rc == SP_OK &&
	    !view_eq(run_check_field(text, "Seccomp:"), VIEW("3")))
		rc = expect(w, text, "Seccomp:", "2");
	for (i = 0; i < sizeof(empty) / sizeof(empty[0]) && rc == SP_OK; i++)
		rc = expect(w, text, empty[i], "0000000000000000");
	/* an ordinary user's groups cannot be given up */
	if (rc == SP_OK && !userns)
		rc = expect(w, text, "Groups:", "");
	(void)snprintf(ids, sizeof(ids), "%u\t%u\t%u\t%u", (unsigned)b->uid,
	    (unsigned)b->uid, (unsigned)b->uid, (unsigned)b->uid);
	if (rc == SP_OK && !userns)
		rc = expect(w, text, "Uid:", ids);
	(void)snprintf(ids, sizeof(ids), "%u\t%u\t%u\t%u", (unsigned)b->gid,
	    (unsigned)b->gid, (unsigned)b->gid, (unsigned)b->gid);
	if (rc == SP_OK && !userns)
		rc = expect(w, text, "Gid:", ids);
	return rc;
}

int
run_check(struct sbox_why *w, const struct sbox *b, pid_t pid)
{
	struct buf text = BUF_INIT(CHECK_FILE_MAX);
	char path[40];
	int rc = sbox_why_stage(w, SANDBOX_STAGE_CHECK);

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	if (rc == SP_OK && sbox_local(b))
		return rc; /* nothing was meant */
	if (rc == SP_OK) {
		rc = fd_read_file(path, &text);
		if (rc != SP_OK)
			rc = sbox_why_rc(w, rc, "%s", path);
	}
	if (rc == SP_OK)
		rc = check_status(w, b, buf_view(&text));
	buf_clear(&text);
	return rc;
}

pid_t
run_check_session(pid_t pid)
{
	struct buf text = BUF_INIT(CHECK_FILE_MAX);
	struct view rest, field = VIEW_NONE;
	uint64_t session = 0;
	char path[40];
	size_t i, at;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (fd_read_file(path, &text) == SP_OK) {
		/* proc_pid_stat(5): behind the name's last ")" come state,
		 * parent, group, session */
		rest = buf_view(&text);
		for (at = rest.n;
		     at > 0 && rest.p != NULL && rest.p[at - 1] != ')'; at--)
			continue;
		rest = view_trim(view_from(rest, at));
		for (i = 0; i < 4; i++)
			if (!view_split(&rest, ' ', &field))
				field = VIEW_NONE;
		if (num_u64(field, 1, INT32_MAX, &session) != SP_OK)
			session = 0;
	}
	buf_clear(&text);
	return (pid_t)session;
}
