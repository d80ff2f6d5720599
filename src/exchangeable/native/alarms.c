/* Statistics of the log martingale's increments. */

#define ALARMS_KERNELS
#define ALARMS_CONSTANTS
