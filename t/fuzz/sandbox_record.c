/*
 * What a keeper that was taken over could hand on as a list or a diff: the
 * first byte chooses.  What is accepted must be the same when written again.
 */
#include "config.h"

#include "ipc/sandbox_msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int
next(struct wire *w, int list, struct buf *again)
{
	struct sandbox_dirent d;
	struct sandbox_change c;
	int rc;

	rc = list ? sandbox_msg_dirent_get(w, &d)
		  : sandbox_msg_change_get(w, &c);
	if (rc != SP_OK)
		return rc;
	return list ? sandbox_msg_dirent_put(again, &d)
		    : sandbox_msg_change_put(again, &c);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct buf again = BUF_INIT(1 << 20);
	struct wire w;
	int rc = SP_OK;

	if (n == 0)
		return 0;
	wire_init(&w, view_of(data + 1, n - 1));
	while (rc == SP_OK)
		rc = next(&w, data[0] & 1, &again);
	err_assert(rc == SP_E_EOF || rc == SP_E_PROTO);
	if (rc == SP_E_EOF)
		err_assert(view_eq(buf_view(&again), view_of(data + 1, n - 1)));
	buf_clear(&again);
	return 0;
}
