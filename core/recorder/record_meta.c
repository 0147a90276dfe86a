#include "config.h"

#include <stdio.h>
#include <string.h>

#include "conf/conf.h"
#include "crypt/digest.h"
#include "recorder/record_meta.h"

enum { META_MEMBERS_MAX = 64 };

/* Members of our own: the reactor's of the same name are dropped. */
static const struct view own_keys[] = { { "node_id", 7 }, { "level", 5 },
	{ "stream", 6 }, { "turn_high", 9 }, { "sent_model", 10 },
	{ "has_tools", 9 }, { "n_messages", 10 }, { "max_tokens", 10 },
	{ "max_completion_tokens", 21 }, { "system_sha256", 13 },
	{ "body_sha256", 11 }, { "prefix_sha256", 13 }, { "retry_of", 8 },
	{ "sampling_params", 15 }, { "done_seen", 9 }, { "thinking_off", 12 },
	{ "logprobs_refused", 16 }, { "token_ids_refused", 17 },
	{ "n_choices", 9 }, { "id_sources", 10 }, { "logprob_stats", 13 },
	{ "tool_args_valid_json", 20 }, { "tool_args_invalid", 17 },
	{ "outcome", 7 }, { "trainable", 9 }, { "partial_response", 16 },
	{ NULL, 0 } };

static void
write_sum(struct jwrite *w, const char *key, const uint8_t *sum)
{
	char hex[DIGEST_HEX + 1];

	jwrite_key(w, key);
	if (sum != NULL)
		digest_hex(sum, DIGEST_BYTES, hex);
	jwrite_cstr(w, sum != NULL ? hex : NULL);
}

/* 0, or why there is no digest of the system prompt. */
static int
digest_system(struct record_system *kept, struct view v,
    uint8_t out[DIGEST_BYTES])
{
	int rc;

	if (v.n == 0)
		return SP_E_NOTFOUND;
	if (kept != NULL && view_eq(buf_view(&kept->text), v)) {
		memcpy(out, kept->sha256, DIGEST_BYTES);
		return 0;
	}
	rc = digest_sha256(v, out);
	if (rc != 0 || kept == NULL)
		return rc;
	buf_reset(&kept->text, SIZE_MAX);
	/* without room for it the next one is hashed again */
	if (buf_add_view(&kept->text, v) == 0)
		memcpy(kept->sha256, out, DIGEST_BYTES);
	return 0;
}

static void
write_system(const struct record *r, struct view v, struct jwrite *w)
{
	uint8_t sum[DIGEST_BYTES];
	bool good = digest_system(r->system, v, sum) == 0;

	write_sum(w, "system_sha256", good ? sum : NULL);
}

static void
write_span_or_null(struct jwrite *w, const char *key, struct view v)
{
	jwrite_key(w, key);
	if (v.n > 0)
		jwrite_span(w, v);
	else
		jwrite_null(w);
}

static void
write_flag(const struct record *r, struct jwrite *w, const char *key,
    unsigned flag)
{
	jwrite_key(w, key);
	jwrite_bool(w, (r->flags & flag) != 0);
}

static void
write_identity(const struct record *r, struct jwrite *w)
{
	static const char *const levels[] = {
		[CONF_LEVEL_TEXT] = "text",
		[CONF_LEVEL_LOGPROBS] = "logprobs",
		[CONF_LEVEL_TOKENS] = "tokens",
	};
	static const char *const outcomes[] = {
		[MESSAGE_OUTCOME_END] = "end",
		[MESSAGE_OUTCOME_STATUS] = "status",
		[MESSAGE_OUTCOME_UPSTREAM] = "upstream",
		[MESSAGE_OUTCOME_CLIENT_GONE] = "client_gone",
		[MESSAGE_OUTCOME_SHUTDOWN] = "shutdown",
		[MESSAGE_OUTCOME_LOST] = "lost",
		[MESSAGE_OUTCOME_GATEWAY] = "gateway_lost",
	};
	char id[160];

	(void)snprintf(id, sizeof(id), "%.*s/%llu", VIEW_ARG(r->session),
	    (unsigned long long)r->turn);
	jwrite_key(w, "node_id");
	jwrite_cstr(w, id);
	jwrite_key(w, "turn_high");
	jwrite_u64(w, r->turn_high);
	jwrite_key(w, "level");
	jwrite_cstr(w,
	    r->level < sizeof(levels) / sizeof(levels[0]) ? levels[r->level]
							  : NULL);
	jwrite_key(w, "outcome");
	jwrite_cstr(w,
	    r->outcome < sizeof(outcomes) / sizeof(outcomes[0])
		? outcomes[r->outcome]
		: NULL);
}

