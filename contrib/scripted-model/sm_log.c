#include "sm_log.h"

#include <errno.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "sm_out.h"

enum { LINE_MAX_BYTES = 1 << 30 };

static void
write_line(int fd, struct sm_out *o)
{
	struct view v;

	sm_out_str(o, "\n");
	v = buf_view(&o->b);
	while (o->err == 0 && v.n > 0) {
		ssize_t n = write(fd, v.p, v.n);

		if (n < 0 && errno != EINTR)
			break;
		if (n > 0)
			v = view_from(v, (size_t)n);
	}
	sm_out_clear(o);
}

static void
put_headers(struct sm_out *o, const struct sm_http *h)
{
	size_t i;

	sm_out_str(o, ",\"headers\":{");
	for (i = 0; i < h->headers_n; i++) {
		if (i > 0)
			sm_out_str(o, ",");
		sm_out_quoted(o, h->headers[i].name);
		sm_out_str(o, ":");
		sm_out_quoted(o, h->headers[i].value);
	}
	sm_out_str(o, "},\"header_names\":["); /* also those sent twice */
	for (i = 0; i < h->headers_n; i++) {
		if (i > 0)
			sm_out_str(o, ",");
		sm_out_quoted(o, h->headers[i].name);
	}
	sm_out_str(o, "]");
}

void
sm_log_request(int fd, uint64_t conn, uint64_t request, const struct sm_http *h)
{
	struct view body = buf_view(&h->body);
	struct sm_out o;

	if (fd < 0)
		return;
	sm_out_init(&o, LINE_MAX_BYTES);
	sm_out_fmt(&o,
	    "{\"event\":\"request\",\"conn\":%llu,\"request\":%llu,"
	    "\"at_us\":%llu,\"method\":",
	    (unsigned long long)conn, (unsigned long long)request,
	    (unsigned long long)clock_us());
	sm_out_quoted(&o, h->method);
	sm_out_str(&o, ",\"path\":");
	sm_out_quoted(&o, h->target);
	put_headers(&o, h);
	sm_out_fmt(&o, ",\"body_bytes\":%zu,\"body\":", body.n);
	sm_out_quoted(&o, body);
	if (!utf8_valid(body)) {
		sm_out_str(&o, ",\"body_base64\":\"");
		sm_out_base64(&o, body);
		sm_out_str(&o, "\"");
	}
	sm_out_str(&o, "}");
	write_line(fd, &o);
}

void
sm_log_end(int fd, uint64_t conn, uint64_t request, const char *how,
    uint64_t sent)
{
	struct sm_out o;

	if (fd < 0)
		return;
	sm_out_init(&o, 4096);
	sm_out_fmt(&o,
	    "{\"event\":\"end\",\"conn\":%llu,\"request\":%llu,"
	    "\"at_us\":%llu,\"how\":\"%s\",\"sent\":%llu}",
	    (unsigned long long)conn, (unsigned long long)request,
	    (unsigned long long)clock_us(), how, (unsigned long long)sent);
	write_line(fd, &o);
}
