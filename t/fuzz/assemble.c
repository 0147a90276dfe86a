/*
 * Turns from whatever an upstream sends: first byte, what is kept and how it
 * comes; then lines, each the data of an event, or all of it as one body.
 * Whatever comes, the record is strict JSON on one line.
 */
#include "config.h"

#include "recorder/record.h"
#include "conf/conf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { MAX = 1 << 20, UNARY = 4, SMALL = 8, FLAGS_SHIFT = 4 };

static void
feed(struct assemble *a, unsigned how, struct view text)
{
	struct view line;

	if ((how & UNARY) != 0) {
		assemble_body(a, text);
		return;
	}
	while (view_split(&text, '\n', &line))
		if (view_starts(line, VIEW("!")))
			assemble_error(a, view_from(line, 1));
		else
			assemble_event(a, line);
}

/* once: no event is taken for the one before over again. */
static void
make_record(unsigned how, struct view text, bool once, struct buf *out)
{
	struct assemble a;
	struct record r = { .session = VIEW("fuzz"),
		.turn = 1,
		.level = CONF_LEVEL_TOKENS,
		.flags = how >> FLAGS_SHIFT,
		.outcome = 1 + how % 6,
		.request = text,
		.body = text,
		.meta_open = VIEW("{\"a\":1}"),
		.assemble = &a };

	assemble_init(&a, (how & SMALL) != 0 ? 512 : MAX, how & 3);
	if (once)
		a.repeat.misses = REPEAT_MISSES;
	feed(&a, how, text);
	err_assert(a.hold.used <= a.hold.max);
	err_assert(record_write(&r, out) == 0);
	assemble_clear(&a);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct buf out = BUF_INIT(64 * MAX);
	struct buf again = BUF_INIT(64 * MAX);
	struct view text;

	if (n == 0)
		return 0;
	text = view_of(data + 1, n - 1);
	make_record(data[0], text, false, &out);
	make_record(data[0], text, true, &again);
	err_assert(view_eq(buf_view(&out), buf_view(&again)));
	err_assert(buf_add_char(&out, '}') == 0);
	err_assert(jscan_valid(buf_view(&out), 0) == 0);
	err_assert(view_find(buf_view(&out), '\n') == buf_len(&out));
	buf_clear(&out);
	buf_clear(&again);
	return 0;
}