static void
write_asked(const struct record *r, const struct reqinfo *q, struct jwrite *w)
{
	int i;

	write_span_or_null(w, "sent_model", q->model);
	jwrite_key(w, "has_tools");
	jwrite_bool(w, q->has_tools);
	jwrite_key(w, "n_messages");
	jwrite_u64(w, q->messages_n);
	if (q->max_tokens.n > 0)
		write_span_or_null(w, "max_tokens", q->max_tokens);
	if (q->max_completion_tokens.n > 0)
		write_span_or_null(w, "max_completion_tokens",
		    q->max_completion_tokens);
	write_system(r, q->system, w);
	write_sum(w, "body_sha256", r->hashed ? r->body_sha256 : NULL);
	write_sum(w, "prefix_sha256",
	    r->hashed && q->prefix.n > 0 ? r->prefix_sha256 : NULL);
	if (r->retry_of != 0) {
		jwrite_key(w, "retry_of");
		jwrite_u64(w, r->retry_of);
	}
	jwrite_key(w, "sampling_params");
	jwrite_object(w);
	for (i = 0; i < REQINFO_SAMPLING_N; i++)
		if (q->sampling[i].n > 0)
			write_span_or_null(w, reqinfo_sampling_names[i],
			    q->sampling[i]);
	jwrite_end_object(w);
	write_flag(r, w, "stream", MESSAGE_TURN_STREAM);
	write_flag(r, w, "done_seen", MESSAGE_TURN_DONE_SEEN);
	write_flag(r, w, "thinking_off", MESSAGE_TURN_THINKING_OFF);
	write_flag(r, w, "logprobs_refused", MESSAGE_TURN_NO_LOGPROBS);
	write_flag(r, w, "token_ids_refused", MESSAGE_TURN_NO_TOKEN_IDS);
}

static void
write_stats(const struct logps *l, struct jwrite *w)
{
	jwrite_key(w, "logprob_stats");
	if (l->entries.n == 0) {
		jwrite_null(w);
		return;
	}
	jwrite_object(w);
	jwrite_key(w, "count");
	jwrite_u64(w, l->values.n);
	jwrite_key(w, "min");
	if (l->valued > 0)
		jwrite_double(w, l->min);
	else
		jwrite_null(w);
	jwrite_key(w, "mean");
	if (l->valued > 0)
		jwrite_double(w, l->sum / (double)l->valued);
	else
		jwrite_null(w);
	jwrite_key(w, "zeros");
	jwrite_u64(w, l->zeros);
	jwrite_key(w, "nonfinite");
	jwrite_u64(w,
	    w->nonfinite > l->nonfinite ? w->nonfinite : l->nonfinite);
	jwrite_end_object(w);
}

/* Where ids came from, with their number (case E2). */
static void
write_sources(const struct record *r, const struct assemble_choice *c,
    struct jwrite *w)
{
	const struct accum_ids *ids;
	int i;

	jwrite_key(w, "id_sources");
	jwrite_object(w);
	for (i = 0; i < ASSEMBLE_SOURCES; i++) {
		ids = assemble_ids(r->assemble, c, (enum assemble_source)i);
		if (ids->n == 0)
			continue;
		jwrite_key(w, assemble_source_name((enum assemble_source)i));
		jwrite_u64(w, ids->n);
	}
	jwrite_end_object(w);
}

