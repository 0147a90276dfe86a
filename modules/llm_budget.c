/* The answer past a budget: a finished message that ends the agent's loop. */
#include "config.h"

#include <stdio.h>

#include "llm_call.h"

#include "gate/session.h"
#include "json/jwrite.h"

enum { BUDGET_ID_CHARS = 16 };
static const char budget_text[] = "Step budget exhausted; stopping.";

static void
put_str(struct jwrite *w, const char *key, const char *v)
{
	jwrite_key(w, key);
	jwrite_cstr(w, v);
}

static void
put_head(const struct llm_call *c, const char *id, const char *object,
    struct jwrite *w)
{
	jwrite_object(w);
	put_str(w, "id", id);
	put_str(w, "object", object);
	jwrite_key(w, "created");
	jwrite_u64(w, c->wall_us / 1000000);
	jwrite_key(w, "model");
	jwrite_string(w, view_of(c->wants.model, c->wants.model_n));
}

static void
put_usage(struct jwrite *w)
{
	jwrite_key(w, "usage");
	jwrite_raw(w,
	    VIEW("{\"prompt_tokens\":0,\"completion_tokens\":0,"
		 "\"total_tokens\":0}"));
}

/* One choice; part is "message" or "delta", text NULL: an empty one. */
static void
put_choice(struct jwrite *w, const char *part, const char *text,
    const char *finish)
{
	jwrite_key(w, "choices");
	jwrite_array(w);
	jwrite_object(w);
	jwrite_key(w, "index");
	jwrite_u64(w, 0);
	jwrite_key(w, part);
	jwrite_object(w);
	if (text != NULL) {
		put_str(w, "role", "assistant");
		put_str(w, "content", text);
	}
	jwrite_end_object(w);
	put_str(w, "finish_reason", finish);
	jwrite_end_object(w);
	jwrite_end_array(w);
}

static int
unary(struct llm_call *c, const char *id)
{
	struct jwrite w;

	jwrite_init(&w, &c->held);
	put_head(c, id, "chat.completion", &w);
	put_choice(&w, "message", budget_text, "stop");
	put_usage(&w);
	jwrite_end_object(&w);
	return jwrite_finish(&w);
}

enum budget_chunk { CHUNK_TEXT, CHUNK_FINISH, CHUNK_USAGE };

static int
chunk(struct llm_call *c, const char *id, enum budget_chunk kind)
{
	struct jwrite w;
	int rc = buf_add_str(&c->held, "data: ");

	if (rc != 0)
		return rc;
	jwrite_init(&w, &c->held);
	put_head(c, id, "chat.completion.chunk", &w);
	if (kind == CHUNK_USAGE) {
		jwrite_key(&w, "choices");
		jwrite_raw(&w, VIEW("[]"));
		put_usage(&w);
	} else {
		put_choice(&w, "delta", kind == CHUNK_TEXT ? budget_text : NULL,
		    kind == CHUNK_TEXT ? NULL : "stop");
	}
	jwrite_end_object(&w);
	rc = jwrite_finish(&w);
	return rc == 0 ? buf_add_str(&c->held, "\n\n") : rc;
}

static int
stream(struct llm_call *c, const char *id)
{
	int rc = chunk(c, id, CHUNK_TEXT);

	if (rc == 0)
		rc = chunk(c, id, CHUNK_FINISH);
	if (rc == 0 && c->wants.usage)
		rc = chunk(c, id, CHUNK_USAGE);
	return rc == 0 ? buf_add_str(&c->held, "data: [DONE]\n\n") : rc;
}

int
llm_budget_answer(struct llm_call *c)
{
	char random[BUDGET_ID_CHARS + 1], id[BUDGET_ID_CHARS + 8];
	int rc;

	session_token(random, BUDGET_ID_CHARS);
	(void)snprintf(id, sizeof(id), "budget-%s", random);
	head_fields_init(&c->fields, c->r->x->arena);
	rc = head_add_borrowed(&c->fields, VIEW("Content-Type"),
	    c->wants.stream ? VIEW("text/event-stream")
			    : VIEW("application/json"));
	if (rc == 0)
		rc = c->wants.stream ? stream(c, id) : unary(c, id);
	return rc;
}
