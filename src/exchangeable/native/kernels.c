/* All kernels as one translation unit, which is compiled once for each kind of processor (BUILD names it).
 *
 * Each file ends with a list of its kernels, ENTRY(name, signature), and one of the constants that Python and C must
 * agree on, CONSTANT(name). binding.c explains the letters of the signatures.
 */
#include "native.h"
#include "elementary.h"
#include "cells.h"
#include "lanes.h"
#include "normal.h"
#include "pit.h"
#include "share.h"

#include "elementary.c"
#include "summation.c"
#include "philox.c"
#include "alarms.c"
#include "track.c"
#include "history.c"
#include "mixture.c"
#include "jackson.c"
#include "beta.c"
#include "histogram.c"
#include "blend.c"
#include "jumper.c"
#include "sleeper.c"
#include "plugin.c"
#include "season.c"
#include "regression.c"
#include "fade.c"
#include "sentinel.c"
#include "rate.c"
#include "risk.c"
#include "adaptive.c"
#include "lines.c"
#include "pools.c"
#include "nearest.c"
#include "neighbours.c"
#include "sweep.c"
#include "keyed.c"
#include "keyed_sequence.c"
#include "keyed_ragged.c"

#ifndef BUILD
#define BUILD base
#endif
#define JOIN(a, b) a##b
#define NAMED(a, b) JOIN(a, b)
#define ENTRY(name, signature) {#name, signature, name}
#define CONSTANT(name) {#name, name}

extern const Entry NAMED(kernels_, BUILD)[];
extern const Constant NAMED(constants_, BUILD)[];

const Entry NAMED(kernels_, BUILD)[] = {
    ELEMENTARY_KERNELS //
    SUMMATION_KERNELS //
    PHILOX_KERNELS //
    ALARMS_KERNELS //
    TRACK_KERNELS //
    HISTORY_KERNELS //
    MIXTURE_KERNELS //
    JACKSON_KERNELS //
    BETA_KERNELS //
    HISTOGRAM_KERNELS //
    BLEND_KERNELS //
    JUMPER_KERNELS //
    SLEEPER_KERNELS //
    PLUGIN_KERNELS //
    SEASON_KERNELS //
    REGRESSION_KERNELS //
    FADE_KERNELS //
    SENTINEL_KERNELS //
    RATE_KERNELS //
    RISK_KERNELS //
    ADAPTIVE_KERNELS //
    LINES_KERNELS //
    POOLS_KERNELS //
    NEAREST_KERNELS //
    NEIGHBOURS_KERNELS //
    SWEEP_KERNELS //
    KEYED_KERNELS //
    KEYED_SEQUENCE_KERNELS //
    KEYED_RAGGED_KERNELS //
    {NULL, NULL, NULL},
};

const Constant NAMED(constants_, BUILD)[] = {
    ELEMENTARY_CONSTANTS //
    SUMMATION_CONSTANTS //
    PHILOX_CONSTANTS //
    ALARMS_CONSTANTS //
    TRACK_CONSTANTS //
    HISTORY_CONSTANTS //
    MIXTURE_CONSTANTS //
    JACKSON_CONSTANTS //
    BETA_CONSTANTS //
    HISTOGRAM_CONSTANTS //
    BLEND_CONSTANTS //
    JUMPER_CONSTANTS //
    SLEEPER_CONSTANTS //
    PLUGIN_CONSTANTS //
    SEASON_CONSTANTS //
    REGRESSION_CONSTANTS //
    FADE_CONSTANTS //
    SENTINEL_CONSTANTS //
    RATE_CONSTANTS //
    RISK_CONSTANTS //
    ADAPTIVE_CONSTANTS //
    LINES_CONSTANTS //
    POOLS_CONSTANTS //
    NEAREST_CONSTANTS //
    NEIGHBOURS_CONSTANTS //
    SWEEP_CONSTANTS //
    KEYED_CONSTANTS //
    KEYED_SEQUENCE_CONSTANTS //
    KEYED_RAGGED_CONSTANTS //
    {NULL, 0},
};
