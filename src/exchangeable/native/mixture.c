/* The simple mixture of power bets, and the gamma mixture, in closed form. */

#define MIXTURE_KERNELS
#define MIXTURE_CONSTANTS
