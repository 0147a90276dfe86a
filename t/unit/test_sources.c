/* net/nflog, init/fs_note: what the kernel tells, taken apart. */
#include "config.h"

#include <netinet/in.h>
#include <sys/fanotify.h>

#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netlink.h>

#include "init/fs_note.h"
#include "ipc/sandbox_msg.h"
#include "net/nflog.h"
#include "tap.h"

static _Alignas(8) unsigned char mem[4096];
static size_t used;

static void
put(const void *p, size_t n)
{
	if (n > 0)
		memcpy(mem + used, p, n);
	used += n;
}

/* ---- NFLOG ------------------------------------------------------------------ */

static void
attribute(unsigned type, const void *p, size_t n)
{
	struct nlattr a = { (uint16_t)(sizeof(a) + n), (uint16_t)type };

	put(&a, sizeof(a));
	put(p, n);
	while (used % 4 != 0)
		mem[used++] = 0;
}

static size_t
message_begin(unsigned type)
{
	struct nlmsghdr h = { .nlmsg_type = (uint16_t)type };
	struct nfgenmsg g = { .nfgen_family = 2 };
	size_t at = used;

	put(&h, sizeof(h));
	put(&g, sizeof(g));
	return at;
}

static void
message_end(size_t at)
{
	uint32_t n = (uint32_t)(used - at);

	memcpy(mem + at, &n, sizeof(n));
}

enum { PACKET = (NFNL_SUBSYS_ULOG << 8) | NFULNL_MSG_PACKET };

static const unsigned char tcp[24] = { 0x45, 0, 0, 40, 0, 0, 0x40, 0, 64,
	IPPROTO_TCP, 0, 0, 198, 18, 0, 2, 203, 0, 113, 10, 0x9c, 0x40, 0x1f,
	0x90 };

static void
packet(const void *ip, size_t n, uint32_t seq, const char *prefix)
{
	size_t at = message_begin(PACKET);
	const unsigned char be[4] = { (unsigned char)(seq >> 24),
		(unsigned char)(seq >> 16), (unsigned char)(seq >> 8),
		(unsigned char)seq };
	const unsigned char hw[4] = { 0x08, 0x00, 1, 0 };

	attribute(NFULA_PACKET_HDR, hw, sizeof(hw));
	attribute(NFULA_PREFIX, prefix, strlen(prefix) + 1);
	attribute(NFULA_SEQ, be, sizeof(be));
	attribute(NFULA_PAYLOAD, ip, n);
	message_end(at);
}

static void
test_nflog(void)
{
	struct view rest;
	struct nflog_packet p;
	unsigned char ip[24];

	used = 0;
	packet(tcp, sizeof(tcp), 7, "deny");
	message_end(message_begin(NLMSG_DONE));
	packet(tcp, 20, 8, "allow");
	rest = view_of(mem, used);
	tap_is_int(nflog_next(&rest, &p), SP_OK, "nflog: a packet");
	tap_ok(p.is_ip && p.has_ports && p.protocol == IPPROTO_TCP &&
		p.dest == 0xcb00710a && p.source == 0xc6120002 &&
		p.dest_port == 8080 && p.source_port == 40000,
	    "nflog: addresses and ports");
	tap_ok(p.has_seq && p.seq == 7 && p.ethertype == 0x800 &&
		view_eq(p.prefix, VIEW("deny")),
	    "nflog: its number and prefix");
	tap_is_int(nflog_next(&rest, &p), SP_OK, "nflog: others are left out");
	tap_ok(p.is_ip && !p.has_ports && p.seq == 8 &&
		view_eq(p.prefix, VIEW("allow")),
	    "nflog: a packet that was cut has no ports");
	tap_is_int(nflog_next(&rest, &p), SP_E_EOF, "nflog: no more");

	memcpy(ip, tcp, sizeof(ip));
	ip[7] = 1; /* a later fragment */
	used = 0;
	packet(ip, sizeof(ip), 0, "deny");
	ip[7] = 0;
	ip[0] = 0x42; /* a header that is too short */
	packet(ip, sizeof(ip), 1, "deny");
	ip[0] = 0x65; /* version 6 */
	packet(ip, sizeof(ip), 2, "deny");
	ip[0] = 0x45;
	packet(ip, 19, 3, "deny");
	rest = view_of(mem, used);
	tap_ok(nflog_next(&rest, &p) == SP_OK && p.is_ip && !p.has_ports,
	    "nflog: a later fragment has none");
	tap_ok(nflog_next(&rest, &p) == SP_OK && p.is_ip && !p.has_ports,
	    "nflog: nor a header without its length");
	tap_ok(nflog_next(&rest, &p) == SP_OK && !p.is_ip,
	    "nflog: another version");
	tap_ok(nflog_next(&rest, &p) == SP_OK && !p.is_ip,
	    "nflog: one byte too few");
}

