/* How sallyportctl trace is called: told by it and by sallyport-trace. */
#ifndef SP_CTL_TRACE_USAGE_H
#define SP_CTL_TRACE_USAGE_H

extern const char ctl_trace_usage[];

#endif
