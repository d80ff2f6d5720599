/* The counter-based generator Philox4x64-10. */

#define PHILOX_KERNELS
#define PHILOX_CONSTANTS