static void
test_nflog_bad(void)
{
	struct nflog_packet p;
	struct view rest;
	size_t n, whole, bad = 0;

	used = 0;
	packet(tcp, sizeof(tcp), 7, "deny");
	whole = used;
	for (n = 1; n < whole; n++) {
		rest = view_of(mem, n);
		bad += nflog_next(&rest, &p) == SP_E_PROTO;
	}
	tap_is_int((long long)bad, (long long)whole - 1,
	    "nflog: every part of a message is none");
	bad = 0;
	/* an attribute's length, turned into any other */
	for (n = 0; n < 256; n++) {
		mem[20] = (unsigned char)n;
		rest = view_of(mem, whole);
		bad += nflog_next(&rest, &p) == SP_E_PROTO;
	}
	tap_ok(bad > 100, "nflog: bad lengths are seen: %zu", bad);
	used = 0;
	whole = message_begin(PACKET);
	attribute(NFULA_SEQ, "abc", 3);
	message_end(whole);
	rest = view_of(mem, used);
	tap_is_int(nflog_next(&rest, &p), SP_E_PROTO, "nflog: a short number");
	used = 0;
	put(&(struct nlmsghdr){ .nlmsg_len = 18, .nlmsg_type = PACKET },
	    sizeof(struct nlmsghdr));
	put("\2", 2);
	rest = view_of(mem, used);
	tap_is_int(nflog_next(&rest, &p), SP_E_PROTO, "nflog: no family");
}

/* ---- fanotify --------------------------------------------------------------- */

static void
record(unsigned type, unsigned handle_n, const char *name)
{
	size_t name_n = name != NULL ? strlen(name) + 1 : 0;
	size_t len = 4 + 8 + 8 + handle_n + name_n;
	struct fanotify_event_info_header h = { .info_type = (uint8_t)type,
		.len = (uint16_t)((len + 3) & ~3U) };
	uint32_t head[2] = { handle_n, 1 };
	size_t at = used;

	put(&h, sizeof(h));
	put("fsidfsid", 8);
	put(head, sizeof(head));
	memset(mem + used, 'h', handle_n);
	used += handle_n;
	put(name, name_n);
	while (used - at < h.len)
		mem[used++] = 0;
}

static size_t
event_begin(uint64_t mask)
{
	struct fanotify_event_metadata m = { .vers = FANOTIFY_METADATA_VERSION,
		.metadata_len = sizeof(m),
		.mask = mask,
		.fd = FAN_NOFD };
	size_t at = used;

	put(&m, sizeof(m));
	return at;
}

static void
event_end(size_t at)
{
	uint32_t n = (uint32_t)(used - at);

	memcpy(mem + at, &n, sizeof(n));
}

