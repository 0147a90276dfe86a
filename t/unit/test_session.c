/* From credentials to sessions; tokens. */
#include "config.h"

#include "base/arena.h"
#include "gate/session.h"

#include "tap.h"

const struct gate_module *const gate_modules[] = { NULL };

static struct arena *arena;

/* "name: value" pairs, ended by NULL. */
static struct head_fields
fields(const char *const *pairs)
{
	struct head_fields f;

	head_fields_init(&f, arena);
	for (; pairs[0] != NULL; pairs += 2)
		if (head_add(&f, view_str(pairs[0]), view_str(pairs[1])) !=
		    SP_OK)
			tap_ok(false, "field added");
	return f;
}

#define FIELDS(...) fields((const char *const[]){ __VA_ARGS__, NULL })

static void
key_is(struct head_fields f, int rc, const char *want, const char *what)
{
	struct view key;

	tap_is_int(session_key(&f, &key), rc, what);
	if (want == NULL)
		tap_ok(key.p == NULL, "%s: none", what);
	else
		tap_is_mem(key.p, key.n, want, strlen(want), what);
}

static void
keys(void)
{
	key_is(FIELDS("Accept", "x"), SP_OK, NULL, "no credential");
	key_is(FIELDS("Authorization", "Bearer k1"), SP_OK, "k1", "bearer");
	key_is(FIELDS("authorization", "bEARER   k1 "), SP_OK, "k1",
	    "any case, spaces");
	key_is(FIELDS("Authorization", "Basic k1"), SP_OK, NULL, "basic");
	key_is(FIELDS("Authorization", "Bearer"), SP_OK, NULL, "no token");
	key_is(FIELDS("Authorization", "Bearer "), SP_OK, NULL, "empty token");
	key_is(FIELDS("X-Api-Key", "k2"), SP_OK, "k2", "x-api-key");
	key_is(FIELDS("x-goog-api-key", "k3"), SP_OK, "k3", "x-goog-api-key");
	key_is(FIELDS("api-key", "k4"), SP_OK, "k4", "api-key");
	key_is(FIELDS("api-key", ""), SP_OK, NULL, "empty");
	key_is(FIELDS("api-key", "k", "Authorization", "Bearer k"), SP_OK, "k",
	    "two that agree");
	key_is(FIELDS("api-key", "k", "Authorization", "Bearer l"), SP_E_SYNTAX,
	    NULL, "two that differ");
	key_is(FIELDS("api-key", "k", "api-key", "l"), SP_E_SYNTAX, NULL,
	    "one name twice");
}

static void
finding(void)
{
	struct conf_capture capture = { .index = 3 };
	struct session_found found;
	struct exchange x = { .arena = arena };
	struct gate_request r = { .x = &x };

	x.request.fields = FIELDS("Authorization", "Bearer k");
	tap_is_int(session_find(&r, &capture, true, &found), SP_OK, "open");
	tap_ok(view_eq(found.id, VIEW("default")) && found.open &&
		found.capture == &capture,
	    "goes to the session default");
	tap_is_int(session_find(&r, &capture, false, &found), SP_E_DENIED,
	    "unknown key");
	x.request.fields = FIELDS("Accept", "x");
	tap_is_int(session_find(&r, &capture, false, &found), SP_E_DENIED,
	    "no key");
	x.request.fields = FIELDS("api-key", "a", "x-api-key", "b");
	tap_is_int(session_find(&r, &capture, false, &found), SP_E_SYNTAX,
	    "two keys");
	tap_is_int(session_find(&r, &capture, true, &found), SP_OK,
	    "two keys where none is asked for");
}

static bool
token(struct head_fields f, struct view value)
{
	struct conf_secret s = { .value = value };

	return session_token_ok(&f, &s);
}

static void
tokens(void)
{
	struct view t = VIEW("0123456789abcdef");
	struct head_fields f = FIELDS("Authorization", "Bearer x");

	tap_ok(token(FIELDS("Authorization", "Bearer 0123456789abcdef"), t),
	    "the token");
	tap_ok(!token(FIELDS("Authorization", "Bearer 0123456789abcdeF"), t),
	    "another");
	tap_ok(!token(FIELDS("Authorization", "Bearer 0123456789abcde"), t),
	    "a part of it");
	tap_ok(!token(FIELDS("Authorization", "0123456789abcdef"), t),
	    "without its scheme");
	tap_ok(!token(FIELDS("x-api-key", "0123456789abcdef"), t),
	    "in another field");
	tap_ok(!token(FIELDS("Authorization", "Bearer 0123456789abcdef",
			  "Authorization", "Bearer 0123456789abcdef"),
		   t),
	    "twice");
	tap_ok(!token(FIELDS("Authorization", "Bearer "), VIEW_NONE),
	    "a token that never came");
	tap_ok(!session_token_ok(&f, NULL), "no token at all");
}

int
main(void)
{
	arena = arena_new(1 << 20);
	keys();
	finding();
	tokens();
	arena_free(arena);
	return tap_done();
}
