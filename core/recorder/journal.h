/*
 * The registry's file: a line of JSON for each change, made short at each
 * start.  A last line without its end never counted, and is dropped.
 */
#ifndef SP_RECORDER_JOURNAL_H
#define SP_RECORDER_JOURNAL_H

#include "recorder/registry.h"

#define JOURNAL_FILE "sessions.jsonl"

/*
 * Context: recorder; blocks on the disk.
 * Returns: 0; SP_E_DENIED another process has it; SP_E_NOMEM; SP_E_NOSPC; the
 *          call's error.
 */
/* Reads the journal into the registry and writes it anew; r->dir < 0: 0. */
int journal_open(struct registry *r) must_check;
/* A session came, or ended: on the disk when it returns. */
int journal_create(struct registry *r,
    const struct registry_session *s) must_check;
int journal_end(struct registry *r,
    const struct registry_session *s) must_check;
/* What it used so far; goes to the disk at the system's leisure. */
int journal_use(struct registry *r,
    const struct registry_session *s) must_check;

#endif
