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

/*
 * Source:  sallyport.conf(5).
 * Context: the parser, when main's plain directives were read; when all was.
 * Returns: 0; SP_E_CONF after conf_error(); SP_E_NOMEM.
 */
int core_conf_main_finish(struct conf_parse *p) must_check;
int core_conf_main_check(struct conf_parse *p) must_check;
/* Addresses and names of all servers. */
int core_conf_server_check(struct conf_parse *p) must_check;
/* parse() and dump() of the row `control`. */
int core_conf_control_parse(struct conf_parse *p,
    const struct conf_directive *row, void *base, const struct view *args,
    size_t n) must_check;
int core_conf_control_dump(const struct conf_directive *row, const void *base,
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

#endif
