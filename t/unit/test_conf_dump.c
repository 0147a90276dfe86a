/* -T reads back as itself; the shipped files parse; the manual agrees. */
#include "base/mem.h"
#include "conf/core_conf.h"
#include "conf/parse.h"
#include "conf_text.h"
#include "tap.h"

/* Dump of a text; empty when it does not parse. */
static bool
dump_of(const char *text, struct buf *out)
{
	struct buf err = BUF_INIT(1 << 16);
	struct conf *c;
	int rc;

	rc = conf_text_parse(text, &c, &err);
	if (rc == 0)
		rc = conf_dump(c, out);
	if (rc != 0)
		tap_diag("%d: %.*s", rc, VIEW_ARG(buf_view(&err)));
	conf_free(c);
	buf_clear(&err);
	return rc == 0 && buf_add_char(out, '\0') == 0;
}

static void
test_round(const char *text, const char *what)
{
	struct buf a = BUF_INIT(1 << 20), b = BUF_INIT(1 << 20);

	tap_ok(text != NULL && dump_of(text, &a) && dump_of(buf_view(&a).p, &b),
	    "%s: dumps, and parses again", what);
	tap_is_mem(buf_view(&b).p, buf_len(&b), buf_view(&a).p, buf_len(&a),
	    what);
	buf_clear(&a);
	buf_clear(&b);
}

static const char full[] =
    "user a b; trace_group g; state_dir 's d/$x\"'; error_log log debug;\n"
    "control '/a b' g; access_log /a/b; resolver 1.2.3.4 [::1]:53; pid_file "
    "p;\n"
    "connections 5; max_calls 7; queue 8 9s; drain_timeout off; "
    "recorder_buffer 1025k;\n"
    "header_max 1025; keepalive_timeout 1500ms;\n"
    "upstream u { server https://h:1/x; server http://unix:/s:/y;\n"
    "api_key 'file:/a b;c'; model \"a \\\"b\\\" \\\\ {c}\"; balance "
    "least_conn; first_byte_timeout 3s; tls_verify off; "
    "health_check /h?x rise=7 interval=1500ms; }\n"
    "upstream v { server https://h/; ca x.pem; }\n"
    "capture c { level tokens; sampling temperature=0.7 top_k=-1; "
    "max_tokens_cap 9; thinking off; trace '/t/a;b $session'; trace_keep "
    "off 1g; }\n"
    "capture d { trace /t/d; trace_keep off; }\n"
    "server { listen 1; listen [::1]:2 ssl; listen 'unix:/a b'; "
    "server_name x y; certificate env:C; certificate_key env:K;\n"
    "location '/a;b' { status; token env:T; send_timeout 1d; }\n"
    "location /v1 { llm_intercept; upstream u; capture off; keys open; "
    "pass '/v1/x;y' /v1/z; keepalive_comment 1h; }\n"
    "location /v2 { llm_intercept; upstream u; capture c; } }\n";

static void
test_files(void)
{
	static const char *const names[] = { "conf/minimal.conf",
		"conf/sallyport.conf" };
	size_t i, lines;
	const char *p;
	char *text;

	for (i = 0; i < 2; i++) {
		text = conf_text_file(names[i]);
		test_round(text, names[i]);
		lines = 0;
		for (p = text; i == 0 && p != NULL && *p != '\0'; p++)
			lines += *p == '\n';
		if (i == 0)
			tap_is_int((long long)lines, 8, "eight lines");
		free(text);
	}
}

/* The word stands in the text with nothing of a word around it. */
static bool
has_word(const char *text, const char *word)
{
	size_t n = strlen(word);
	const char *p = text;

	while ((p = strstr(p, word)) != NULL) {
		if (p > text && strchr(" \n", p[-1]) != NULL &&
		    strchr(" ;", p[n]) != NULL)
			return true;
		p += n;
	}
	return false;
}

/* A line of the text shows it and says that it has a default, though none. */
static bool
says_optional(const char *text, const char *word)
{
	const char *end = NULL;
	char line[256];

	for (; text != NULL && *text != 0; text = end + 1) {
		end = strchr(text, '\n');
		if (end == NULL)
			return false;
		(void)snprintf(line, sizeof(line), "%.*s", (int)(end - text),
		    text);
		if (strstr(line, "default none") != NULL &&
		    has_word(line, word))
			return true;
	}
	return false;
}

