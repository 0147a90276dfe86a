/*
 * Steps after which a test may have the helper die, in builds that have no
 * confinement; nothing at all in others.
 */
#ifndef SP_BASE_FAILPOINT_H
#define SP_BASE_FAILPOINT_H

#if SP_CONFINEMENT
#define failpoint_init() ((void)0)
#define failpoint_reach(name) ((void)0)
#else
/*
 * Where the environment has SP_FAIL_POINT=FOLDER, each step that is reached
 * is a line of FOLDER/steps, and the one that FOLDER/at names, as "NAME N",
 * the Nth of that name, is the helper's last: it is killed.
 * Context: helper, at its start.
 */
void failpoint_init(void);
/*
 * Context: helper, keeper, and what they fork.
 * Parameters: name, one word.  Inside of a pid namespace nobody can be
 * killed who is outside: there it does nothing.
 */
void failpoint_reach(const char *name);
#endif

#endif
