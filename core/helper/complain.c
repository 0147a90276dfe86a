#include "config.h"

#include <stdio.h>

#include "base/buf.h"
#include "base/log.h"
#include "helper/complain.h"

enum { COMPLAIN_MAX = 16 * 1024 };

static bool to_log;

void
complain_to_log(bool on)
{
	to_log = on;
}

void
complain(const char *fmt, ...)
{
	static const struct view name = { "sallyport: ", 11 };
	struct buf b = BUF_INIT(COMPLAIN_MAX);
	struct view v = VIEW("out of memory");
	va_list ap;

	va_start(ap, fmt);
	if (buf_vprintf(&b, fmt, ap) == SP_OK)
		v = buf_view(&b);
	va_end(ap);
	/* the log has a column for who it is */
	if (to_log && view_starts(v, name))
		v = view_from(v, name.n);
	if (to_log)
		log_error("%.*s", VIEW_ARG(v));
	else
		fprintf(stderr, "%.*s\n", VIEW_ARG(v));
	buf_clear(&b);
}
