/* Beta densities on a grid of shapes, with switching between them. */

#define BETA_KERNELS
#define BETA_CONSTANTS
