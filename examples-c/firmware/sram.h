/* What slicepool wants of a program: memory to cut up, and how the program keeps others out. */
#ifndef SRAM_H
#define SRAM_H

#include "slicepool.h"

/* Pages that sram_device() gives out, and bytes of each. */
#ifndef SRAM_PAGES
#define SRAM_PAGES 4
#endif
#ifndef SRAM_PAGE_BYTES
#define SRAM_PAGE_BYTES 4096
#endif
/* What the pages are multiples of. */
#define SRAM_ALIGNMENT 256

/* Fills in a device that hands out parts of a static array. */
void sram_device(slicepool_device *device);

/* How many of them are out. */
unsigned sram_pages_out(void);

/* Fills in lock hooks that turn interrupts off. */
void sram_host(slicepool_host *host);

#endif
