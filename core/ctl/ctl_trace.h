/* sallyportctl trace, in sallyport-trace. */
#ifndef SP_CTL_TRACE_H
#define SP_CTL_TRACE_H

/*
 * Returns: the exit status: 0; 1 the trace does not verify; 2 usage, or it
 *          cannot be read.
 */
int ctl_trace(int argc, char **argv);

#endif
