/* The configuration: what every program reads from the sealed text. */
#ifndef SP_CONF_CONF_H
#define SP_CONF_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/view.h"
#include "conf/directive.h"

enum {
	CONF_MODULES_MAX = 16,
	CONF_NAME_MAX = 64,
	CONF_KEY_MASKED_MIN = 16, /* of an api_key that is no word of answers */
};

/*
 * A secret is named, never written.  Its value is sent apart, to whom it
 * concerns, and put in by conf_secret_set().
 */
struct conf_secret {
	unsigned id; /* index in conf->secrets */
	bool from_env; /* env:NAME, else file:PATH */
	struct view name; /* NAME or PATH */
	struct view value; /* p NULL until it arrived */
	unsigned roles; /* conf_secret_role bits: who needs it */
	bool pem; /* PEM text; else one word of visible ASCII */
	bool open; /* anybody may know it: a certificate */
	const char *directive; /* that named it */
	size_t min_bytes; /* least length of the value */
	const char *principal; /* whose token it is; NULL: nobody's */
	const char *file; /* where it was named, for messages */
	unsigned line;
};
enum conf_secret_role { CONF_TO_REACTOR = 1, CONF_TO_RECORDER = 2 };

struct conf_pos {
	const char *file;
	unsigned line;
};

/* One server of an upstream; the base URL taken apart. */
struct conf_upstream_server {
	struct view url; /* as written */
	bool tls;
	struct view host; /* name or address, no brackets; unix: the path */
	bool is_unix;
	uint16_t port;
	struct view base; /* path without trailing slash: "/v1" when the URL
			     has none; "/v1/chat/completions" loses that end */
};

struct conf_upstream {
	struct view name;
	unsigned index;
	struct conf_pos pos;
	bool used; /* a location sends calls there */
	struct conf_upstream_server *servers;
	size_t servers_n;
	struct conf_secret
	    *api_key; /* NULL: the caller's is dropped, none set */
	struct view model; /* empty: as the client says */
	unsigned balance; /* enum conf_balance */
	unsigned http2; /* enum conf_http2 */
	uint64_t connect_timeout_ms;
	uint64_t first_byte_timeout_ms; /* until the reply's head; 0 off */
	uint64_t read_timeout_ms; /* silence between data events */
	uint64_t send_timeout_ms; /* no progress in sending */
	uint64_t keepalive; /* idle connections kept */
	uint64_t keepalive_timeout_ms;
	uint64_t event_max_bytes; /* one server-sent event */
	uint64_t reply_max_bytes; /* a unary reply that is captured */
	struct view ca; /* path; empty: the system's store */
	bool tls_verify;
	struct view check_path; /* of health checks; empty: there are none */
	uint64_t check_interval_ms, check_timeout_ms;
	uint64_t check_rise, check_fall; /* in a row, until up or down */
};
enum conf_http2 { CONF_HTTP2_AUTO, CONF_HTTP2_ON, CONF_HTTP2_OFF };
enum conf_balance { CONF_BALANCE_SESSION, CONF_BALANCE_LEAST_CONN };

enum conf_level { CONF_LEVEL_TEXT, CONF_LEVEL_LOGPROBS, CONF_LEVEL_TOKENS };
enum conf_thinking { CONF_THINKING_CLIENT, CONF_THINKING_OFF };
enum conf_refused { CONF_REFUSED_FAIL, CONF_REFUSED_RETRY };
enum conf_token_ids {
	CONF_TOKEN_IDS_AUTO,
	CONF_TOKEN_IDS_ON,
	CONF_TOKEN_IDS_OFF
};

/* One forced sampling parameter: "temperature" and its JSON number. */
struct conf_sampling {
	struct view name;
	struct view value; /* as written, a valid JSON number */
};
/* True for what no `sampling` may set: it has a directive, or is no number. */
bool conf_sampling_reserved(struct view name);

struct conf_capture {
	struct view name;
	unsigned index;
	struct conf_pos pos;
	unsigned level; /* enum conf_level */
	bool off; /* no capture at all: `capture off` */
	uint64_t top_logprobs;
	struct conf_sampling *sampling;
	size_t sampling_n;
	uint64_t max_tokens_cap; /* 0 none */
	unsigned thinking;
	unsigned logprobs_refused;
	unsigned token_ids;
	bool require_logprobs; /* a turn without them is an error */
	struct view trace; /* path with $session, absolute */
	struct view trace_dir; /* its folder, and */
	struct view trace_name; /* the file name in it, with $session */
	bool trace_sync;
	uint64_t trace_keep_ms; /* 0 for ever */
	uint64_t trace_keep_bytes; /* 0 no bound */
	uint64_t trace_roll_bytes; /* session `default` rolls at this size */
	uint64_t turn_max_bytes; /* memory of one open turn in the recorder */
};

