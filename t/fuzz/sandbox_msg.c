/* What a keeper is told to build and to run, from a helper that lies. */
#include "config.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/buf.h"
#include "ipc/sandbox_msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What was taken must come out again as it went in. */
static void
check_spec(struct view text, const struct sandbox_spec *s)
{
	struct buf b = BUF_INIT(SANDBOX_MSG_SPEC_MAX);

	if (sandbox_msg_spec_put(&b, s) != SP_OK ||
	    !view_eq(buf_view(&b), text))
		abort();
	buf_clear(&b);
}

static void
check_run(struct view text, const struct sandbox_run *r)
{
	struct buf b = BUF_INIT(SANDBOX_MSG_RUN_MAX);

	if (sandbox_msg_run_put(&b, r) != SP_OK || !view_eq(buf_view(&b), text))
		abort();
	buf_clear(&b);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct arena *a = arena_new(4UL * 1024 * 1024);
	struct view text = view_of(data, size);
	struct sandbox_spec spec;
	struct sandbox_run run;

	if (a == NULL)
		return 0;
	if (sandbox_msg_spec_get(text, a, &spec) == SP_OK)
		check_spec(text, &spec);
	if (sandbox_msg_run_get(text, a, &run) == SP_OK)
		check_run(text, &run);
	arena_free(a);
	return 0;
}
