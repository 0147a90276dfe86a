#include "config.h"

#include "os/confine.h"

bool
confine_built(void)
{
	return SP_CONFINEMENT != 0;
}
