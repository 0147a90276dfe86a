/* jtoken: the form it follows, forms it leaves to jscan, and damaged ones. */
#include "tap.h"
#include "token_peer.h"

enum { ROUNDS = 40000, TEXT_MAX = 2048 };

static uint64_t seed = 0x9e3779b97f4a7c15ull;

static unsigned
below(unsigned n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (unsigned)(seed % n);
}

/* Behind each comes what follows it in a reply. */
static const char tail[] = "]},\"finish_reason\":null}]}   ";

enum { NO, YES, LOOSE }; /* followed and plain; followed and not plain */

static const struct {
	const char *text;
	int want;
} forms[] = {
	{ "{\"token\":\"a\",\"logprob\":-0.5,\"bytes\":[97],"
	  "\"top_logprobs\":[{\"token\":\"a\",\"logprob\":-0.5,\"bytes\":[97]},"
	  "{\"token\":\" b\",\"logprob\":-1,\"bytes\":null}]}",
	    YES },
	{ "{\"id\":7,\"token\":\"a\",\"bytes\":[97],\"logprob\":-1e-05,"
	  "\"top_logprobs\":[{\"id\":7,\"token\":\"a\",\"logprob\":0}]}",
	    YES },
	{ "{\"token\":\"\",\"logprob\":0,\"bytes\":[],\"top_logprobs\":[]}",
	    YES },
	{ "{\"token\":\"abcdefgh\"}", YES },
	{ "{\"token\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\"}", YES },
	{ "{\"token\":\"\xc3\xa9\xe4\xb8\xad\x7f\"}", YES },
	{ "{\"token\":\"0123456789abcdef\xf0\x9f\x98\x80\"}", YES },
	{ "{\"token\":\"a\",\"bytes\":[97,98,99,100,101,102,103,104,105,106,"
	  "107,108,109]}",
	    YES },
	{ "{\"token\":\"a\",\"bytes\":[0,10,200]}", YES },
	{ "{\"token\":\"\\ud83d\\ude00\"}", LOOSE },
	{ "{\"token\":\"\\udead\"}", LOOSE },
	{ "{\"token\":\"\xff\"}", LOOSE },
	{ "{\"token\":\"\xc2\x85\"}", LOOSE },
	{ "{\"token\":\"\xe2\x80\xa8\"}", LOOSE },
	{ "{\"token\":\"a\",\"top_logprobs\":[{\"token\":\"\xe2\x80\xa9\"}]}",
	    LOOSE },
	{ "{}", NO },
	{ "{\"logprob\":-0.5}", NO },
	{ "{\"token\":null}", NO },
	{ "{\"token\":1}", NO },
	{ "{\"token\": \"a\"}", NO },
	{ "{ \"token\":\"a\"}", NO },
	{ "{\"token\":\"a\" }", NO },
	{ "{\"token\":\"a\",}", NO },
	{ "{\"token\":\"a\"]", NO },
	{ "{\"token\":\"a\",\"token\":\"b\"}", NO },
	{ "{\"token\":\"a\",\"x\":1}", NO },
	{ "{\"token\":\"a\",\"token_id\":1}", NO },
	{ "{\"token\":\"\\x\"}", NO },
	{ "{\"token\":\"\\u12g4\"}", NO },
	{ "{\"token\":\"\n\"}", NO },
	{ "{\"token\":\"a\",\"logprob\":NaN}", NO },
	{ "{\"token\":\"a\",\"logprob\":-Infinity}", NO },
	{ "{\"token\":\"a\",\"logprob\":null}", NO },
	{ "{\"token\":\"a\",\"logprob\":\"-1\"}", NO },
	{ "{\"token\":\"a\",\"logprob\":-}", NO },
	{ "{\"token\":\"a\",\"logprob\":01}", NO },
	{ "{\"token\":\"a\",\"logprob\":-1.}", NO },
	{ "{\"token\":\"a\",\"logprob\":-.5}", NO },
	{ "{\"token\":\"a\",\"logprob\":1e}", NO },
	{ "{\"token\":\"a\",\"logprob\":1e+}", NO },
	{ "{\"token\":\"a\",\"bytes\":[01]}", NO },
	{ "{\"token\":\"a\",\"bytes\":[-1]}", NO },
	{ "{\"token\":\"a\",\"bytes\":[1,]}", NO },
	{ "{\"token\":\"a\",\"bytes\":[,1]}", NO },
	{ "{\"token\":\"a\",\"bytes\":[1.5]}", NO },
	{ "{\"token\":\"a\",\"bytes\":[1 ]}", NO },
	{ "{\"token\":\"a\",\"bytes\":{}}", NO },
	{ "{\"token\":\"a\",\"top_logprobs\":null}", NO },
	{ "{\"token\":\"a\",\"top_logprobs\":{}}", NO },
	{ "{\"token\":\"a\",\"top_logprobs\":[1]}", NO },
	{ "{\"token\":\"a\",\"top_logprobs\":[{\"token\":\"a\"},]}", NO },
	{ "{\"token\":\"a\",\"top_logprobs\":[{\"token\":\"a\"}}", NO },
	{ "{\"token\":\"a\",\"top_logprobs\":[{\"token\":\"a\","
	  "\"top_logprobs\":[]}]}",
	    NO },
	{ "[\"token\"]", NO },
};

