/* sallyport-trace: what sallyportctl trace becomes. */
#include "config.h"

#include "ctl/ctl_trace.h"

int
main(int argc, char **argv)
{
	return ctl_trace(argc, argv);
}
