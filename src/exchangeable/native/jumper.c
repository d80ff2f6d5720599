/* Jumpers: gamblers who change their strategy at random. */

#define JUMPER_KERNELS
#define JUMPER_CONSTANTS
