#include "config.h"

#include <string.h>

#include "base/num.h"
#include "ctl/ctl_record.h"
#include "os/fd.h"

enum { BLOCK = 256 * 1024, LINE_MAX_BYTES = 1024 * 1024 * 1024 };

static const char *const names[CTL_MEMBERS] = {
	[CTL_TURN] = "turn",
	[CTL_SESSION] = "session",
	[CTL_REQUEST] = "request",
	[CTL_RESPONSE] = "response",
	[CTL_TOKENS] = "completion_tokens",
	[CTL_IDS] = "completion_token_ids",
	[CTL_LOGPS] = "per_token_logps",
	[CTL_PROMPT_IDS] = "prompt_token_ids",
	[CTL_FINISH] = "finish_reason",
	[CTL_REASONING] = "reasoning",
	[CTL_USAGE] = "usage",
	[CTL_ALIGNED] = "aligned",
	[CTL_LATENCY] = "latency_s",
	[CTL_TTFT] = "ttft_s",
	[CTL_TIMESTAMP] = "timestamp",
	[CTL_STATUS] = "upstream_status",
	[CTL_ERROR] = "upstream_error",
	[CTL_COMPLETE] = "complete",
	[CTL_ABORTED] = "aborted",
	[CTL_FINDINGS] = "findings",
	[CTL_METADATA] = "metadata",
};

int
ctl_record_read(struct ctl_record *r, struct view line)
{
	struct jscan_span key, v;
	struct jscan s;
	int rc, i;

	*r = (struct ctl_record){ .line = line };
	jscan_init(&s, line, 0);
	rc = jscan_enter(&s);
	while (rc == 0 && (rc = jscan_member(&s, &key)) == 1) {
		rc = jscan_skip(&s, &v);
		for (i = 0; rc == 0 && i < CTL_MEMBERS; i++)
			if (jscan_is(&s, &key, view_str(names[i])))
				r->v[i] = jscan_raw(&s, &v);
	}
	return rc == 0 && jscan_finish(&s) == 0 ? 0 : SP_E_SYNTAX;
}

struct view
ctl_record_get(struct view object, struct view name)
{
	struct jscan_span v;
	struct jscan s;

	jscan_init(&s, object, 0);
	if (object.n == 0 || object.p[0] != '{' ||
	    jscan_find(object, name, &v) != 1)
		return VIEW_NONE;
	return jscan_raw(&s, &v);
}

uint64_t
ctl_record_number(struct view text)
{
	uint64_t n = 0;

	return num_u64(text, 0, UINT64_MAX, &n) == 0 ? n : 0;
}

int
ctl_record_string(struct view text, struct buf *out)
{
	struct jscan_span v;
	struct jscan s;
	int rc;

	jscan_init(&s, text, 0);
	if (jscan_peek(&s) != JSCAN_STRING)
		return SP_E_SYNTAX;
	rc = jscan_skip(&s, &v);
	return rc == 0 ? jscan_decode(&s, &v, out, NULL) : rc;
}

size_t
ctl_record_count(struct view array)
{
	struct jscan_span v;
	struct jscan s;
	size_t n = 0;

	jscan_init(&s, array, 0);
	if (jscan_peek(&s) != JSCAN_ARRAY || jscan_enter(&s) != 0)
		return 0;
	while (jscan_element(&s) == 1 && jscan_skip(&s, &v) == 0)
		n++;
	return n;
}

int
ctl_record_lines(int fd, uint64_t *torn,
    int (*each)(void *arg, struct view line), void *arg)
{
	struct buf b = BUF_INIT(LINE_MAX_BYTES);
	size_t seen = 0, got, at;
	int rc = 0;

	while (rc == 0) {
		rc = buf_reserve(&b, BLOCK);
		if (rc == 0)
			rc = fd_read(fd, buf_tail(&b), BLOCK, &got);
		if (rc != 0)
			break;
		buf_grow(&b, got);
		/* bytes before `seen` hold no line end */
		while (rc == 0) {
			at = seen +
			    view_find(view_from(buf_view(&b), seen), '\n');
			if (at >= buf_len(&b))
				break;
			rc = each(arg, view_sub(buf_view(&b), 0, at));
			buf_consume(&b, at + 1);
			seen = 0;
		}
		seen = buf_len(&b);
	}
	*torn = buf_len(&b);
	buf_clear(&b);
	return rc == SP_E_EOF ? 0 : rc;
}
