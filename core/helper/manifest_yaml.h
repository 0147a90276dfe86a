/*
 * A YAML file as nodes with lines.  libyaml reads it; what a plain scalar
 * means follows what Python's safe loader makes of it.
 */
#ifndef SP_HELPER_MANIFEST_YAML_H
#define SP_HELPER_MANIFEST_YAML_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/view.h"

enum {
	MANIFEST_YAML_BYTES_MAX = 256 * 1024, /* of a file */
	MANIFEST_YAML_DEPTH_MAX = 32,
};

struct manifest_yaml;

/* Nodes are numbers from 1; 0: there is none. */

enum manifest_kind {
	MANIFEST_NONE, /* no such node */
	MANIFEST_NULL,
	MANIFEST_BOOL,
	MANIFEST_INT,
	MANIFEST_TEXT,
	MANIFEST_LIST,
	MANIFEST_MAP,
};

/*
 * Source:  YAML 1.1, a single document whose root is a mapping.  Keys that
 *          stand twice, aliases that lead into themselves and tags are refused.
 * Context: helper, at start; blocks on the file.
 * Parameters: err, one line "PATH:LINE: ..." on failure.
 * Owner:   *out, manifest_yaml_free(); views are borrowed from it.
 * Returns: 0; SP_E_CONF; SP_E_NOMEM.
 */
int manifest_yaml_read(const char *path, struct manifest_yaml **out,
    struct buf *err) must_check;
void manifest_yaml_free(struct manifest_yaml *y); /* NULL allowed */
const char *manifest_yaml_path(const struct manifest_yaml *y);
int manifest_yaml_root(const struct manifest_yaml *y);
enum manifest_kind manifest_yaml_kind(const struct manifest_yaml *y, int n);
unsigned manifest_yaml_line(const struct manifest_yaml *y, int n);
/* The scalar as it is written. */
struct view manifest_yaml_text(const struct manifest_yaml *y, int n);
bool manifest_yaml_true(const struct manifest_yaml *y, int n);
/* The value of a mapping's key, or 0. */
int manifest_yaml_get(const struct manifest_yaml *y, int n, const char *key);
/* How many elements or pairs. */
size_t manifest_yaml_count(const struct manifest_yaml *y, int n);
/* The i-th element; of a mapping its value, and *key its key. */
int manifest_yaml_at(const struct manifest_yaml *y, int n, size_t i,
    struct view *key);

#endif