/* One `listen`. */
struct conf_listen {
	/*
	 * Names its descriptor: counts the addresses of all servers in order
	 * of the text; servers that share an address share the index.
	 */
	unsigned index;
	bool shared; /* an earlier server has this address too */
	struct conf_pos pos;
	struct view address; /* "127.0.0.1", "::1", "*"; unix: the path */
	bool is_unix;
	uint16_t port; /* 0: the kernel chooses */
	bool ssl;
	bool control; /* the control socket */
	uint64_t backlog;
};

/* What server and location share, inherited from the outer block. */
struct conf_limits {
	uint64_t client_header_timeout_ms;
	uint64_t client_body_timeout_ms;
	uint64_t send_timeout_ms; /* no progress towards the client */
	uint64_t keepalive_timeout_ms;
	uint64_t keepalive_requests;
	uint64_t client_body_rate; /* bytes a second at least; 0 any */
	uint64_t client_max_body_bytes;
	uint64_t header_line_max_bytes;
	uint64_t header_max_bytes;
	uint64_t header_max_n;
	uint64_t max_connections; /* of a listener; 0 no limit */
	uint64_t max_connections_per_address; /* likewise, there */
	uint64_t sockets; /* that last, of a door's location */
	uint64_t max_calls_per_second; /* likewise, there; 0 no limit */
	uint64_t output_buffer_bytes; /* reply bytes queued before the upstream
					 is paused */
};

struct conf_location {
	struct view path; /* normalised, no trailing slash but "/" */
	unsigned index; /* within its server */
	struct conf_pos pos;
	struct conf_server *server;
	struct conf_limits limits;
	const struct conf_module *handler;
	uint64_t max_calls; /* in flight; 0 no limit */
	struct conf_secret *token; /* NULL: none asked */
	void *module_conf[CONF_MODULES_MAX]; /* by index in conf_modules */
};

struct conf_environment;

struct conf_server {
	unsigned index;
	/* An `inside` of it (conf_env.h), else NULL and in conf->servers. */
	struct conf_environment *environment;
	struct conf_pos pos;
	struct conf_listen *listens;
	size_t listens_n;
	struct conf_list server_names;
	struct conf_secret *certificate; /* PEM chain */
	struct conf_secret *certificate_key; /* PEM */
	uint64_t max_calls; /* in flight, over its locations; 0 no limit */
	struct conf_limits limits;
	struct conf_location **locations;
	size_t locations_n;
	bool control; /* conf->control: who connects was checked, no token */
};

struct conf_main {
	struct view user; /* reactor's; empty: the default */
	struct view rec_user; /* recorder's; empty: a reserved uid of its own */
	struct view trace_group;
	struct view state_dir;
	struct view error_log; /* stderr | syslog | absolute path */
	unsigned error_level; /* enum log_level */
	struct view access_log; /* absolute path, "stderr", or "off" */
	struct view control; /* absolute path, or "off" */
	bool control_given; /* else it is the default's */
	struct view control_group; /* that may connect; empty none */
	struct conf_list resolver; /* "system" or addresses */
	struct view pid_file; /* empty none */
	uint64_t connections; /* most client connections at once */
	uint64_t max_calls; /* model calls in flight; 0 no limit */
	uint64_t max_calls_per_key; /* likewise, of a session or an address */
	uint64_t queue_n; /* calls that may wait for a place */
	uint64_t queue_ms; /* for how long */
	uint64_t max_body_bytes_in_flight; /* of bodies held */
	uint64_t memory_max_bytes; /* of the reactor */
	uint64_t recorder_memory_max_bytes;
	uint64_t drain_timeout_ms;
	uint64_t recorder_buffer_bytes; /* unsent to the recorder, all turns */
	struct conf_limits limits;
};

struct arena;

struct conf {
	struct arena *arena; /* holds all of it but the secrets' values */
	struct conf_main main;
	struct conf_upstream **upstreams;
	size_t upstreams_n;
	struct conf_capture **captures;
	size_t captures_n;
	struct conf_server **servers;
	size_t servers_n;
	size_t listens_n; /* different addresses: one above the last index */
	/*
	 * What answers at the control socket: one location for each module
	 * that has a path there.  Not among servers; its one listen has the
	 * index listens_n.  NULL: off.
	 */
	struct conf_server *control;
	struct conf_environment **environments;
	size_t environments_n;
	struct conf_secret **secrets;
	size_t secrets_n;
	/* "FILE:LINE: ..": what is no error, and has no effect */
	struct conf_list warnings;
};

