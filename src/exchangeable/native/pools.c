/* A growing pool of scores, and where each new one stands in it. */

#define POOLS_KERNELS
#define POOLS_CONSTANTS
