/* A mixture of Shiryaev-Roberts statistics over fixed densities, played as a bet. */

#define WATCHFUL_KERNELS
#define WATCHFUL_CONSTANTS
