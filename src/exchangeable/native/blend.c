/* Capital shared among several bets on one sequence of p-values. */

#define BLEND_KERNELS
#define BLEND_CONSTANTS