static void
write_invalid_call(struct jwrite *w, int64_t choice, size_t call)
{
	jwrite_object(w);
	jwrite_key(w, "choice");
	jwrite_i64(w, choice);
	jwrite_key(w, "call");
	jwrite_u64(w, call);
	jwrite_end_object(w);
}

/* Which calls have arguments that are no JSON (cases C4, C9). */
static void
write_args(const struct assemble *a, struct jwrite *w)
{
	size_t i, k, calls = 0, invalid = 0;

	for (i = 0; i < a->choices_n; i++) {
		const struct toolcall_list *l = &a->choices[i]->tools;

		calls += l->n;
		for (k = 0; k < l->n; k++)
			invalid += toolcall_args_valid(&l->v[k]) == 0;
	}
	if (calls == 0)
		return;
	jwrite_key(w, "tool_args_valid_json");
	jwrite_bool(w, invalid == 0);
	if (invalid == 0)
		return;
	jwrite_key(w, "tool_args_invalid");
	jwrite_array(w);
	for (i = 0; i < a->choices_n; i++) {
		const struct toolcall_list *l = &a->choices[i]->tools;

		for (k = 0; k < l->n; k++)
			if (toolcall_args_valid(&l->v[k]) == 0)
				write_invalid_call(w, a->choices[i]->index, k);
	}
	jwrite_end_array(w);
}

static void
write_seen(struct record *r, struct jwrite *w)
{
	const struct assemble_choice *c = assemble_first(r->assemble);

	jwrite_key(w, "n_choices");
	jwrite_u64(w, r->assemble->choices_n);
	if (c != NULL) {
		write_sources(r, c, w);
		write_stats(&c->logps, w);
	}
	write_args(r->assemble, w);
	jwrite_key(w, "trainable");
	jwrite_bool(w, r->trainable);
}

struct given {
	struct jscan s;
	struct jscan_span key[META_MEMBERS_MAX], value[META_MEMBERS_MAX];
	size_t n;
};

static void
read_given(struct given *g, struct view meta)
{
	g->n = 0;
	if (meta.n == 0)
		return;
	jscan_init(&g->s, meta, 0);
	if (jscan_enter(&g->s) != 0)
		return;
	while (g->n < META_MEMBERS_MAX &&
	    jscan_member(&g->s, &g->key[g->n]) == 1) {
		if (jscan_skip(&g->s, &g->value[g->n]) != 0)
			return;
		g->n++;
	}
}

/* A member of that name, from one on. */
static bool
has_given(const struct given *g, size_t from, struct view name)
{
	for (; from < g->n; from++)
		if (jscan_is(&g->s, &g->key[from], name))
			return true;
	return false;
}

/*
 * The reactor's members.  It may have been taken over: each is copied as a
 * strict value, under a name that is not ours and does not come later.
 */
static void
write_given(struct jwrite *w, const struct given *g, const struct given *later)
{
	char name[129];
	size_t i;

	for (i = 0; i < g->n; i++) {
		struct view k = jscan_text(&g->s, &g->key[i]);

		if (g->key[i].escaped || k.n == 0 || k.n >= sizeof(name) ||
		    accum_key(&g->s, &g->key[i], own_keys) >= 0 ||
		    has_given(g, i + 1, k) ||
		    (later != NULL && has_given(later, 0, k)))
			continue;
		memcpy(name, k.p, k.n);
		name[k.n] = '\0';
		jwrite_key(w, name);
		jwrite_scanned(w, jscan_raw(&g->s, &g->value[i]));
	}
}

void
record_meta_write(struct record *r, const struct reqinfo *q, bool partial,
    struct jwrite *w)
{
	struct given first, last;

	jwrite_key(w, "metadata");
	jwrite_object(w);
	write_identity(r, w);
	write_asked(r, q, w);
	write_seen(r, w);
	if (partial) {
		jwrite_key(w, "partial_response");
		assemble_write(r->assemble, w);
	}
	read_given(&first, r->meta_open);
	read_given(&last, r->meta_end);
	write_given(w, &first, &last);
	write_given(w, &last, NULL);
	jwrite_end_object(w);
}
