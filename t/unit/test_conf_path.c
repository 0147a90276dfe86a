/* Paths of requests and locations; upstream URLs. */
#include "conf/conf.h"
#include "conf_text.h"
#include "tap.h"
#include "base/mem.h"

static const struct {
	const char *raw, *want; /* NULL: refused */
} paths[] = {
	{ "/", "/" },
	{ "//", "/" },
	{ "/v1", "/v1" },
	{ "/v1/", "/v1" },
	{ "/v1/chat/completions", "/v1/chat/completions" },
	{ "//v1/chat/completions/", "/v1/chat/completions" },
	{ "/v1///a", "/v1/a" },
	{ "/v1/chat/completions?x=1", "/v1/chat/completions" },
	{ "/v1?/../..", "/v1" },
	{ "/a/./b", "/a/b" },
	{ "/a/.", "/a" },
	{ "/a/..", "/" },
	{ "/a/../", "/" },
	{ "/a/b/../c", "/a/c" },
	{ "/a/b/../../c", "/c" },
	{ "/a//../c", "/c" },
	{ "/...", "/..." },
	{ "/a/..b", "/a/..b" },
	{ "/.well-known", "/.well-known" },
	{ "/..", NULL },
	{ "/../a", NULL },
	{ "/a/../../b", NULL },
	{ "/%2e%2e/a", NULL },
	{ "/a/%2e%2E/b", "/b" },
	{ "/a/%2e/b", "/a/b" },
	{ "/%41%7e%5f%2d", "/A~_-" },
	{ "/%3a%40", "/%3A%40" },
	{ "/%252e%252e/x", "/%252e%252e/x" },
	{ "/%25", "/%25" },
	{ "/%2525", "/%2525" },
	{ "/%c3%a4", "/%C3%A4" },
	{ "/a%2fb", NULL },
	{ "/a%2Fb", NULL },
	{ "/a%5cb", NULL },
	{ "/a\\b", NULL },
	{ "/a%00", NULL },
	{ "/a%", NULL },
	{ "/a%4", NULL },
	{ "/a%4g", NULL },
	{ "/a%-1", NULL },
	{ "/a%+1", NULL },
	{ "/a b", NULL },
	{ "/a\tb", NULL },
	{ "/a\x7f", NULL },
	{ "/a\xc3\xa4", NULL },
	{ "/a#b", NULL },
	{ "/a\"b", NULL },
	{ "", NULL },
	{ "?x", NULL },
	{ "v1", NULL },
	{ "*", NULL },
	{ "http://h/", NULL },
	{ "/v1beta/models/m:streamGenerateContent",
	    "/v1beta/models/m:streamGenerateContent" },
	{ "/v1beta/models/m:streamGenerateContent?alt=sse",
	    "/v1beta/models/m:streamGenerateContent" },
	{ "/a!$&'()*+,;=:@b", "/a!$&'()*+,;=:@b" },
};

static void
test_paths(void)
{
	struct buf out = BUF_INIT(4096);
	size_t i;
	int rc;

	for (i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
		buf_reset(&out, 4096);
		rc = conf_path_normalise(view_str(paths[i].raw), &out);
		if (paths[i].want == NULL)
			tap_is_int(rc, SP_E_SYNTAX, paths[i].raw);
		else
			tap_is_mem(buf_view(&out).p, buf_len(&out),
			    paths[i].want, strlen(paths[i].want), paths[i].raw);
		if (paths[i].want == NULL && buf_len(&out) != 0)
			tap_ok(false, "out unchanged on an error");
	}
	buf_reset(&out, 4096);
	tap_is_int(buf_add_str(&out, "x/y"), 0, "something before");
	tap_is_int(conf_path_normalise(VIEW("/a/../b"), &out), 0, "appends");
	tap_is_mem(buf_view(&out).p, buf_len(&out), "x/y/b", 5, "appended");
	tap_is_int(conf_path_normalise(VIEW("/../b"), &out), SP_E_SYNTAX,
	    "what stands before is no way up");
	tap_is_int(conf_path_normalise(view_of("/a\0b", 4), &out), SP_E_SYNTAX,
	    "NUL");
	tap_is_mem(buf_view(&out).p, buf_len(&out), "x/y/b", 5, "unchanged");
	buf_clear(&out);

	buf_init(&out, 4);
	tap_is_int(conf_path_normalise(VIEW("/abcdef"), &out), SP_E_LIMIT,
	    "too long");
	tap_is_int((long long)buf_len(&out), 0, "unchanged");
	buf_clear(&out);

	buf_init(&out, 4096);
	mem_fail_after(1, 0);
	rc = conf_path_normalise(VIEW("/abcdef"), &out);
	mem_fail_after(0, 0);
	tap_is_int(rc, SP_E_NOMEM, "no memory");
	buf_clear(&out);
}

