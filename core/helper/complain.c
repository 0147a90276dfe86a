#include "config.h"

#include <stdio.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/num.h"
#include "helper/complain.h"

enum { COMPLAIN_MAX = 16 * 1024 };

static bool to_log;
static const struct proxycmd *proxy;
static struct buf *copies;

void
complain_to_log(bool on)
{
	to_log = on;
}

void
complain_about_proxy(const struct proxycmd *p)
{
	proxy = p;
}

void
complain_copy(struct buf *to)
{
	copies = to;
}

/* The text of `proxy` is no file that anybody knows: an argument is. */
static const char *
complain_argument(struct view *v)
{
	static const struct view place = { "proxy:", 6 };
	const char *name;
	uint64_t line;
	struct view rest;
	size_t n;

	if (proxy == NULL || !view_starts(*v, place))
		return NULL;
	rest = view_from(*v, place.n);
	n = view_find(rest, ':');
	if (n >= rest.n ||
	    num_u64(view_sub(rest, 0, n), 1, 1000, &line) != SP_OK)
		return NULL;
	name = proxycmd_argument(proxy, (unsigned)line);
	if (name != NULL)
		*v = view_from(rest, n + 1);
	return name;
}

static void
complain_out(const char *argument, struct view v)
{
	const char *who = argument != NULL ? "proxy: " : "";
	const char *colon = argument != NULL ? ":" : "";

	if (argument == NULL)
		argument = "";
	if (to_log)
		log_error("%s%s%s%.*s", who, argument, colon, VIEW_ARG(v));
	else
		fprintf(stderr, "%s%s%s%s%.*s\n",
		    who[0] != 0 ? "sallyport: " : "", who, argument, colon,
		    VIEW_ARG(v));
	/* what does not fit is in the log */
	if (copies != NULL &&
	    buf_printf(copies, "%s%s%s%.*s\n", who, argument, colon,
		VIEW_ARG(v)) != SP_OK)
		copies = NULL;
}

void
complain(const char *fmt, ...)
{
	static const struct view name = { "sallyport: ", 11 };
	struct buf b = BUF_INIT(COMPLAIN_MAX);
	struct view v = VIEW("out of memory");
	const char *argument;
	va_list ap;

	va_start(ap, fmt);
	if (buf_vprintf(&b, fmt, ap) == SP_OK)
		v = buf_view(&b);
	va_end(ap);
	/* the log has a column for who it is */
	if (to_log && view_starts(v, name))
		v = view_from(v, name.n);
	argument = complain_argument(&v);
	complain_out(argument, v);
	buf_clear(&b);
}
