/* scripted-model when memory runs out at any allocation, and its tokens. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "sm_answer.h"
#include "sm_wire.h"
#include "tap.h"

static int
one_call(struct sm_answer *s, const char *body, struct sm_reply **out)
{
	struct buf in = BUF_INIT(1 << 20);
	struct sm_http h;
	int rc;

	*out = NULL;
	sm_http_init(&h, 1 << 20);
	rc = buf_printf(&in,
	    "POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %zu\r\n\r\n"
	    "%s",
	    strlen(body), body);
	if (rc == 0)
		rc = sm_http_feed(&h, &in);
	if (rc == 0)
		rc = sm_answer_request(s, &h, out);
	sm_http_reset(&h);
	buf_clear(&in);
	return rc;
}

static void
drop_cache(struct sm_answer *s)
{
	size_t i;

	for (i = 0; i < SM_ANSWER_CACHED; i++) {
		sm_reply_unref(s->cache[i]);
		s->cache[i] = NULL;
	}
}

static void
starve(struct sm_answer *s, const char *body, const char *what)
{
	struct sm_reply *r, *whole;
	unsigned long n;
	int rc = -1;

	if (one_call(s, body, &whole) != 0 || whole == NULL) {
		tap_ok(false, "%s: answered", what);
		return;
	}
	for (n = 1; n < 100000 && rc != 0; n++) {
		drop_cache(s);
		s->serial = 0;
		mem_fail_after(n, 0);
		rc = one_call(s, body, &r);
		mem_fail_after(0, 0);
		if (rc == 0)
			break;
		if (rc != SP_E_NOMEM || r != NULL)
			break;
	}
	tap_ok(rc == 0 && n > 5, "%s: each of %lu failures is no memory", what,
	    n - 1);
	s->serial = 0;
	sm_reply_unref(whole);
	if (rc == 0 && one_call(s, body, &whole) == 0) {
		struct view a = buf_view(&whole->bytes);
		struct view b = buf_view(&r->bytes);

		tap_is_mem(b.p, b.n, a.p, a.n, what);
		sm_reply_unref(whole);
	}
	sm_reply_unref(r);
}

static void
test_starve(void)
{
	struct sm_answer s = { .model = VIEW("m") };
	const char *agent =
	    "{\"stream\":true,\"logprobs\":true,\"return_token_ids\":true,"
	    "\"stream_options\":{\"include_usage\":true},\"tools\":["
	    "{\"function\":{\"name\":\"write\"}},"
	    "{\"function\":{\"name\":\"bash\"}}],\"messages\":["
	    "{\"role\":\"system\",\"content\":\"Working directory: /w\"},"
	    "{\"role\":\"user\",\"content\":[{\"text\":\"x\"}]},"
	    "{\"role\":\"assistant\",\"reasoning\":\"r\",\"tool_calls\":["
	    "{\"function\":{\"name\":\"write\",\"arguments\":\"{}\"}}]},"
	    "{\"role\":\"tool\",\"content\":\"ok\"}]}";

	starve(&s, agent, "an agent's stream");
	starve(&s, "{\"messages\":[],\"logprobs\":true,\"top_logprobs\":2}",
	    "a unary call");
	starve(&s, "{", "a broken body");
	sm_answer_clear(&s);
	s = (struct sm_answer){ .model = VIEW("m"),
		.bulk_events = 5,
		.unary_bytes = 900 };
	starve(&s, "{\"stream\": true}", "a bulk stream");
	starve(&s, "{}", "a bulk unary call");
	sm_answer_clear(&s);
}

static void
test_script(void)
{
	char path[] = "/tmp/sm_script_XXXXXX";
	const char text[] = "{\"turns\":[{\"encoding\":\"gzip\",\"steps\":["
			    "{\"text\":\"a b\"},{\"event\":{\"a\":[1]}},"
			    "{\"wire\":\"<'x' x 9><|>\"}]}]}";
	struct sm_answer s = { .model = VIEW("m") };
	int fd = mkstemp(path), rc = -1, null;
	unsigned long n;

	if (fd < 0 || write(fd, text, sizeof(text) - 1) < 0) {
		tap_ok(false, "a file for the script");
		return;
	}
	close(fd);
	fd = dup(2);
	null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	dup2(null, 2); /* each failure is told there */
	close(null);
	for (n = 1; n < 1000 && rc != 0; n++) {
		mem_fail_after(n, 0);
		rc = sm_script_load(path, &s.script);
		mem_fail_after(0, 0);
	}
	dup2(fd, 2);
	close(fd);
	unlink(path);
	tap_ok(rc == 0 && n > 5, "a script is loaded after %lu failures", n);
	if (rc == 0)
		starve(&s, "{\"stream\":true}", "a script's turn");
	sm_answer_clear(&s);
}

static void
test_tokens(void)
{
	const char *texts[] = { "", "a", "  two  spaces\n\n", "na\xc3\xafve",
		"\xf0\x9f\x98\x80\xf0\x9f\x98\x80\xf0\x9f\x98\x80",
		"{\"a\": [1, 2.5]}\r\n\tx", "\xff\xfe bad \x80", " ", "\n" };
	size_t i, k, n;

	for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct sm_tokens l = { 0 };
		bool good = true;

		sm_token_split(&l, view_str(texts[i]));
		for (k = n = 0; k < l.n; k++) {
			good = good && l.v[k].text.p == texts[i] + n &&
			    l.v[k].text.n > 0 && l.v[k].text.n <= 6 &&
			    l.v[k].id < 151000;
			n += l.v[k].text.n;
		}
		tap_ok(good && n == strlen(texts[i]),
		    "text %zu is its tokens, one after the other", i);
		sm_token_clear(&l);
	}
}

static void
is_wire(const char *in, const char *want, size_t want_n, size_t marks)
{
	struct sm_payload p;

	sm_reply_payload_init(&p);
	sm_wire_put(&p, view_str(in));
	tap_is_mem(buf_view(&p.body.b).p, buf_len(&p.body.b), want, want_n, in);
	tap_is_int((long long)p.marks.n, (long long)marks, "its marks");
	sm_reply_payload_clear(&p);
}

static void
test_wire(void)
{
	struct sm_out o;

	is_wire("a<CR><LF><x00><xfF>", "a\r\n\0\xff", 5, 1);
	is_wire("<'a' x 3><'' x 3><'b' x>", "aaa<'' x 3><'b' x>", 18, 1);
	is_wire("<|><WAIT 20ms><WAIT x><FIN><RST>", "<WAIT x>", 8, 7);
	is_wire("<<x41><", "<A<", 3, 1);
	sm_out_init(&o, 100);
	sm_wire_raw(&o, VIEW("\\x41\\x4\\n\\"));
	tap_is_mem(buf_view(&o.b).p, buf_len(&o.b), "A\\x4\\n\\", 7, "escapes");
	sm_out_clear(&o);
}

int
main(void)
{
	test_tokens();
	test_wire();
	test_script();
	test_starve();
	return tap_done();
}