static const struct {
	const char *url, *host;
	unsigned port;
	bool tls;
	const char *base; /* NULL: refused */
} urls[] = {
	{ "http://h", "h", 80, false, "/v1" },
	{ "http://h/", "h", 80, false, "/v1" },
	{ "http://h/v1", "h", 80, false, "/v1" },
	{ "http://h/v1/", "h", 80, false, "/v1" },
	{ "http://h/api/paas/v4", "h", 80, false, "/api/paas/v4" },
	{ "http://h/v1beta/openai/", "h", 80, false, "/v1beta/openai" },
	{ "http://h/v1/chat/completions", "h", 80, false, "/v1" },
	{ "http://h/v1/chat/completions/", "h", 80, false, "/v1" },
	{ "http://h/chat/completions", "h", 80, false, "" },
	{ "https://h.example:8443/x", "h.example", 8443, true, "/x" },
	{ "HTTPS://h", "h", 443, true, "/v1" },
	{ "http://127.0.0.1:8000", "127.0.0.1", 8000, false, "/v1" },
	{ "http://[::1]:8000/v1", "::1", 8000, false, "/v1" },
	{ "http://[::1]", "::1", 80, false, "/v1" },
	{ "http://my_host-1", "my_host-1", 80, false, "/v1" },
	{ "http://unix:/run/x.sock", "/run/x.sock", 0, false, "/v1" },
	{ "http://unix:/run/x.sock:/v2/", "/run/x.sock", 0, false, "/v2" },
	{ "ftp://h", NULL, 0, false, NULL },
	{ "h:80", NULL, 0, false, NULL },
	{ "http:/h", NULL, 0, false, NULL },
	{ "http://", NULL, 0, false, NULL },
	{ "http:///v1", NULL, 0, false, NULL },
	{ "http://:80", NULL, 0, false, NULL },
	{ "http://h:", NULL, 0, false, NULL },
	{ "http://h:0", NULL, 0, false, NULL },
	{ "http://h:65536", NULL, 0, false, NULL },
	{ "http://h:8a", NULL, 0, false, NULL },
	{ "http://u@h", NULL, 0, false, NULL },
	{ "http://u:sk-secret@h", NULL, 0, false, NULL },
	{ "http://h/v1?key=sk-secret", NULL, 0, false, NULL },
	{ "http://h?key=sk-secret", NULL, 0, false, NULL },
	{ "http://h/#sk-secret", NULL, 0, false, NULL },
	{ "http://h/../v1", NULL, 0, false, NULL },
	{ "http://h/a%2fb", NULL, 0, false, NULL },
	{ "http://a..b", NULL, 0, false, NULL },
	{ "http://.a", NULL, 0, false, NULL },
	{ "http://1.2.3", NULL, 0, false, NULL },
	{ "http://1.2.3.400", NULL, 0, false, NULL },
	{ "http://[::1", NULL, 0, false, NULL },
	{ "http://[1.2.3.4]", NULL, 0, false, NULL },
	{ "http://[::1]x", NULL, 0, false, NULL },
	{ "http://[]", NULL, 0, false, NULL },
	{ "http://::1", NULL, 0, false, NULL },
	{ "http://a b", NULL, 0, false, NULL },
	{ "http://unix:run/x", NULL, 0, false, NULL },
	{ "http://unix:", NULL, 0, false, NULL },
	{ "http://unix:/x:v1", NULL, 0, false, NULL },
	{ "https://unix:/x", NULL, 0, false, NULL },
};

static bool
is(struct view v, const char *want)
{
	return view_eq(v, view_str(want));
}

static void
test_urls(void)
{
	struct buf err = BUF_INIT(1 << 16);
	const struct conf_upstream_server *s;
	struct conf *c;
	char text[512];
	size_t i;
	int rc;

	for (i = 0; i < sizeof(urls) / sizeof(*urls); i++) {
		snprintf(text, sizeof(text),
		    "upstream a { server \"%s\"; }\n"
		    "server { listen 1; location / { health; } }",
		    urls[i].url);
		buf_reset(&err, 0);
		rc = conf_text_parse(text, &c, &err);
		if (urls[i].base == NULL) {
			tap_is_int(rc, SP_E_CONF, urls[i].url);
			if (view_search(buf_view(&err), VIEW("sk-secret")) <
			    buf_len(&err))
				tap_ok(false, "the URL is not echoed");
			conf_free(c);
			continue;
		}
		s = rc == 0 ? &c->upstreams[0]->servers[0] : NULL;
		tap_ok(s != NULL && is(s->host, urls[i].host) &&
			s->port == urls[i].port && s->tls == urls[i].tls &&
			s->is_unix == (s->port == 0) &&
			is(s->base, urls[i].base) && is(s->url, urls[i].url),
		    "%s", urls[i].url);
		conf_free(c);
	}
	buf_clear(&err);
}

int
main(void)
{
	test_paths();
	test_urls();
	return tap_done();
}
