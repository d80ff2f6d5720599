/* Density estimates with the Jackson kernel. */

#define JACKSON_KERNELS
#define JACKSON_CONSTANTS
