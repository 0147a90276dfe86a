#include "config.h"

#include "base/mem.h"
#include "ipc/message.h"
#include "ipc/wire.h"
#include "tap.h"

static void
test_fields(void)
{
	static const uint8_t want[] = { 0x01, 0x34, 0x12, 0x78, 0x56, 0x34,
		0x12, 8, 7, 6, 5, 4, 3, 2, 1, 2, 0, 0, 0, 'h', 'i' };
	struct buf b = BUF_INIT(64);
	struct wire w;
	struct view v;
	int rc = 0;

	rc |= wire_put_u8(&b, 1);
	rc |= wire_put_u16(&b, 0x1234);
	rc |= wire_put_u32(&b, 0x12345678);
	rc |= wire_put_u64(&b, 0x0102030405060708ULL);
	rc |= wire_put_bytes(&b, VIEW("hi"));
	tap_is_int(rc, SP_OK, "all fields are written");
	v = buf_view(&b);
	tap_is_mem(v.p, v.n, want, sizeof(want), "little-endian, no padding");
	wire_init(&w, v);
	tap_is_int(wire_u8(&w), 1, "u8");
	tap_is_int(wire_u16(&w), 0x1234, "u16");
	tap_is_int(wire_u32(&w), 0x12345678, "u32");
	tap_ok(wire_u64(&w) == 0x0102030405060708ULL, "u64");
	tap_ok(wire_more(&w), "there is more");
	v = wire_bytes(&w);
	tap_is_mem(v.p, v.n, "hi", 2, "bytes");
	tap_ok(!wire_more(&w), "no more");
	tap_is_int(wire_done(&w), SP_OK, "used up");
	buf_clear(&b);
}

static void
test_broken(void)
{
	static const uint8_t huge[] = { 0xff, 0xff, 0xff, 0xff, 'x' };
	struct wire w;
	struct view v;

	wire_init(&w, VIEW("ab"));
	tap_is_int(wire_u32(&w), 0, "a field that is not there is zero");
	tap_is_int(wire_u8(&w), 0, "and so is every later one");
	tap_is_int(wire_done(&w), SP_E_PROTO, "and the end tells");
	wire_init(&w, VIEW("ab"));
	(void)wire_u8(&w);
	tap_is_int(wire_done(&w), SP_E_PROTO, "left-over bytes are an error");
	wire_init(&w, view_of(huge, sizeof(huge)));
	v = wire_bytes(&w);
	tap_ok(v.n == 0 && v.p == NULL, "a length past the end gives nothing");
	tap_is_int(wire_done(&w), SP_E_PROTO, "and is an error");
	wire_init(&w, VIEW_NONE);
	tap_is_int(wire_done(&w), SP_OK, "an empty body has no fields");
	v = wire_bytes(&w);
	tap_is_int(wire_done(&w), SP_E_PROTO, "and none can be taken");
}

static void
test_limits(void)
{
	struct buf b = BUF_INIT(5);

	tap_is_int(wire_put_bytes(&b, VIEW("ab")), SP_E_LIMIT,
	    "bytes over the maximum are refused");
	tap_is_int((long long)buf_len(&b), 0, "without a half of it");
	tap_is_int(wire_put_bytes(&b, VIEW("a")), SP_OK, "what fits goes in");
	tap_is_int(wire_put_u8(&b, 1), SP_E_LIMIT, "nothing after it");
	buf_clear(&b);
	buf_init(&b, 64);
	mem_fail_after(1, 0);
	tap_is_int(wire_put_bytes(&b, VIEW("a")), SP_E_NOMEM, "no memory");
	mem_fail_after(0, 0);
	buf_clear(&b);
}

static void
test_table(void)
{
	const struct message_row *rows, *again;
	size_t n, i, j;
	int bad = 0;

	rows = message_rows(&n);
	for (i = 0; i < n; i++) {
		again = message_row(rows[i].type);
		if (again != &rows[i])
			bad++;
		if (rows[i].min > rows[i].max || rows[i].fds > MESSAGE_FD_MAYBE)
			bad++;
		if (rows[i].max > MESSAGE_BULK_MAX)
			bad++;
		if (rows[i].from & rows[i].to)
			bad++;
		for (j = 0; j < i; j++)
			if (strcmp(rows[i].name, rows[j].name) == 0)
				bad++;
	}
	tap_is_int(bad, 0, "every row of the message table is consistent");
	tap_ok(message_row(0) == NULL && message_row(65535) == NULL,
	    "no row for an unknown type");
}

int
main(void)
{
	test_fields();
	test_broken();
	test_limits();
	test_table();
	return tap_done();
}