/* Those that an environment's worker must have. */
static void
test_needed(void)
{
	char *text = conf_text_file("conf/sallyport.conf");
	const struct conf_directive *row;

	for (row = core_conf_env_run_worker; row->name != NULL; row++)
		tap_ok((row->flags & CONF_REQUIRED) != 0 &&
			!says_optional(text, row->name),
		    "the reference does not call %s optional", row->name);
	free(text);
}

static void
test_reference(void)
{
	char *text = conf_text_file("conf/sallyport.conf");
	const struct conf_directive *row;
	size_t i, missing = 0;

	for (i = 0; conf_lookup_owners[i].rows != NULL; i++) {
		for (row = conf_lookup_owners[i].rows; row->name != NULL;
		     row++) {
			if (text != NULL && has_word(text, row->name))
				continue;
			tap_diag("not in sallyport.conf: %s", row->name);
			missing++;
		}
	}
	for (i = 0; conf_modules[i] != NULL; i++) {
		for (row = conf_modules[i]->directives; row->name != NULL;
		     row++) {
			if (text != NULL && has_word(text, row->name))
				continue;
			tap_diag("not in sallyport.conf: %s", row->name);
			missing++;
		}
	}
	tap_is_int((long long)missing, 0, "the reference has all directives");
	free(text);
}

/* With an argument, prints what the manual should hold. */
static void
test_manual(bool print)
{
	static const char from[] = ".\\\" directives, from the rows\n";
	static const char to[] = ".\\\" end of directives\n";
	struct buf want = BUF_INIT(1 << 20);
	char *page = conf_text_file("man/sallyport.conf.5");
	const char *begin = NULL, *end = NULL;

	tap_is_int(conf_manual(&want), 0, "conf_manual");
	if (print)
		fprintf(stderr, "%.*s", (int)buf_len(&want), buf_view(&want).p);
	if (page != NULL)
		begin = strstr(page, from);
	if (begin != NULL)
		end = strstr(begin, to);
	if (end == NULL)
		tap_ok(false, "sallyport.conf(5) has a part for directives");
	else
		tap_is_mem(begin + sizeof(from) - 1,
		    (size_t)(end - begin) - (sizeof(from) - 1),
		    buf_view(&want).p, buf_len(&want),
		    "sallyport.conf(5) agrees with the rows");
	free(page);
	buf_clear(&want);
}

static void
test_rows(const struct conf_directive *row)
{
	bool good = true;

	for (; row->name != NULL; row++) {
		good = good && row->doc != NULL && row->scopes != 0;
		if (row->type == CONF_CUSTOM)
			good = good && row->parse != NULL &&
			    row->dump != NULL && row->args != NULL;
		if (row->type == CONF_BLOCK)
			good = good && row->parse != NULL && row->opens != 0;
		if (row->type == CONF_CHOICE)
			good = good && row->choices != NULL;
	}
	tap_ok(good, "rows are whole");
}

static void
test_memory(void)
{
	struct buf err = BUF_INIT(1 << 16), out = BUF_INIT(1 << 20);
	unsigned long n;
	struct conf *c;
	int rc = SP_E_NOMEM;

	tap_is_int(conf_text_parse(full, &c, &err), 0, "parses");
	for (n = 1; rc == SP_E_NOMEM && n < 1000; n++) {
		buf_clear(&out);
		mem_fail_after(n, 0);
		rc = conf_dump(c, &out);
	}
	mem_fail_after(0, 0);
	tap_is_int(rc, 0, "dumps after failures");
	rc = SP_E_NOMEM;
	for (n = 1; rc == SP_E_NOMEM && n < 1000; n++) {
		buf_clear(&out);
		mem_fail_after(n, 0);
		rc = conf_manual(&out);
	}
	mem_fail_after(0, 0);
	tap_is_int(rc, 0, "manual after failures");
	buf_clear(&out);
	buf_init(&out, 10);
	tap_is_int(conf_dump(c, &out), SP_E_LIMIT, "no room");
	buf_clear(&out);
	buf_clear(&err);
	conf_free(c);
}

int
main(int argc, char **argv)
{
	size_t i;

	(void)argv;
	test_round(full, "all kinds of values");
	test_files();
	test_reference();
	test_needed();
	for (i = 0; conf_lookup_owners[i].rows != NULL; i++)
		test_rows(conf_lookup_owners[i].rows);
	for (i = 0; conf_modules[i] != NULL; i++)
		test_rows(conf_modules[i]->directives);
	test_manual(argc > 1);
	test_memory();
	return tap_done();
}
