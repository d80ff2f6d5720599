/* The paper's plug-in bet. */

#define PLUGIN_KERNELS
#define PLUGIN_CONSTANTS
