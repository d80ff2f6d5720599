/* Nearest same-label and other-label distances. */

#define NEAREST_KERNELS
#define NEAREST_CONSTANTS
