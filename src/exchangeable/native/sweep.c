/* From the births and falls of nearest distances to the ranks of all examples. */

#define SWEEP_KERNELS
#define SWEEP_CONSTANTS
