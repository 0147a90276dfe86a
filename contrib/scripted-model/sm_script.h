/* The script: turns read from a file, and which one answers a call. */
#ifndef SP_SM_SCRIPT_H
#define SP_SM_SCRIPT_H

#include "sm_ask.h"

struct sm_script;

/*
 * Context: start; reads the file.
 * Owner:   the caller; sm_script_free(NULL) is allowed.
 * Returns: 0; SP_E_SYNTAX, SP_E_SYS, SP_E_NOMEM, each told on standard error.
 */
int sm_script_load(const char *path, struct sm_script **out) must_check;
void sm_script_free(struct sm_script *s);
/* The whole file's object: shape, model, refuse and the like. */
const struct sm_json *sm_script_root(const struct sm_script *s);
/*
 * The turn for this call, counted as used; NULL when the default has to
 * answer.  exhausted is set when the script says that this is an error.
 */
const struct sm_json *sm_script_pick(struct sm_script *s,
    const struct sm_ask *ask, bool *exhausted);

#endif