static void
test_forms(void)
{
	const uint8_t *p, *end;
	char text[1024];
	struct jtoken t;
	const char *why;
	bool followed;
	size_t i, n;

	for (i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		n = strlen(forms[i].text);
		memcpy(text, forms[i].text, n);
		memcpy(text + n, tail, sizeof(tail));
		p = (const uint8_t *)text;
		end = p + n + sizeof(tail) - 1;
		why = token_compare(p, end, &followed);
		tap_ok(why == NULL && followed == (forms[i].want != NO) &&
			(!followed ||
			    (jtoken_end(p, end, &t) == p + n &&
				t.plain == (forms[i].want == YES))),
		    "%s%s%s", forms[i].text, why != NULL ? ": " : "",
		    why != NULL ? why : "");
	}
}

static int
add_token(struct buf *b)
{
	static const char *const bits[] = { "a", " the", "\\n", "\\\"",
		"\\u00e9", "\xc3\xa9", "\xe2\x80\xa8", "\xff", "\\ud800",
		"0123456789abcdef", "{", "]", "," };
	unsigned n = below(4);
	int rc = buf_add_str(b, "\"token\":\"");

	while (rc == 0 && n-- > 0)
		rc = buf_add_str(b, bits[below(sizeof(bits) / sizeof(*bits))]);
	return rc != 0 ? rc : buf_add_str(b, "\"");
}

static int
add_rest(struct buf *b)
{
	static const char *const numbers[] = { "0", "-0.5", "-12.123456789012",
		"1e-9", "-0.0", "123456789012345678901234567890" };
	unsigned n = below(14);
	int rc = buf_printf(b, ",\"logprob\":%s,\"bytes\":[",
	    numbers[below(sizeof(numbers) / sizeof(*numbers))]);

	for (; rc == 0 && n > 0; n--)
		rc = buf_printf(b, "%u%s", below(256), n > 1 ? "," : "");
	return rc != 0 ? rc : buf_add_str(b, "]");
}

static int
add_entry(struct buf *b)
{
	unsigned n = below(4);
	int rc = buf_add_str(b, "{");

	if (rc == 0)
		rc = add_token(b);
	if (rc == 0)
		rc = add_rest(b);
	if (rc == 0)
		rc = buf_add_str(b, ",\"top_logprobs\":[");
	for (; rc == 0 && n > 0; n--) {
		rc = buf_add_str(b, "{");
		if (rc == 0)
			rc = add_token(b);
		if (rc == 0)
			rc = add_rest(b);
		if (rc == 0)
			rc = buf_add_str(b, n > 1 ? "}," : "}");
	}
	return rc != 0 ? rc : buf_add_str(b, "]}");
}

/* Bytes changed, taken out, or the end cut off; nothing is read beyond. */
static void
damage(struct buf *b)
{
	static const char bytes[] = "{}[]\",:\\0e-. \nu";
	size_t at = below((unsigned)buf_len(b));
	char *p = b->mem + b->off;

	switch (below(3)) {
	case 0:
		p[at] = bytes[below(sizeof(bytes) - 1)];
		break;
	case 1:
		memmove(p + at, p + at + 1, buf_len(b) - at - 1);
		buf_truncate(b, buf_len(b) - 1);
		break;
	default:
		buf_truncate(b, at);
	}
}

/* A copy of the very size, so that a byte read behind it is noticed. */
static const char *
compare_copy(struct view v, bool *followed)
{
	uint8_t *p = v.n > 0 ? malloc(v.n) : NULL;
	const char *why;

	*followed = false;
	if (p == NULL)
		return NULL;
	memcpy(p, v.p, v.n);
	why = token_compare(p, p + v.n, followed);
	free(p);
	return why;
}

static void
test_random(void)
{
	struct buf b = BUF_INIT(TEXT_MAX);
	unsigned i, whole = 0, broken = 0;
	const char *why = NULL;
	bool followed, first;

	for (i = 0; i < ROUNDS && why == NULL; i++) {
		buf_reset(&b, TEXT_MAX);
		if (add_entry(&b) != 0 || buf_add_str(&b, tail) != 0)
			break;
		why = compare_copy(buf_view(&b), &first);
		whole += first;
		if (why != NULL)
			break;
		damage(&b);
		why = compare_copy(buf_view(&b), &followed);
		broken += followed;
	}
	tap_ok(why == NULL && i == ROUNDS,
	    "random entries, whole and damaged%s%s", why != NULL ? ": " : "",
	    why != NULL ? why : "");
	tap_is_int(whole, ROUNDS, "each whole one is followed");
	tap_ok(broken > 0 && broken < ROUNDS, "of the damaged ones, some");
	buf_clear(&b);
}

int
main(void)
{
	test_forms();
	test_random();
	return tap_done();
}
