/* Files and includes to one text. */
#include <sys/stat.h>

#include <unistd.h>

#include "base/mem.h"
#include "conf_text.h"
#include "tap.h"

static char dir[] = "/tmp/conf-expand-XXXXXX";

static const char *
in_dir(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static void
put_bytes(const char *name, const void *p, size_t n)
{
	FILE *f = fopen(in_dir(name), "wb");

	if (f == NULL || fwrite(p, 1, n, f) != n)
		tap_ok(false, "cannot write %s", name);
	if (f != NULL)
		fclose(f);
}

static void
put(const char *name, const char *text)
{
	put_bytes(name, text, strlen(text));
}

/* Expands and parses the file; out may be NULL. */
static int
load(const char *name, const char *extra, struct conf **out, struct buf *err)
{
	struct buf text = BUF_INIT(8 << 20);
	struct conf *c = NULL;
	int rc;

	buf_reset(err, 0);
	rc = conf_expand(in_dir(name), view_str(extra), NULL, &text, err);
	if (rc == 0)
		rc = conf_parse(buf_view(&text), NULL, &c, err);
	if (out != NULL)
		*out = c;
	else
		conf_free(c);
	buf_clear(&text);
	return rc;
}

static bool
says(const struct buf *err, const char *what)
{
	if (view_search(buf_view(err), view_str(what)) < buf_len(err))
		return true;
	tap_diag("%.*s", VIEW_ARG(buf_view(err)));
	return false;
}

static void
test_good(struct buf *err)
{
	struct conf *c;
	char want[300];

	put("loc.conf", "location /health { health; }");
	put("d/b.conf", "capture b { trace b; }\n");
	put("d/a.conf", "capture a { trace a; }\n\n");
	put("d/x.txt", "bogus;");
	put("up.conf", "upstream u { server http://h; api_key file:key; }");
	put("main.conf",
	    "include d/*.conf;\ninclude \"up.conf\";include none*.conf;\n"
	    "server { listen 1;\n    include loc.conf; # x\n"
	    "location / { status; token env:T; } }\n");
	if (!tap_is_int(load("main.conf", "pid_file p;", &c, err), 0,
		"includes"))
		tap_diag("%.*s", VIEW_ARG(buf_view(err)));
	if (c == NULL)
		return;
	tap_ok(c->captures_n == 2 && view_eq(c->captures[0]->name, VIEW("a")) &&
		view_eq(c->captures[1]->name, VIEW("b")),
	    "a pattern's files come sorted");
	tap_ok(c->servers[0]->locations_n == 2, "an include in a block");
	tap_is_int(c->servers[0]->locations[1]->pos.line, 5,
	    "lines go on after an include");
	snprintf(want, sizeof(want), "%s/key", dir);
	tap_ok(view_eq(c->upstreams[0]->api_key->name, view_str(want)),
	    "paths are relative to their file");
	snprintf(want, sizeof(want), "%s/p", dir);
	tap_ok(view_eq(c->main.pid_file, view_str(want)),
	    "those of -g to the first file");
	conf_free(c);

	tap_is_int(load("main.conf", "connections x;", NULL, err), SP_E_CONF,
	    "an error in -g");
	tap_ok(says(err, "-g:1: bad value"), "is placed there");
	put("mark.conf", "# E\nE\nF 1 1\nT 1 1\n;\nserver { listen 1; }\n");
	tap_is_int(load("mark.conf", "", NULL, err), SP_E_CONF, "forged marks");
	tap_ok(says(err, "unknown directive \"E\""), "are only words");
	put("bom.conf", "\xef\xbb\xbfserver { listen 1; }");
	tap_is_int(load("bom.conf", "", NULL, err), 0, "a byte order mark");
}

static void
test_errors(struct buf *err)
{
	put("bad.conf", "\n\nbogus;\n");
	put("m.conf", "\ninclude bad.conf;\nserver { listen 1; }\nx_y_z;\n");
	tap_is_int(load("m.conf", "", NULL, err), SP_E_CONF, "two files");
	tap_ok(says(err, "/bad.conf:3: unknown") &&
		says(err, "/m.conf:4: unknown"),
	    "errors have their own file");

	tap_is_int(load("nope.conf", "", NULL, err), SP_E_CONF, "no file");
	tap_ok(says(err, "nope.conf\": No such file"), "said so");
	put("m.conf", "\ninclude nope.conf;\n");
	tap_is_int(load("m.conf", "", NULL, err), SP_E_CONF, "no include");
	tap_ok(says(err, "m.conf:2: cannot open"), "with its place");
	put("m.conf", "include d;\n");
	tap_is_int(load("m.conf", "", NULL, err), SP_E_CONF, "directory");
	tap_ok(says(err, "is a directory; expected a file"), "said so");
	tap_is_int(mkfifo(in_dir("fifo"), 0600), 0, "mkfifo");
	put("m.conf", "include fifo;\n");
	tap_is_int(load("m.conf", "", NULL, err), SP_E_CONF, "FIFO");
	tap_ok(says(err, "is a FIFO; expected a file"), "said so");
	put("m.conf", "include /dev/null;\n");
	tap_is_int(load("m.conf", "", NULL, err), SP_E_CONF, "device");
	tap_ok(says(err, "is a device"), "said so");
	put("m.conf", "include;\n");
	tap_is_int(load("m.conf", "", NULL, err), SP_E_CONF, "no path");
	tap_ok(says(err, "m.conf:1: include takes one path"), "said so");
	put("m.conf", "include a b;\n");
	tap_is_int(load("m.conf", "", NULL, err), SP_E_CONF, "two paths");
	put("m.conf", "include '';\n");
	tap_is_int(load("m.conf", "", NULL, err), SP_E_CONF, "empty path");
	tap_ok(says(err, "empty include"), "said so");

	put("m.conf", "# \xff\n");
	tap_is_int(load("m.conf", "", NULL, err), SP_E_CONF, "not UTF-8");
	tap_ok(says(err, "m.conf:1: bytes that are not UTF-8"), "said so");
	put_bytes("m.conf", "a;\n\0", 4);
	tap_is_int(load("m.conf", "", NULL, err), SP_E_CONF, "NUL");
	tap_ok(says(err, "m.conf:2: a NUL byte"), "said so");

	put("half.conf", "server { listen 1;\n");
	put("m.conf", "include half.conf;\n}\n");
	tap_is_int(load("m.conf", "", NULL, err), SP_E_CONF, "half a block");
	tap_ok(says(err, "half.conf:1: block \"server\" does not end"),
	    "ends in its file");
	put("half.conf", "}\n");
	put("m.conf", "server { include half.conf;\n");
	tap_is_int(load("m.conf", "", NULL, err), SP_E_CONF, "foreign end");
	tap_ok(says(err, "half.conf:1: \"}\" closes no block"), "said so");
	put("half.conf", "pid_file\n");
	put("m.conf", "include half.conf; /x;\n");
	tap_is_int(load("m.conf", "", NULL, err), SP_E_CONF, "half a line");
	tap_ok(says(err, "half.conf:1: directive \"pid_file\" does not end"),
	    "said so");
	put("m.conf", "pid_file 'x;\n");
	tap_is_int(load("m.conf", "", NULL, err), SP_E_CONF, "open quote");
	tap_ok(says(err, "m.conf:1: quoted value"), "said so");
}

static void
test_bounds(struct buf *err)
{
	char name[32], text[64];
	char *big;
	unsigned i;

	put("a.conf", "include b.conf;\n");
	put("b.conf", "\ninclude a.conf;\n");
	tap_is_int(load("a.conf", "", NULL, err), SP_E_CONF, "a cycle");
	tap_ok(says(err, "b.conf:2: include cycle: ") &&
		says(err, "a.conf -> ") && says(err, "b.conf -> "),
	    "names the chain");
	put("a.conf", "include *.conf;\n");
	tap_is_int(load("a.conf", "", NULL, err), SP_E_CONF, "includes itself");
	tap_ok(says(err, "include cycle"), "said so");
	for (i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		snprintf(text, sizeof(text), "include n%u;\n", i + 1);
		put(name, text);
	}
	tap_is_int(load("n0", "", NULL, err), SP_E_LIMIT, "too deep");
	tap_ok(says(err, "n16:1: includes nest too deep: ") &&
		says(err, "expected at most 16 levels"),
	    "said so");
	put("n16", "server { listen 1; }\n");
	tap_is_int(load("n0", "", NULL, err), 0, "16 levels are fine");

	big = calloc(1, (4 << 20) + 2);
	if (big == NULL)
		return;
	memset(big, '\n', (4 << 20) + 1);
	put("m.conf", big);
	tap_is_int(load("m.conf", "", NULL, err), SP_E_LIMIT, "over 4 MiB");
	tap_ok(says(err, "configuration is too large"), "said so");
	put("two.conf", "include m.conf; include m.conf;");
	big[3 << 20] = '\0';
	put("m.conf", big);
	tap_is_int(load("two.conf", "", NULL, err), SP_E_LIMIT,
	    "together over 4 MiB");
	free(big);
}

static void
test_memory(struct buf *err)
{
	struct buf text = BUF_INIT(8 << 20);
	unsigned long n;
	int rc = SP_E_NOMEM;

	put("a.conf", "include b.conf;\ninclude b*.conf;\n");
	put("b.conf", "# x\n");
	for (n = 1; rc == SP_E_NOMEM && n < 1000; n++) {
		buf_clear(&text);
		mem_fail_after(n, 0);
		rc =
		    conf_expand(in_dir("a.conf"), VIEW("x;"), NULL, &text, err);
	}
	mem_fail_after(0, 0);
	tap_is_int(rc, 0, "expands after failures");
	put("b.conf", "include a.conf;\n");
	for (n = 1, rc = SP_E_NOMEM; rc == SP_E_NOMEM && n < 1000; n++) {
		buf_clear(&text);
		buf_clear(err);
		mem_fail_after(n, 0);
		rc =
		    conf_expand(in_dir("a.conf"), VIEW("x;"), NULL, &text, err);
	}
	mem_fail_after(0, 0);
	tap_is_int(rc, SP_E_CONF, "an error after failures");
	buf_clear(&text);
}

int
main(void)
{
	static const char *const names[] = { "loc.conf", "d/a.conf", "d/b.conf",
		"d/x.txt", "up.conf", "main.conf", "mark.conf", "bom.conf",
		"bad.conf", "m.conf", "fifo", "half.conf", "a.conf", "b.conf",
		"two.conf" };
	struct buf err = BUF_INIT(1 << 16);
	char name[64];
	unsigned i;

	if (mkdtemp(dir) == NULL || mkdir(in_dir("d"), 0700) != 0)
		return 1;
	test_good(&err);
	test_errors(&err);
	test_bounds(&err);
	test_memory(&err);
	for (i = 0; i < sizeof(names) / sizeof(*names); i++)
		unlink(in_dir(names[i]));
	for (i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		unlink(in_dir(name));
	}
	rmdir(in_dir("d"));
	tap_is_int(rmdir(dir), 0, "cleaned up");
	buf_clear(&err);
	return tap_done();
}