/*
 * Reads the file and what it includes into one text that keeps file and line
 * of everything; extra (`-g`, may be empty) comes last, as file "-g".
 * Source:  the configuration language, sallyport.conf(5).
 * Context: helper, sallyport -t; blocks on files.
 * Parameters: manifest, writes the directives that "manifest PATH;" stands
 *          for, path absolute: 0, or SP_E_* as here; NULL: it is left to the
 *          parser; out, appended to; err, one line "FILE:LINE: ..." on
 *          failure.
 * Returns: 0; SP_E_CONF (err says what); SP_E_LIMIT (over 4 MiB of text, 16
 *          levels of include, or 1,000 files); SP_E_NOMEM.
 */
int conf_expand(const char *path, struct view extra,
    int (*manifest)(const char *path, struct buf *out, struct buf *err),
    struct buf *out, struct buf *err) must_check;
/* The same for text that comes from no file; name stands in messages. */
int conf_expand_text(const char *name, struct view text, struct view extra,
    struct buf *out, struct buf *err) must_check;

/*
 * Parses expanded text.
 * Context: every role; does not block, no system call.
 * Parameters: defaults, see conf_defaults; err, all errors, a line each (up
 *          to 20), appended.
 * Owner:   *out, until conf_free().
 * Returns: 0; SP_E_CONF; SP_E_NOMEM.
 */
struct conf_defaults {
	const char *state_dir; /* XDG for an ordinary user */
	const char *run_dir;
	const char *conf_dir; /* relative paths of text without a file */
};
int conf_parse(struct view expanded, const struct conf_defaults *defaults,
    struct conf **out, struct buf *err) must_check;
void conf_free(struct conf *c);

/* What is wrong with a value, before it is put in. */
enum conf_secret_fault {
	CONF_SECRET_GOOD,
	CONF_SECRET_EMPTY,
	CONF_SECRET_BYTES, /* control bytes, spaces, others than ASCII */
	CONF_SECRET_SHORT, /* less than min_bytes */
};
enum conf_secret_fault conf_secret_fault(const struct conf_secret *s,
    struct view value);

/*
 * Two tokens of different principals that are the same: by name alone, or by
 * their values where both have one.
 * Context: any, does not block.
 * Returns: false: there are none; true with the one that comes later in the
 *          text in *b.
 */
bool conf_secret_clash(const struct conf *c, bool by_value,
    const struct conf_secret **a, const struct conf_secret **b);
/* The value is copied; cleared by conf_free().  0; SP_E_NOTFOUND; SP_E_NOMEM;
 * SP_E_SYNTAX: the value is no use as a secret (empty, NUL or control bytes
 * in a token; a trailing line end is dropped). */
int conf_secret_set(struct conf *c, unsigned id, struct view value) must_check;

/* -T: the whole configuration with its defaults, as configuration text. */
int conf_dump(const struct conf *c, struct buf *out) must_check;
/*
 * Names of the main block's directives that differ and whose change needs a
 * restart, appended as "user, resolver"; nothing when a reload may do.
 */
int conf_restart_changes(const struct conf *was, const struct conf *is,
    struct buf *out) must_check;
/* The reference of all directives, as mdoc(7), made from the rows. */
int conf_manual(struct buf *out) must_check;

/*
 * Reads the URL of an upstream's server, as the directive `server` has it.
 * Context: any, does not block.
 * Parameters: arena, holds what *out and *why point to; why, of an error.
 * Returns: 0; SP_E_SYNTAX; SP_E_NOMEM.
 */
int conf_url_read(struct view url, struct arena *arena,
    struct conf_upstream_server *out, const char **why) must_check;

/* Index of a module in conf_modules, or -1. */
int conf_module_index(const char *name);
/* Its struct in a location. */
void *conf_module_conf(const struct conf_location *loc, const char *name);

/*
 * One place for paths: percent-decodes unreserved characters, refuses bad
 * escapes, NUL, %2F, %5C, backslash and dot segments that leave the root,
 * resolves "." and "..", folds "//", drops the trailing slash (not of "/").
 * What remains encoded stays so, with upper-case digits; nothing is decoded
 * twice; ":" and the other pchar bytes stay as they are.
 * Source:  RFC 3986 s3.3, s6.2.2; case H8.
 * Context: any, does not block.
 * Parameters: raw, begins with "/"; a query in it is left out.  out, appended
 *          to; unchanged on an error.
 * Returns: 0 with the path (no query) in out; SP_E_SYNTAX; SP_E_LIMIT (out's
 *          maximum); SP_E_NOMEM.
 */
int conf_path_normalise(struct view raw, struct buf *out) must_check;
/* Whether it is root, or a path below: both normalised. */
bool conf_path_beneath(struct view path, struct view root);

#endif
