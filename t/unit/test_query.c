/* The query of a URL. */
#include "config.h"

#include "http/query.h"

#include "tap.h"

static void
gets(const char *query, int rc, const char *want)
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

int
main(void)
{
	gets("", 0, "");
	gets("episodes=1&xepisode=2", 0, "");
	gets("a=b&episode=e%31&c", 1, "e1");
	gets("episode", 1, "");
	gets("episode=a=b", 1, "a=b");
	/* what reads it behind us takes these names for the same */
	gets("%65pisode=e2", 1, "e2");
	gets("%65pisod%65=e2&a=1", 1, "e2");
	gets("episode=e1&%65pisode=e1", SP_E_EXISTS, "");
	gets("episode=e1&episode=e2", SP_E_EXISTS, "");
	gets("episode=e1&episode", SP_E_EXISTS, "");
	gets("episode=%4", SP_E_SYNTAX, "");
	gets("%6zpisode=1&episod%=2", 0, "");
	gets("Episode=1", 0, "");
	flag("", SP_OK, true);
	flag("follow=0", SP_OK, false);
	flag("follow=1", SP_OK, true);
	flag("f%6fllow=0", SP_OK, false);
	flag("follow=2", SP_E_SYNTAX, true);
	flag("follow", SP_E_SYNTAX, true);
	flag("follow=0&follow=1", SP_E_EXISTS, true);
	flag("follow=0&f%6fllow=0", SP_E_EXISTS, true);
	return tap_done();
}
