/* The query of a URL. */
#include "config.h"

#include "http/query.h"

#include "tap.h"

static void
asks(const char *query, int rc, const char *want)
{
	struct buf out = BUF_INIT(64);

	tap_is_int(query_get(view_str(query), VIEW("episode"), &out), rc,
	    query);
	if (rc == 1)
		tap_is_mem(buf_view(&out).p, buf_len(&out), want, strlen(want),
		    query);
	buf_clear(&out);
}

static void
flag(const char *query, int rc, bool want)
{
	bool on = true;

	tap_is_int(query_flag(view_str(query), VIEW("follow"), &on), rc, query);
	tap_ok(on == want, "%s: %d", query, on);
}

static void
brief(const char *query, int rc, const char *want)
{
	char text[3];
	struct view v;

	tap_is_int(query_short(view_str(query), VIEW("mode"), text,
		       sizeof(text), &v),
	    rc, query);
	if (rc == 1)
		tap_is_mem(v.p, v.n, want, strlen(want), query);
	else
		tap_ok(v.p == NULL || rc == SP_E_EXISTS, "%s: none", query);
}

int
main(void)
{
	asks("", 0, "");
	asks("episodes=1&xepisode=2", 0, "");
	asks("a=b&episode=e%31&c", 1, "e1");
	asks("episode", 1, "");
	asks("episode=a=b", 1, "a=b");
	/* what reads it behind us takes these names for the same */
	asks("%65pisode=e2", 1, "e2");
	asks("%65pisod%65=e2&a=1", 1, "e2");
	asks("episode=e1&%65pisode=e1", SP_E_EXISTS, "");
	asks("episode=e1&episode=e2", SP_E_EXISTS, "");
	asks("episode=e1&episode", SP_E_EXISTS, "");
	asks("episode=%4", SP_E_SYNTAX, "");
	asks("%6zpisode=1&episod%=2", 0, "");
	asks("Episode=1", 0, "");
	flag("", SP_OK, true);
	flag("follow=0", SP_OK, false);
	flag("follow=1", SP_OK, true);
	flag("f%6fllow=0", SP_OK, false);
	flag("follow=%30", SP_OK, false);
	flag("follow=%31", SP_OK, true);
	flag("follow=%3", SP_E_SYNTAX, true);
	flag("follow=%30%30", SP_E_SYNTAX, true);
	flag("follow=2", SP_E_SYNTAX, true);
	flag("follow", SP_E_SYNTAX, true);
	flag("follow=0&follow=1", SP_E_EXISTS, true);
	flag("follow=0&f%6fllow=0", SP_E_EXISTS, true);
	brief("", 0, "");
	brief("mode", 1, "");
	brief("a=1&mode=755", 1, "755");
	brief("mode=%37%355", 1, "755");
	brief("mode=0755", SP_E_SYNTAX, "");
	brief("mode=%7", SP_E_SYNTAX, "");
	brief("mode=7&m%6fde=7", SP_E_EXISTS, "");
	return tap_done();
}
