/* Tokens of the configuration language. */
#include "conf/lexer.h"
#include "tap.h"

/* All tokens as text: words in <>, marks as they are, "!why" at an error. */
static const char *
tokens(const char *text)
{
	static char out[4096];
	struct lexer lx;
	struct lexer_token t;
	size_t n = 0, m;
	char word[256];

	lexer_init(&lx, view_str(text), 1);
	out[0] = '\0';
	while (lexer_next(&lx, &t) != LEXER_END) {
		if (t.type == LEXER_ERROR) {
			n += (size_t)snprintf(out + n, sizeof(out) - n, "!%u",
			    t.line);
			break;
		}
		if (t.type != LEXER_WORD) {
			out[n++] = t.raw.p[0];
			out[n] = '\0';
			continue;
		}
		m = lexer_unescape(t.raw, word);
		n += (size_t)snprintf(out + n, sizeof(out) - n, "<%.*s>",
		    (int)m, word);
	}
	return out;
}

static const struct {
	const char *text, *want;
} cases[] = {
	{ "", "" },
	{ " \t\r\n ", "" },
	{ "# only a comment", "" },
	{ "a b;", "<a><b>;" },
	{ "a{b;}", "<a>{<b>;}" },
	{ "a # b;\nc;", "<a><c>;" },
	{ "a#b;", "<a#b>;" },
	{ "a \"b c\" 'd;e{}';", "<a><b c><d;e{}>;" },
	{ "a \"it's\" 'say \"x\"';", "<a><it's><say \"x\">;" },
	{ "a \"\\\"\" '\\'' \"\\\\\";", "<a><\"><'><\\>;" },
	{ "a \\;b;", "<a><;b>;" },
	{ "a b\\ c;", "<a><b c>;" },
	{ "a \\d;", "<a><\\d>;" },
	{ "a \"\";", "<a><>;" },
	{ "a \"\\t\";", "<a><\t>;" },
	{ "a \"#x\" '#';", "<a><#x><#>;" },
	{ "a \xc3\xa4;", "<a><\xc3\xa4>;" },
	{ "a b", "<a><b>" },
	{ ";;{}", ";;{}" },
	{ "a \"b", "<a>!1" },
	{ "a \"b\n\";", "<a>!1" },
	{ "\n\na 'b;\nc;", "<a>!3" },
	{ "a \"b\"c;", "<a>!1" },
	{ "a \"b\\n\";", "<a>!1" },
	{ "a b\\rc;", "<a>!1" },
	{ "a \x01;", "<a>!1" },
	{ "a b\x7f;", "<a>!1" },
	{ "a \"b\x02\";", "<a>!1" },
	{ "# \x01\na;", "!1" },
	{ "a \\", "<a><\\>" },
	{ "a \"\\", "<a>!1" },
};

int
main(void)
{
	size_t i;
	struct lexer lx;
	struct lexer_token t;
	unsigned lines[4] = { 0 };

	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		tap_is_str(tokens(cases[i].text), cases[i].want, cases[i].want);

	lexer_init(&lx, VIEW("a\n\nb # x\n;"), 7);
	for (i = 0; i < 4; i++) {
		lexer_next(&lx, &t);
		lines[i] = t.line;
	}
	tap_ok(lines[0] == 7 && lines[1] == 9 && lines[2] == 10 &&
		lines[3] == 10,
	    "lines are counted from the first");

	lexer_init(&lx, VIEW("a \"b"), 1);
	lexer_next(&lx, &t);
	lexer_next(&lx, &t);
	tap_is_int(lexer_next(&lx, &t), LEXER_ERROR, "an error stays one");
	tap_ok(lx.error != NULL, "and has its reason");
	lexer_init(&lx, view_of("a\0b", 3), 1);
	tap_is_int(lexer_next(&lx, &t), LEXER_ERROR, "NUL is an error");

	tap_ok(lexer_is_bare(VIEW("a.b/c=1")), "bare word");
	tap_ok(!lexer_is_bare(VIEW("")), "empty is not bare");
	tap_ok(!lexer_is_bare(VIEW("a b")), "space is not bare");
	tap_ok(!lexer_is_bare(VIEW("#a")), "comment is not bare");
	tap_ok(!lexer_is_bare(VIEW("\"a")), "quote is not bare");
	tap_ok(!lexer_is_bare(VIEW("a\\")), "backslash is not bare");
	tap_ok(lexer_is_bare(VIEW("a#\"")), "marks inside are bare");
	return tap_done();
}
