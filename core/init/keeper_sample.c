#include "config.h"

#include <stdio.h>

#include "base/mem.h"
#include "base/num.h"
#include "init/keeper_sample.h"
#include "init/run_check.h"
#include "os/fd.h"

enum {
	SAMPLE_SHOWN_MAX = 100,
	SAMPLE_PIDS_MAX = 65536,
	SAMPLE_STATUS_MAX = 16 * 1024,
};

/* The last of numbers with tabs between: as the innermost namespace has it. */
static uint64_t
last_number(struct view v)
{
	struct view one = VIEW_NONE;
	uint64_t n = 0;

	while (view_split(&v, '\t', &one))
		continue;
	return num_u64(one, 0, INT32_MAX, &n) == SP_OK ? n : 0;
}

/* Any byte that a workload calls itself by; none is believed to be text. */
static int
put_name(struct buf *out, struct view name)
{
	int rc = SP_OK;
	size_t i;

	for (i = 0; i < name.n && rc == SP_OK; i++) {
		unsigned char c = (unsigned char)name.p[i];

		if (c < 0x20 || c > 0x7e || c == '"' || c == '\\')
			rc = buf_printf(out, "\\u%04x", c);
		else
			rc = buf_add_char(out, (char)c);
	}
	return rc;
}

/* One that has gone in the meantime is left out: false. */
static bool
put_process(struct buf *out, int pid, bool first, int *rc)
{
	struct buf text = BUF_INIT(SAMPLE_STATUS_MAX);
	uint64_t inside = 0;
	char path[40];

	(void)snprintf(path, sizeof(path), "/proc/%d/status", pid);
	*rc = SP_OK;
	if (fd_read_file(path, &text) == SP_OK)
		inside =
		    last_number(run_check_field(buf_view(&text), "NSpid:"));
	if (inside > 1) {
		*rc = buf_printf(out, "%s{\"pid\":%llu,\"name\":\"",
		    first ? "" : ",", (unsigned long long)inside);
		if (*rc == SP_OK)
			*rc = put_name(out,
			    run_check_field(buf_view(&text), "Name:"));
		if (*rc == SP_OK)
			*rc = buf_add_str(out, "\"}");
	}
	buf_clear(&text);
	return inside > 1 && *rc == SP_OK;
}

int
keeper_sample_processes(const struct keeper *k, struct buf *out)
{
	int *pids = mem_calloc(SAMPLE_PIDS_MAX, sizeof(pids[0]));
	size_t i, n = 0, shown = 0;
	int rc;

	if (pids == NULL)
		return SP_E_NOMEM;
	rc = cgroup_processes(&k->box.cgroup, pids, SAMPLE_PIDS_MAX, &n);
	if (rc == SP_OK)
		rc = buf_add_str(out, "{\"processes\":[");
	for (i = 0; i < n && rc == SP_OK && shown < SAMPLE_SHOWN_MAX; i++)
		if (pids[i] != k->box.init_pid &&
		    put_process(out, pids[i], shown == 0, &rc))
			shown++;
	if (rc == SP_OK)
		rc = buf_printf(out, "],\"more\":%zu}", n - i);
	mem_free(pids);
	return rc;
}
