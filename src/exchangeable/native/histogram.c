/* Histograms of the past p-values: of fixed width, and all dyadic ones at once. */

#define HISTOGRAM_KERNELS
#define HISTOGRAM_CONSTANTS
