/* core/helper/fleetlog.c: what a reactor says of servers, for the next one. */
#include "config.h"

#include "base/mem.h"
#include "conf_text.h"
#include "helper/fleetlog.h"
#include "ipc/wire.h"
#include "tap.h"

#define SERVER "server { listen 127.0.0.1:0; location /h { health; } }\n"

enum { ADD, REMOVE, DRAIN, BAD };

static struct conf *first, *second;
static char told[65536];

static struct view
body_of(struct buf *b, uint8_t op, const char *upstream, const char *url)
{
	buf_reset(b, 0);
	if (wire_put_u8(b, op) != SP_OK ||
	    wire_put_bytes(b, view_str(upstream)) != SP_OK ||
	    wire_put_bytes(b, view_str(url)) != SP_OK)
		abort();
	return buf_view(b);
}

static int
note(struct fleetlog *l, uint8_t op, const char *upstream, const char *url)
{
	struct buf b = BUF_INIT(8192);
	int rc = fleetlog_note(l, first, body_of(&b, op, upstream, url));

	buf_clear(&b);
	return rc;
}

static int
tell(void *arg, struct view body)
{
	struct wire w;
	struct view upstream, url;
	size_t at = strlen(told);
	uint8_t op;

	wire_init(&w, body);
	op = wire_u8(&w);
	upstream = wire_bytes(&w);
	url = wire_bytes(&w);
	snprintf(told + at, sizeof(told) - at, "%c %.*s %.*s;", "ard"[op],
	    VIEW_ARG(upstream), VIEW_ARG(url));
	return arg == NULL ? wire_done(&w) : SP_E_GONE;
}

static const char *
all(const struct fleetlog *l)
{
	told[0] = '\0';
	if (fleetlog_each(l, tell, NULL) != SP_OK)
		return "failed";
	return told;
}

static void
test_notes(void)
{
	struct fleetlog *l = fleetlog_new();

	tap_is_str(all(l), "", "nothing at first");
	tap_is_int(note(l, ADD, "a", "http://x:1/v1"), SP_OK, "one is added");
	tap_is_int(note(l, DRAIN, "b", "http://one:1"), SP_OK, "one drains");
	tap_is_str(all(l), "a a http://x:1/v1;d b http://one:1;",
	    "both are told, in order");
	tap_is_int(note(l, REMOVE, "a", "http://x:1/v1"), SP_OK, "removed");
	tap_is_str(all(l), "d b http://one:1;r a http://x:1/v1;",
	    "the last word counts, and comes last");
	tap_is_int(note(l, ADD, "none", "http://x:1"), SP_OK,
	    "an upstream that is gone");
	tap_is_str(all(l), "d b http://one:1;r a http://x:1/v1;",
	    "is not kept");
	tap_is_int(fleetlog_each(l, tell, l), SP_E_GONE, "nobody listens");
	fleetlog_reload(l, first, second);
	tap_is_str(all(l), "d b http://one:1;",
	    "another server line, and its upstream's changes are over");
	fleetlog_free(l);
	fleetlog_free(NULL);
}

static void
test_hostile(void)
{
	struct fleetlog *l = fleetlog_new();
	struct buf b = BUF_INIT(8192);
	char url[3000];
	size_t i;

	tap_is_int(note(l, BAD, "a", "http://x:1"), SP_E_PROTO, "no such op");
	tap_is_int(note(l, ADD, "a", "ftp://x:1"), SP_E_PROTO, "no such URL");
	tap_is_int(note(l, ADD, "a", ""), SP_E_PROTO, "no URL");
	tap_is_int(note(l, ADD, "a", "http://x:1/\n"), SP_E_PROTO,
	    "a URL with a line end");
	memset(url, 'x', sizeof(url));
	memcpy(url, "http://x/", 9);
	url[sizeof(url) - 1] = '\0';
	tap_is_int(note(l, ADD, "a", url), SP_E_PROTO, "a long URL");
	(void)body_of(&b, ADD, "a", "http://x:1");
	for (i = 0; i < buf_len(&b); i++)
		if (fleetlog_note(l, first, view_sub(buf_view(&b), 0, i)) !=
		    SP_E_PROTO)
			break;
	tap_is_int((int)i, (int)buf_len(&b), "every cut body is refused");
	tap_is_int(buf_add_char(&b, 'x'), SP_OK, "something behind it");
	tap_is_int(fleetlog_note(l, first, buf_view(&b)), SP_E_PROTO,
	    "is refused");
	tap_is_str(all(l), "", "nothing of it is kept");
	for (i = 0; i < FLEETLOG_MAX + 10; i++) {
		snprintf(url, sizeof(url), "http://x:%zu", i + 1);
		if (note(l, ADD, "a", url) != SP_OK)
			break;
	}
	tap_is_int((int)i, FLEETLOG_MAX + 10, "too many are no fault");
	tap_ok(strstr(all(l), "http://x:1024;") != NULL &&
		strstr(told, "http://x:1025;") == NULL,
	    "and not kept");
	buf_clear(&b);
	fleetlog_free(l);
}

static void
test_memory(void)
{
	struct fleetlog *l;
	unsigned n;
	bool good = true;

	mem_fail_after(1, 0);
	tap_ok(fleetlog_new() == NULL, "no memory at all");
	mem_fail_after(0, 0);
	l = fleetlog_new();
	for (n = 0; n < 8; n++) {
		struct buf b = BUF_INIT(8192);
		struct view v = body_of(&b, ADD, "a", "http://x:1");

		mem_fail_after(n + 1, 0);
		good = good && fleetlog_note(l, first, v) == SP_OK;
		mem_fail_after(0, 0);
		buf_clear(&b);
	}
	tap_ok(good, "without memory a change is lost, and nothing else");
	tap_is_str(all(l), "a a http://x:1;", "and kept when there is some");
	fleetlog_free(l);
}

static struct conf *
conf_of(const char *text)
{
	struct buf err = BUF_INIT(65536);
	struct conf *c = NULL;

	if (conf_text_parse(text, &c, &err) != SP_OK) {
		tap_diag("%.*s", VIEW_ARG(buf_view(&err)));
		abort();
	}
	buf_clear(&err);
	return c;
}

int
main(void)
{
	first = conf_of("upstream a { server http://one:1; }\n"
			"upstream b { server http://one:1; }\n" SERVER);
	second = conf_of("upstream a { server http://two:1; }\n"
			 "upstream b { server http://one:1; }\n" SERVER);
	test_notes();
	test_hostile();
	test_memory();
	conf_free(first);
	conf_free(second);
	return tap_done();
}
