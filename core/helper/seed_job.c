#include "config.h"

#include "base/mem.h"
#include "helper/job.h"
#include "helper/seed.h"
#include "helper/seed_job.h"
#include "os/fd.h"

enum { SEED_JOB_MS = 60 * 60 * 1000 }; /* the slowest disk that is waited for */

struct seed_job {
	struct job *job;
	int state;
	char *name, *workspace;
	void (*done)(void *arg, int rc, int fd, struct view why);
	void *arg;
};

static void
seed_job_free(struct seed_job *j)
{
	mem_free(j->name);
	mem_free(j->workspace);
	mem_free(j);
}

/* In the child: what it opened is of no use to the helper. */
static int
seed_job_work(void *arg, struct buf *why)
{
	const struct seed_job *j = arg;
	int fd = -1, rc;

	rc = seed_capture(j->state, view_str(j->name), j->workspace, &fd, NULL,
	    why);
	fd_close(&fd);
	return rc;
}

static void
seed_job_end(void *arg, int rc, struct view why)
{
	struct seed_job *j = arg;
	int fd = -1;

	if (rc == SP_OK) {
		rc = seed_open(j->state, view_str(j->name), &fd);
		why = view_str(err_str(rc));
	}
	j->done(j->arg, rc, fd, why);
	seed_job_free(j);
}

struct seed_job *
seed_job_start(struct poller *p, int state, struct view name,
    struct view workspace,
    void (*done)(void *arg, int rc, int fd, struct view why), void *arg)
{
	struct seed_job *j = mem_calloc(1, sizeof(*j));
	const struct job_plan plan = {
		.timeout_ms = SEED_JOB_MS,
		.work = seed_job_work,
		.done = seed_job_end,
		.arg = j,
		.keep = &state,
		.keep_n = 1,
	};

	if (j == NULL)
		return NULL;
	j->state = state;
	j->done = done;
	j->arg = arg;
	j->name = mem_strndup(name.p, name.n);
	j->workspace = mem_strndup(workspace.p, workspace.n);
	if (j->name != NULL && j->workspace != NULL)
		j->job = job_start(p, &plan);
	if (j->job == NULL) {
		seed_job_free(j);
		return NULL;
	}
	return j;
}

void
seed_job_drop(struct seed_job *j)
{
	if (j == NULL)
		return;
	job_drop(j->job);
	seed_job_free(j);
}
