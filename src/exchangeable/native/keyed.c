/* Many streams of one recipe. */

#define KEYED_KERNELS
#define KEYED_CONSTANTS
