#include "config.h"

#include "json/jscan.h"
#include "json/jtrain.h"

static bool
is_true(struct view object, struct view name)
{
	struct jscan_span v;
	struct jscan s;

	jscan_init(&s, object, 0);
	if (object.n == 0 || jscan_peek(&s) != JSCAN_OBJECT ||
	    jscan_find(object, name, &v) != 1)
		return false;
	return view_eq(jscan_raw(&s, &v), VIEW("true"));
}

struct jtrain_turn
jtrain_read(struct view complete, struct view aligned, struct view metadata)
{
	return (struct jtrain_turn){
		.good = view_eq(complete, VIEW("true")) &&
		    view_eq(aligned, VIEW("true")) &&
		    is_true(metadata, VIEW("trainable")),
		.tools = is_true(metadata, VIEW("has_tools")),
	};
}

void
jtrain_add(struct jtrain_sum *s, const struct jtrain_turn *t)
{
	s->good += t->good;
	s->good_tools += t->good && t->tools;
	s->tools += t->tools;
}
