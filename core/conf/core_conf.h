/* The core's own rows, one table for each scope. */
#ifndef SP_CONF_CORE_CONF_H
#define SP_CONF_CORE_CONF_H

#include "conf/directive.h"
#include "conf/parse.h"

extern const struct conf_directive core_conf_main[]; /* struct conf_main */
extern const struct conf_directive core_conf_limits[]; /* conf_limits */
extern const struct conf_directive core_conf_upstream[]; /* conf_upstream */
extern const struct conf_directive core_conf_capture[]; /* conf_capture */
extern const struct conf_directive core_conf_server[]; /* conf_server */
extern const struct conf_directive core_conf_location[]; /* conf_location */
extern const struct conf_directive core_conf_env[]; /* conf_environment */
extern const struct conf_directive core_conf_env_run_worker[]; /* likewise */
extern const struct conf_directive core_conf_env_sandbox[]; /* likewise */
extern const struct conf_directive core_conf_env_egress[]; /* likewise */
/* conf_env_process */
extern const struct conf_directive core_conf_env_run_process[];

/*
 * Source:  sallyport.conf(5).
 * Context: the parser, when main's plain directives were read; when all was.
 * Returns: 0; SP_E_CONF after conf_error(); SP_E_NOMEM.
 */
int core_conf_main_finish(struct conf_parse *p,
    const struct conf_block *b) must_check;
int core_conf_main_check(struct conf_parse *p) must_check;
/* Addresses and names of all servers. */
int core_conf_server_check(struct conf_parse *p) must_check;
/* parse() and dump() of the row `control`. */
int core_conf_control_parse(struct conf_parse *p,
    const struct conf_directive *row, void *base, const struct view *args,
    size_t n) must_check;
int core_conf_control_dump(const struct conf_directive *row, const void *base,
    const char *indent, struct buf *out) must_check;
/* The same of `health_check`. */
int core_conf_check_parse(struct conf_parse *p,
    const struct conf_directive *row, void *base, const struct view *args,
    size_t n) must_check;
int core_conf_check_dump(const struct conf_directive *row, const void *base,
    const char *indent, struct buf *out) must_check;
/* The control socket's path, where none is given. */
int core_conf_control_default(struct conf_parse *p) must_check;
/* The server behind it, when addresses have their numbers. */
int core_conf_control_build(struct conf_parse *p) must_check;

/* Blocks: parse() of their rows. */
int core_conf_upstream_block(struct conf_parse *p,
    const struct conf_directive *row, void *base, const struct view *args,
    size_t n) must_check;
int core_conf_capture_block(struct conf_parse *p,
    const struct conf_directive *row, void *base, const struct view *args,
    size_t n) must_check;
int core_conf_server_block(struct conf_parse *p,
    const struct conf_directive *row, void *base, const struct view *args,
    size_t n) must_check;
int core_conf_env_block(struct conf_parse *p, const struct conf_directive *row,
    void *base, const struct view *args, size_t n) must_check;
int core_conf_env_run_worker_block(struct conf_parse *p,
    const struct conf_directive *row, void *base, const struct view *args,
    size_t n) must_check;
int core_conf_env_run_process_block(struct conf_parse *p,
    const struct conf_directive *row, void *base, const struct view *args,
    size_t n) must_check;
int core_conf_env_sandbox_block(struct conf_parse *p,
    const struct conf_directive *row, void *base, const struct view *args,
    size_t n) must_check;
int core_conf_env_egress_block(struct conf_parse *p,
    const struct conf_directive *row, void *base, const struct view *args,
    size_t n) must_check;

/*
 * What stands in sandbox { } and egress { }; nodes NULL: nothing, all is by
 * default.  Errors about the whole are at node.
 */
struct conf_environment;
int core_conf_env_sandbox_read(struct conf_parse *p, struct conf_environment *e,
    const struct conf_node *node, const struct conf_node *nodes) must_check;
int core_conf_env_egress_read(struct conf_parse *p, struct conf_environment *e,
    const struct conf_node *node, const struct conf_node *nodes) must_check;

/*
 * Paths that mean what they say: absolute, no ".", ".." or empty segment.
 * Slashes at the end are dropped; what names the path in the message.
 */
int core_conf_env_check_path(struct conf_parse *p, const char *what,
    struct view *path) must_check;
/* Whether path is dir or lies beneath it; both are such paths. */
bool core_conf_env_check_within(struct view path, struct view dir);
/* One environment, at the end of its block b. */
int core_conf_env_check_one(struct conf_parse *p, const struct conf_block *b,
    const struct conf_environment *e) must_check;
/* All of them together; gives ranges of uids to those that name none. */
int core_conf_env_check(struct conf_parse *p) must_check;

/* core_conf_env_dump.c: as conf_dump(). */
int core_conf_env_dump(const struct conf_environment *e,
    struct buf *out) must_check;

#endif
