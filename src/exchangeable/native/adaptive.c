/* The adaptive portfolio. */

#define ADAPTIVE_KERNELS
#define ADAPTIVE_CONSTANTS
