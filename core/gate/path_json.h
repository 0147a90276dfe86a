/* Paths of a sandbox in JSON: bytes, UTF-8 or not. */
#ifndef SP_GATE_PATH_JSON_H
#define SP_GATE_PATH_JSON_H

#include "base/buf.h"
#include "base/err.h"

/*
 * A path as a string of JSON, appended: bytes that are not UTF-8 are lone
 * surrogates, as Python's os.fsdecode() has them.
 * Returns: 0; SP_E_NOMEM; SP_E_LIMIT.
 */
int path_json_put(struct view path, struct buf *out) must_check;

#endif