static void
test_fs_note(void)
{
	struct fs_note n;
	struct view rest;
	size_t at, i, bad = 0;

	used = 0;
	at = event_begin(FAN_CREATE | FAN_ONDIR);
	record(FAN_EVENT_INFO_TYPE_DFID_NAME, 12, "made");
	record(FAN_EVENT_INFO_TYPE_FID, 16, NULL);
	event_end(at);
	event_end(event_begin(FAN_Q_OVERFLOW));
	rest = view_of(mem, used);
	tap_is_int(fs_note_next(&rest, &n), SP_OK, "fs_note: an event");
	tap_ok(n.mask == (FAN_CREATE | FAN_ONDIR) &&
		view_eq(n.name, VIEW("made")) && n.dir.n == 8 + 8 + 12 &&
		n.target.n == 8 + 8 + 16,
	    "fs_note: where, and what");
	tap_ok(fs_note_next(&rest, &n) == SP_OK && n.dir.p == NULL &&
		(n.mask & FAN_Q_OVERFLOW) != 0,
	    "fs_note: an overflow has neither");
	tap_is_int(fs_note_next(&rest, &n), SP_E_EOF, "fs_note: no more");
	for (i = 1; i < used - sizeof(struct fanotify_event_metadata); i++) {
		rest = view_of(mem, i);
		bad += fs_note_next(&rest, &n) == SP_E_PROTO;
	}
	tap_is_int((long long)bad,
	    (long long)(used - sizeof(struct fanotify_event_metadata)) - 1,
	    "fs_note: every part of one is none");
	used = 0;
	at = event_begin(FAN_CREATE);
	record(FAN_EVENT_INFO_TYPE_DFID_NAME, 200, "made");
	event_end(at);
	rest = view_of(mem, used);
	tap_is_int(fs_note_next(&rest, &n), SP_E_PROTO,
	    "fs_note: a handle longer than any");
	mem[sizeof(uint32_t)]++;
	rest = view_of(mem, used);
	tap_is_int(fs_note_next(&rest, &n), SP_E_PROTO,
	    "fs_note: another version");
}

static void
test_file_note(void)
{
	static const char *const bad[] = { "", "/a", "a/", "a//b", "..", "a/..",
		"." };
	struct buf b = BUF_INIT(4096);
	struct sandbox_file_note n;
	struct wire w;
	size_t i, refused = 0;
	int rc;

	n = (struct sandbox_file_note){ .kind = SANDBOX_CREATED,
		.dir = true,
		.path = VIEW("a/b") };
	rc = sandbox_msg_file_note_put(&b, &n);
	n = (struct sandbox_file_note){ .kind = SANDBOX_NOTE_LOST, .lost = 7 };
	if (rc == SP_OK)
		rc = sandbox_msg_file_note_put(&b, &n);
	tap_is_int(rc, SP_OK, "note: written");
	wire_init(&w, buf_view(&b));
	tap_ok(sandbox_msg_file_note_get(&w, &n) == SP_OK &&
		n.kind == SANDBOX_CREATED && n.dir &&
		view_eq(n.path, VIEW("a/b")),
	    "note: and read");
	tap_ok(sandbox_msg_file_note_get(&w, &n) == SP_OK && n.lost == 7,
	    "note: what was lost");
	tap_is_int(sandbox_msg_file_note_get(&w, &n), SP_E_EOF,
	    "note: no more");
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		buf_reset(&b, 4096);
		n = (struct sandbox_file_note){ .kind = SANDBOX_DELETED,
			.path = view_str(bad[i]) };
		rc = sandbox_msg_file_note_put(&b, &n);
		wire_init(&w, buf_view(&b));
		refused += rc == SP_OK &&
		    sandbox_msg_file_note_get(&w, &n) == SP_E_PROTO;
	}
	tap_is_int((long long)refused, (long long)i,
	    "note: paths that lead elsewhere are refused");
	buf_clear(&b);
}

int
main(void)
{
	test_nflog();
	test_nflog_bad();
	test_fs_note();
	test_file_note();
	return tap_done();
}
