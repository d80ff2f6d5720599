/* The k nearest neighbours of every example. */

#define NEIGHBOURS_KERNELS
#define NEIGHBOURS_CONSTANTS
