/* sallyportctl episodes, reset, freeze, thaw, end, diff, read, put, events,
 * guarantees. */
#ifndef SP_CTL_EPISODES_H
#define SP_CTL_EPISODES_H

#include "base/buf.h"
#include "base/err.h"
#include "base/view.h"

/*
 * argv[0] is the command's name.
 * Returns: the exit status: 0; 1 the gateway refused; 2 usage, or it cannot
 *          be reached.
 */
int ctl_episodes(int argc, char **argv);
extern const char ctl_episodes_usage[];

/*
 * What a refusal says, on standard error.
 * Context: sallyportctl.
 */
void ctl_episodes_complain(unsigned status, struct view body);
/*
 * A new episode.
 * Parameters: id, NULL: one is made up.
 * Returns: 0 with the answer, JSON, in out; else the exit status, said why.
 */
int ctl_episodes_create(const char *environment, const char *id,
    struct buf *out) must_check;

#endif
